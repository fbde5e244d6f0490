"""A chain of moods: ratings of one user that are close in time share an error.

Of each user, ratings in the order of time (ties in the order of items):

    x_1 ~ N(0, s^2),   x_k = rho_k x_(k-1) + N(0, s^2 (1 - rho_k^2)),
    rho_k = rho (1 + minutes since the last)^-gamma

with logit rho ~ N(1.5, 2^2), log gamma ~ N(log 0.1, 3^2) and 1 / s^2 ~ Gamma(1, 0.04 unit^2).
Minutes are rounded on a grid of logarithms, 6 % apart, so that what is summed over ratings need not
be summed again for another rho or gamma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.errors import DataError, Option
from bayesmf.kernels.densities import LogDensity, slice_sample
from bayesmf.kernels.response.chain import BLOCKS, draw_chains, interpolate, locate, sum_steps
from bayesmf.kernels.rows import batches
from bayesmf.model.designs import register
from bayesmf.model.effects import Parameters
from bayesmf.random.draws import Draws

if TYPE_CHECKING:
    from bayesmf.model.spec import Model

Array = NDArray[np.float64]
LATEST = 10**11  # seconds since 1970, in the year 5138
STEPS = 16  # of the grid, where log(1 + minutes) grows by 1
FIRST = 255  # the code of a user's first rating
SHAPE, RATE = 1.0, 0.04  # of 1 / s^2, the rate in squared units
PRIOR_MEAN = np.array([1.5, math.log(0.1)])  # of logit rho and log gamma
PRIOR_SD = np.array([2.0, 3.0])
TRIES = 24  # random-walk steps of either in one sweep, which cost nothing
X, THETA, VARIANCE = "rating.x", "theta", "variance"
WITHOUT = Option("time", "none", "Model", "time_effect")  # how to fit without it


class Sequence(NamedTuple):
    """Ratings by user, and in the order of time within a user."""

    starts: NDArray[np.int64]  # the ratings of user i are starts[i]:starts[i + 1]
    order: NDArray[np.int64]  # which rating comes k-th
    times: NDArray[np.int64]  # k-th
    items: NDArray[np.int32]
    codes: NDArray[np.uint8]  # of the time since the one before
    counts: Array  # how many have each code
    batches: NDArray[np.int64]  # users with about as many ratings, who go side by side


class Neighbours(NamedTuple):
    """The ratings of the same user before and after a pair; -1: there is none, or it is unknown."""

    before: NDArray[np.int64]
    after: NDArray[np.int64]  # the same as before: the pair is this rating
    code_before: NDArray[np.uint8]
    code_after: NDArray[np.uint8]


@register("effect")
@dataclass(frozen=True)
class TimeChain:
    """What a user's ratings share with those just before and after; see the module."""

    unit: float = 1.0  # of the priors, in ratings

    name: ClassVar[str] = "chain"
    part: ClassVar[str] = "mood"  # what it adds to a prediction is called so

    def prepare(self, cells: Cells) -> Sequence:
        """The ratings in the order of time."""
        if cells.time is None:
            raise DataError(
                "the model has a time chain, but these ratings have no times; give a column of "
                f"times, or fit without the chain: {WITHOUT}"
            )
        times = np.asarray(cells.time, np.int64)
        check_seconds(times, f"leave its row out, or fit without the chain: {WITHOUT}")
        order = _sort_by_time(cells.user, cells.item, times)
        user, times = cells.user[order], times[order]
        users = int(user[-1]) + 1 if len(user) else 0
        starts = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=users))])
        codes = encode(np.diff(times, prepend=0))
        codes[starts[:-1][np.diff(starts) > 0]] = FIRST
        counts = np.bincount(codes, minlength=FIRST + 1).astype(float)
        groups = batches(np.diff(starts))
        return Sequence(starts, order, times, cells.item[order], codes, counts, groups)

    def locate(self, train: Sequence | None, cells: Cells) -> Neighbours:
        """The neighbours of pairs in time; none where the user, or the time, is not known."""
        size = len(cells.user)
        nobody = np.full(size, -1, np.int64)
        nothing: NDArray[np.uint8] = np.zeros(size, np.uint8)
        if train is None or cells.time is None or not size or not len(train.times):
            return Neighbours(nobody, nobody, nothing, nothing)
        time = np.asarray(cells.time, np.int64)
        check_seconds(time)
        user = np.where(cells.user < len(train.starts) - 1, cells.user, -1)
        at, there = np.empty(size, np.int64), np.empty(size, np.bool_)
        locate(train.starts, train.times, train.items, user, time, cells.item, at, there)
        known = at >= 0
        last = len(train.times) - 1
        has_before = known & (at > train.starts[user])
        has_after = known & (at < train.starts[user + 1])
        one, two = np.clip(at - 1, 0, last), np.clip(at, 0, last)
        after = np.where(has_after, train.order[two], -1)
        before = np.where(there, after, np.where(has_before, train.order[one], -1))
        earlier = encode(np.where(has_before, time - train.times[one], 0))
        later = encode(np.where(has_after, train.times[two] - time, 0))
        return Neighbours(before, after, earlier, later)

    def narrow(self, where: Neighbours) -> tuple[Neighbours, NDArray[np.int64]]:
        """The same neighbours by their numbers among the ratings returned, which hold all."""
        both = np.stack([where.before, where.after])
        known = both >= 0
        ratings, numbers = np.unique(both[known], return_inverse=True)
        both[known] = numbers
        return where._replace(before=both[0], after=both[1]), ratings

    def start(self, train: Sequence, draws: Draws) -> Parameters:
        """No moods yet, and what chains of ratings usually are like."""
        theta, variance = np.array([2.2, math.log(0.1)]), np.array([RATE * self.unit**2])
        return {X: np.zeros(len(train.order)), THETA: theta, VARIANCE: variance}

    def begin(self, parameters: Parameters, train: Sequence) -> Parameters:
        """The same kind of chain for other ratings, with no moods yet."""
        return {**parameters, X: np.zeros(len(train.order))}

    def update(
        self,
        parameters: Parameters,
        train: Sequence,
        residual: Array,
        weight: Array,
        draws: Draws,
        shared: bool,
    ) -> Parameters:
        """Draw the moods, then theta and s^2 given them, then moods and s on a common scale."""
        theta, variance = parameters[THETA], float(parameters[VARIANCE][0])
        rho, size = table(theta), len(train.order)
        fresh, x = variance * (1 - rho**2), np.empty(size)
        sides = train.starts, train.order, train.codes
        draw_chains(*sides, train.batches, rho, fresh, residual, weight, draws.counter(), x)
        if not shared:
            return {**parameters, X: x}
        sums = np.zeros((BLOCKS, FIRST + 1, 3))
        sum_steps(*sides, x, sums)
        steps = Steps(train.counts, sums.sum(axis=0), RATE * self.unit**2)
        theta = steps.walk(theta, draws)
        rate = steps.rate + steps.squares(table(theta)) / 2
        precision = draws.gammas(np.array([SHAPE + size / 2]))[0] / rate
        scale = self._draw_scale(x, residual, weight, 1 / precision, draws, len(train.starts))
        x *= scale
        return {X: x, THETA: theta, VARIANCE: np.array([scale**2 / precision])}

    def _draw_scale(
        self, x: Array, residual: Array, weight: Array, variance: float, draws: Draws, row: int
    ) -> float:
        """Draw c in c x and c s, given the rest: s would move slowly if moods always stood still.

        ``row`` is that of the random numbers, behind those of the users.

        log p(log c) = -2 a log c - b / (s c)^2 + c sum w x y - c^2/2 sum w x^2
        """
        weighted = weight * x
        linear, square = float(weighted @ residual), float(weighted @ x)
        down = RATE * self.unit**2 / variance
        none = np.empty(0)
        f = LogDensity(-2 * SHAPE, -linear, square / 2, 0.0, down, none, none)
        width = 1 / math.sqrt(1 + len(x) / 100)
        return math.exp(slice_sample(f, 0.0, width, draws.counter(), row))

    def fitted(self, parameters: Parameters, train: Sequence) -> Array:
        """The moods."""
        return parameters[X]

    def contribution(self, parameters: Parameters, where: Neighbours) -> Array:
        """The expected mood, given those before and after."""
        return self._interpolate(parameters, where)[0]

    def doubt(self, parameters: Parameters, where: Neighbours) -> Array:
        """The variance of the mood, given those before and after."""
        return self._interpolate(parameters, where)[1]

    def _interpolate(self, parameters: Parameters, where: Neighbours) -> tuple[Array, Array]:
        mean, doubt = np.empty((2, len(where.before)))
        if X not in parameters:  # a model that was saved without its ratings
            mean[:], doubt[:] = 0.0, parameters[VARIANCE][0]
            return mean, doubt
        variance, rho = float(parameters[VARIANCE][0]), table(parameters[THETA])
        interpolate(*where, parameters[X], rho, variance, mean, doubt)
        return mean, doubt


class Steps(NamedTuple):
    """What the moods say of theta and s^2: sums by code."""

    counts: Array
    sums: Array  # of x_k^2, x_k x_(k-1), x_(k-1)^2
    rate: float  # of the prior of 1 / s^2

    def squares(self, rho: Array) -> float:
        """sum (x_k - rho_k x_(k-1))^2 / (1 - rho_k^2)"""
        now, both, before = self.sums.T
        return float(np.sum((now - 2 * rho * both + rho**2 * before) / (1 - rho**2)))

    def log_density(self, theta: Array) -> float:
        """log p(theta | x), with s^2 integrated out."""
        rho = table(theta)
        shape = SHAPE + self.counts.sum() / 2
        prior = -0.5 * np.sum(((theta - PRIOR_MEAN) / PRIOR_SD) ** 2)
        steps = -0.5 * self.counts @ np.log1p(-(rho**2))
        return float(prior + steps - shape * math.log(self.rate + self.squares(rho) / 2))

    def walk(self, theta: Array, draws: Draws) -> Array:
        """Random-walk steps of many lengths, because nobody knows how much the moods say."""
        normals, uniforms = draws.normals(2 * TRIES)[:, 0], draws.uniforms(2 * TRIES, 2)
        at = self.log_density(theta)
        for k in range(2 * TRIES):
            new = theta.copy()
            new[k % 2] += 10 ** (-4 * uniforms[k, 0]) * normals[k]
            there = self.log_density(new)
            if math.log(uniforms[k, 1]) < there - at:
                theta, at = new, there
        return theta


def _sort_by_time(
    user: NDArray[Any], item: NDArray[Any], times: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The order by user, then time, then item."""
    step, width = np.diff(user), int(times.max(initial=0)) + 1
    in_order = ((step > 0) | ((step == 0) & (np.diff(item) > 0))).all()
    if in_order and len(user) and int(user[-1]) < 2**62 // width:
        # as ratings are kept: only the times of each user are left to be sorted
        return np.argsort(user.astype(np.int64) * width + times, kind="stable")
    return np.lexsort((item, times, user))


def check_more_ratings(model: Model, times: NDArray[Any] | None) -> None:
    """Refuse ratings for a fit that has a chain, if they have no times or impossible ones.

    The fit cannot do without its chain any more, so that times are the only remedy.
    """
    if not any(isinstance(effect, TimeChain) for effect in model.every_effect):
        return
    if times is None:
        raise DataError(
            "the model has a time chain, but these ratings have no times; give a column of times "
            f"with {Option('time', 'NAME')}"
        )
    check_seconds(np.asarray(times, np.int64))


def check_seconds(times: NDArray[np.int64], remedy: str = "or leave its row out") -> None:
    """Refuse times that cannot be seconds since 1970.

    ``remedy`` ends the message about a time before 1970, which may not be a mistake.
    """
    if len(times) and times.min() < 0:
        raise DataError(f"the time {times.min()} is before 1970; correct it, {remedy}")
    if len(times) and times.max() > LATEST:
        unit, by = (
            ("milliseconds", 1000) if times.max() < 1000 * LATEST else ("microseconds", 10**6)
        )
        raise DataError(
            f"the time {times.max()} is after the year 5000 in seconds since 1970; if times are "
            f"{unit}, divide them by {by:,}"
        )


def table(theta: Array) -> Array:
    """rho by code; 0 for a user's first rating."""
    minutes = np.arange(FIRST + 1) / STEPS  # their logarithms
    with np.errstate(over="ignore"):
        rho = np.exp(-np.exp(theta[1]) * minutes) / (1 + np.exp(-theta[0]))
    rho[FIRST] = 0.0
    return np.asarray(np.minimum(rho, 1 - 1e-9))


def encode(seconds: NDArray[Any]) -> NDArray[np.uint8]:
    """The codes of times between ratings."""
    minutes = np.log1p(np.maximum(seconds, 0) / 60.0)
    return np.asarray(np.minimum(np.rint(STEPS * minutes), FIRST - 1), np.uint8)
