"""New users given what is known of the items, or new items given the users, without a refit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.fitted.by_rating import (
    begin_rows,
    follow,
    is_by_rating,
    known_additions,
    positions,
    row_parameters,
)
from bayesmf.fitted.new_rows import GroupPriors, NewRows, as_share
from bayesmf.fitted.newcomers import join_given
from bayesmf.fitted.posterior import Posterior, merge_ratings
from bayesmf.fitted.settle import (
    ROUNDS,
    Kind,
    Means,
    at_point,
    begin_draws,
    gather_others,
    last_round,
    settle_scales,
)
from bayesmf.fitted.store.kept import JoinedDraws, kept_as
from bayesmf.kernels.designs import pattern
from bayesmf.model.data import Data, RowPriors, SideData
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.state import LIKELIHOOD, Side, State, from_arrays, shift_names
from bayesmf.random.draws import Draws, StackedDraws
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Sampling
from bayesmf.sweep.rows import update_rows
from bayesmf.sweep.stacks import StackedRows, draw_stacked_rows, repeat

Array = NDArray[np.float64]
Index = NDArray[np.int32]
Arrays = Mapping[str, NDArray[np.float32]]
MOST_RATINGS = 1 << 18  # of all draws that are drawn together
MOST_ROWS = 1 << 11
MOST_PARTS = 8  # of what has been rated, which are joined if there are more


def _start_rows(
    state: State, mine: SideData, priors: GroupPriors
) -> tuple[SideData, State, Side, Side]:
    """Return the data of new rows, a state with these at zero, their side, and the other side."""
    side, others = state.sides(mine.name)
    rows = len(mine.counts)
    x = np.zeros((rows, side.x.shape[1]))
    # the prior knows what designs add
    me = replace(side, x=x, alpha=np.ones(rows), scale=np.ones(rows), shifts=[])
    mine = replace(mine, priors=RowPriors(priors.precision[0, priors.group], priors.linear[0]))
    new = replace(state, user=me) if mine.name == "user" else replace(state, item=me)
    return mine, new, me, others


def add_rows(
    old: Posterior,
    ratings: Ratings,
    side: Name = "user",
    *,
    replace_known: bool = False,
    seed: int = 0,
) -> Posterior:
    """Return the posterior with new users (or items) in it, each given their ratings.

    Ratings of items that the fit does not know say nothing and are left out. A user who is known
    already is refused; with ``replace_known`` they are known by these ratings alone from now on.
    """
    if side not in SIDES:
        raise DataError(f"side={side!r}: choose one of user, item")
    old.check_more(ratings)
    ratings = ratings.drop_unused()  # a part of a split has the ids of everybody
    mine = _by(side, ratings).users
    known = old.warm_row_of(side, mine.values) >= 0
    if known.any() and not replace_known:
        raise DataError(
            f"the {side} {mine.values.item(int(np.argmax(known)))!r} is known already; leave "
            "their ratings out, or have what is known replaced with "
            f"{Option('replace_known', True)}"
        )
    return _join(old, side, ratings, seed)


def _by(name: Name, ratings: Ratings) -> Ratings:
    """Return the ratings with the rows of one side as users."""
    return ratings if name == "user" else ratings.T


def _join(old: Posterior, side: Name, ratings: Ratings, seed: int) -> Posterior:
    """Join old and new rows, by ascending id; where an id is in both, the new row counts."""
    other: Name = "item" if side == "user" else "user"
    mine, theirs = _by(side, ratings).users, old.row_of(other, _by(side, ratings).items.values)
    rated = np.unique(theirs[theirs >= 0])
    given = _by(side, _by(side, ratings).onto(mine, old.ids(other).take(rated)))
    before = old.ids(side)
    gone = np.zeros(len(before) + 1, bool)  # the last is for those who are new
    gone[before.index(mine.values)] = True
    kept = np.flatnonzero(~gone[:-1])
    values = np.concatenate([before.values[kept], mine.values])
    order = np.argsort(values, kind="stable")
    numbers = np.append(kept, len(before) + np.arange(len(mine)))[order]
    measured = old.newcomers.measure_unseen_rows(old.draws, old.centre, side)
    old = old.complete()
    folding = _Folding(old, side, given, rated, seed)
    centre = None
    if old.centre is not None:
        assert measured.centre is not None
        one = {name: array[None] for name, array in old.centre.items()}
        kind: Kind = "point" if old.is_point else "mean"
        found = folding.fold(one, 0, Draws(seed), kind, measured.centre)
        new = {name: rows[None] for name, rows in found.items()}
        whole = JoinedDraws(one, len(before), new, numbers)
        centre = {name: array[0] for name, array in whole.items()}
    counts = {"user": old.user_counts, "item": old.item_counts}
    counts[side] = np.concatenate([counts[side][kept], folding.mine.counts])[order]
    ids = {"user": old.users, "item": old.items, side: Ids(values[order])}
    seen = old.seen
    if seen is not None and len(seen) >= MOST_PARTS:
        seen = tuple(part for part in (old.train, old.held_out) if part is not None)
    parts = old, side, given, ids["user"], ids["item"]
    new, draws = folding.fold_draws(measured.draws), old.draws
    train: Any = partial(_join_train, *parts)
    if old.model.every_effect:
        train = train()
        draws, new = _follow_ratings(old, given, train, new)
    joined = replace(
        old,
        users=ids["user"],
        items=ids["item"],
        draws=JoinedDraws(draws, len(before), new, numbers),
        centre=centre,
        train=train,
        user_counts=counts["user"],
        item_counts=counts["item"],
        held_out=partial(_join_held_out, *parts),
        parts=None if seen is None else (*seen, given),
    )
    # what is known of rows that training has not seen does not come from such rows
    joined.newcomers.unseen_rows = {side: measured}
    return joined


def _follow_ratings(
    old: Posterior, given: Ratings, train: Ratings | None, new: Mapping[str, Any]
) -> tuple[Arrays, dict[str, Any]]:
    """Return draws whose parameters of single ratings are those of ``train``, and new rows.

    ``new`` has the parameters of the ratings that were given, besides the rows.
    """
    draws = follow(old.draws, old.train, train)
    rows = {name: values for name, values in new.items() if not is_by_rating(name)}
    if train is not None and len(rows) < len(new):
        at = positions(given, train)
        for name in new.keys() - rows.keys():
            draws[name][:, at] = new[name]
    return draws, rows


def _join_train(
    old: Posterior, side: Name, given: Ratings, users: Ids, items: Ids
) -> Ratings | None:
    """Return what the users' rows rest on from now on.

    Earlier ratings of users who are known anew no longer count. The ratings of new items did not
    change the users' rows.
    """
    train = old.train
    if train is None:
        return None
    if side == "item":
        return train.onto(users, items)
    anew = _find_again(train, given)
    return merge_ratings([train.select(~anew) if anew.any() else train, given], users, items)


def _join_held_out(
    old: Posterior, side: Name, given: Ratings, users: Ids, items: Ids
) -> Ratings | None:
    """Return what else was rated: of users who are known anew, their earlier ratings too.

    Without the training ratings, what others have rated remains unknown.
    """
    train, held_out = old.train, old.held_out
    if train is None:
        return merge_ratings([held_out], users, items)
    if side == "item":
        return merge_ratings([held_out, given], users, items)
    anew = _find_again(train, given)
    earlier = train.select(anew) if anew.any() else None
    return merge_ratings([held_out, earlier], users, items)


def _find_again(train: Ratings, given: Ratings) -> NDArray[np.bool_]:
    """Tell which training ratings are of users who are given anew."""
    again = np.zeros(train.n_users + 1, bool)  # the last is for those who are new
    again[train.users.index(given.users.values)] = True
    return np.asarray(again[:-1][train.by_user.row_index])


class _Folding:
    """New rows of one side, given what is known of the other side in each draw."""

    def __init__(self, old: Posterior, side: Name, given: Ratings, rated: Index, seed: int) -> None:
        """``given`` are ratings of the new rows, and ``rated`` the others that these have rated."""
        self.old, self.side, self.model, self.seed = old, side, old.model, seed
        self.other: Name = "item" if side == "user" else "user"
        self.rated = rated
        if old.model.responds and side == "item":  # users are known by their numbers
            others = old.ids(self.other)
            self.rated = np.arange(len(others), dtype=np.int32)
            given = _by(side, _by(side, given).onto(_by(side, given).users, others))
        self.data = Data.of(given, old.model, old.mean)
        self.mine, self.theirs = self.data.user, self.data.item
        if side == "item":
            self.mine, self.theirs = self.theirs, self.mine

    def fold_draws(self, prior: NewRows) -> dict[str, Any]:
        """Return the new rows of all draws by the names of their arrays: (draw, row, ...).

        Arrays that few ask for may be functions of nothing.
        """
        old = self.old
        if old.is_point or self.model.responds:
            kind: Kind = "point" if old.is_point else "draw"
            each = [
                self.fold(old.draws, k, begin_draws(old, self.seed, k + 1), kind, prior)
                for k in range(len(old))
            ]
            return {name: np.stack([new[name] for new in each]) for name in each[0]}
        rows = len(self.mine.counts)
        prior.prepare(self.mine.counts)
        together = max(1, min(MOST_RATINGS // max(self.data.size, 1), MOST_ROWS // max(rows, 1)))
        spans = [
            slice(begin, min(begin + together, len(old))) for begin in range(0, len(old), together)
        ]
        parts = [self._fold_stack(span, prior.take(span)) for span in spans]
        found: dict[str, Any] = {
            f"{self.side}.{name}": np.concatenate([part[name] for part in parts])
            for name in parts[0]
        }
        shape = len(old), rows
        found[f"{self.side}.scale"] = np.ones(shape, np.float32)
        found[f"{self.side}.query"] = np.zeros(shape, np.float32)
        for number in self._rated_sets():
            found[f"{self.other}.{shift_names(number)['W']}"] = partial(self._draw_columns, number)
        return found

    def _fold_stack(self, span: slice, prior: NewRows) -> dict[str, NDArray[np.float32]]:
        """Return the new rows of some draws."""
        times, rows, size = span.stop - span.start, len(self.mine.counts), self.model.size
        draws = self.old.draws
        priors = self._find_priors(prior)
        groups = priors.precision.shape[1]
        stacked = StackedRows(
            repeat(self.mine.observed, times, len(self.rated)),
            gather_others(draws, self.other, self.rated, span, size),
            draws["tau"][span, 0].astype(float),
            self.mine.counts,
            (np.arange(times)[:, None] * groups + priors.group).ravel(),
            priors.precision.reshape(times * groups, -1),
            priors.linear.reshape(times * rows, size),
        )
        first = begin_draws(self.old, self.seed, span.start + 1)
        own = StackedDraws(first.seed, first.chain, first.sweep, each=rows)
        traces = priors.traces.reshape(times * groups, -1)
        x, noise, alpha, newness = draw_stacked_rows(
            self.model, self.side, stacked, traces, own, ROUNDS
        )
        found = x, noise, alpha, as_share(newness)
        return {
            name: array.astype(np.float32).reshape(times, rows, *array.shape[1:])
            for name, array in zip(("x", "noise", "alpha", "newness"), found, strict=True)
        }

    def _find_priors(self, prior: NewRows) -> GroupPriors:
        """Return the priors of the new rows in some draws."""
        given, rows = join_given(self.mine.matrices), pattern(self.mine.observed)
        added = None if given is None else np.stack([given @ W for W in prior.W])
        return prior.priors(rows, self.rated, added)

    def fold(
        self, arrays: Arrays, number: int, draws: Draws, kind: Kind, prior: NewRows
    ) -> dict[str, NDArray[np.float32]]:
        """Return the new rows of one draw, by the names of their arrays.

        A row is the mean of its conditional; what a draw adds to it is kept apart as its noise, so
        that means over draws are free of it. At a MAP estimate every rating weighs the same, as
        when it was made.
        """
        size, side = self.model.size, self.side
        model, state = self.model, self._take_state(arrays, number)
        if kind == "point":
            model, state = at_point(model, state)
        added = known_additions(self.old, self.data, state, side)
        state = begin_rows(model, self.data, state, side)
        priors = self._find_priors(prior.take(slice(number, number + 1)))
        mine, new, me, others = _start_rows(state, self.mine, priors)
        settle_scales(model, self.data, mine, new, draws, kind, added)
        means, noise = Means(len(mine.counts), size), np.zeros((len(mine.counts), size))
        if kind == "draw":
            update_rows(model, mine, me, others, new, Sampling(last_round(draws, model)))
            noise = me.x[:, :size].copy()
        update_rows(model, mine, me, others, new, means)
        if kind == "draw":
            noise -= me.x[:, :size]
        newness = np.einsum("ic,ic->i", priors.traces[0, priors.group], means.cov.own)
        rows: dict[str, Array] = {
            f"{side}.x": me.x[:, :size],
            f"{side}.alpha": me.alpha,
            f"{side}.scale": me.scale,
            f"{side}.noise": noise,
            f"{side}.query": np.zeros(len(me.x)),
            f"{side}.newness": as_share(newness),
        }
        for k in self._rated_sets():
            name = f"{self.other}.{shift_names(k)['W']}"
            rows[name] = self._draw_column(arrays, number, k, draws, kind)
        rows |= row_parameters(new, side)
        return {name: values.astype(kept_as(name)) for name, values in rows.items()}

    def _take_state(self, arrays: Arrays, number: int) -> State:
        """Return one draw, all of it drawn: of one side nobody, of the other who was rated."""
        shared = "tau", "sweep", "effect ", LIKELIHOOD
        keys = [key for key in arrays if key.startswith(shared)]
        found: dict[str, Any] = {key: arrays[key][number] for key in keys}
        if self.side == "user":  # whose ratings begin with parameters of their own
            found |= {key: found[key][:0] for key in keys if is_by_rating(key)}
        for name in SIDES:
            found |= {key: arrays[key][number] for key in (f"{name}.mu", f"{name}.Lambda")}
            for part, shape in (("x", (0, self.model.size)), ("alpha", 0), ("scale", 0)):
                found[f"{name}.{part}"] = np.zeros(shape)
        for part in ("x", "alpha", "scale"):
            key = f"{self.other}.{part}"
            found[key] = arrays[key][number][self.rated].astype(float)
        if f"{self.other}.noise" in arrays:
            found[f"{self.other}.x"] += arrays[f"{self.other}.noise"][number][self.rated]
        return from_arrays(found)

    def _rated_sets(self) -> list[int]:
        """Return the designs of the other side that have a column for each row of this side."""
        return [k for k, matrix in enumerate(self.theirs.matrices) if matrix.rows is None]

    def _draw_columns(self, design: int) -> NDArray[np.float32]:
        """Return W of the new rows in a rated-set design of the other side, for all draws."""
        old = self.old
        return np.stack([
            self._draw_column(old.draws, k, design, begin_draws(old, self.seed, k + 1), "draw")
            for k in range(len(old))
        ]).astype(np.float32)  # fmt: skip

    def _draw_column(
        self, arrays: Arrays, number: int, design: int, draws: Draws, kind: Kind
    ) -> Array:
        """Return W of the new rows in one draw: nothing is known of it."""
        rows, first, names = len(self.mine.counts), self.model.first_shifted, shift_names(design)
        mu, Lambda = (
            arrays[f"{self.other}.{names[part]}"][number].astype(float) for part in ("mu", "Lambda")
        )
        W = np.tile(mu, (rows, 1))
        if kind == "draw":
            values, U = np.linalg.eigh(Lambda[first:, first:])
            half = U / np.sqrt(np.maximum(values, np.finfo(np.float32).eps * values[-1]))
            own = stream(draws, None, "fold_in_W", design).normals(rows, self.model.size - first)
            W[:, first:] += own @ half.T
        return W
