"""The weights W of a design, in the form asked for: draws, or their mean all at once.

Given the rows S (centred), W is a regression of S on X and the likelihood plays no part. Given the
rows' own part U (non-centred), S moves along with W. Both have the same posterior.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from bayesmf.kernels.blocks import grams_times, inverses, pack_scaled, triangles_times
from bayesmf.kernels.designs import (
    Sparse,
    draw_centred,
    draw_non_centred,
    offsets,
    squared,
    strips,
)
from bayesmf.model import conditionals
from bayesmf.model.data import SideData
from bayesmf.model.spec import Model
from bayesmf.model.state import Shift, Side, State, refresh_offsets
from bayesmf.random.philox import Counter
from bayesmf.sweep.algorithm import Algorithm, Covariances
from bayesmf.sweep.rows import make_grams, other_side

Array = NDArray[np.float64]
STEPS, ENOUGH = 20, 1e-10  # at most, and the fall of the squared gradient to be content with


def update_design_hyper(
    model: Model, data: SideData, me: Side, number: int, algorithm: Algorithm
) -> None:
    """Update mu and Lambda of a design's W."""
    group, shift = model.design_group(), me.shifts[number]
    columns = slice(group.first, group.end)
    cov = algorithm.seen_covariances(data.name).W
    conditional = conditionals.hyper(
        group, shift.W, np.ones(len(shift.W)), cov[number] if cov else conditionals.POINTS
    )
    mu, Lambda = algorithm.take(data.name, "W_hyper", conditional, number)
    shift.mu[columns], shift.Lambda[columns, columns] = mu, Lambda
    algorithm.note_update(f"{data.name} W hyper")


def update_design(
    model: Model,
    data: SideData,
    me: Side,
    others: Side,
    number: int,
    state: State,
    algorithm: Algorithm,
) -> None:
    """Update W in the form asked for; rows without own features have only the non-centred one."""
    own = model.has_own(data.name)
    if own and algorithm.form != "non-centred":
        _draw_centred(model, data, me, number, algorithm)
    if not own or algorithm.form != "centred":
        _update_non_centred(model, data, me, others, number, state, algorithm)
    refresh_offsets(me, data, number)
    if not own:
        me.x[:, 1 : me.size] = me.offset[:, 1:]
    algorithm.note_update(f"{data.name} W")


def _draw_centred(
    model: Model, data: SideData, me: Side, number: int, algorithm: Algorithm
) -> None:
    """Draw W given S, in the coordinates B where Lambda_W is the identity and Lambda diagonal.

    B' Lambda_W B = I and B' Lambda B = diag(scale): then W = W~ B' column by column.
    """
    shift = me.shifts[number]
    columns = slice(model.first_shifted, me.size)
    Lambda_W = shift.Lambda[columns, columns]
    scale, B = eigh(me.Lambda[columns, columns], Lambda_W)
    into = Lambda_W @ B  # rows times this are coordinates in B
    c = data.matrices[number].scale
    c = np.where(c != 0, c, 1.0)
    residual = (me.own[:, columns] - me.mu[columns]) / c[:, None]
    W = strips(shift.W[:, columns] @ into)
    scales, means = strips(scale[None])[:, 0], strips((shift.mu[columns] @ into)[None])[:, 0]
    counter = algorithm.counter(data.name, "W", number)
    shared = (me.scale * c**2, counter, algorithm.sample)
    by_strip = (scales, means, strips(residual @ into), W)
    (W,) = data.run_strips(number, _draw_strips, shared, by_strip)
    flat = W.transpose(1, 0, 2).reshape(len(shift.W), -1)[:, : len(scale)]
    shift.W[:, columns] = flat @ B.T


def _draw_strips(
    columns: Sparse,
    first: int,
    weight: Array,
    counter: Counter,
    sample: bool,
    scales: Array,
    means: Array,
    residual: Array,
    W: Array,
) -> tuple[Array]:
    """Draw W anew; ``residual`` and ``W`` are changed."""
    draw_centred(columns, weight, scales, means, counter, sample, residual, W, first)
    return (W,)


def _update_non_centred(
    model: Model,
    data: SideData,
    me: Side,
    others: Side,
    number: int,
    state: State,
    algorithm: Algorithm,
) -> None:
    first, shift, cov = model.first_shifted, me.shifts[number], algorithm.covariances(data.name)
    grams = make_grams(data, other_side(data, others, algorithm), me.size, state)
    weight, c = state.tau * me.alpha, data.matrices[number].scale
    if algorithm.sample:
        Lambda_W = shift.Lambda[first:, first:]
        linear = Lambda_W @ shift.mu[first:]
        counter = algorithm.counter(data.name, "W_free", number)
        draw_non_centred(
            data.columns[number],
            c,
            weight,
            grams,
            Lambda_W,
            linear,
            first,
            counter,
            True,
            me.x,
            shift.W,
        )
        return
    cells = me.size * (me.size + 1) // 2
    W_cov = cov.W[number] if cov.W else np.zeros((len(shift.W), cells))
    logdet = cov.W_logdet[number] if cov.W else np.empty(len(shift.W))
    patterns = data.pattern(number), data.columns[number]
    move_to_mean(patterns, c, me, shift, first, grams, weight, W_cov, logdet)
    if cov.W:
        refresh_offset_cov(data, cov)
        np.add(cov.own, cov.offset, out=cov.total)


def refresh_offset_cov(data: SideData, cov: Covariances) -> None:
    """Compute the covariances of the offsets, sum_k X_ik^2 Cov[W_k] over all designs."""
    for number, W_cov in enumerate(cov.W):
        part = cov.offset if number == 0 else np.empty_like(cov.offset)
        offsets(squared(data.pattern(number)), W_cov, data.matrices[number].scale ** 2, part)
        if number:
            cov.offset += part


def move_to_mean(
    patterns: tuple[Sparse, Sparse],
    c: Array,
    me: Side,
    shift: Shift,
    first: int,
    grams: Array,
    weight: Array,
    cov: Array,
    logdet: Array,
) -> None:
    """Move W, and the rows with it, to the mean; fill ``cov`` and ``logdet`` with those of W_k.

    The log density of all W is a quadratic form. Its maximum is the mean of every W_k, under the
    joint posterior and under a mean field alike; each step of conjugate gradients raises it.

    gradient   Lambda_W (mu_W - W_k) + sum_i X_ik weight_i (h_i - A_i x_i)
    curvature  H V = Lambda_W V_k + sum_i X_ik weight_i A_i (sum_l X_il V_l)
    block k    Lambda_W + sum_i X_ik^2 weight_i A_i, the inverse of Cov[W_k]

    with (A_i, h_i) from ``grams`` and X_ik = c_i v_ik, where ``patterns`` hold v by row and by
    column. The blocks' inverses are the preconditioner.
    """
    rows, columns = patterns
    prior, mean = shift.Lambda[first:, first:], shift.mu[first:]
    size, last, ones = len(mean), grams.shape[1] - 1, np.ones(len(shift.W))

    def gather(matrix: Sparse, terms: Array) -> Array:
        """sum_i v_ik terms_i for each k, with ``matrix`` by column."""
        out = np.empty((len(shift.W), terms.shape[1]))
        offsets(matrix, terms, ones, out)
        return out

    def scatter(V: Array) -> Array:
        """c_i sum_k v_ik V_k for each row i."""
        out = np.empty((len(me.x), size))
        offsets(rows, V, c, out)
        return out

    def curvature(V: Array) -> Array:
        pulled = np.empty((len(me.x), size))
        grams_times(grams, c * weight, first, scatter(V), pulled)
        return V @ prior + gather(columns, pulled)

    triangles = np.empty((len(me.x), size * (size + 1) // 2))
    pack_scaled(grams, c**2 * weight, first, size, triangles)
    inverses(gather(squared(columns), triangles), prior, first, cov, logdet)
    fitted = np.empty((len(me.x), me.size))
    grams_times(grams, np.ones(len(me.x)), 0, me.x[:, : me.size], fitted)
    slope = (c * weight)[:, None] * (grams[:, last, first : me.size] - fitted[:, first:])
    r = (mean - shift.W[:, first:]) @ prior + gather(columns, slope)

    def precondition(slopes: Array) -> Array:
        out = np.empty_like(slopes)
        triangles_times(cov, first, slopes, out)
        return out

    V = _conjugate_gradients(curvature, precondition, r)
    shift.W[:, first:] += V
    me.x[:, first : me.size] += scatter(V)


def _conjugate_gradients(
    curvature: Callable[[Array], Array], precondition: Callable[[Array], Array], slope: Array
) -> Array:
    """Solve curvature(V) = slope, as far as STEPS steps lead."""
    r, V = slope, np.zeros_like(slope)
    z = precondition(r)
    p, rz = z.copy(), float(np.vdot(r, z))
    enough = ENOUGH * rz
    for _ in range(STEPS):
        if rz <= enough:
            break
        Hp = curvature(p)
        length = rz / float(np.vdot(p, Hp))
        V += length * p
        r -= length * Hp
        z = precondition(r)
        rz, before = float(np.vdot(r, z)), rz
        p = z + (rz / before) * p
    return V
