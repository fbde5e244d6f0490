"""Q as draws, its log density, and what the checks of the lower bound need."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from bayesmf.inference.variational.bound import Beliefs, lower_bound
from bayesmf.inference.variational.fit import MeanField, expected_total
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import Data, SideData
from bayesmf.model.distributions import LOG_2PI, Gamma
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State, random_start, refresh_offsets
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import sweep
from oracle.joint import log_joint

ROUNDING = 1e-10  # of the bound: some 1e4 sums of doubles, each good to 1e-16


class Watched(MeanField):
    """Mean field that recomputes the bound after every block."""

    def begin(self, model: Model, data: Data, state: State) -> None:
        self.world, self.seen = (
            (model, data, state),
            [("start", bound_of(model, data, state, self))],
        )

    def note_update(self, what: str) -> None:
        if hasattr(self, "world"):
            self.seen.append((what, bound_of(*self.world, self)))

    def falls(self) -> list[tuple[str, float]]:
        """The blocks after which the bound was lower than before, and by how much."""
        pairs = zip(self.seen[:-1], self.seen[1:], strict=True)
        return [(b[0], b[1] - a[1]) for a, b in pairs if b[1] < a[1] - ROUNDING * abs(a[1])]


def bound_of(model: Model, data: Data, state: State, q: MeanField) -> float:
    return lower_bound(model, data, state, q.beliefs, q.tau, expected_total(data, state, q))


def fitted(model: Model, data: Data, sweeps: int, kind: type[MeanField] = MeanField):
    """A state and its Q after some sweeps from a random start."""
    state, q = random_start(model, data, 0), kind(model, data)
    for _ in range(sweeps):
        sweep(model, data, state, q)
    return state, q


def watched(
    model: Model, data: Data, warm: int = 2, sweeps: int = 3, before: Callable = lambda: None
) -> Watched:
    """The bound after every block of some sweeps; ``warm`` sweeps, and ``before``, come first."""
    state, q = fitted(model, data, warm, Watched)
    before()
    q.begin(model, data, state)
    for _ in range(sweeps):
        sweep(model, data, state, q)
    return q


def gains(model: Model, data: Data, state: State, q: MeanField, count: int) -> np.ndarray:
    """log p(R, theta) - log Q(theta) for draws theta from Q; their mean is the lower bound."""
    rng = np.random.default_rng(1)
    out = np.empty(count)
    for k in range(count):
        draws = Draws(5, sweep=k)
        drawn = copy.deepcopy(state)
        drawn.tau, log_q = _gamma(q.tau, draws.of(60))
        drawn.tau = float(drawn.tau[0])
        for number, mine in enumerate((data.user, data.item)):
            side, _ = drawn.sides(mine.name)
            log_q += _draw_side(model, mine, side, q.beliefs[mine.name], rng, draws.of(10 * number))
        out[k] = log_joint(model, data, drawn) - log_q
    return out


def z_score(model: Model, data: Data, state: State, q: MeanField, count: int = 120) -> float:
    """How many standard errors the bound is from the mean of its draws."""
    drawn = gains(model, data, state, q, count)
    error = drawn.std(ddof=1) / np.sqrt(count)
    return float((bound_of(model, data, state, q) - drawn.mean()) / error)


def _draw_side(
    model: Model, data: SideData, side: Side, q: Beliefs, rng: np.random.Generator, draws: Draws
) -> float:
    log_q = 0.0
    own, free = side.own.copy(), side.size
    if not model.has_own(data.name):
        own, free = np.zeros_like(own), 1  # S is the offset: only the bias has a density
        own[:, 0] = side.x[:, 0]
    log_q += _gaussians(own, q.cov.own, 0, free, rng)
    columns = slice(model.first_shifted, side.size)
    for number, shift in enumerate(side.shifts):
        log_q += _gaussians(shift.W, q.cov.W[number], model.first_shifted, side.size, rng)
        mu, Lambda = q.W_hyper[number].sample(draws.of(draws.parameter + 1 + 6 * number))
        log_q += q.W_hyper[number].log_density(mu, Lambda)
        shift.mu[columns], shift.Lambda[columns, columns] = mu, Lambda
    refresh_offsets(side, data)
    side.x[:, : side.size] = own + side.offset if side.shifts else own
    for number, group in enumerate(model.groups(data.name)):
        if group.hyper is not None:
            mu, Lambda = q.hyper[number].sample(draws.of(draws.parameter + 2 + number))
            log_q += q.hyper[number].log_density(mu, Lambda)
            columns = slice(group.first, group.end)
            side.mu[columns], side.Lambda[columns, columns] = mu, Lambda
    for name, number in (("alpha", 5), ("scale", 6)):
        if getattr(q, name) is not None:
            values, density = _gamma(getattr(q, name), draws.of(draws.parameter + number))
            setattr(side, name, values)
            log_q += density
    return log_q


def _gamma(q: Gamma, draws: Draws) -> tuple[np.ndarray, float]:
    values = q.sample(draws)
    return values, float(q.log_density(values).sum())


def _gaussians(x: np.ndarray, cov: np.ndarray, first: int, end: int, rng) -> float:
    """Replace x[:, first:end] by draws around it; returns their log density."""
    log_q = 0.0
    for row, triangle in zip(x, cov, strict=True):
        C = unpack(triangle)[first:end, first:end]
        noise = rng.normal(size=end - first)
        L = np.linalg.cholesky(C)
        row[first:end] += L @ noise
        log_q -= np.log(np.diag(L)).sum() + 0.5 * (noise @ noise + (end - first) * LOG_2PI)
    return log_q
