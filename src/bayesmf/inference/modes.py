"""What coordinate-wise MAP takes from a conditional."""

from __future__ import annotations

from typing import Any

from bayesmf.inference.algorithm import Covariances, Form
from bayesmf.kernels.philox import Place
from bayesmf.model.state import Name
from bayesmf.prob.draws import Draws

NO_DRAWS = Draws(0).place()


class Modes:
    """Coordinate-wise MAP: from every conditional its mode."""

    sample = False
    form: Form = "non-centred"

    def take(self, side: Name | None, what: str, conditional: Any, group: int = 0) -> Any:
        """Hyper-parameters are fixed penalties here."""
        raise NotImplementedError

    def place(self, side: Name, what: str) -> Place:
        """Nothing is drawn."""
        return NO_DRAWS

    def covariances(self, side: Name) -> Covariances:
        """A mode is a point."""
        return Covariances()

    known = covariances

    def updated(self, what: str) -> None:
        """Nothing to do."""
