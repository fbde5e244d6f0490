"""Effects: what is added to the linear predictor of a single rating, such as the mood of a day.

An effect has parameters of its own (named arrays), draws them given what the rest of the model
leaves unexplained, and says what it adds to any pair, which may carry a time. A new one is a class
with these methods that is passed to ``Model``.

Two names have a meaning. An array called ``rating.``… has one entry for each training rating, and
is kept in half precision; an array called ``user.``… has one row for each user. Everything else is
shared by all ratings. A likelihood that predicts gets the rows of those users that are asked about.

An effect with parameters of single ratings may also have a method ``narrow(where)``. It returns
where pairs lie among fewer ratings, and the positions of these among all: predictions then read the
parameters of these alone. An effect may also have a ``part``: what explanations call that which it
adds. They call it by its ``name`` otherwise.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.random.draws import Draws

Array = NDArray[np.float64]
Parameters = dict[str, Array]
MOST_EFFECTS = 8  # of one model: so many have random streams of their own
BY_RATING, BY_USER = "rating.", "user."


@runtime_checkable
class Effect(Protocol):
    """What ``Model`` takes as an effect."""

    name: ClassVar[str]

    def prepare(self, cells: Cells) -> Any:
        """What is computed once of ratings to learn from: their users, items and times."""

    def locate(self, train: Any, cells: Cells) -> Any:
        """Where pairs lie among the prepared ratings, which are None if they are not at hand."""

    def start(self, train: Any, draws: Draws) -> Parameters:
        """First values of the parameters."""

    def begin(self, parameters: Parameters, train: Any) -> Parameters:
        """The parameters for other ratings: what all share, and first values of the rest."""

    def update(
        self,
        parameters: Parameters,
        train: Any,
        residual: Array,
        weight: Array,
        draws: Draws,
        shared: bool,
    ) -> Parameters:
        """Draw the parameters anew, given residual_p = x_p + N(0, 1 / weight_p).

        Unless ``shared``, what all ratings share stays as it is. ``residual`` and ``weight`` are
        overwritten later.
        """

    def fitted(self, parameters: Parameters, train: Any) -> Array:
        """x_p: what is added to the linear predictor of each of the prepared ratings."""

    def contribution(self, parameters: Parameters, where: Any) -> Array:
        """x_p of the pairs that were located."""

    def doubt(self, parameters: Parameters, where: Any) -> Array:
        """The variance of x_p given the parameters, where they do not tell it."""
