"""What an algorithm takes from the conditionals of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import Form
from bayesmf.model.conditionals import POINTS
from bayesmf.model.designs import Name
from bayesmf.random.draws import Draws
from bayesmf.random.philox import Counter
from bayesmf.random.streams import stream

Array = NDArray[np.float64]
NO_VALUES: Array = np.empty(0)
NO_DRAWS = Draws(0).counter()


@dataclass
class Covariances:
    """How uncertain the rows of one side are: lower triangles, row by row; empty for points."""

    own: Array = field(default_factory=lambda: POINTS)  # of the row apart from its offset
    logdet: Array = field(default_factory=lambda: NO_VALUES)  # of own
    offset: Array = field(default_factory=lambda: POINTS)  # of the offset
    total: Array = field(default_factory=lambda: POINTS)  # of the row
    W: list[Array] = field(default_factory=list)  # of each design's W_k
    W_logdet: list[Array] = field(default_factory=list)


class Algorithm(Protocol):
    """What is taken from each conditional: a draw, the moments or the mode."""

    sample: bool
    form: Form

    def take(self, side: Name | None, what: str, conditional: Any, group: int = 0) -> Any:
        """The value to go on with."""

    def counter(self, side: Name, what: str, group: int = 0) -> Counter:
        """The random numbers of a kernel."""

    def covariances(self, side: Name) -> Covariances:
        """Where the rows' covariances are kept, if they are."""

    def seen_covariances(self, side: Name) -> Covariances:
        """What the updates of other blocks see of them."""

    def note_update(self, what: str) -> None:
        """Called after each block."""


@dataclass
class Sampling:
    """Gibbs: from every conditional a draw."""

    draws: Draws
    form: Form = "centred"
    sample: bool = True

    def take(self, side: Name | None, what: str, conditional: Any, group: int = 0) -> Any:
        """A draw."""
        return conditional.sample(stream(self.draws, side, what, group))

    def counter(self, side: Name, what: str, group: int = 0) -> Counter:
        """The random numbers of a kernel."""
        return stream(self.draws, side, what, group).counter()

    def covariances(self, side: Name) -> Covariances:
        """A draw is a point."""
        return Covariances()

    seen_covariances = covariances

    def note_update(self, what: str) -> None:
        """Nothing is noted."""


class Modes:
    """Coordinate-wise MAP: from every conditional its mode."""

    sample = False
    form: Form = "non-centred"

    def take(self, side: Name | None, what: str, conditional: Any, group: int = 0) -> Any:
        """Hyper-parameters are fixed penalties here."""
        raise NotImplementedError

    def counter(self, side: Name, what: str, group: int = 0) -> Counter:
        """Nothing is drawn."""
        return NO_DRAWS

    def covariances(self, side: Name) -> Covariances:
        """A mode is a point."""
        return Covariances()

    seen_covariances = covariances

    def note_update(self, what: str) -> None:
        """Nothing is noted."""
