"""Users and items of training drawn again, also given new ratings of them, without a refit.

Old ratings and new ones together decide: in every draw, the rows of the users are drawn again given
the items, under the prior of ``NewRows`` without their own part in it, which knows how many ratings
a row has now, and of what. With S_i a row, Q_k and q_i as ``NewRows`` has them, it is

    x_i ~ N(a_g(s_i), R_g),   s_i = n_i q_i + sum of Q_k over what i has rated since,

with n_i the ratings that the row had when Q was measured and g those that it has now. The part of
the row itself is not in q_i, and it cannot be in the Q_k of what it has rated since. Items are
users of the transposed data.

All draws of a few rows are one piece of work: draw k of row i is a row of its own, whose others are
those of draw k. A rating has the precision tau alpha_i beta_j, so tau is put into beta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import UPDATED, Updated
from bayesmf.data.ids import Ids
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.errors import DataError
from bayesmf.fitted.by_rating import (
    begin_rows,
    follow,
    is_by_rating,
    is_of_row,
    known_additions,
    positions,
    row_parameters,
)
from bayesmf.fitted.fold_in import add_rows
from bayesmf.fitted.new_rows import NewRows
from bayesmf.fitted.newcomers import POWER, Measured
from bayesmf.fitted.posterior import Posterior, merge_ratings
from bayesmf.fitted.settle import (
    ROUNDS,
    Kind,
    at_point,
    begin_draws,
    gather_others,
    last_round,
    settle_scales,
)
from bayesmf.fitted.store.kept import JoinedDraws, Kept, put_arrays, take_rows
from bayesmf.fitted.store.pending import Pending, Picked, pick
from bayesmf.kernels.designs import Sparse
from bayesmf.model.data import Data, RowPriors, SideData, side_data
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.spec import Model
from bayesmf.model.state import LIKELIHOOD, Side, State, from_arrays
from bayesmf.random.draws import Draws, StackedDraws
from bayesmf.random.philox import Counter
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Modes, Sampling
from bayesmf.sweep.response import update_response
from bayesmf.sweep.rows import update_rows
from bayesmf.sweep.stacks import StackedRows, draw_stacked_rows, repeat

Array = NDArray[np.float64]
Index = NDArray[np.int32]
Arrays = Mapping[str, NDArray[np.float32]]
Rated = TypeVar("Rated", Ratings, Ratings | Pending)
MOST_RATINGS = 1 << 18  # of all draws that are drawn together
MOST_ROWS = 1 << 12


def update(old: Posterior, ratings: Ratings, side: Updated = "user", *, seed: int = 0) -> Posterior:
    """Return the posterior given these ratings too; see ``Fitted.update``."""
    if side not in UPDATED:
        raise DataError(f"side={side!r}: choose one of {', '.join(UPDATED)}")
    if old.pending_train is None:
        raise DataError(
            "the training ratings, which new ratings are added to, are not at hand; update a model "
            "that was saved with its ratings"
        )
    old.check_more(ratings)
    ratings = ratings.drop_unused()
    names: tuple[Name, ...] = SIDES if side == "both" else (side,)
    found = _hand_on(old, old.complete())
    if not any(_find_newcomers(found, ratings, name).any() for name in names):
        for name in names:  # before anything changes, so that the next update finds the same
            _measure(found, name)
    for name in names:
        found = _update_side(found, ratings, name, seed)
    return _hand_on(found, found.change(updates=old.updates + 1))


def _hand_on(old: Posterior, new: Posterior) -> Posterior:
    """Let a posterior of the same rows share what has been measured."""
    new.newcomers.known_rows = old.newcomers.known_rows
    return new


def _measure(old: Posterior, name: Name) -> Measured:
    """Return what the posterior, or the one that it came from, says of rows of training."""
    return old.newcomers.measure_known_rows(old.draws, old.centre, name)


def _by(name: Name, ratings: Rated) -> Rated:
    """Return the ratings with the rows of one side as users."""
    return ratings if name == "user" else ratings.T


def _update_side(old: Posterior, ratings: Ratings, name: Name, seed: int) -> Posterior:
    """Take in the newcomers of one side, then draw the rows of the others again."""
    mine = _by(name, ratings).users
    new = _find_newcomers(old, ratings, name)
    known = mine.values[~new]
    if new.any():
        old = _fold_newcomers(old, ratings, name, new, seed)
    if len(known):
        _measure(old, name)
    assert old.pending_train is not None
    train: Any = Pending.of(old.pending_train, ratings.onto(old.users, old.items))
    draws = old.draws
    if old.model.every_effect:
        train = train()
        draws = follow(draws, old.train, train)
    merged = _hand_on(old, old.change(train=train, draws=draws, parts=None))
    rows = np.sort(old.row_of(name, known))
    fresh = draws is not old.draws  # arrays of single ratings that nobody else has
    return _draw_again(merged, name, rows, seed, fresh) if len(rows) else merged


def _find_newcomers(old: Posterior, ratings: Ratings, name: Name) -> NDArray[np.bool_]:
    """Tell which users (or items) training did not know: they are folded in, or were before."""
    rows = old.warm_row_of(name, _by(name, ratings).users.values)
    new = rows < 0
    if f"{name}.newness" in old.draws:
        new |= take_rows(old.draws, f"{name}.newness", rows).any(axis=0)  # -1 finds anything
    return np.asarray(new)


def _fold_newcomers(
    old: Posterior, ratings: Ratings, name: Name, new: NDArray[np.bool_], seed: int
) -> Posterior:
    """Take in users (or items) by all of their ratings, also those they were folded in by."""
    given = _by(name, ratings)
    given = given.select(new[given.by_user.row_index]).drop_unused()
    rows = old.row_of(name, given.users.values)
    rows = np.sort(rows[rows >= 0])
    counts, parts = old.counts(name)[rows].copy(), []
    for before in (old.train, old.held_out):  # of items that were folded in, they are held out
        if before is not None:
            by_row = _by(name, before).by_user.counts[rows]
            mine = by_row == counts
            parts.append(pick(_by(name, before), rows[mine]).ratings)
            counts[mine] = 0
    others = old.ids("item" if name == "user" else "user")
    unknown = given.items.values[others.index(given.items.values) < 0]
    if len(unknown):  # who has rated nothing else is taken in all the same
        others = Ids(np.sort(np.concatenate([others.values, unknown])))
    both = merge_ratings([*parts, given], given.users, others)
    assert both is not None
    return add_rows(old, _by(name, both), name, replace_known=True, seed=seed)


def _find_since(picked: Picked, measured: Sparse) -> tuple[Index, Index]:
    """Return the row and the other of each rating that is not among those measured."""
    rows: Rows = picked.ratings.by_user
    new = np.ones(len(rows.index), bool)
    for k, row in enumerate(picked.rows):
        mine = slice(*rows.starts[k : k + 2])
        before = measured.index[slice(*measured.starts[row : row + 2])]
        new[mine] = ~np.isin(picked.others[rows.index[mine]], before)
    return rows.row_index[new], picked.others[rows.index[new]]


def _find_priors(known: NewRows, picked: Picked, added: Array) -> RowPriors:
    """Return the priors of the rows in some draws, draw after draw.

    ``added`` is what given designs add to the rows: (draw, row, column).
    """
    row, other = _find_since(picked, known.rated.by_row)
    sums = known.told_sums(picked.rows)
    np.add.at(sums.swapaxes(0, 1), row, known.raters[:, other].swapaxes(0, 1))
    found = known.known_priors(picked.ratings.by_user.counts, sums, added)
    shape = sums.shape[0] * sums.shape[1], -1
    return RowPriors(found.precision.reshape(shape), found.linear.reshape(shape))


def _draw_again(old: Posterior, name: Name, rows: Index, seed: int, fresh: bool) -> Posterior:
    """Draw rows again, given all ratings that the posterior holds.

    Parameters of single ratings are written where they are if they are ``fresh``.
    """
    assert old.pending_train is not None
    picked = pick(_by(name, old.pending_train), rows)
    newcomers, size = old.newcomers, max(len(picked.ratings), 1)
    known = _measure(old, name)
    together = max(1, min(MOST_RATINGS // size, MOST_ROWS // len(rows)))
    if old.model.responds:  # every draw has parameters of its own
        together = 1
    kind: Kind = "point" if old.is_point else "draw"
    parts = ("x",) if old.is_point else ("x", "alpha", "noise")
    names = [key for part in parts if (key := f"{name}.{part}") in old.draws]
    at = positions(_by(name, picked.ratings), old.train) if old.model.every_effect else None  # type: ignore[arg-type]
    by_rating = {key: old.draws[key] for key in old.draws if is_by_rating(key)}
    if not fresh:
        by_rating = {key: values.copy() for key, values in by_rating.items()}
    redrawn: dict[str, list[Array]] = {}
    for number, begin in enumerate(range(0, len(old), together)):
        span = slice(begin, min(begin + together, len(old)))
        prior = known.draws.take(span)
        priors = _find_priors(prior, picked, newcomers.row_offsets(prior.W, name, rows))
        # after those of rows that are folded in
        own = begin_draws(old, seed, len(old) + 1 + number)
        if kind == "draw" and not old.model.responds:
            new = _draw_stack(old, span, picked, name, priors, own)
        else:
            new = _draw_span(old, old.draws, span, picked, name, priors, own, kind)
        for key, values in new.items():
            if is_by_rating(key):
                by_rating[key][begin, at] = values
            elif key in names:
                redrawn.setdefault(key, []).append(values)
            elif is_of_row(key):
                redrawn.setdefault(key, []).append(values[None])
    centre = old.centre
    if old.centre is not None:
        assert known.centre is not None
        one = {key: values[None] for key, values in old.centre.items()}
        kind = "point" if old.is_point else "mean"
        added = newcomers.row_offsets(known.centre.W, name, rows)
        priors = _find_priors(known.centre, picked, added)
        new = _draw_span(old, one, slice(0, 1), picked, name, priors, Draws(seed), kind)
        centre = dict(old.centre) | {key: old.centre[key].copy() for key in names}
        for key in names:
            centre[key][rows] = new[key][0]
    counts, order = old.counts(name).copy(), np.arange(len(old.ids(name)))
    counts[rows] = picked.ratings.by_user.counts
    order[rows] = len(order) + np.arange(len(rows))
    found = {key: np.concatenate(each).astype(np.float32) for key, each in redrawn.items()}
    draws = JoinedDraws(put_arrays(old.draws, by_rating), len(order), found, order)
    new_counts: dict[str, Any] = {f"{name}_counts": counts}
    return _hand_on(old, old.change(draws=draws, centre=centre, **new_counts))


def _draw_stack(
    old: Posterior, span: slice, picked: Picked, name: Name, priors: RowPriors, own: Draws
) -> dict[str, Array]:
    """Return the rows of some draws, all of them drawn together: (draw, row, ...)."""
    model, draws, shape = old.model, old.draws, (span.stop - span.start, len(picked.rows))
    other: Name = "item" if name == "user" else "user"
    mine, count = side_data(picked.ratings.by_user, name, old.mean), shape[0] * shape[1]
    stacked = StackedRows(
        repeat(mine.observed, shape[0], len(picked.others)),
        gather_others(draws, other, picked.others, span, model.size),
        draws["tau"][span, 0].astype(float),
        mine.counts,
        np.arange(count),
        priors.precision,
        priors.linear,
    )
    alpha = take_rows(draws, f"{name}.alpha", picked.rows, span).astype(float).ravel()
    streams = StackedDraws(own.seed, own.chain, own.sweep, each=count)
    nothing = np.zeros_like(priors.precision)
    x, noise, alpha, _ = draw_stacked_rows(model, name, stacked, nothing, streams, ROUNDS, alpha)
    found = {f"{name}.alpha": alpha.reshape(shape)}
    if f"{name}.noise" in draws:
        found[f"{name}.noise"] = noise.reshape(*shape, -1)
    else:
        x += noise
    return found | {f"{name}.x": x.reshape(*shape, -1)}


def _draw_span(
    old: Posterior,
    draws: Arrays,
    span: slice,
    picked: Picked,
    name: Name,
    priors: RowPriors,
    own: Draws,
    kind: Kind,
) -> dict[str, Array]:
    """Return the rows of some draws, or of a centre: (draw, row, ...)."""
    times, model = span.stop - span.start, old.model
    index: dict[Name, Index] = {"user": picked.rows, "item": picked.others}
    if name == "item":
        index = {"user": picked.others, "item": picked.rows}
    data = Data.of(_by(name, picked.ratings), model, old.mean, designs=False)
    model, state = _stack(model, draws, span, index, kind, name)
    me, others = state.sides(name)
    others.alpha *= np.repeat(draws["tau"][span, 0].astype(float), len(picked.others))
    mine = replace(data.user if name == "user" else data.item, priors=priors)
    added = None
    if data.response is not None:
        cells = data.response.cells
        user, item = (index[side][getattr(cells, side)] for side in SIDES)
        added = known_additions(old, data, state, name, Cells(user, item, cells.time))
        state = begin_rows(model, data, state, name)
        me, others = state.sides(name)
    settle_scales(model, data, mine, state, own, kind, added)
    last = Sampling(last_round(own, model)) if kind == "draw" else Modes()
    update_rows(model, mine, me, others, state, last)
    shape = times, len(picked.rows)
    found = {f"{name}.alpha": me.alpha.reshape(shape)}
    if f"{name}.noise" in draws:
        found[f"{name}.noise"] = _take_noise(model, mine, me, others, state).reshape(*shape, -1)
    found[f"{name}.x"] = me.x[:, : model.size].reshape(*shape, model.size)
    return found | row_parameters(state, name)


def _take_noise(model: Model, mine: SideData, me: Side, others: Side, state: State) -> Array:
    """Put the means of their conditionals in place of rows, and return what rows were beyond."""
    drawn = me.x[:, : model.size].copy()
    update_rows(model, mine, me, others, state, Modes())
    return drawn - me.x[:, : model.size]


def _stack(
    model: Model, draws: Arrays, span: slice, index: Mapping[Name, Index], kind: Kind, name: Name
) -> tuple[Model, State]:
    """Return the rows of some draws as those of one state, draw after draw, with tau 1."""
    arrays: dict[str, Any] = {"tau": np.ones(1), "sweep": np.zeros(1)}
    for side, rows in index.items():
        for part in ("x", "alpha", "scale", "noise"):
            if f"{side}.{part}" in draws:
                values = take_rows(draws, f"{side}.{part}", rows, span)
                arrays[f"{side}.{part}"] = values.reshape(-1, *values.shape[2:])
        if f"{side}.noise" in draws:
            arrays[f"{side}.x"] = arrays[f"{side}.x"] + arrays[f"{side}.noise"]
        for part in ("mu", "Lambda"):  # which rows whose priors are known do not ask for
            arrays[f"{side}.{part}"] = draws[f"{side}.{part}"][span.start]
    for key, values in draws.items():
        if key.startswith(("effect ", LIKELIHOOD)):
            begun = name == "user" and is_by_rating(key)  # anew, for the ratings of these users
            arrays[key] = values[span.start][:0] if begun else values[span.start]
    for key in [key for key in arrays if key.startswith(f"{LIKELIHOOD}user.")]:
        arrays[key] = arrays[key][index["user"]]
    state = from_arrays(arrays)
    return at_point(model, state) if kind == "point" else (model, state)


class _Again(Sampling):
    """Draws with random numbers of their own."""

    def counter(self, side: Name, what: str, group: int = 0) -> Counter:
        return stream(self.draws, None, "redraw").counter()


def redraw_users(model: Model, train: Ratings, kept: Kept, seed: int) -> None:
    """Draw the users of all draws again, in place, under the prior that an update has.

    The rows of the draws are then the means of the users' conditionals, and what was drawn beyond
    them is kept apart as their noise: an average over few draws is better without it.

    The prior of the model is a compromise between users with few ratings and users with many. Given
    how many ratings a user has, and who else rates what they rated, this one is sharper; for a user
    with many ratings it makes no difference. Items drawn again in the same way were tried on
    validation ratings too: better on MovieLens 1M, worse on Epinions.
    """
    draws = kept.arrays
    data, known = Data.of(train, model), Posterior.of(model, train, draws)
    noise = kept.extend("user.noise", (train.n_users, model.size))
    for number in range(len(known)):
        state, own = known.state(number), Draws(seed, number)
        if model.responds:
            update_response(model, data, state, replace(own, sweep=1), "none")
        prior = known.newcomers.new_rows(draws, number, "user", power=POWER)
        added = known.newcomers.offsets(prior.W, "user")
        priors = prior.known_priors(data.user.counts, prior.told_sums(), added)
        mine = replace(data.user, priors=priors)
        state.user.shifts = []  # the prior knows what designs add
        update_rows(model, mine, state.user, state.item, state, _Again(own))
        if not np.isfinite(state.user.x).all():
            raise np.linalg.LinAlgError("rows that are drawn again are not finite")
        noise[number] = _take_noise(model, mine, state.user, state.item, state)
        draws["user.x"][number] = state.user.x[:, : model.size]
