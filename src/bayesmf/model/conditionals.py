"""The conditionals of the model, each written once.

The functions over whole sides are what the algorithms call. Those over one row or one W_k are the
readable form of what the kernels compute, and their oracle in the tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.reduce import weighted_moments
from bayesmf.model.distributions import Gamma, NormalWishart, TruncatedGamma
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Side

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


def noise_prior(model: Model, rows: int) -> Gamma:
    """Of alpha_i or beta_j."""
    h = model.hyper
    shape, rate = np.full(rows, h.precision_shape), np.full(rows, h.precision_rate)
    if model.precision == "truncated":
        return TruncatedGamma(shape, rate, *model.bounds)
    return Gamma(shape, rate)
