"""Is a difference between two models real, or the luck of these users?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    generator = np.random.Generator(np.random.Philox(seed))
    found = []
    at_once = max(CELLS // len(before), 1)
    for begin in range(0, draws, at_once):
        size = (min(at_once, draws - begin), len(before))
        chosen = generator.integers(0, len(before), size)
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(after[chosen].sum(axis=1) / before[chosen].sum(axis=1))
    changes = 100 * (1 - np.sqrt(np.concatenate(found)))
    low, high = np.quantile(changes, (0.025, 0.975))
    return Change(float(value), float(low), float(high))


def lowest_of(squares: Mapping[str, Array]) -> tuple[str, list[str]]:
    """The model with the lowest error, and those from which it cannot be told.

    ``squares`` has each user's sum of squared errors by the name of the model. Of fewer than
    ``LEAST`` users no difference can be told.
    """
    best = min(squares, key=lambda name: float(squares[name].sum()))
    others = [name for name in squares if name != best]
    return best, [n for n in others if paired_change(squares[n], squares[best]).sign == 0]
