"""The conditionals of the model, each written once.

These functions are over whole sides. The same for one row or one W_k, in plain loops, are in
tests/oracle: what the kernels compute is compared with those.
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


def hyper(group: Group, own: Array, weights: Array, cov: Array = POINTS) -> NormalWishart:
    """(mu, Lambda) of a group of columns, given the rows' own values (NormalWishart.posterior).

    ``cov`` holds the rows' covariances as lower triangles, or has no rows if they are points.
    """
    assert group.hyper is not None
    weight, total, scatter = second_moments(group, own, weights, cov)
    return group.hyper.posterior(weight, total, scatter, len(own))


def second_moments(
    group: Group, own: Array, weights: Array, cov: Array
) -> tuple[float, Array, Array]:
    """sum w, sum w <x> and sum w <x x'> of a group's columns."""
    weight, total, scatter = weighted_moments(own, weights, group.first, group.end)
    if len(cov):
        columns = slice(group.first, group.end)
        scatter = scatter + unpack(weights @ cov)[columns, columns]
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


def alpha_prior(model: Model, rows: int) -> Gamma:
    """The prior of alpha_i or beta_j, for so many rows."""
    return alpha(model, np.zeros(rows, np.int64), np.zeros(rows), 0.0)


def alpha(model: Model, counts: NDArray[np.int64], errors: Array, tau: float | Array) -> Gamma:
    """alpha_i ~ Gamma(a + n_i / 2, b + tau / 2 sum_j beta_j e_ij^2), truncated if the model is."""
    shape = model.precision_prior[0] + counts / 2
    rate = model.precision_prior[1] + tau / 2 * errors
    if model.precision == "truncated":
        return TruncatedGamma(shape, rate, *model.bounds)
    return Gamma(shape, rate)


def student_scale(
    model: Model, side: Side, group: Group, cov: Array = POINTS, doubt: float = 0.0
) -> Gamma:
    """a_i ~ Gamma((nu + d) / 2, (nu + <(U_i - mu)' Lambda (U_i - mu)>) / 2).

    The mean of the form exceeds that at the means by tr(Lambda Cov[U_i]) and by ``doubt``, which
    the uncertainty of mu adds.
    """
    nu = model.hyper.student_degrees
    columns = slice(group.first, group.end)
    e = side.own[:, columns] - side.mu[columns]
    form = np.einsum("ia,ab,ib->i", e, side.Lambda[columns, columns], e) + doubt
    if len(cov):
        wide = np.zeros_like(side.Lambda)
        wide[columns, columns] = side.Lambda[columns, columns]
        form = form + trace_with(wide, cov)
    shape = np.full(len(e), (nu + group.end - group.first) / 2)
    return Gamma(shape, (nu + form) / 2)
