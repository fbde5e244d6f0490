"""The conditionals of the model, each written once.

The functions over whole sides are what the algorithms call. Those over one row or one W_k are the
readable form of what the kernels compute, and their oracle in the tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.reduce import weighted_moments
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Side, SideData, State
from bayesmf.prob.distributions import Gamma, Gaussian, NormalWishart, TruncatedGamma

Array = NDArray[np.float64]
POINTS: Array = np.empty((0, 0))  # covariances of what is known exactly


def hyper(group: Group, own: Array, spread: Array, cov: Array = POINTS) -> NormalWishart:
    """(mu, Lambda) of a group of columns, given the rows' own values (NormalWishart.posterior).

    ``cov`` holds the rows' covariances as lower triangles, or has no rows if they are points.
    """
    assert group.hyper is not None
    weight, total, scatter = second_moments(group, own, spread, cov)
    return group.hyper.posterior(weight, total, scatter, len(own))


def second_moments(
    group: Group, own: Array, spread: Array, cov: Array
) -> tuple[float, Array, Array]:
    """sum w, sum w <x> and sum w <x x'> of a group's columns."""
    weight, total, scatter = weighted_moments(own, spread, group.first, group.end)
    if len(cov):
        columns = slice(group.first, group.end)
        scatter = scatter + unpack(spread @ cov)[columns, columns]
    return weight, total, scatter


def unpack(triangle: Array) -> Array:
    """The symmetric matrix whose lower triangle, row by row, this is; or a stack of them."""
    size = int(np.sqrt(2 * triangle.shape[-1]))
    out = np.zeros((*triangle.shape[:-1], size, size))
    rows, columns = np.tril_indices(size)
    out[..., rows, columns] = out[..., columns, rows] = triangle
    return out


def trace_with(matrix: Array, cov: Array) -> Array:
    """tr(matrix C_i) for every lower triangle C_i."""
    both = 2 * matrix - np.diag(np.diag(matrix))
    out: Array = cov @ both[np.tril_indices(len(matrix))]
    return out


def noise(model: Model, counts: NDArray[np.int64], errors: Array, tau: float) -> Gamma:
    """alpha_i ~ Gamma(a + n_i / 2, b + tau / 2 sum_j beta_j e_ij^2), truncated if the model is."""
    shape = model.hyper.precision_shape + counts / 2
    rate = model.hyper.precision_rate + tau / 2 * errors
    if model.precision == "truncated":
        return TruncatedGamma(shape, rate, *model.bounds)
    return Gamma(shape, rate)


def tau(model: Model, size: int, total: float) -> Gamma:
    """tau ~ Gamma(a + |Omega| / 2, b + 1/2 sum alpha_i beta_j e_ij^2)."""
    shape, rate = model.hyper.noise_shape + size / 2, model.hyper.noise_rate + total / 2
    return Gamma(np.array([shape]), np.array([rate]))


def spread(
    model: Model, side: Side, group: Group, cov: Array = POINTS, doubt: float = 0.0
) -> Gamma:
    """a_i ~ Gamma((nu + d) / 2, (nu + <(U_i - mu)' Lambda (U_i - mu)>) / 2).

    The mean of the form exceeds that at the means by tr(Lambda Cov[U_i]) and by ``doubt``, which
    the uncertainty of mu adds.
    """
    nu = model.hyper.student_degrees
    columns = slice(group.first, group.end)
    e = side.own[:, columns] - side.mean[columns]
    form = np.einsum("ia,ab,ib->i", e, side.precision[columns, columns], e) + doubt
    if len(cov):
        wide = np.zeros_like(side.precision)
        wide[columns, columns] = side.precision[columns, columns]
        form = form + trace_with(wide, cov)
    shape = np.full(len(e), (nu + group.end - group.first) / 2)
    return Gamma(shape, (nu + form) / 2)


def row(state: State, data: SideData, i: int, model: Model) -> Gaussian:
    """x_i = (gamma_i, S_i) given everything else.

    precision  P_i + alpha_i tau sum_j beta_j z_j z_j',           z_j = (1, T_j)
    linear     P_i (mu + offset_i) + alpha_i tau sum_j beta_j z_j (r_ij - eta_j)

    where P_i is Lambda, with its features' part times the Student-t scale of row i; or, if the row
    has a prior of its own, P_i and P_i mu are those of that.
    """
    me, other = state.sides(data.name)
    if data.priors is not None:
        precision, linear = unpack(data.priors.precision[i]), data.priors.linear[i].copy()
    else:
        precision = row_precision(me, i, model, data)
        linear = precision @ (me.mean + (me.offset[i] if len(me.offset) else 0.0))
    for j, r in rated(data, i):
        z = np.concatenate([[1.0], other.x[j, 1 : me.size]])
        weight = state.tau * me.noise[i] * other.noise[j]
        precision += weight * np.outer(z, z)
        linear += weight * z * (r - other.x[j, 0])
    return Gaussian(precision, linear)


def row_precision(me: Side, i: int, model: Model, data: SideData) -> Array:
    """Lambda of row i: the features' group is scaled by the row's Student-t weight."""
    out = me.precision.copy()
    for group in model.groups(data.name):
        if group.end > 1:
            columns = slice(group.first, group.end)
            out[columns, columns] *= me.spread[i]
    return out


def centred_side(state: State, data: SideData, raters: SideData, k: int, model: Model) -> Gaussian:
    """W_k given the rows S of its side: the likelihood plays no part.

    precision  Lambda_W + sum_i c_i^2 P_i
    linear     Lambda_W mu_W + sum_i c_i P_i (S_i - mu - offset_i without k's share)
    """
    me, _ = state.sides(data.name)
    columns = slice(model.first_side, me.size)
    precision = me.W_precision[columns, columns].copy()
    linear = precision @ me.W_mean[columns]
    for i, _ in rated(raters, k):
        c = data.shrink[i]
        P = row_precision(me, i, model, data)[columns, columns]
        without = me.offset[i, columns] - c * me.W[k, columns]
        precision += c * c * P
        linear += c * P @ (me.x[i, columns] - me.mean[columns] - without)
    return Gaussian(precision, linear)


def free_side(state: State, data: SideData, raters: SideData, k: int, model: Model) -> Gaussian:
    """W_k given the rows' own part U (non-centred): S moves with W_k.

    precision  Lambda_W + sum_i c_i^2 A_i
    linear     Lambda_W mu_W + sum_i c_i sum_j w_ij z_j (r_ij - eta_j - z_j'(x_i - c_i W_k))
    """
    me, other = state.sides(data.name)
    columns = slice(model.first_side, me.size)
    precision = me.W_precision[columns, columns].copy()
    linear = precision @ me.W_mean[columns]
    for i, _ in rated(raters, k):
        c = data.shrink[i]
        x = me.x[i, : me.size].copy()
        x[columns] -= c * me.W[k, columns]
        for j, r in rated(data, i):
            z = np.concatenate([[1.0], other.x[j, 1 : me.size]])
            weight = state.tau * me.noise[i] * other.noise[j]
            precision += c * c * weight * np.outer(z[columns], z[columns])
            linear += c * weight * z[columns] * (r - other.x[j, 0] - z @ x)
    return Gaussian(precision, linear)


def rated(data: SideData, i: int) -> list[tuple[int, float]]:
    """The other side's rows that row i has an observation with, and the centred ratings."""
    o = data.observed
    span = range(int(o.starts[i]), int(o.starts[i + 1]))
    return [(int(o.index[p]), float(o.values[p]) - o.mean) for p in span]
