"""Ratings that are predicted as a run goes along."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.kernels.reduce import predict
from bayesmf.model.data import Data
from bayesmf.model.likelihood import Discrete, Moments
from bayesmf.model.spec import Model
from bayesmf.model.state import State

Array = NDArray[np.float64]
WATCHED = 256  # pairs whose predictions are traced


@dataclass
class RunningMoments:
    """Running mean and sum of squared deviations: memory does not grow with the draws."""

    mean: Array
    squares: Array
    noise_variance: Array  # the mean variance of a rating about its prediction
    count: int = 0
    means: Array = field(default_factory=lambda: np.zeros((0, 0)))  # of each chain, if asked for
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def begin(cls, size: int, chains: int = 0) -> RunningMoments:
        """Those of no draws, with the means of so many chains."""
        mean, squares, noise_variance = np.zeros((3, size))
        by_chain = np.zeros((chains, size)), np.zeros(chains, np.int64)
        return cls(mean, squares, noise_variance, 0, *by_chain)

    def add(self, draw: Array, noise_variance: Array, chain: int = 0) -> None:
        """Take in one draw (Welford 1962), and the noise's variance at it."""
        self.count += 1
        step = draw - self.mean
        self.mean += step / self.count
        self.squares += step * (draw - self.mean)
        self.noise_variance += (noise_variance - self.noise_variance) / self.count
        if len(self.counts):
            self.counts[chain] += 1
            self.means[chain] += (draw - self.means[chain]) / self.counts[chain]

    @property
    def sd(self) -> Array:
        """How uncertain the prediction is: the standard deviation of the draws."""
        return np.sqrt(self.squares / max(self.count - 1, 1))

    @property
    def rating_sd(self) -> Array:
        """How far a rating may be from its prediction: that, and the noise."""
        return np.sqrt(self.sd**2 + self.noise_variance)


class Watched:
    """Pairs that are predicted after every sweep."""

    def __init__(self, cells: Cells, data: Data, model: Model) -> None:
        self.cells, self.mean, self.model = cells, data.mean, model
        self.users, self._row = np.unique(cells.user, return_inverse=True)
        self._where: list[Any] = []  # the pairs, as each effect takes them
        if data.response is not None:
            parts = zip(model.every_effect, data.response.prepared, strict=True)
            self._where = [effect.locate(train, cells) for effect, train in parts]

    def predict(self, state: State) -> Array:
        """The expected ratings at one state."""
        return self._expect(state)[0]

    def observe(self, state: State) -> tuple[float, Array]:
        """The variance of the linear predictor over the pairs, and the expected ratings."""
        mean, _, f = self._expect(state)
        return float(np.var(f)), mean

    def _expect(self, state: State) -> tuple[Array, Array, Array]:
        """Expected ratings, the variance of ratings about them, and the linear predictor."""
        x, alpha = state.user.at(self.users)
        f = np.empty(len(self.cells.user))
        predict(self._row, self.cells.item, x, state.item.x, self.mean, f)
        doubt, likelihood = np.zeros(len(f)), self.model.likelihood
        for effect, own, where in zip(
            self.model.every_effect, state.effects, self._where, strict=True
        ):
            f += effect.contribution(own, where)
            doubt += effect.doubt(own, where)
        precision = state.tau * alpha[self._row] * state.item.alpha[self.cells.item]
        noise_variance = doubt + 1 / precision
        if not likelihood.latent:
            return f, noise_variance, f
        levels, moments = np.array(likelihood.levels), Moments(f, doubt, 1 / precision)
        chances = likelihood.probabilities(state.likelihood, self.cells.user, moments, levels)
        found = Discrete(levels, chances)
        return found.mean, found.sd**2, f


class Target(Watched):
    """Ratings to predict after every sweep; with ``chains`` their mean in each chain is kept."""

    def __init__(self, ratings: Ratings, data: Data, model: Model, chains: int = 0) -> None:
        rows = ratings.by_user
        super().__init__(Cells(rows.row_index, rows.index, rows.times), data, model)
        model.likelihood.check(ratings)
        self.values, self.chains = np.asarray(rows.values, float), chains
        self.begin()

    def begin(self) -> None:
        """Forget all draws, and average from here on."""
        self.moments = RunningMoments.begin(len(self.values), self.chains)

    def error(self, state: State) -> float:
        """RMSE of the predictions at one state."""
        return float(np.sqrt(np.mean((self.predict(state) - self.values) ** 2)))

    def take(self, state: State, averaged: bool, chain: int = 0) -> float:
        """Predict, average if the draw counts, and return the error of the average so far."""
        draw, noise_variance, _ = self._expect(state)
        if averaged:
            self.moments.add(draw, noise_variance, chain)
        mean = self.moments.mean if self.moments.count else draw
        return float(np.sqrt(np.mean((mean - self.values) ** 2)))


def watch_pairs(user_counts: NDArray[np.int64], item_counts: NDArray[np.int64]) -> Cells:
    """Choose the pairs whose predictions are traced, from the numbers of ratings alone.

    Of the users with ratings, ordered by how many, there is one at each of 256 even quantiles. The
    items are at even quantiles of the ratings, so that an item is chosen in proportion to its
    ratings. They are dealt to the users in steps of the golden ratio, so that rare users get rare
    and popular items alike. There are fewer pairs only if there are no more.
    """
    rated = np.flatnonzero(user_counts)
    order = rated[np.argsort(user_counts[rated], kind="stable")]
    pairs = min(WATCHED, len(order) * int(np.count_nonzero(item_counts)))
    middle = (np.arange(pairs) + 0.5) / max(pairs, 1)
    user = order[(middle * len(order)).astype(np.int64)]
    by_count = np.argsort(item_counts, kind="stable")
    ends = np.cumsum(item_counts[by_count])
    item = by_count[np.searchsorted(ends, middle * ends[-1], side="right")] if pairs else user
    # without a common divisor, so that every item is dealt
    steps = (k for k in range(int(0.618 * pairs), pairs) if math.gcd(k, pairs) == 1)
    item = item[np.arange(pairs) * next(steps, 1) % max(pairs, 1)]
    cells = Cells(user.astype(np.int32), item.astype(np.int32))
    for rows in cells[:2]:
        rows.flags.writeable = False  # as those of ratings: the kernels are compiled for that
    return cells
