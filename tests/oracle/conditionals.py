"""The conditionals of one row or one W_k, in plain loops: what the kernels compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.model.conditionals import unpack
from bayesmf.model.data import SideData
from bayesmf.model.distributions import Gaussian
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State

Array = NDArray[np.float64]


def row(state: State, data: SideData, i: int, model: Model) -> Gaussian:
    """x_i = (gamma_i, S_i) given everything else.

    precision  P_i + alpha_i tau sum_j beta_j z_j z_j',           z_j = (1, T_j)
    linear     P_i (mu + offset_i) + alpha_i tau sum_j beta_j z_j (r_ij - eta_j)

    where P_i is Lambda, with its features' part times the Student-t scale of row i; or, if the row
    has a prior of its own, P_i and P_i mu are those of that. A weight of the rating multiplies
    beta_j.
    """
    me, other = state.sides(data.name)
    if data.priors is not None:
        precision, linear = unpack(data.priors.precision[i]), data.priors.linear[i].copy()
    else:
        precision = row_precision(me, i, model, data)
        linear = precision @ (me.mu + (me.offset[i] if len(me.offset) else 0.0))
    for j, r, given in weighed(data, i):
        z = np.concatenate([[1.0], other.x[j, 1 : me.size]])
        weight = state.tau * me.alpha[i] * other.alpha[j] * given
        precision += weight * np.outer(z, z)
        linear += weight * z * (r - other.x[j, 0])
    return Gaussian(precision, linear)


def row_precision(me: Side, i: int, model: Model, data: SideData) -> Array:
    """Lambda of row i: the features' group is scaled by the row's Student-t weight."""
    out = me.Lambda.copy()
    for group in model.groups(data.name):
        if group.end > 1:
            columns = slice(group.first, group.end)
            out[columns, columns] *= me.scale[i]
    return out


def centred_side(state: State, data: SideData, k: int, model: Model, number: int = 0) -> Gaussian:
    """W_k of a design given the rows S of its side: the likelihood plays no part.

    precision  Lambda_W + sum_i X_ik^2 P_i
    linear     Lambda_W mu_W + sum_i X_ik P_i (S_i - mu - offset_i without k's share)
    """
    me, _ = state.sides(data.name)
    shift, columns = me.shifts[number], slice(model.first_shifted, me.size)
    precision = shift.Lambda[columns, columns].copy()
    linear = precision @ shift.mu[columns]
    for i, x_ik in having(data, number, k):
        P = row_precision(me, i, model, data)[columns, columns]
        without = me.offset[i, columns] - x_ik * shift.W[k, columns]
        precision += x_ik**2 * P
        linear += x_ik * P @ (me.x[i, columns] - me.mu[columns] - without)
    return Gaussian(precision, linear)


def free_side(state: State, data: SideData, k: int, model: Model, number: int = 0) -> Gaussian:
    """W_k of a design given the rows' own part U (non-centred): S moves with W_k.

    precision  Lambda_W + sum_i X_ik^2 A_i
    linear     Lambda_W mu_W + sum_i X_ik sum_j w_ij z_j (r_ij - eta_j - z_j'(x_i - X_ik W_k))
    """
    me, other = state.sides(data.name)
    shift, columns = me.shifts[number], slice(model.first_shifted, me.size)
    precision = shift.Lambda[columns, columns].copy()
    linear = precision @ shift.mu[columns]
    for i, x_ik in having(data, number, k):
        x = me.x[i, : me.size].copy()
        x[columns] -= x_ik * shift.W[k, columns]
        for j, r, given in weighed(data, i):
            z = np.concatenate([[1.0], other.x[j, 1 : me.size]])
            weight = state.tau * me.alpha[i] * other.alpha[j] * given
            precision += x_ik**2 * weight * np.outer(z[columns], z[columns])
            linear += x_ik * weight * z[columns] * (r - other.x[j, 0] - z @ x)
    return Gaussian(precision, linear)


def entries(data: SideData, number: int, i: int) -> dict[int, float]:
    """X_ik of a design in row i, by column: c_i v_ik, or c_i for every k that row i rated."""
    matrix = data.matrices[number]
    if matrix.rows is None:
        return {k: float(matrix.scale[i]) for k, _ in rated(data, i)}
    span = range(int(matrix.rows.starts[i]), int(matrix.rows.starts[i + 1]))
    return {int(matrix.rows.index[p]): float(matrix.scale[i] * matrix.rows.values[p]) for p in span}


def having(data: SideData, number: int, k: int) -> list[tuple[int, float]]:
    """The rows with an entry in column k of a design, and X_ik."""
    found = ((i, entries(data, number, i)) for i in range(len(data.counts)))
    return [(i, row[k]) for i, row in found if k in row]


def rated(data: SideData, i: int) -> list[tuple[int, float]]:
    """The other side's rows that row i has an observation with, and the centred ratings."""
    return [(j, r) for j, r, _ in weighed(data, i)]


def weighed(data: SideData, i: int) -> list[tuple[int, float, float]]:
    """The same with the weight of each rating, which is 1 if there are none."""
    o = data.observed
    span = range(int(o.starts[i]), int(o.starts[i + 1]))
    given = o.weights if len(o.weights) else np.ones(len(o.index))
    return [(int(o.index[p]), float(o.values[p]) - o.mean, float(given[p])) for p in span]
