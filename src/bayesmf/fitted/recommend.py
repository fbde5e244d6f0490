"""The best items for each user, in blocks: never a dense array of all users and items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import RankBy
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.posterior import Posterior
from bayesmf.kernels.ranking import largest, leave_out
from bayesmf.model.designs import Name
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Floats = NDArray[np.float32]
Index = NDArray[np.int32]
CELLS = 1 << 19  # scores, and numbers of the draws of users, that a thread holds at once
CAUTION = 1.0  # standard deviations below the mean, for "lower"


class Seen(NamedTuple):
    """What each of the users asked for has rated."""

    row: Index  # the row of each user below; -1: they rated nothing
    starts: NDArray[np.int64]  # the ratings of row i are starts[i]:starts[i + 1]
    item: Index  # the items' rows in the model; -1: the model does not know the item

    @classmethod
    def of(cls, posterior: Posterior, asked: Any, ratings: Ratings) -> Seen:
        """Find what users with the ids ``asked`` have rated, known to the model or not."""
        row, item = ratings.users.index(asked, "user ids"), ratings.by_user.index
        if ratings.items is not posterior.items:
            item = posterior.row_of("item", ratings.items.values)[item]
            item.setflags(write=False)  # as the ratings are: the kernel is compiled for that
        return cls(np.array(row), ratings.by_user.starts, item)


def recommend(
    posterior: Posterior,
    user: Index,
    n: int,
    rank_by: RankBy = "mean",
    seen: Sequence[Seen] = (),
    candidates: Index | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Index, Floats]:
    """Return items (rows; -1 where there are no more) and their scores, best first.

    "mean" ranks by the expected rating, "lower" by one standard deviation of the prediction below
    it, "thompson" by one draw, chosen anew for each user, so that what is not known gets tried.
    What the users have ``seen`` is left out.
    """
    items = np.arange(len(posterior.items), dtype=np.int32) if candidates is None else candidates
    n = min(n, len(items))
    best = np.full((len(user), n), -1, np.int32)
    scores = np.full((len(user), n), np.nan, np.float32)
    draws = posterior.draws
    if posterior.centre is not None and rank_by == "mean":
        draws = {name: values[None] for name, values in posterior.centre.items()}
    rated = np.where(posterior.item_counts[items] > 0, items, -1)
    if min(rated.min(initial=0), user.min(initial=0)) < 0:
        draws = posterior.newcomers.add_to(draws)
    y = _widen(draws, "item", rated, rank_by != "mean")
    cautious = _score_strangers(posterior, user, rated) if rank_by == "lower" else None
    chosen = (
        stream(Draws(seed), None, "thompson").uniforms(len(user))[:, 0] * len(posterior)
    ).astype(int)
    column = np.full(len(posterior.items) + 1, -1)  # the last is for items not known
    column[items] = np.arange(len(items))
    rows = max(CELLS // max(*y.shape, 1), 1)

    def fill(begin: int) -> None:
        span = slice(begin, begin + rows)
        x = _widen(draws, "user", user[span], rank_by != "mean")
        block = _score(x, y, posterior.model.size + 1, rank_by, chosen[span])
        if cautious is not None:
            block[:, rated < 0] = cautious[0][span, None]
            block[user[span] < 0] = cautious[1]
        for part in seen:
            leave_out(block, part.row[span], part.starts, part.item, column)
        top = np.empty((len(block), n), np.int64)
        largest(block, top)
        best[span] = items[top]
        scores[span] = np.take_along_axis(block, top, axis=1) + np.float32(posterior.mean)

    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        try:
            for number, _ in enumerate(pool.map(fill, range(0, len(user), rows)), 1):
                if progress is not None:
                    progress(min(number * rows, len(user)), len(user))
        except BaseException:  # Ctrl-C does not wait for all the others
            pool.shutdown(cancel_futures=True)
            raise
    best[~np.isfinite(scores)] = -1
    return best, scores


def _score_strangers(posterior: Posterior, user: Index, item: Index) -> list[Floats]:
    """Score a new item for each user, and each item for a new user: their doubt is wider."""
    out, plain = [], posterior.without_selection()
    for users, items in ((user, np.full_like(user, -1)), (np.full_like(item, -1), item)):
        found = plain.moments(Cells(users, items))
        score = found.mean - posterior.mean - CAUTION * np.sqrt(found.doubt)
        out.append(score.astype(np.float32))
    return out


def _widen(draws: Mapping[str, Floats], name: Name, rows: Index, with_noise: bool) -> Floats:
    """Put (bias, 1, S) of users or (1, bias, T) of items in every draw side by side.

    The product of two such rows is the sum of the predictions of all draws; -1 is a stranger. What
    it says that somebody chooses to rate an item is no part of it: nobody has chosen yet.
    """
    count, size = len(draws["tau"]), draws[f"{name}.x"].shape[2]
    out = np.ones((len(rows), count, size + 1), np.float32)
    columns = [0, *range(2, size + 1)] if name == "user" else range(1, size + 1)
    strangers = rows < 0
    for k in range(count):
        values = draws[f"{name}.x"][k][rows]
        if with_noise and f"{name}.noise" in draws:
            values += draws[f"{name}.noise"][k][rows]
        if strangers.any():
            values[strangers] = draws[f"{name}.new_mean"][k]
        out[:, k, columns] = values
    return out.reshape(len(rows), -1)


def _score(x: Floats, y: Floats, width: int, rank_by: RankBy, chosen: NDArray[Any]) -> Floats:
    count = x.shape[1] // width
    parts = [slice(k * width, (k + 1) * width) for k in range(count)]
    if rank_by == "mean":
        return np.asarray(x @ y.T / np.float32(count))
    total: Floats = np.zeros((len(x), len(y)), np.float32)
    if rank_by == "thompson":
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
    squares -= total * total
    total -= np.float32(CAUTION) * np.sqrt(np.maximum(squares, 0))
    return total
