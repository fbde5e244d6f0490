"""One sweep: every parameter once, each given what is known of all the others.

The sweep is the same for every algorithm; an ``Algorithm`` says what it takes from a conditional.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

<<<<<<< HEAD
from bayesmf.choices import Form
=======
from bayesmf.kernels.designs import (
    draw_centred,
    draw_non_centred,
    offsets,
    pattern,
    squared,
    squared_errors,
    store_grams,
    strips,
)
from bayesmf.kernels.rows import OtherSide, Prior, draw_rows
>>>>>>> kernels
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import Name
from bayesmf.model.distributions import NormalWishart
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Side, State
from bayesmf.random.draws import Draws
from bayesmf.sweep.algorithm import Algorithm, Sampling
from bayesmf.sweep.designs import update_design, update_design_hyper
from bayesmf.sweep.response import update_response
from bayesmf.sweep.rows import update_rows

Array = NDArray[np.float64]


def gibbs_sweep(model: Model, data: Data, state: State, draws: Draws, form: Form) -> None:
    """Draw everything once; changes ``state`` in counter."""
    if data.response is not None:
        update_response(model, data, state, draws)
    sweep(model, data, state, Sampling(draws, form))


def sweep(model: Model, data: Data, state: State, algorithm: Algorithm) -> float:
    """Update users, items and the global precision in turn; changes ``state`` in counter.

    On each side: the designs, the hyper-parameters, the rows, and the rows' precisions, which need
    the squared errors that the rows' update leaves behind. Returns the weighted sum of squared
    errors, sum alpha_i beta_j e_ij^2.
    """
    for mine in (data.user, data.item):
        me, others = state.sides(mine.name)
        for number in range(len(me.shifts)):
            update_design_hyper(model, mine, me, number, algorithm)
            update_design(model, mine, me, others, number, state, algorithm)
        update_hyper(model, mine, me, algorithm)
        errors = update_rows(model, mine, me, others, state, algorithm)
        update_alpha(model, mine, me, errors, state, algorithm)
    # what is left behind by the items, who come last: sum_i alpha_i e_ij^2 for each item j
    return update_tau(model, data, errors, state, algorithm)


def update_alpha(
    model: Model, data: SideData, me: Side, errors: Array, state: State, algorithm: Algorithm
) -> None:
    """Update the rows' precisions, if they are not constant."""
    if model.precision != "constant":
        conditional = conditionals.alpha(model, data.counts, errors, state.tau)
        me.alpha = algorithm.take(data.name, "alpha", conditional)
        algorithm.note_update(f"{data.name} alpha")


def update_tau(
    model: Model, data: Data, errors: Array, state: State, algorithm: Algorithm
) -> float:
    """Update the global precision, which ends a sweep; ``errors`` are sum_i alpha_i e_ij^2 of j."""
    total = float(state.item.alpha @ errors)
    conditional = model.likelihood.tau(model.hyper, data.size, total)
    if conditional is not None:
        state.tau = float(algorithm.take(None, "tau", conditional)[0])
        algorithm.note_update("tau")
    state.sweep += 1
    return total


def update_hyper(model: Model, data: SideData, me: Side, algorithm: Algorithm) -> None:
    """Update mu and Lambda of the rows' own part, and the rows' Student-t scales.

    Rows with priors of their own leave nothing to learn.
    """
    if data.priors is not None:
        return
    cov = algorithm.seen_covariances(data.name).own
    for number, group in enumerate(model.groups(data.name)):
        if group.hyper is None:
            fix_hyper(model, me, group)
        else:
            conditional = conditionals.hyper(group, me.own, group_weights(me.scale, group), cov)
            take_hyper(data.name, me, group, number, conditional, algorithm)
            doubt = len(conditional.mean) / conditional.beta if len(cov) else 0.0
            update_scale(model, data.name, me, group, algorithm, cov, doubt)


def group_weights(scale: Array, group: Group) -> Array:
    """The rows' weights in the moments of a group: Student-t scales are those of the features."""
    return scale if group.end > 1 else np.ones(len(scale))


def fix_hyper(model: Model, me: Side, group: Group) -> None:
    """Set mu and Lambda of a group whose prior is fixed: the biases'."""
    columns = slice(group.first, group.end)
    me.mu[columns] = model.hyper.bias_mean
    me.Lambda[columns, columns] = model.hyper.bias_precision


def take_hyper(
    side: Name, me: Side, group: Group, number: int, conditional: NormalWishart,
    algorithm: Algorithm,
) -> None:  # fmt: skip
    """Update mu and Lambda of a group from their conditional."""
    columns = slice(group.first, group.end)
    mu, Lambda = algorithm.take(side, "hyper", conditional, number)
    me.mu[columns], me.Lambda[columns, columns] = mu, Lambda
    algorithm.note_update(f"{side} hyper")


def update_scale(
    model: Model, side: Name, me: Side, group: Group, algorithm: Algorithm, cov: Array = POINTS,
    doubt: float = 0.0,
) -> None:  # fmt: skip
    """Update the rows' Student-t scales, if the model has them for this group."""
    if group.end > 1 and model.prior == "student-t":
<<<<<<< HEAD
        conditional = conditionals.student_scale(model, me, group, cov, doubt)
        me.scale = algorithm.take(side, "scale", conditional)
        algorithm.note_update(f"{side} scale")
=======
        scale = conditionals.spread(model, me, group, cov, doubt)
        me.spread = algorithm.take(side, "spread", scale)
        algorithm.updated(f"{side} spread")


def prior_of(model: Model, data: SideData, me: Side, offset_cov: Array = POINTS) -> Prior:
    """The rows' prior as the kernel takes it: the features' group is the one that scales."""
    fixed, scaled = np.zeros((me.size, me.size)), np.zeros((me.size, me.size))
    if data.priors is not None:
        zero = np.zeros(me.size)
        return Prior(fixed, scaled, zero, zero, me.spread, me.offset, offset_cov,
                     data.priors.precision, data.priors.linear)  # fmt: skip
    for group in model.groups(data.name):
        columns = slice(group.first, group.end)
        target = scaled if group.end > 1 else fixed
        target[columns, columns] = me.precision[columns, columns]
    return Prior(fixed, scaled, fixed @ me.mean, scaled @ me.mean, me.spread, me.offset, offset_cov)


def _known(data: SideData, others: Side, algorithm: Algorithm) -> OtherSide:
    """What an update of ``data``'s rows sees of the other side."""
    other: Name = "item" if data.name == "user" else "user"
    return OtherSide.of(others.x, others.noise, algorithm.known(other).total)


def update_rows(
    model: Model, data: SideData, me: Side, others: Side, state: State, algorithm: Algorithm
) -> Array:
    """Update every row; returns sum_j beta_j e_ij^2 for each row i if anything needs it."""
    wanted = model.precision != "constant" or data.name == "item" or not algorithm.sample
    errors = np.empty(len(me.x) if wanted else 0)
    known, weight = _known(data, others, algorithm), state.tau * me.noise
    cov = algorithm.covariances(data.name)
    counter = algorithm.counter(data.name, "rows")
    if model.features == "none" or model.has_own(data.name):
        prior = prior_of(model, data, me, cov.offset)
        if len(cov.own):
            draw_rows(data.observed, known, weight, prior, counter, algorithm.sample, me.x, errors,
                      cov.own, cov.logdet, state.width())  # fmt: skip
        else:
            shared = (known, prior._replace(spread=None, offset=None), counter, algorithm.sample,
                      wanted, state.width())  # fmt: skip
            me.x, errors = data.run(_rows, shared, (weight, prior.spread, prior.offset))
        if len(cov.offset):
            np.add(cov.own, cov.offset, out=cov.total)
    else:
        _update_biases(data, me, known, weight, counter, algorithm.sample, cov, errors, state)
    algorithm.updated(f"{data.name} rows")
    return errors


def _rows(
    data: SideData, known: OtherSide, prior: Prior, counter: Counter, sample: bool, wanted: bool,
    width: tuple[int, ...], weight: Array, spread: Array, offset: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Rows, and their squared errors if those are wanted."""
    x = np.zeros((len(weight), len(width)))
    errors = np.empty(len(weight) if wanted else 0)
    draw_rows(data.observed, known, weight, prior._replace(spread=spread, offset=offset), counter,
              sample, x, errors, POINTS, NO_VALUES, width)  # fmt: skip
    return x, errors


def _update_biases(
    data: SideData, me: Side, known: OtherSide, weight: Array, counter: Counter, sample: bool,
    cov: Covariances, errors: Array, state: State,
) -> None:  # fmt: skip
    """Rows without features of their own: only the bias is free, given S = offset."""
    grams = _grams(data, known, me.size, state)
    lam, mu = me.precision[0, 0], me.mean[0]
    precision = lam + weight * grams[:, 0, 0]
    inner = np.einsum("ia,ia->i", grams[:, 0, 1 : me.size], me.x[:, 1 : me.size])
    linear = lam * mu + weight * (grams[:, -1, 0] - inner)
    me.x[:, 0] = linear / precision
    if sample:
        noise = np.empty((len(me.x), 1))
        normals(counter, 0, noise)
        me.x[:, 0] += noise[:, 0] / np.sqrt(precision)
    if len(cov.own):
        cov.own[:, 0], cov.logdet[:] = 1 / precision, -np.log(precision)
        np.add(cov.own, cov.offset, out=cov.total)
    if len(errors):
        spread = cov.total if len(known.cov) else POINTS
        squared_errors(grams, me.x, spread, me.size, errors)


def _grams(data: SideData, known: OtherSide, size: int, state: State) -> Array:
    columns = known.z.shape[1]
    out = np.empty((len(data.counts), columns, columns))
    store_grams(data.observed, known, size, state.width(), out)
    return out


def update_side_hyper(model: Model, data: SideData, me: Side, algorithm: Algorithm) -> None:
    """mu and Lambda of W."""
    first = model.first_side
    columns = slice(first, me.size)
    group = Group(first, me.size, model.wishart(me.size - first))
    cov = algorithm.known(data.name).W
    conditional = conditionals.hyper(group, me.W, np.ones(len(me.W)), cov)
    mean, precision = algorithm.take(data.name, "W_hyper", conditional)
    me.W_mean[columns], me.W_precision[columns, columns] = mean, precision
    algorithm.updated(f"{data.name} W hyper")


def update_side(
    model: Model, data: SideData, raters: SideData, me: Side, others: Side, state: State,
    algorithm: Algorithm,
) -> None:  # fmt: skip
    """W in the form asked for; rows without own features have only the non-centred one."""
    first, own = model.first_side, model.has_own(data.name)
    if own and algorithm.form != "non-centred":
        _draw_centred(model, data, raters, me, algorithm)
    if not own or algorithm.form != "centred":
        rows, columns = pattern(data.observed), pattern(raters.observed)
        cov = algorithm.covariances(data.name)
        grams = _grams(data, _known(data, others, algorithm), me.size, state)
        weight = state.tau * me.noise
        if algorithm.sample:
            precision = me.W_precision[first:, first:]
            linear = precision @ me.W_mean[first:]
            counter = algorithm.counter(data.name, "W_free")
            draw_non_centred(columns, data.shrink, weight, grams, precision, linear, first, counter,
                             True, me.x, me.W)  # fmt: skip
        else:
            cells = me.size * (me.size + 1) // 2
            filled = cov.W if len(cov.W) else np.zeros((len(me.W), cells))
            logdet = cov.W_logdet if len(cov.W) else np.empty(len(me.W))
            move_to_mean(rows, columns, data.shrink, me, first, grams, weight, filled, logdet)
        if len(cov.W):
            offsets(squared(rows), cov.W, data.shrink**2, cov.offset)
            np.add(cov.own, cov.offset, out=cov.total)
    refresh_offset(me, data)
    if not own:
        me.x[:, 1 : me.size] = me.offset[:, 1:]
    algorithm.updated(f"{data.name} W")


def _strips(
    raters: SideData, first: int, weight: Array, counter: Counter, sample: bool, scales: Array,
    means: Array, residual: Array, W: Array,
) -> tuple[Array]:  # fmt: skip
    """W drawn anew; ``residual`` and ``W`` are changed."""
    columns = pattern(raters.observed)
    draw_centred(columns, weight, scales, means, counter, sample, residual, W, first)
    return (W,)


def _draw_centred(
    model: Model, data: SideData, raters: SideData, me: Side, algorithm: Algorithm
) -> None:
    """W given S, in the coordinates B where Lambda_W is the identity and Lambda diagonal.

    B' Lambda_W B = I and B' Lambda B = diag(scale): then W = W~ B' column by column.
    """
    columns = slice(model.first_side, me.size)
    W_precision = me.W_precision[columns, columns]
    scale, B = eigh(me.precision[columns, columns], W_precision)
    into = W_precision @ B  # rows times this are coordinates in B
    c = np.where(data.counts > 0, data.shrink, 1.0)
    residual = (me.own[:, columns] - me.mean[columns]) / c[:, None]
    W = strips(me.W[:, columns] @ into)
    scales, means = strips(scale[None])[:, 0], strips((me.W_mean[columns] @ into)[None])[:, 0]
    shared = (me.spread * c**2, algorithm.counter(data.name, "W"), algorithm.sample)
    (W,) = raters.run_strips(_strips, shared, (scales, means, strips(residual @ into), W))
    flat = W.transpose(1, 0, 2).reshape(len(me.W), -1)[:, : len(scale)]
    me.W[:, columns] = flat @ B.T
>>>>>>> kernels
