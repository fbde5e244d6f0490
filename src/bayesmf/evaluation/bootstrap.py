"""Is a difference between two models real, or the luck of these users?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST = 10  # users: of fewer, resampling knows next to nothing
CELLS = 4_000_000  # of the array of resampled users that is made at once


@dataclass(frozen=True)
class Change:
    """By how many per cent the error fell, and a 95 % interval; below zero it rose."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 fell, -1 rose, 0 cannot be told."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def __str__(self) -> str:
        return f"{self.value:.2f} % [{self.low:.2f}, {self.high:.2f}]"


def paired_change(before: Array, after: Array, draws: int = 2000, seed: int = 0) -> Change:
    """100 (1 - RMSE after / RMSE before), from each user's sum of squared errors under both.

    Users are resampled, not ratings: the errors of one user go together. Both models keep the
    same users in every draw, so what is hard about a user cancels.
    """
    before, after = before[before + after > 0], after[before + after > 0]
    nothing = float("nan")
    if not len(before):
        return Change(nothing, nothing, nothing)
    value = 100 * (1 - np.sqrt(after.sum() / before.sum()))
    if len(before) < LEAST:
        return Change(float(value), nothing, nothing)
    sums = _resample((before, after), draws, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = 100 * (1 - np.sqrt(sums[1] / sums[0]))
    low, high = np.quantile(changes, (0.025, 0.975))
    return Change(float(value), float(low), float(high))


def _resample(each: Sequence[Array], draws: int, seed: int) -> list[Array]:
    """Sums over users who are drawn anew with replacement, the same for all arrays."""
    generator = np.random.Generator(np.random.Philox(seed))
    users = len(each[0])
    found: list[list[Array]] = [[] for _ in each]
    at_once = max(CELLS // users, 1)
    for begin in range(0, draws, at_once):
        chosen = generator.integers(0, users, (min(at_once, draws - begin), users))
        for sums, values in zip(found, each, strict=True):
            sums.append(values[chosen].sum(axis=1))
    return [np.concatenate(sums) for sums in found]


class Difference(NamedTuple):
    """By how much a measure of one model is above that of another, with a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 above, -1 below, 0 cannot be told."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def paired_difference(
    before: Array,
    after: Array,
    counts: NDArray[Any],
    measure: Callable[[Array], Array] = np.asarray,
    draws: int = 2000,
    seed: int = 0,
) -> Difference:
    """measure(mean after) - measure(mean before), from each user's sums under both models.

    ``counts`` are the users' numbers of test ratings, and ``measure`` is the square root for RMSE.
    Users are resampled as in ``paired_change``. Of fewer than ``LEAST`` users there is no interval.
    """
    there = counts > 0
    before, after, counts = before[there], after[there], counts[there].astype(float)
    nothing = float("nan")
    if not len(counts):
        return Difference(nothing, nothing, nothing)
    ends = [measure(np.array(each.sum() / counts.sum())) for each in (after, before)]
    value = float(ends[0] - ends[1])
    if len(counts) < LEAST:
        return Difference(value, nothing, nothing)
    first, second, total = _resample((before, after, counts), draws, seed)
    low, high = np.quantile(measure(second / total) - measure(first / total), (0.025, 0.975))
    return Difference(value, float(low), float(high))


def lowest_of(squares: Mapping[str, Array]) -> tuple[str, list[str]]:
    """The model with the lowest error, and those from which it cannot be told.

    ``squares`` has each user's sum of squared errors by the name of the model. Of fewer than
    ``LEAST`` users no difference can be told.
    """
    best = min(squares, key=lambda name: float(squares[name].sum()))
    others = [name for name in squares if name != best]
    return best, [n for n in others if paired_change(squares[n], squares[best]).sign == 0]
