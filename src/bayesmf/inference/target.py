"""Ratings that are predicted as a run goes along."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.kernels.reduce import predict
from bayesmf.model.data import Data
from bayesmf.model.likelihood import Moments
from bayesmf.model.spec import Model
from bayesmf.model.state import State

Array = NDArray[np.float64]


@dataclass
class RunningMoments:
    """Running mean and sum of squared deviations: memory does not grow with the draws."""

    mean: Array
    squares: Array
    noise_variance: Array  # the mean variance of a rating about its prediction
    count: int = 0

    def add(self, draw: Array, noise_variance: Array) -> None:
        """Take in one draw (Welford 1962), and the noise's variance at it."""
        self.count += 1
        step = draw - self.mean
        self.mean += step / self.count
        self.squares += step * (draw - self.mean)
        self.noise_variance += (noise_variance - self.noise_variance) / self.count

    @property
    def sd(self) -> Array:
        """How uncertain the prediction is: the standard deviation of the draws."""
        return np.sqrt(self.squares / max(self.count - 1, 1))

    @property
    def rating_sd(self) -> Array:
        """How far a rating may be from its prediction: that, and the noise."""
        return np.sqrt(self.sd**2 + self.noise_variance)


class Target:
    """Pairs to predict after every sweep, at most ``most`` of them."""

    def __init__(self, ratings: Ratings, data: Data, model: Model, most: int | None = None) -> None:
        rows = ratings.by_user
        keep = slice(None)
        if most is not None and len(ratings) > most:
            keep = slice(None, None, -(-len(ratings) // most))
        self.cells = Cells(rows.row_index, rows.index, rows.times).take(keep)
        self.users, self._row = np.unique(self.cells.user, return_inverse=True)
        self.values = np.asarray(rows.values[keep], float)
        self.mean, self.model = data.mean, model
        self.moments = RunningMoments(*np.zeros((3, len(self.values))))

    def predict(self, state: State) -> Array:
        """The expected ratings at one state."""
        x, alpha = state.user.at(self.users)
        return self._expect(state, x, alpha)[0]

    def _expect(self, state: State, x: Array, alpha: Array) -> tuple[Array, Array]:
        """Expected ratings and the noise's variance, from the rows of ``users``."""
        f = np.empty(len(self.values))
        predict(self._row, self.cells.item, x, state.item.x, self.mean, f)
        for effect, parameters in zip(self.model.effects, state.effects, strict=True):
            f += effect.contribution(parameters, self.cells)
        precision = state.tau * alpha[self._row] * state.item.alpha[self.cells.item]
        moments = Moments(f, np.zeros(len(f)), 1 / precision)
        return self.model.likelihood.predictive(moments).mean, moments.noise_variance

    def error(self, state: State) -> float:
        """RMSE of the predictions at one state."""
        return float(np.sqrt(np.mean((self.predict(state) - self.values) ** 2)))

    def take(self, state: State, averaged: bool) -> float:
        """Predict, average if the draw counts, and return the error of the average so far."""
        x, alpha = state.user.at(self.users)
        draw, noise_variance = self._expect(state, x, alpha)
        if averaged:
            self.moments.add(draw, noise_variance)
        mean = self.moments.mean if self.moments.count else draw
        return float(np.sqrt(np.mean((mean - self.values) ** 2)))
