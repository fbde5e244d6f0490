"""New users, given what is known of the items, or new items given the users: no refit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model
from bayesmf.model.state import State, from_arrays, refresh_offsets, shift_names
from bayesmf.random.draws import Draws
from bayesmf.sweep.algorithm import Modes, Sampling
from bayesmf.sweep.rows import update_rows

if TYPE_CHECKING:
    from bayesmf.fit.posterior import Posterior

Array = NDArray[np.float64]


def fold_in(
    model: Model, state: State, data: Data, draws: Draws, *, name: Name = "user",
    sample: bool = False, rounds: int = 5,
) -> State:  # fmt: skip
    """One draw of a fit with the rows of ``data`` in place of its own users (or items).

    Exact given the other side, the side features and the hyper-parameters of ``state``: a row is a
    draw from p(x_i | ratings of i, state), or its mean; the offset is that of what *they* rated.
    Precisions and Student-t scales of rows are not known beforehand; ``rounds`` of Gibbs sampling
    draw them.
    """
    mine = data.user if name == "user" else data.item
    side, others = state.sides(name)
    rows, size = len(mine.counts), model.size
    own = model.has_own(name)
    x = np.zeros((rows, side.x.shape[1]))
    shifts = [replace(shift, offset=np.zeros((rows, size))) for shift in side.shifts]
    me = replace(side, x=x, alpha=np.ones(rows), scale=np.ones(rows), shifts=shifts)
    new = replace(state, user=me) if name == "user" else replace(state, item=me)
    if me.shifts:
        refresh_offsets(me, mine)
        if not own:
            x[:, 1:size] = me.offset[:, 1:]
    hidden = model.precision != "constant" or model.prior == "student-t"
    for number in range(rounds if hidden else 0):
        sampling = Sampling(replace(draws, sweep=number))
        errors = update_rows(model, mine, me, others, new, sampling)
        if model.precision != "constant":
            conditional = conditionals.alpha(model, mine.counts, errors, new.tau)
            me.alpha = sampling.take(name, "alpha", conditional)
        features = [group for group in model.groups(name) if group.end > 1]
        if model.prior == "student-t" and features:
            scale = conditionals.student_scale(model, me, features[0], POINTS, 0.0)
            me.scale = sampling.take(name, "scale", scale)
    algorithm = Sampling(replace(draws, sweep=rounds)) if sample else Modes()
    update_rows(model, mine, me, others, new, algorithm)
    return new


STRANGE = 60  # the random stream of what nothing is known of


def joined(old: Posterior, side: Name, mine: Ids, data: Data, seed: int) -> Posterior:
    """Old and new rows together, by ascending id; the new ones win."""
    before = old.ids(side)
    kept = np.setdiff1d(np.arange(len(before)), before.index(mine.values))
    values = np.concatenate([before.values[kept], mine.values])
    order = np.argsort(values, kind="stable")

    def merged(rows: Any, new: Array) -> Any:
        return np.concatenate([rows[kept], new.astype(np.float32)])[order]

    many = len(old) > 1
    draws = dict(old.draws)
    for k in range(len(old)):
        new = _folded(old.model, old.state(k), data, side, Draws(seed, k + 1), many)
        for name, rows in new.items():
            if k == 0:
                shape = (len(old), len(order), *rows.shape[1:])
                draws[name] = np.empty(shape, np.float32)
            draws[name][k] = merged(old.draws[name][k], rows)
    centre = None
    if old.centre is not None:
        centre = dict(old.centre)
        new = _folded(old.model, from_arrays(old.centre), data, side, Draws(seed), False)
        for name, rows in new.items():
            centre[name] = merged(old.centre[name], rows)
    counts = {"user": old.user_counts, "item": old.item_counts}
    added = data.user.counts if side == "user" else data.item.counts
    counts[side] = np.concatenate([counts[side][kept], added])[order]
    ids = {"user": old.users, "item": old.items, side: Ids(values[order])}
    return replace(old, users=ids["user"], items=ids["item"], draws=draws, centre=centre,
                   user_counts=counts["user"], item_counts=counts["item"], seen=None)  # fmt: skip


def _folded(
    model: Model, state: State, data: Data, side: Name, draws: Draws, sample: bool
) -> dict[str, Array]:
    """The new rows of one state, by the names of their arrays.

    At a point, as a MAP estimate is, every rating weighs the same, as when it was made.
    """
    if not sample:
        flat = {"alpha": np.ones(len(state.item.x))}, {"alpha": np.ones(len(state.user.x))}
        state = replace(state, item=replace(state.item, **flat[0]),
                        user=replace(state.user, **flat[1]))  # fmt: skip
        model = replace(model, precision="constant")
    new = fold_in(model, state, data, draws, name=side, sample=sample)
    me, others = new.sides(side)
    other: Name = "item" if side == "user" else "user"
    rows: dict[str, Array] = {
        f"{side}.x": me.x[:, : model.size], f"{side}.alpha": me.alpha, f"{side}.scale": me.scale,
    }  # fmt: skip
    for number, shift in enumerate(
        others.shifts
    ):  # their side features for the other side: nothing is known of those
        first = model.first_shifted
        half = np.linalg.cholesky(np.linalg.inv(shift.Lambda[first:, first:]))
        W = np.tile(shift.mu, (len(me.x), 1))
        if sample:
            W[:, first:] += draws.of(STRANGE).normals(len(me.x), model.size - first) @ half.T
        rows[f"{other}.{shift_names(number)['W']}"] = W
    return rows
