"""One sweep of the Gibbs sampler: every parameter once, each given all the others."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from bayesmf.kernels.rows import Prior, draw_rows
from bayesmf.kernels.side import (
    COLUMNS,
    draw_centred,
    draw_non_centred,
    squared_errors,
    store_grams,
)
from bayesmf.model import conditionals
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import TAU, Data, Side, SideData, State, refresh_offset, stream
from bayesmf.prob.draws import Draws

Array = NDArray[np.float64]
Form = Literal["centred", "non-centred", "interwoven"]


def gibbs_sweep(model: Model, data: Data, state: State, draws: Draws, form: Form) -> None:
    """Draw users, items and the global precision in turn; changes ``state`` in place.

    On each side: the side features, the hyper-parameters, the rows, and the rows' precisions,
    which need the squared errors that the rows' draw leaves behind.
    """
    for mine, other in ((data.user, data.item), (data.item, data.user)):
        me, others = state.sides(mine.name)
        if model.has_side(mine.name):
            _draw_side(model, mine, other, me, others, state, draws, form)
        _draw_hyper(model, mine, me, draws)
        errors = _draw_rows(model, mine, me, others, state, draws)
        if model.precision != "constant":
            conditional = conditionals.noise(model, mine.counts, errors, state.tau)
            me.noise = conditional.sample(stream(draws, mine.name, "noise"))
    # what is left behind by the items, who come last: sum_i alpha_i e_ij^2 for each item j
    total = float(state.item.noise @ errors)
    state.tau = float(conditionals.tau(model, data.size, total).sample(draws.of(TAU))[0])
    state.sweep += 1


def _draw_hyper(model: Model, data: SideData, me: Side, draws: Draws) -> None:
    for number, group in enumerate(model.groups(data.name)):
        columns = slice(group.first, group.end)
        features = group.end > 1
        if group.hyper is None:
            me.mean[columns] = model.hyper.bias_mean
            me.precision[columns, columns] = model.hyper.bias_precision
        else:
            weights = me.spread if features else np.ones(len(me.x))
            conditional = conditionals.hyper(group, me.own, weights)
            mean, precision = conditional.sample(stream(draws, data.name, "hyper", number))
            me.mean[columns], me.precision[columns, columns] = mean, precision
        if features and model.prior == "student-t":
            me.spread = conditionals.spread(model, me, group).sample(
                stream(draws, data.name, "spread")
            )


def prior_of(model: Model, data: SideData, me: Side) -> Prior:
    """The rows' prior as the kernel takes it: the features' group is the one that scales."""
    fixed, scaled = np.zeros((me.size, me.size)), np.zeros((me.size, me.size))
    for group in model.groups(data.name):
        columns = slice(group.first, group.end)
        target = scaled if group.end > 1 else fixed
        target[columns, columns] = me.precision[columns, columns]
    return Prior(fixed, scaled, fixed @ me.mean, scaled @ me.mean, me.spread, me.offset)


def _draw_rows(
    model: Model, data: SideData, me: Side, others: Side, state: State, draws: Draws
) -> Array:
    """Draw every row; returns sum_j beta_j e_ij^2 for each row i if anything needs it."""
    place = stream(draws, data.name, "rows")
    wanted = model.precision != "constant" or data.name == "item"
    errors = np.empty(len(me.x) if wanted else 0)
    root, weight = np.sqrt(others.noise), state.tau * me.noise
    if model.features == "none" or model.has_own(data.name):
        prior = prior_of(model, data, me)
        draw_rows(data.observed, others.x, root, weight, prior, place.place(), True, me.x, errors,
                  state.width())  # fmt: skip
        return errors
    # No features of its own: only the bias is free, given S = offset.
    grams = _grams(data, others, root, state)
    lam, mu = me.precision[0, 0], me.mean[0]
    precision = lam + weight * grams[:, 0, 0]
    inner = np.einsum("ia,ia->i", grams[:, 0, 1 : me.size], me.x[:, 1 : me.size])
    linear = lam * mu + weight * (grams[:, -1, 0] - inner)
    noise = place.normals(len(me.x))[:, 0]
    me.x[:, 0] = linear / precision + noise / np.sqrt(precision)
    if wanted:
        squared_errors(grams, me.x, errors)
    return errors


def _grams(data: SideData, others: Side, root: Array, state: State) -> Array:
    columns = others.x.shape[1]
    out = np.empty((len(data.counts), columns, columns))
    store_grams(data.observed, others.x, root, state.width(), out)
    return out


def _draw_side(
    model: Model, data: SideData, raters: SideData, me: Side, others: Side, state: State,
    draws: Draws, form: Form,
) -> None:  # fmt: skip
    """W's hyper-parameters, then W in the form asked for; rows without own features have one."""
    first = model.first_side
    columns = slice(first, me.size)
    group = Group(first, me.size, model.wishart(me.size - first))
    conditional = conditionals.hyper(group, me.W, np.ones(len(me.W)))
    mean, precision = conditional.sample(stream(draws, data.name, "W_hyper"))
    me.W_mean[columns], me.W_precision[columns, columns] = mean, precision
    own = model.has_own(data.name)
    if own and form != "non-centred":
        _draw_centred(model, data, raters, me, stream(draws, data.name, "W"))
    if not own or form != "centred":
        linear = precision @ mean
        weight = state.tau * me.noise
        grams = _grams(data, others, np.sqrt(others.noise), state)
        place = stream(draws, data.name, "W_free").place()
        draw_non_centred(raters.observed, data.shrink, weight, grams, precision, linear, first,
                         place, True, me.x, me.W)  # fmt: skip
    refresh_offset(me, data)
    if not own:
        me.x[:, 1 : me.size] = me.offset[:, 1:]


def _draw_centred(model: Model, data: SideData, raters: SideData, me: Side, draws: Draws) -> None:
    """W given S, in the coordinates B where Lambda_W is the identity and Lambda diagonal.

    B' Lambda_W B = I and B' Lambda B = diag(scale): then W = W~ B' column by column.
    """
    columns = slice(model.first_side, me.size)
    W_precision = me.W_precision[columns, columns]
    scale, B = eigh(me.precision[columns, columns], W_precision)
    into = W_precision @ B  # rows times this are coordinates in B
    c = np.where(data.counts > 0, data.shrink, 1.0)
    residual = (me.own[:, columns] - me.mean[columns]) / c[:, None]
    strips = -(-len(scale) // COLUMNS)

    def cut(rows: Array) -> Array:
        wide = np.zeros((len(rows), strips * COLUMNS))
        wide[:, : rows.shape[1]] = rows
        return np.ascontiguousarray(wide.reshape(len(rows), strips, COLUMNS).transpose(1, 0, 2))

    W = cut(me.W[:, columns] @ into)
    scales, means = cut(scale[None])[:, 0], cut((me.W_mean[columns] @ into)[None])[:, 0]
    draw_centred(raters.observed, me.spread * c**2, scales, means, draws.place(), True,
                 cut(residual @ into), W)  # fmt: skip
    flat = W.transpose(1, 0, 2).reshape(len(me.W), -1)[:, : len(scale)]
    me.W[:, columns] = flat @ B.T
