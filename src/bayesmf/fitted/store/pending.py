"""Ratings that a few others were added to, and all ratings of some of their users.

Putting a rating among a million copies all of them, which takes longer than what an update has to
know: the ratings of the users that it draws again. So the copy waits until somebody reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.indexing import take
from bayesmf.data.ratings import Ratings

Index = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Pending:
    """Ratings and ``more`` of them under the same ids, which count where both rate a pair.

    It is a function of nothing that returns both together, as a ``Deferred`` field takes it.
    """

    base: Ratings
    more: Ratings

    @classmethod
    def of(cls, ratings: Ratings | Pending, more: Ratings) -> Pending:
        """Add ratings to others, which may be waiting themselves."""
        if isinstance(ratings, Pending):
            return cls(ratings.base, ratings.more.put(more))
        return cls(ratings, more)

    def __call__(self) -> Ratings:
        """Return both together; they are joined only once."""
        return self._joined

    @cached_property
    def _joined(self) -> Ratings:
        return self.base.put(self.more)

    @property
    def parts(self) -> tuple[Ratings, Ratings]:
        """Both as they are."""
        return self.base, self.more

    @property
    def T(self) -> Pending:
        """The same with items as users."""
        return Pending(self.base.T, self.more.T)


@dataclass(frozen=True)
class Picked:
    """All ratings of some rows, who are the users here."""

    ratings: Ratings
    rows: Index  # their numbers in the posterior
    others: Index  # those of what they rated


def pick(ratings: Ratings | Pending, rows: Index) -> Picked:
    """Take all ratings of some users, whose numbers ascend."""
    parts = ratings.parts if isinstance(ratings, Pending) else (ratings,)
    found = reduce(Ratings.put, (_take_users(part, rows) for part in parts))
    mine = found.by_user
    others, item = np.unique(mine.index, return_inverse=True)
    picked = Ratings.from_sorted(
        found.users,
        found.items.take(others),
        mine.row_index,
        item.astype(np.int32),
        mine.values,
        mine.times,
        found.scale,
        weights=mine.weights,
    )
    return Picked(picked, rows, others)


def _take_users(ratings: Ratings, rows: Index) -> Ratings:
    """Take all ratings of some users; all items stay."""
    mine = ratings.by_user
    counts = mine.starts[rows + 1] - mine.starts[rows]
    user = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    at = np.arange(len(user)) + (mine.starts[rows] - np.cumsum(counts) + counts)[user]
    return Ratings.from_sorted(
        ratings.users.take(rows),
        ratings.items,
        user,
        mine.index[at],
        mine.values[at],
        take(mine.times, at),
        ratings.scale,
        weights=take(mine.weights, at),
    )
