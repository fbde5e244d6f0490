"""A summary of ratings: the paper's Table 1, for any data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings


@dataclass(frozen=True)
class Counts:
    """How the number of ratings is distributed over the users, or over the items."""

    min: int
    q25: float
    median: float
    mean: float
    q75: float
    max: int

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Counts:
        """Summarise the number of ratings of each user, or of each item."""
        q25, median, q75 = (float(q) for q in np.quantile(counts, [0.25, 0.5, 0.75]))
        return cls(int(counts.min()), q25, median, float(counts.mean()), q75, int(counts.max()))


@dataclass(frozen=True)
class UserGroup:
    """The users with ``low`` to ``high`` ratings: how many there are, and their ratings."""

    low: int
    high: int
    users: int
    ratings: int


@dataclass(frozen=True)
class Summary:
    """Counts of ratings in all, by user, by item and by user frequency."""

    ratings: int
    users: int
    items: int
    mean_rating: float
    scale: dict[str, float | None]
    times: dict[str, int] | None
    weights: dict[str, float] | None
    density: float
    """The share of all pairs that are rated; the paper's table calls it sparsity."""
    per_user: Counts
    per_item: Counts
    by_user_frequency: list[UserGroup]
    bytes: int
    sha256: str


def summarise(ratings: Ratings) -> Summary:
    """Summarise ratings; users and items without any do not count."""
    ratings = ratings.drop_unused()
    per_user, per_item = ratings.by_user.counts, ratings.by_item.counts
    times: Any = ratings.by_user.times
    if times is not None:
        times = {"first": int(times.min()), "last": int(times.max())}
    weights: Any = ratings.by_user.weights
    if weights is not None:
        weights = {word: float(getattr(weights, word)()) for word in ("min", "mean", "max")}
    return Summary(
        ratings=len(ratings),
        users=ratings.n_users,
        items=ratings.n_items,
        mean_rating=ratings.mean,
        scale=dict(vars(ratings.scale)),
        times=times,
        weights=weights,
        density=len(ratings) / (ratings.n_users * ratings.n_items),
        per_user=Counts.of(per_user),
        per_item=Counts.of(per_item),
        by_user_frequency=_group_users(per_user),
        bytes=ratings.nbytes,
        sha256=ratings.fingerprint(),
    )


def _group_users(counts: NDArray[np.int64]) -> list[UserGroup]:
    """Group users by doubling numbers of ratings: 1, 2-3, 4-7, ..."""
    group = np.frexp(counts)[1] - 1  # floor of log2, exactly
    users = np.bincount(group)
    ratings = np.bincount(group, counts).astype(np.int64)
    return [
        UserGroup(2**k, 2 ** (k + 1) - 1, int(users[k]), int(ratings[k]))
        for k in range(int(group.min()), len(users))
    ]
