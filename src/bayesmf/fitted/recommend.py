"""The best items for each user, in blocks: never a dense array of all users and items."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import RankBy
from bayesmf.data.ids import Ids
from bayesmf.data.pairs import Cells, Pairs, ids_of
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.newcomers import join_given
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store.kept import take_rows
from bayesmf.fitted.store.scores import CAUTION, choose_scores
from bayesmf.kernels.ranking import largest, leave_out
from bayesmf.model.designs import Matrix, Name
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Floats = NDArray[np.float32]
Index = NDArray[np.int32]


class Asked(NamedTuple):
    """The users that are asked for, or the items that may be recommended."""

    name: Name
    ids: NDArray[Any]
    row: Index  # in the model; -1: nothing is known of them; from -2 down: attributes are
    given: Any  # the sparse matrix of given designs of those with the rows -2, -3, ...

    @classmethod
    def of(cls, posterior: Posterior, name: Name, ids: Any) -> Asked:
        """Find the rows of these users or items, and the attributes of those without a rating."""
        row, asked = posterior.warm_row_of(name, ids), Pairs(ids, ids)
        matrices = posterior.newcomers.number_strangers(asked, {name: row}).get(name, {})
        return cls(name, np.asarray(ids), row, join_given(matrices.values()))

    @classmethod
    def candidates(cls, posterior: Posterior, items: Any = None) -> Asked:
        """Find the items of the model, or of those that are named all that something is known of.

        They are in the order of their ids, each once.
        """
        if items is None:
            return cls.of(posterior, "item", posterior.items.values)
        known = posterior.row_of("item", items)
        named = ids_of(Pairs((), items), "item")
        there = {one for one, row in zip(named, known, strict=True) if row >= 0}
        if (known < 0).any() and posterior.newcomers.given["item"]:
            found = cls.of(posterior, "item", named)
            there |= {one for one, row in zip(named, found.row, strict=True) if row < -1}
        return cls.of(posterior, "item", np.array(sorted(there), posterior.items.values.dtype))

    def take(self, keep: Any) -> Asked:
        """Return some of them, by a slice or a mask."""
        return self._replace(ids=self.ids[keep], row=self.row[keep])

    def means(self, draws: Mapping[str, Floats], span: slice) -> Floats:
        """The rows in some draws; the row of a stranger is the mean of their prior."""
        name, unknown, named = self.name, self.row == -1, self.row < -1
        values = take_rows(draws, f"{name}.x", np.maximum(self.row, -1), span)
        if unknown.any():
            values[:, unknown] = draws[f"{name}.new_mean"][span, None]
        if named.any():
            given = self.given[-2 - self.row[named]]
            added = [given @ W for W in draws[f"{name}.new_W"][span].astype(float)]
            values[:, named] = draws[f"{name}.row_mean"][span, None] + np.array(added)
        return values

    def noise(self, draws: Mapping[str, Floats], span: slice) -> Floats | None:
        """What draws would add to rows that are means; None if there are none of these."""
        if f"{self.name}.noise" not in draws:
            return None
        values = take_rows(draws, f"{self.name}.noise", np.maximum(self.row, -1), span)
        values[:, self.row < 0] = 0.0
        return values

    def rows(self, draws: Mapping[str, Floats], span: slice, with_noise: bool) -> Floats:
        """The rows in some draws, with what a draw would add if asked for: (draw, row, column)."""
        values = self.means(draws, span)
        noise = self.noise(draws, span) if with_noise else None
        return values if noise is None else values + noise


class Seen(NamedTuple):
    """What each of the users asked for has rated."""

    row: Index  # the row of each user below; -1: they rated nothing
    starts: NDArray[np.int64]  # the ratings of row i are starts[i]:starts[i + 1]
    item: Index
    column: NDArray[np.int64]  # of each item among the candidates; -1: it is none of them

    @classmethod
    def of(cls, users: Asked, items: Asked, ratings: Ratings) -> Seen:
        """Find what users have rated, known to the model or not."""
        row, rows = ratings.users.index(users.ids, "user ids"), ratings.by_user
        if items.ids is ratings.items.values:
            column = np.arange(len(items.ids))
        else:
            column = Ids(items.ids).index(ratings.items.values, "item ids").astype(np.int64)
        return cls(np.array(row), rows.starts, rows.index, column)


def recommend(
    posterior: Posterior,
    users: Asked,
    items: Asked,
    n: int,
    rank_by: RankBy = "mean",
    seen: Sequence[Seen] = (),
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    at: int | None = None,
) -> tuple[Index, Floats]:
    """Return the numbers of items (-1 where there are no more) and their scores, best first.

    "mean" ranks by the expected rating, "lower" by one standard deviation of the prediction below
    it, "thompson" by one draw, chosen anew for each user, so that what is not known gets tried.
    What the users have ``seen`` is left out. With a time ``at``, scores are those of that time.
    """
    count = len(users.row)
    n = min(n, len(items.row))
    best = np.full((count, n), -1, np.int32)
    scores = np.full((count, n), np.nan, np.float32)
    if not best.size:
        return best, scores
    draws = posterior.draws
    if posterior.centre is not None and rank_by == "mean":
        draws = {name: values[None] for name, values in posterior.centre.items()}
    if min(items.row.min(initial=0), users.row.min(initial=0)) < 0:
        draws = posterior.newcomers.add_to(draws)
    caution = Caution.of(posterior, users, items) if rank_by == "lower" else None
    chosen = np.zeros(count, int)
    if rank_by == "thompson":
        uniforms = stream(Draws(seed), None, "thompson").uniforms(count)[:, 0]
        chosen = (uniforms * len(posterior)).astype(int)
    score = choose_scores(draws, users, items, rank_by, chosen, n, seen)
    rows = score.rows

    def fill(begin: int) -> None:
        span = slice(begin, begin + rows)
        block = score(span)
        if caution is not None:
            caution.put(block, span)
        for part in seen:
            leave_out(block, part.row[span], part.starts, part.item, part.column)
        top = np.empty((len(block), n), np.int64)
        largest(block, top)
        best[span] = top
        scores[span] = np.take_along_axis(block, top, axis=1) + np.float32(posterior.mean)

    _run(fill, range(0, count, rows), count, progress)
    best[~np.isfinite(scores)] = -1
    if posterior.model.likelihood.latent or (at is not None and posterior.model.every_effect):
        return _rescore(posterior, users, items, best, rank_by, chosen, at)
    return best, scores


def _run(
    fill: Callable[[int], None],
    begins: range,
    count: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Fill block after block, on all threads if there are several."""
    with contextlib.ExitStack() as stack:
        each: Callable[..., Iterator[None]] = map
        if len(begins) > 1:
            pool = stack.enter_context(ThreadPoolExecutor(numba.get_num_threads()))
            each = pool.map
        try:
            for number, _ in enumerate(each(fill, begins), 1):
                if progress is not None:
                    progress(min(number * begins.step, count), count)
        except BaseException:  # Ctrl-C does not wait for all the others
            if len(begins) > 1:
                pool.shutdown(cancel_futures=True)
            raise


def cells_of(users: Asked, items: Asked, user: Any, item: Any, at: int | None) -> Cells:
    """Return pairs of users and items, by their numbers among those asked for."""
    given: dict[str, Any] = {
        part.name: {0: Matrix.from_sparse(part.given)}
        for part in (users, items)
        if part.given is not None
    }
    times = None if at is None else np.full(len(user), at, np.int64)
    return Cells(users.row[user], items.row[item], times, given or None)


def _rescore(
    posterior: Posterior,
    users: Asked,
    items: Asked,
    best: Index,
    rank_by: RankBy,
    chosen: NDArray[Any],
    at: int | None,
) -> tuple[Index, Floats]:
    """Order the best items by ratings, where they were chosen by a latent number, or without time.

    The score is the expected rating over all draws, one standard deviation of the draws' expected
    ratings below it, or the expected rating in one draw.
    """
    row, column = np.nonzero(best >= 0)
    cells = cells_of(users, items, row, best[row, column], at)
    total, squares, one = np.zeros((3, len(row)))
    for number, expected in enumerate(posterior.without_selection().each_expected(cells)):
        total += expected
        squares += expected**2
        one = np.where(chosen[row] == number, expected, one)
    mean, count = total / len(posterior), len(posterior)
    found = {"mean": mean, "thompson": one}
    found["lower"] = mean - CAUTION * np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    scores = np.full(best.shape, np.nan, np.float32)
    scores[row, column] = found[rank_by]
    order = np.argsort(-scores, axis=1, kind="stable")  # no score comes last
    return np.take_along_axis(best, order, axis=1), np.take_along_axis(scores, order, axis=1)


@dataclass(frozen=True)
class Caution:
    """Scores of strangers for "lower": their doubt is wider than the scatter of the draws."""

    posterior: Posterior  # complete
    users: Asked
    items: Asked
    of_users: Floats  # what an item of which nothing is known scores for each user
    of_items: Floats  # what each item scores for a user of whom nothing is known

    @classmethod
    def of(cls, posterior: Posterior, users: Asked, items: Asked) -> Caution:
        """Score those of whom nothing is known, who are all alike."""
        out, plain = [], posterior.without_selection()
        user, item = np.maximum(users.row, -1), np.maximum(items.row, -1)
        for pairs in (Cells(user, np.full_like(user, -1)), Cells(np.full_like(item, -1), item)):
            found = plain.moments(pairs)
            score = found.mean - posterior.mean - CAUTION * np.sqrt(found.doubt)
            out.append(score.astype(np.float32))
        return cls(plain, users, items, *out)

    def put(self, block: Floats, span: slice) -> None:
        """Put the scores of strangers into those of some users."""
        users, items = self.users.take(span), self.items
        block[:, items.row == -1] = self.of_users[span, None]
        block[users.row == -1] = self.of_items
        named = users.row < -1
        if named.any():
            block[named] = self.score(users.take(named), items)
        named = items.row < -1
        if named.any():
            block[:, named] = self.score(users, items.take(named))

    def score(self, users: Asked, items: Asked) -> NDArray[np.float64]:
        """Score every item for every user as ``Posterior.moments`` does, by products of matrices.

        Effects are no part of it, as they are none of other scores.
        """
        draws, count = self.posterior.draws, len(self.posterior)
        total, squares, doubt = np.zeros((3, len(users.row), len(items.row)))
        for number in range(count):
            span = slice(number, number + 1)
            x, y = users.means(draws, span)[0], items.means(draws, span)[0]
            f = _multiply(x, y)
            total += f
            squares += f**2
            self._add_doubt(doubt, number, (users, x), (items, y))
        mean = total / count
        between = np.maximum(squares / count - mean**2, 0.0) * count / max(count - 1, 1)
        if self.posterior.centre is not None:
            one, first = self.posterior.centred().draws, slice(0, 1)
            mean = _multiply(users.means(one, first)[0], items.means(one, first)[0])
        return np.asarray(mean - CAUTION * np.sqrt(between + doubt / count))

    def _add_doubt(
        self,
        doubt: NDArray[np.float64],
        number: int,
        users: tuple[Asked, Floats],
        items: tuple[Asked, Floats],
    ) -> None:
        """Add the variance of strangers, and of rows that are means, given one draw."""
        draws = self.posterior.draws
        strangers: dict[Name, list[tuple[Any, Any]]] = {"user": [], "item": []}
        for (asked, _), (_, others), out in ((users, items, doubt), (items, users, doubt.T)):
            z = others.astype(float)
            z[:, 0] = 1.0
            for mine, cov in ((asked.row == -1, "new_cov"), (asked.row < -1, "row_cov")):
                if mine.any():
                    C = draws[f"{asked.name}.{cov}"][number].astype(float)
                    strangers[asked.name].append((mine, C[1:, 1:]))
                    out[mine] += np.sum(z @ C * z, axis=1)
            noise = asked.noise(draws, slice(number, number + 1))
            if noise is not None:
                out += (noise[0] @ z.T) ** 2
        for mine, C in strangers["user"]:
            for theirs, D in strangers["item"]:
                doubt[np.ix_(mine, theirs)] += np.sum(C * D)


def _multiply(x: Floats, y: Floats) -> NDArray[np.float64]:
    """The linear predictor of every pair, without the mean."""
    u, v = x.astype(float), y.astype(float)
    return np.asarray(u[:, :1] + v[:, 0] + u[:, 1:] @ v[:, 1:].T)
