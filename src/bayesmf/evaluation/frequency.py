"""Errors by how many ratings a user has: the paper's user-frequency analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError

Array = NDArray[np.float64]
PAPER = (0.01, 0.10, 0.25, 0.30, 0.50, 0.70, 0.90)
"""Where the paper cuts: quantiles of the user's number of ratings, over *test ratings*."""


@dataclass(frozen=True)
class FrequencyBins:
    """Bins of test ratings by the total number of ratings of their user.

    ``uppers`` are the largest totals of all bins but the last, which has no end; ``totals`` holds
    the user's total for every test rating.
    """

    uppers: tuple[int, ...]
    totals: NDArray[np.int64]

    def __post_init__(self) -> None:
        uppers = tuple(self.uppers) if np.iterable(self.uppers) else (self.uppers,)
        whole = all(isinstance(u, Integral) and not isinstance(u, bool) for u in uppers)
        whole = whole and all(abs(u) < 2**63 for u in uppers)
        if not whole or any(low >= high for low, high in pairwise(uppers)):
            raise DataError(
                f"bins={self.uppers!r}: give whole numbers that rise, the most ratings of a user "
                "in each bin, such as 10, 100"
            )
        object.__setattr__(self, "uppers", tuple(int(u) for u in uppers))

    @classmethod
    def of(
        cls, parts: Sequence[Ratings], test: Ratings, quantiles: Sequence[float] = PAPER
    ) -> FrequencyBins:
        """Cut where the paper does, on any data.

        ``parts`` are all ratings, the test's included. The quantiles are weighted by test rating,
        not by user, and equal ones count once.
        """
        return cls.at_quantiles(totals_of(parts, test), quantiles)

    @classmethod
    def at_quantiles(
        cls, totals: NDArray[np.int64], quantiles: Sequence[float] = PAPER
    ) -> FrequencyBins:
        """Cut there, given the user's total for every test rating."""
        if not len(totals):
            raise DataError("there are no test ratings to sort by user frequency; hold some out")
        cuts = np.quantile(totals, quantiles, method="inverted_cdf")
        largest = int(totals.max())
        return cls(tuple(sorted({int(c) for c in cuts if c < largest})), totals)

    @property
    def labels(self) -> list[str]:
        """The bins as the paper writes them: <=25, 26-71, ..., 838+."""
        if not self.uppers:
            return ["all"]
        first = [f"<={self.uppers[0]}"]
        spans = pairwise(self.uppers)
        middle = [f"{low + 1}-{high}" if high > low + 1 else f"{high}" for low, high in spans]
        return [*first, *middle, f"{self.uppers[-1] + 1}+"]

    @property
    def index(self) -> NDArray[np.int64]:
        """The bin of every test rating."""
        return np.searchsorted(np.array(self.uppers, np.int64), self.totals, side="left")

    def mean(self, values: Array) -> Array:
        """The mean of a value of each test rating, bin by bin."""
        count = np.bincount(self.index, minlength=len(self.labels))
        total = np.bincount(self.index, values, minlength=len(self.labels))
        with np.errstate(invalid="ignore"):
            return np.asarray(total / count, float)

    def rmse(self, errors: Array) -> Array:
        """Root mean squared error, bin by bin."""
        return np.sqrt(self.mean(errors**2))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of test ratings, bin by bin."""
        return np.bincount(self.index, minlength=len(self.labels))


def totals_of(parts: Sequence[Ratings], test: Ratings) -> NDArray[np.int64]:
    """Count, for every test rating, the ratings of its user in all parts together."""
    counts = np.zeros(test.n_users, np.int64)
    for part in parts:
        if part.users != test.users:
            raise DataError("the parts have other users than the test ratings; cut them together")
        counts += part.by_user.counts
    return counts[test.by_user.row_index]
