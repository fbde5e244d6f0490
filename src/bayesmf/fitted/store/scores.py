"""Scores of all items for some users, by which the items are ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import RankBy
from bayesmf.fitted.store.coarse import find_coarse
from bayesmf.kernels.ranking import leave_out

if TYPE_CHECKING:
    from bayesmf.fitted.recommend import Asked, Seen

Floats = NDArray[np.float32]
FEW = 8  # users for whom it does not pay to put all draws of the items side by side
CELLS = 1 << 19  # scores, and numbers of the draws of users, that a thread holds at once
COLUMNS = 16  # of a product of matrices, at least: fewer are summed in another order
CAUTION = 1.0  # standard deviations below the mean, for "lower"


@dataclass(frozen=True)
class Few:
    """Scores of a few users: the items' rows are read where they lie, draw after draw."""

    draws: Mapping[str, Floats]
    users: Asked
    items: Asked
    rank_by: RankBy
    chosen: NDArray[Any]  # the draw of each user, for "thompson"
    n: int  # of the items for which a score is needed
    seen: Sequence[Seen]  # which are none of them

    @property
    def rows(self) -> int:
        """All users are scored together."""
        return len(self.users.row)

    def __call__(self, span: slice) -> Floats:
        """Score all items for some users."""
        users = self.users.take(span)
        if self.rank_by == "thompson":
            return np.concatenate([
                self.score(users.take(slice(k, k + 1)), slice(number, number + 1))[0]
                for k, number in enumerate(self.chosen[span].tolist())
            ])  # fmt: skip
        count = len(self.draws["tau"])
        likely = self._find_likely(users, span)
        if likely is not None:
            best = replace(self, items=self.items.take(likely))
            out: Floats = np.full((1, len(self.items.row)), -np.inf, np.float32)
            out[:, likely] = best.score(users, slice(0, count)).sum(axis=0) / np.float32(count)
            return out
        f = self.score(users, slice(0, count))
        mean = f.sum(axis=0) / np.float32(count)
        if self.rank_by == "mean":
            return np.asarray(mean)
        return _lower(mean, (f * f).sum(axis=0) / np.float32(count))

    def _find_likely(self, users: Asked, span: slice) -> NDArray[np.int64] | None:
        """The items that may be among the best of one user, by the mean; None: all may be.

        If n items have a coarse score of at least t that is wrong by at most d, then one below
        t - 2 d is none of the best n.
        """
        count, items = len(self.draws["tau"]), self.items.row
        most = max(self.n, COLUMNS)
        if len(users.row) > 1 or self.rank_by != "mean" or most >= len(items):
            return None
        y = self.draws["item.x"]
        if len(items) > y.shape[1] or (items != np.arange(len(items))).any():
            return None
        coarse = find_coarse(y)
        if coarse is None:
            return None
        x = users.rows(self.draws, slice(0, count), False)[:, 0]
        x[:, 0] = 1.0
        rough, doubt = coarse.sum_products(x)
        rough = rough[: len(items)]
        for part in self.seen:
            leave_out(rough[None], part.row[span], part.starts, part.item, part.column)
        least = np.partition(rough, -most)[-most]
        return np.flatnonzero(rough >= least - 2 * doubt) if np.isfinite(least) else None

    def score(self, users: Asked, span: slice) -> Floats:
        """The linear predictors without the mean, in some draws: (draw, user, item)."""
        draws, items, with_noise = self.draws, self.items, self.rank_by != "mean"
        x = users.rows(draws, span, with_noise)
        bias = x[..., :1].copy()
        x[..., 0] = 1.0
        strange = items.row < 0
        every, rows = np.arange(len(items.row)), draws["item.alpha"].shape[1]
        in_place = len(every) <= rows and (strange | (items.row == every)).all()

        def product(part: str) -> Floats:
            y = draws[f"item.{part}"][span]
            y = y[:, : len(every)] if in_place else y[:, np.maximum(items.row, -1)]
            return np.asarray(x @ y.mT)

        f = product("x")
        if with_noise and "item.noise" in draws:
            f += product("noise")
        if strange.any():
            f[..., strange] = x @ items.take(strange).means(draws, span).mT
        f += bias
        return f


class Many:
    """Scores of many users: one product of matrices has the sums over all draws."""

    def __init__(
        self,
        draws: Mapping[str, Floats],
        users: Asked,
        items: Asked,
        rank_by: RankBy,
        chosen: NDArray[Any],
    ) -> None:
        self.draws, self.users, self.rank_by, self.chosen = draws, users, rank_by, chosen
        self.y = _widen(draws, items, rank_by != "mean")
        self.rows = max(CELLS // max(*self.y.shape, 1), 1)

    def __call__(self, span: slice) -> Floats:
        """Score all items for some users."""
        x, y = _widen(self.draws, self.users.take(span), self.rank_by != "mean"), self.y
        count, chosen = len(self.draws["tau"]), self.chosen[span]
        width = x.shape[1] // count
        parts = [slice(k * width, (k + 1) * width) for k in range(count)]
        if self.rank_by == "mean":
            return np.asarray(x @ y.T / np.float32(count))
        total: Floats = np.zeros((len(x), len(y)), np.float32)
        if self.rank_by == "thompson":
            for k in np.unique(chosen):
                mine = chosen == k
                total[mine] = x[mine, parts[k]] @ y[:, parts[k]].T
            return total
        squares: Floats = np.zeros_like(total)
        for part in parts:
            draw = x[:, part] @ y[:, part].T
            total += draw
            draw *= draw
            squares += draw
        total /= count
        squares /= count
        return _lower(total, squares)


def choose_scores(
    draws: Mapping[str, Floats],
    users: Asked,
    items: Asked,
    rank_by: RankBy,
    chosen: NDArray[Any],
    n: int,
    seen: Sequence[Seen],
) -> Few | Many:
    """Return what scores items for users, ``rows`` of them at once.

    ``chosen`` is the draw of each user, for "thompson". Items that are none of the best ``n``, or
    that were ``seen``, may score -inf.
    """
    if len(users.row) <= FEW:
        return Few(draws, users, items, rank_by, chosen, n, seen)
    return Many(draws, users, items, rank_by, chosen)


def _lower(mean: Floats, squares: Floats) -> Floats:
    """So many standard deviations below the mean, given the mean square; in place."""
    squares -= mean * mean
    mean -= np.float32(CAUTION) * np.sqrt(np.maximum(squares, 0))
    return mean


def _widen(draws: Mapping[str, Floats], asked: Asked, with_noise: bool) -> Floats:
    """Put (bias, 1, S) of users or (1, bias, T) of items in every draw side by side.

    The product of two such rows is the sum of the predictions of all draws. What it says that
    somebody chooses to rate an item is no part of it: nobody has chosen yet.
    """
    count, size = len(draws["tau"]), draws[f"{asked.name}.mu"].shape[1]
    out = np.ones((len(asked.row), count, size + 1), np.float32)
    columns = [0, *range(2, size + 1)] if asked.name == "user" else range(1, size + 1)
    for k in range(count):
        out[:, k, columns] = asked.rows(draws, slice(k, k + 1), with_noise)[0]
    return out.reshape(len(asked.row), -1)
