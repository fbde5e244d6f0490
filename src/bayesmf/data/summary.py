"""What a set of ratings looks like: the paper's Table 1, for any data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings


@dataclass(frozen=True)
class Spread:
    """How many ratings the users, or the items, have."""

    min: int
    q25: float
    median: float
    mean: float
    q75: float
    max: int

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Spread:
        """From the number of ratings of each."""
        q25, median, q75 = (float(q) for q in np.quantile(counts, [0.25, 0.5, 0.75]))
        return cls(int(counts.min()), q25, median, float(counts.mean()), q75, int(counts.max()))


@dataclass(frozen=True)
class Frequency:
    """The users with ``low`` to ``high`` ratings: how many, and how many ratings they gave."""

    low: int
    high: int
    users: int
    ratings: int


@dataclass(frozen=True)
class Summary:
    """Counts, spreads, density, and the ratings by user frequency."""

    ratings: int
    users: int
    items: int
    mean_rating: float
    scale: dict[str, float | None]
    times: dict[str, int] | None
    density: float
    """Share of all pairs that are rated; the paper's table calls it sparsity."""
    per_user: Spread
    per_item: Spread
    by_user_frequency: list[Frequency]
    bytes: int
    sha256: str


def summarise(ratings: Ratings) -> Summary:
    """Describe ratings; users and items without any do not count."""
    ratings = ratings.drop_unused()
    per_user, per_item = ratings.by_user.counts, ratings.by_item.counts
    times: Any = ratings.by_user.times
    if times is not None:
        times = {"first": int(times.min()), "last": int(times.max())}
    return Summary(
        ratings=len(ratings),
        users=ratings.n_users,
        items=ratings.n_items,
        mean_rating=ratings.mean,
        scale=dict(vars(ratings.scale)),
        times=times,
        density=len(ratings) / (ratings.n_users * ratings.n_items),
        per_user=Spread.of(per_user),
        per_item=Spread.of(per_item),
        by_user_frequency=_by_frequency(per_user),
        bytes=ratings.nbytes,
        sha256=ratings.fingerprint(),
    )


def _by_frequency(counts: NDArray[np.int64]) -> list[Frequency]:
    """Users grouped by doubling numbers of ratings: 1, 2-3, 4-7, ..."""
    group = np.frexp(counts)[1] - 1  # floor of log2, exactly
    users = np.bincount(group)
    ratings = np.bincount(group, counts).astype(np.int64)
    return [
        Frequency(2**k, 2 ** (k + 1) - 1, int(users[k]), int(ratings[k]))
        for k in range(int(group.min()), len(users))
    ]
