"""Ratings that are predicted as a run goes along."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.kernels.reduce import predict
from bayesmf.model.state import Data, State

Array = NDArray[np.float64]


@dataclass
class Moments:
    """Running mean and sum of squared deviations: memory does not grow with the draws."""

    mean: Array
    squares: Array
    noise: Array  # the mean variance of a rating about its prediction
    count: int = 0

    def add(self, draw: Array, noise: Array) -> None:
        """Take in one draw (Welford 1962), and the noise's variance at it."""
        self.count += 1
        step = draw - self.mean
        self.mean += step / self.count
        self.squares += step * (draw - self.mean)
        self.noise += (noise - self.noise) / self.count

    @property
    def sd(self) -> Array:
        """How uncertain the prediction is: the standard deviation of the draws."""
        return np.sqrt(self.squares / max(self.count - 1, 1))

    @property
    def rating_sd(self) -> Array:
        """How far a rating may be from its prediction: that, and the noise."""
        return np.sqrt(self.sd**2 + self.noise)


class Target:
    """Pairs to predict after every sweep, at most ``most`` of them."""

    def __init__(self, ratings: Ratings, data: Data, most: int | None = None) -> None:
        rows = ratings.by_user
        keep = slice(None)
        if most is not None and len(ratings) > most:
            keep = slice(None, None, -(-len(ratings) // most))
        self.user, self.item = rows.row_index[keep], rows.index[keep]
        self.users, self._row = np.unique(self.user, return_inverse=True)
        self.values = np.asarray(rows.values[keep], float)
        self.mean = data.mean
        self.moments = Moments(*np.zeros((3, len(self.values))))

    def predict(self, state: State) -> Array:
        """At one state."""
        return self._predict(state.user.at(self.users)[0], state)

    def _predict(self, x: Array, state: State) -> Array:
        """From the rows of ``users``."""
        out = np.empty(len(self.values))
        predict(self._row, self.item, x, state.item.x, self.mean, out)
        return out

    def error(self, state: State) -> float:
        """RMSE of the predictions at one state."""
        return float(np.sqrt(np.mean((self.predict(state) - self.values) ** 2)))

    def take(self, state: State, kept: bool) -> float:
        """Predict, average if the draw is kept, and return the error of the average so far."""
        x, noise = state.user.at(self.users)
        draw = self._predict(x, state)
        if kept:
            precision = state.tau * noise[self._row] * state.item.noise[self.item]
            self.moments.add(draw, 1 / precision)
        mean = self.moments.mean if self.moments.count else draw
        return float(np.sqrt(np.mean((mean - self.values) ** 2)))
