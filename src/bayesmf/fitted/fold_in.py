"""New users given what is known of the items, or new items given the users, without a refit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

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
from bayesmf.fitted.new_rows import NewRows
from bayesmf.fitted.newcomers import join_given
from bayesmf.fitted.posterior import Posterior, merge_ratings
from bayesmf.kernels.designs import pattern
from bayesmf.model import conditionals
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.spec import Model, has_hidden_scales
from bayesmf.model.state import Side, State, from_arrays, shift_names
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Covariances, Modes, Sampling
from bayesmf.sweep.response import Learn, update_response
from bayesmf.sweep.rows import update_rows

Array = NDArray[np.float64]
Kind = Literal["draw", "mean", "point"]
"""What a state is: a draw of the posterior, the means of a Q, or a MAP estimate."""
UPDATES = 20  # of the new rows' Q, which settle in fewer
ROUNDS = 2  # of the new rows' precisions, which settle in fewer
RESPONSE_ROUNDS = 6  # where ratings are latent, or have effects of their own


def rounds_of(model: Model) -> int:
    """How many rounds what is hidden of rows is drawn in, before the rows that stay."""
    return RESPONSE_ROUNDS if model.responds else ROUNDS


def begin_draws(old: Posterior, seed: int, number: int) -> Draws:
    """Random numbers of the first round, which no earlier update of the posterior has had.

    If they had, then a row that is drawn given what depends on an earlier draw of it, or of another
    row, would not be independent of that draw.
    """
    return Draws(seed, number, old.updates * (rounds_of(old.model) + 1))


def last_round(first: Draws, model: Model) -> Draws:
    """Random numbers of the last round, in which the rows are drawn that stay."""
    return replace(first, sweep=first.sweep + rounds_of(model))


def _draw_scales(
    model: Model,
    data: Data,
    mine: SideData,
    new: State,
    draws: Draws,
    added: list[Array] | None,
) -> None:
    """Draw the new rows' precisions in rounds with the rows, and what else is hidden of them.

    In the first round effects are where they begin, so that they do not explain what rows should.
    """
    name = mine.name
    me, others = new.sides(name)
    rounds = rounds_of(model) if has_hidden_scales(model) or model.responds else 0
    for number in range(rounds):
        sampling = Sampling(replace(draws, sweep=draws.sweep + number))
        if model.responds:
            update_response(
                model, data, new, sampling.draws, _learned(name) if number else "none", added
            )
        errors = update_rows(model, mine, me, others, new, sampling)
        if model.precision != "constant":
            conditional = conditionals.alpha(model, mine.counts, errors, new.tau)
            me.alpha = sampling.take(name, "alpha", conditional)
    if model.responds:
        update_response(model, data, new, last_round(draws, model), _learned(name), added)


def _learned(name: Name) -> Learn:
    """What is drawn of effects and likelihood: what belongs to users, if they are new."""
    return "rows" if name == "user" else "none"


def _update_means(model: Model, mine: SideData, new: State) -> None:
    """Update the means of the new rows' precisions, in turn with the rows.

    <alpha_i> = (a + n_i / 2) / (b + tau / 2 sum_j beta_j <e_ij^2>)
    """
    me, others = new.sides(mine.name)
    means = _Means(len(mine.counts), model.size)
    for _ in range(UPDATES if has_hidden_scales(model) else 0):
        errors = update_rows(model, mine, me, others, new, means)
        if model.precision != "constant":
            errors = errors + _doubt_in_errors(mine, me, new.tau, means.cov.own)
            me.alpha = conditionals.alpha(model, mine.counts, errors, new.tau).mean()


class _Means(Modes):
    """Takes the mean of every row, given points, and keeps the covariance of its own part."""

    def __init__(self, rows: int, size: int) -> None:
        self.cov = Covariances()
        self.cov.own = np.zeros((rows, size * (size + 1) // 2))
        self.cov.logdet = np.zeros(rows)

    def covariances(self, side: Name) -> Covariances:
        return self.cov


def _doubt_in_errors(mine: SideData, me: Side, tau: float, cov: Array) -> Array:
    """Compute tr(A_i C_i), which the covariance C_i of a row adds to its mean squared errors.

    With A_i = sum_j beta_j z_j z_j' and C_i^-1 = prior_i + tau alpha_i A_i it is
    (D - tr(prior_i C_i)) / (tau alpha_i).
    """
    assert mine.priors is not None
    rows, columns = np.tril_indices(me.size)
    trace = (mine.priors.precision * cov) @ np.where(rows == columns, 1.0, 2.0)
    return np.maximum((me.size - trace) / (tau * me.alpha), 0.0)


def _start_rows(
    model: Model, state: State, data: Data, name: Name, prior: NewRows
) -> tuple[SideData, State, Side, Side]:
    """Return the data of new rows, a state with these at zero, their side, and the other side."""
    mine = data.user if name == "user" else data.item
    side, others = state.sides(name)
    rows, size = len(mine.counts), model.size
    x = np.zeros((rows, side.x.shape[1]))
    # the prior knows what designs add
    me = replace(side, x=x, alpha=np.ones(rows), scale=np.ones(rows), shifts=[])
    given = join_given(mine.matrices)
    added = np.zeros((rows, size)) if given is None else given @ prior.W
    mine = replace(mine, priors=prior.priors(pattern(mine.observed), added))
    new = replace(state, user=me) if name == "user" else replace(state, item=me)
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
    old.check(ratings)
    ratings = ratings.drop_unused()  # a part of a split has the ids of everybody
    mine = ratings.users if side == "user" else ratings.items
    known = old.warm_row_of(side, mine.values) >= 0
    if known.any() and not replace_known:
        raise DataError(
            f"the {side} {mine.values.item(int(np.argmax(known)))!r} is known already; leave "
            "their ratings out, or have what is known replaced with "
            f"{Option('replace_known', True)}"
        )
    given = ratings.onto(mine, old.items) if side == "user" else ratings.onto(old.users, mine)
    return _join(old, side, mine, given, seed)


def _join(old: Posterior, side: Name, mine: Ids, given: Ratings, seed: int) -> Posterior:
    """Join old and new rows, by ascending id; where an id is in both, the new row counts."""
    data = Data.of(given, old.model, old.mean)
    before = old.ids(side)
    kept = np.setdiff1d(np.arange(len(before)), before.index(mine.values))
    values = np.concatenate([before.values[kept], mine.values])
    order = np.argsort(values, kind="stable")

    def join(rows: Any, new: Array) -> Any:
        if rows is None:  # noise: the rows of training are draws themselves
            rows = np.zeros((len(before), *new.shape[1:]), np.float32)
        return np.concatenate([rows[kept], new.astype(np.float32)])[order]

    old = old.complete()
    ids = {"user": old.users, "item": old.items, side: Ids(values[order])}
    train, held_out = _join_ratings(old, side, given, ids["user"], ids["item"])
    draws = follow(old.draws, old.train, train)
    at = positions(given, train) if train is not None and old.model.every_effect else None
    kind: Kind = "point" if old.is_point else "draw"
    scatter = np.zeros((old.model.size, old.model.size))  # C_S, averaged over the draws
    for k in range(len(old)):
        prior = old.newcomers.new_rows(old.draws, k, side)
        scatter += prior.cov / len(old)
        state = old.drawn(k)
        own = begin_draws(old, seed, k + 1)
        added = known_additions(old, data, state, side)
        new = _fold_rows(old.model, state, data, side, own, kind, prior, added)
        for name, rows in new.items():
            if is_by_rating(name):
                draws[name][k, at] = rows
                continue
            if k == 0:
                shape = (len(old), len(order), *rows.shape[1:])
                draws[name] = np.empty(shape, np.float32)
            draws[name][k] = join(old.draws[name][k] if name in old.draws else None, rows)
    centre = None
    if old.centre is not None:
        centre = dict(old.centre)
        kind = "point" if old.is_point else "mean"
        one = {name: array[None] for name, array in old.centre.items()}
        prior = old.newcomers.new_rows(one, 0, side, scatter)
        state = from_arrays(old.centre)
        new = _fold_rows(old.model, state, data, side, Draws(seed), kind, prior)
        for name, rows in new.items():
            centre[name] = join(old.centre.get(name), rows)
    counts = {"user": old.user_counts, "item": old.item_counts}
    theirs = data.user.counts if side == "user" else data.item.counts
    counts[side] = np.concatenate([counts[side][kept], theirs])[order]
    return replace(
        old,
        users=ids["user"],
        items=ids["item"],
        draws=draws,
        centre=centre,
        train=train,
        user_counts=counts["user"],
        item_counts=counts["item"],
        held_out=held_out,
    )


def _join_ratings(
    old: Posterior, side: Name, given: Ratings, users: Ids, items: Ids
) -> tuple[Ratings | None, Ratings | None]:
    """Return what the users' rows rest on from now on, and what else was rated.

    Earlier ratings of users who are known anew no longer count, but were given all the same. The
    ratings of new items did not change the users' rows. Without the training ratings, what others
    have rated remains unknown.
    """
    train, held_out = old.train, old.held_out
    if train is None:
        return None, merge_ratings([held_out], users, items)
    if side == "item":
        return train.onto(users, items), merge_ratings([held_out, given], users, items)
    again = np.zeros(len(old.users) + 1, bool)  # the last is for those who are new
    again[old.users.index(given.users.values)] = True
    anew = again[:-1][train.by_user.row_index]
    earlier = train.select(anew) if anew.any() else None
    rest = train.select(~anew) if anew.any() else train
    return merge_ratings([rest, given], users, items), merge_ratings(
        [held_out, earlier], users, items
    )


def _fold_rows(
    model: Model,
    state: State,
    data: Data,
    side: Name,
    draws: Draws,
    kind: Kind,
    prior: NewRows,
    added: list[Array] | None = None,
) -> dict[str, Array]:
    """Return the new rows of one state, by the names of their arrays.

    A row is the mean of its conditional; what a draw adds to it is kept apart as its noise, so that
    means over draws are free of it. At a MAP estimate every rating weighs the same, as when it was
    made.
    """
    model, state = at_point(model, state) if kind == "point" else (model, state)
    state = begin_rows(model, data, state, side)
    mine, new, me, others = _start_rows(model, state, data, side, prior)
    size = model.size
    settle_scales(model, data, mine, new, draws, kind, added)
    means, noise = _Means(len(mine.counts), size), np.zeros((len(mine.counts), size))
    if kind == "draw":
        update_rows(model, mine, me, others, new, Sampling(last_round(draws, model)))
        noise = me.x[:, :size].copy()
    update_rows(model, mine, me, others, new, means)
    if kind == "draw":
        noise -= me.x[:, :size]
    rows: dict[str, Array] = {
        f"{side}.x": me.x[:, :size],
        f"{side}.alpha": me.alpha,
        f"{side}.scale": me.scale,
        f"{side}.noise": noise,
        f"{side}.query": np.zeros(len(me.x)),
        f"{side}.newness": prior.newness(mine.counts, others.x[:, :size], means.cov.own),
    }
    theirs = data.item if side == "user" else data.user
    rows.update(_draw_columns(model, theirs, others, len(me.x), draws, kind))
    return rows | row_parameters(new, side)


def at_point(model: Model, state: State) -> tuple[Model, State]:
    """Return model and state of a MAP estimate: every rating weighs the same."""
    user, item = (replace(s, alpha=np.ones(len(s.x))) for s in (state.user, state.item))
    return replace(model, precision="constant"), replace(state, user=user, item=item)


def settle_scales(
    model: Model,
    data: Data,
    mine: SideData,
    new: State,
    draws: Draws,
    kind: Kind,
    added: list[Array] | None = None,
) -> None:
    """Draw the precisions of rows whose prior is known, or update their means.

    ``added`` is what the model's effects add to the ratings, if these are not to be drawn.
    """
    if kind == "mean":
        _update_means(model, mine, new)
    elif kind == "draw":
        _draw_scales(model, data, mine, new, draws, added)


def _draw_columns(
    model: Model, data: SideData, others: Side, rows: int, draws: Draws, kind: Kind
) -> dict[str, Array]:
    """W of new rows in the rated-set designs of the other side: nothing is known of it."""
    first, out = model.first_shifted, {}
    for number, shift in enumerate(others.shifts):
        if data.matrices[number].rows is not None:
            continue  # its columns are not the rows of this side
        W = np.tile(shift.mu, (rows, 1))
        if kind == "draw":
            half = np.linalg.cholesky(np.linalg.inv(shift.Lambda[first:, first:]))
            own = stream(draws, None, "fold_in_W", number).normals(rows, model.size - first)
            W[:, first:] += own @ half.T
        out[f"{data.name}.{shift_names(number)['W']}"] = W
    return out
