"""The rows of one side given the other: S_i and the bias together, or the bias alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.designs import squared_errors, store_grams
from bayesmf.kernels.rows import OtherSide, Prior, draw_rows
from bayesmf.machine import LANES
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import SideData
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State
from bayesmf.random.philox import Counter, normals
from bayesmf.sweep.algorithm import NO_VALUES, Algorithm, Covariances

Array = NDArray[np.float64]


def row_prior(model: Model, data: SideData, me: Side, offset_cov: Array = POINTS) -> Prior:
    """The rows' prior as the kernel takes it: the features' group is the one that scales."""
    fixed, scaled = np.zeros((me.size, me.size)), np.zeros((me.size, me.size))
    if data.priors is not None:
        zero = np.zeros(me.size)
        return Prior(
            fixed,
            scaled,
            zero,
            zero,
            me.scale,
            me.offset,
            offset_cov,
            data.priors.precision,
            data.priors.linear,
        )
    for group in model.groups(data.name):
        columns = slice(group.first, group.end)
        target = scaled if group.end > 1 else fixed
        target[columns, columns] = me.Lambda[columns, columns]
    return Prior(fixed, scaled, fixed @ me.mu, scaled @ me.mu, me.scale, me.offset, offset_cov)


def other_side(data: SideData, others: Side, algorithm: Algorithm) -> OtherSide:
    """What an update of ``data``'s rows sees of the other side."""
    other: Name = "item" if data.name == "user" else "user"
    return OtherSide.of(others.x, others.alpha, algorithm.seen_covariances(other).total)


def update_rows(
    model: Model, data: SideData, me: Side, others: Side, state: State, algorithm: Algorithm
) -> Array:
    """Update every row; returns sum_j beta_j e_ij^2 for each row i if anything needs it."""
    needed = model.precision != "constant" or data.name == "item" or not algorithm.sample
    errors = np.empty(len(me.x) if needed else 0)
    known, weight = other_side(data, others, algorithm), state.tau * me.alpha
    cov = algorithm.covariances(data.name)
    counter = algorithm.counter(data.name, "rows")
    if model.has_own(data.name) or data.priors is not None:
        prior = row_prior(model, data, me, cov.offset)
        if len(cov.own):
            draw_rows(
                data.observed,
                known,
                weight,
                prior,
                counter,
                algorithm.sample,
                me.x,
                errors,
                cov.own,
                cov.logdet,
                state.width(),
            )
        else:
            shared = (
                known,
                prior._replace(spread=None, offset=None),
                counter,
                algorithm.sample,
                needed,
                state.width(),
            )
            by_row = weight, prior.spread, prior.offset
            me.x, errors = data.run(_draw_part, shared, by_row, reads=True)
        if len(cov.offset):
            np.add(cov.own, cov.offset, out=cov.total)
    else:
        _update_biases(data, me, known, weight, counter, algorithm.sample, cov, errors, state)
    algorithm.note_update(f"{data.name} rows")
    return errors


def _draw_part(
    data: SideData,
    known: OtherSide,
    prior: Prior,
    counter: Counter,
    sample: bool,
    needed: bool,
    width: tuple[int, ...],
    weight: Array,
    scale: Array,
    offset: Array,
) -> tuple[Array, Array]:
    """Rows, and their squared errors if those are needed."""
    x = np.zeros((len(weight), LANES * len(width)))
    errors = np.empty(len(weight) if needed else 0)
    draw_rows(
        data.observed,
        known,
        weight,
        prior._replace(spread=scale, offset=offset),
        counter,
        sample,
        x,
        errors,
        POINTS,
        NO_VALUES,
        width,
    )
    return x, errors


def _update_biases(
    data: SideData,
    me: Side,
    known: OtherSide,
    weight: Array,
    counter: Counter,
    sample: bool,
    cov: Covariances,
    errors: Array,
    state: State,
) -> None:
    """Rows without features of their own: only the bias is free, given S = offset."""
    grams = make_grams(data, known, me.size, state)
    lam, mu = me.Lambda[0, 0], me.mu[0]
    precision = lam + weight * grams[:, 0, 0]
    inner = np.einsum("ia,ia->i", grams[:, 0, 1 : me.size], me.x[:, 1 : me.size])
    linear = lam * mu + weight * (grams[:, -1, 0] - inner)
    me.x[:, 0] = linear / precision
    if sample:
        standard_normals = np.empty((len(me.x), 1))
        normals(counter, 0, standard_normals)
        me.x[:, 0] += standard_normals[:, 0] / np.sqrt(precision)
    if len(cov.own):
        cov.own[:, 0], cov.logdet[:] = 1 / precision, -np.log(precision)
        np.add(cov.own, cov.offset, out=cov.total)
    if len(errors):
        row_cov = cov.total if len(known.cov) else POINTS
        squared_errors(grams, me.x, row_cov, me.size, errors)


def make_grams(data: SideData, known: OtherSide, size: int, state: State) -> Array:
    """The Gram matrix of every row, with its target in the last column."""
    columns = known.z.shape[1]
    out = np.empty((len(data.counts), columns, columns))
    store_grams(data.observed, known, size, state.width(), out)
    return out
