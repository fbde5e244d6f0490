"""The log of the joint density of ratings and parameters: the definition of the model."""

from __future__ import annotations

import numpy as np

from bayesmf.model.conditionals import alpha_prior
from bayesmf.model.data import Data, SideData
from bayesmf.model.distributions import LOG_2PI, Gamma, Gaussian
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State
from oracle.conditionals import row_precision, weighed


def log_joint(model: Model, data: Data, state: State) -> float:
    """log p(R, all parameters), every constant kept; slow, written from the definition.

    The rows' density is that of S_i given W. Where a row has no features of its own, S_i is
    fixed by W and only its bias has a density.
    """
    total = _log_likelihood(data, state)
    h = model.hyper
    one = Gamma(np.array([h.noise_shape]), np.array([h.noise_rate]))
    total += float(one.log_density(np.array([state.tau]))[0])
    for side, mine in ((state.user, data.user), (state.item, data.item)):
        total += _log_side(model, side, mine)
    return total


def _log_likelihood(data: Data, state: State) -> float:
    total = 0.0
    size = state.user.size
    for i in range(len(data.user.counts)):
        for j, r, given in weighed(data.user, i):
            x, y = state.user.x[i, :size], state.item.x[j, :size]
            weight = state.tau * state.user.alpha[i] * state.item.alpha[j] * given
            error = r - x[0] - y[0] - x[1:] @ y[1:]
            total += 0.5 * (np.log(weight) - LOG_2PI - weight * error**2)
    return total


def _log_side(model: Model, side: Side, data: SideData) -> float:
    total = 0.0
    h = model.hyper
    rows = len(side.x)
    for group in model.groups(data.name):
        columns = slice(group.first, group.end)
        if group.hyper is not None:
            Lambda = side.Lambda[columns, columns]
            total += group.hyper.log_density(side.mu[columns], Lambda)
        for i in range(rows):
            P = row_precision(side, i, model, data)[columns, columns]
            u = side.own[i, columns]
            total += Gaussian(P, P @ side.mu[columns]).log_density(u)
    if model.precision != "constant":
        total += float(alpha_prior(model, rows).log_density(side.alpha).sum())
    if model.prior == "student-t" and model.has_own(data.name):
        half = np.full(rows, h.student_degrees / 2)
        total += float(Gamma(half, half).log_density(side.scale).sum())
    columns = slice(model.first_shifted, side.size)
    for shift in side.shifts:
        Lambda, mu = shift.Lambda[columns, columns], shift.mu[columns]
        total += model.wishart(len(mu)).log_density(mu, Lambda)
        for w in shift.W[:, columns]:
            total += Gaussian(Lambda, Lambda @ mu).log_density(w)
    return total
