"""The variational lower bound on the log evidence, every constant kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bayesmf.model.conditionals import alpha_prior, second_moments
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import Name
from bayesmf.model.distributions import LOG_2PI, Gamma, NormalWishart
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Side, State
from bayesmf.sweep.algorithm import Covariances

Array = NDArray[np.float64]


@dataclass
class Beliefs:
    """Q of one side, beyond the means that the state holds."""

    cov: Covariances
    hyper: dict[int, NormalWishart] = field(default_factory=dict)  # by group
    W_hyper: dict[int, NormalWishart] = field(default_factory=dict)  # by design
    alpha: Gamma | None = None
    scale: Gamma | None = None


def lower_bound(
    model: Model, data: Data, state: State, beliefs: dict[Name, Beliefs], tau: Gamma, total: float
) -> float:
    """E_Q log p(R, parameters) - E_Q log Q, where ``total`` is sum <alpha_i><beta_j> E_ij.

    Each parameter's prior and the entropy of its Q stand together; the ratings stand alone.
    """
    h = model.priors
    prior = Gamma(np.array([h.noise_shape]), np.array([h.noise_rate]))
    bound = 0.5 * (data.size * (float(tau.mean_log()[0]) - LOG_2PI) - float(tau.mean()[0]) * total)
    bound += 0.5 * log_weights(data)
    bound += _gammas(prior, tau)
    for mine in (data.user, data.item):
        me, _ = state.sides(mine.name)
        bound += _side(model, mine, me, beliefs[mine.name])
    return bound


def log_weights(data: Data) -> float:
    """The sum of the logs of the ratings' weights; 0 if they have none."""
    return float(np.log(data.user.observed.weights).sum())


def _side(model: Model, data: SideData, me: Side, q: Beliefs) -> float:
    h, rows = model.hyper, len(me.x)
    bound = 0.0
    if q.alpha is not None:
        bound += 0.5 * float(data.counts @ q.alpha.mean_log())
        bound += _gammas(alpha_prior(model, rows), q.alpha)
    features = 0
    for number, group in enumerate(model.groups(data.name)):
        weights = me.scale if group.end > 1 else np.ones(rows)
        columns = slice(group.first, group.end)
        fixed = me.mu[columns], me.Lambda[columns, columns]
        bound += _block(group, me.own, weights, q.cov.own, q.hyper.get(number), fixed)
        features += group.end - group.first
        if q.scale is not None and group.end > 1:
            bound += 0.5 * (group.end - group.first) * float(q.scale.mean_log().sum())
    bound += 0.5 * float(q.cov.logdet.sum()) + 0.5 * rows * features * (1 + LOG_2PI)
    if q.scale is not None:
        half = np.full(rows, h.student_degrees / 2)
        bound += _gammas(Gamma(half, half), q.scale)
    group = model.design_group()
    columns = slice(group.first, group.end)
    for number, hyper in sorted(q.W_hyper.items()):
        shift, cov = me.shifts[number], q.cov.W[number]
        fixed = shift.mu[columns], shift.Lambda[columns, columns]
        bound += _block(group, shift.W, np.ones(len(shift.W)), cov, hyper, fixed)
        size = len(shift.W) * (me.size - group.first)
        bound += 0.5 * float(q.cov.W_logdet[number].sum()) + 0.5 * size * (1 + LOG_2PI)
    return bound


def _gammas(prior: Gamma, q: Gamma) -> float:
    """E log p - E log Q."""
    mean_log, mean = q.mean_log(), q.mean()
    gain = prior.expected_log_density(mean_log, mean) - q.expected_log_density(mean_log, mean)
    return float(gain.sum())


def _block(
    group: Group,
    own: Array,
    weights: Array,
    cov: Array,
    q: NormalWishart | None,
    fixed: tuple[Array, Array],
) -> float:
    """E log p of vectors x_k ~ N(mu, w_k Lambda), without log w_k; of mu and Lambda; their entropy.

    sum w <(x - mu)' Lambda (x - mu)> = tr <Lambda> (sum w <x x'> - ...) + sum w d / beta~

    Where mu and Lambda have no Q, they are ``fixed``.
    """
    weight, total, scatter = second_moments(group, own, weights, cov)
    size = group.end - group.first
    if q is None or group.hyper is None:
        mean, precision = fixed
        logdet, doubt, bound = float(np.linalg.slogdet(precision)[1]), 0.0, 0.0
    else:
        mean, precision, logdet = q.mean, q.expected_precision(), q.expected_log_det()
        doubt = size / q.beta
        bound = group.hyper.expected_log_density(q) - q.expected_log_density(q)
    about = scatter - np.outer(mean, total) - np.outer(total, mean) + weight * np.outer(mean, mean)
    form = float(np.sum(precision * about)) + weight * doubt
    return bound + 0.5 * (len(own) * (logdet - size * LOG_2PI) - form)
