"""Effects: what is added to the linear predictor of a single rating, such as the mood of a day.

An effect has parameters of its own (named arrays), draws them given what the rest of the model
leaves unexplained, and says what it adds to any pair, which may carry a time. A new one is a class
with these methods that is passed to ``Model``.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.random.draws import Draws

Array = NDArray[np.float64]
Parameters = dict[str, Array]
MOST_EFFECTS = 8  # of one model: so many have random streams of their own


@runtime_checkable
class Effect(Protocol):
    """What ``Model`` takes as an effect."""

    name: ClassVar[str]

    def start(self, cells: Cells, draws: Draws) -> Parameters:
        """First values of the parameters, given the training ratings' users, items and times."""

    def update(
        self, parameters: Parameters, cells: Cells, residual: Array, weight: Array, draws: Draws
    ) -> Parameters:
        """Draw the parameters anew, given residual_p = x_p + N(0, 1 / weight_p)."""

    def contribution(self, parameters: Parameters, cells: Cells) -> Array:
        """x_p: what is added to the linear predictor of each pair."""

    def doubt(self, parameters: Parameters, cells: Cells) -> Array:
        """The variance of x_p where a pair lacks what the effect asks for, such as a time."""
