"""The best items for each user, in blocks: never a dense array of all users and items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.inference.posterior import Posterior
from bayesmf.prob.draws import Draws

Floats = NDArray[np.float32]
Index = NDArray[np.int32]
RankBy = Literal["mean", "lower", "thompson"]
CELLS = 4_000_000  # scores of users and items, and numbers of stacked draws, held at once
CAUTION = 1.0  # standard deviations below the mean, for "lower"


def recommend(
    posterior: Posterior, user: Index, n: int, rank_by: RankBy = "mean",
    seen: Ratings | None = None, candidates: Index | None = None, seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Index, Floats]:  # fmt: skip
    """Items (positions; -1 where there are no more) and their scores, best first.

    "mean" ranks by the expected rating, "lower" by one standard deviation of the prediction below
    it, "thompson" by one draw, chosen anew for each user, so that what is not known gets tried.
    """
    if rank_by not in ("mean", "lower", "thompson"):
        raise DataError(f"rank_by={rank_by!r}: choose one of mean, lower, thompson")
    if n < 1:
        raise DataError(f"n={n}: choose 1 or more")
    items = np.arange(len(posterior.items), dtype=np.int32) if candidates is None else candidates
    n = min(n, len(items))
    best = np.full((len(user), n), -1, np.int32)
    scores = np.full((len(user), n), np.nan, np.float32)
    rows = max(CELLS // max(len(items), 1), 1)
    chosen = (Draws(seed).of(61).uniforms(len(user))[:, 0] * len(posterior)).astype(int)
    for begin in range(0, len(user), rows):
        span = slice(begin, begin + rows)
        block = _scores(posterior, user[span], items, rank_by, chosen[span])
        if seen is not None:
            _leave_out(block, user[span], items, seen)
        top = np.argpartition(-block, n - 1, axis=1)[:, :n]
        top.sort(axis=1)  # equal scores: the first item first
        found = np.take_along_axis(block, top, axis=1)
        order = np.argsort(-found, axis=1, kind="stable")
        scores[span] = np.take_along_axis(found, order, axis=1)
        best[span] = items[np.take_along_axis(top, order, axis=1)]
        if progress is not None:
            progress(min(begin + rows, len(user)), len(user))
    best[~np.isfinite(scores)] = -1
    return best, scores


def _leave_out(block: Floats, user: Index, items: Index, seen: Ratings) -> None:
    place = np.full(seen.n_items, -1)
    place[items] = np.arange(len(items))
    rows = seen.by_user
    for k, i in enumerate(user):
        if i >= 0:
            rated = place[rows.index[rows.starts[i] : rows.starts[i + 1]]]
            block[k, rated[rated >= 0]] = -np.inf


def _scores(
    posterior: Posterior, user: Index, items: Index, rank_by: RankBy, chosen: NDArray[Any]
) -> Floats:
    draws, size = posterior.draws, posterior.model.size
    if posterior.centre is not None and rank_by == "mean":
        draws = {name: values[None] for name, values in posterior.centre.items()}
    count = len(draws["tau"])
    strangers, unrated = user < 0, posterior.item_counts[items] == 0
    total: Floats = np.zeros((len(user), len(items)), np.float32)
    squares: Floats | None = np.zeros_like(total) if rank_by == "lower" else None

    def sides(k: int) -> tuple[Floats, Floats]:
        """Rows such that their product is the prediction: (bias, 1, S) and (1, bias, T)."""
        x = draws["user.x"][k][user]
        if strangers.any():
            x[strangers] = posterior.stranger(draws, k, "user")[0]
        y = draws["item.x"][k][items]
        if unrated.any():
            y[unrated] = posterior.stranger(draws, k, "item")[0]
        one, two = np.ones((len(x), 1), np.float32), np.ones((len(y), 1), np.float32)
        return np.hstack([x[:, :1], one, x[:, 1:size]]), np.hstack([two, y])

    if rank_by == "thompson":
        for k in np.unique(chosen):
            mine = chosen == k
            x, y = sides(int(k))
            total[mine] = x[mine] @ y.T
        return total + np.float32(posterior.mean)
    at_once = max(CELLS // ((size + 1) * max(len(items), len(user))), 1) if squares is None else 1
    for begin in range(0, count, at_once):
        pairs = [sides(k) for k in range(begin, min(begin + at_once, count))]
        part = np.hstack([x for x, _ in pairs]) @ np.hstack([y for _, y in pairs]).T
        total += part
        if squares is not None:
            squares += part**2
    total /= count
    if squares is not None:
        spread = np.sqrt(np.maximum(squares / count - total**2, 0))
        total -= np.float32(CAUTION) * spread
    return total + np.float32(posterior.mean)
