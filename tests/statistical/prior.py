"""Draws from the prior and of the data, by NumPy's generator: independent of the sampler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from bayesmf.model.data import Data
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State, random_start, refresh_offsets


def draw_prior(model: Model, data: Data, rng: np.random.Generator) -> State:
    """Every parameter from the top of the model down."""
    state = random_start(model, data, 0)
    h = model.hyper
    state.tau = rng.gamma(h.noise_shape, 1 / h.noise_rate)
    for side, mine in ((state.user, data.user), (state.item, data.item)):
        _draw_side(model, side, mine, rng)
    return state


def _draw_side(model: Model, side: Side, data, rng: np.random.Generator) -> None:
    h, rows, size = model.hyper, len(side.x), side.size
    if model.precision != "constant":
        shape, rate = model.precision_prior
        side.alpha[:] = rng.gamma(shape, 1 / rate, rows)
        while model.precision == "truncated":
            low, high = model.bounds
            out = (side.alpha < low) | (side.alpha > high)
            if not out.any():
                break
            side.alpha[out] = rng.gamma(shape, 1 / rate, out.sum())
    if model.prior == "student-t" and model.has_own(data.name):
        side.scale[:] = rng.gamma(h.student_degrees / 2, 2 / h.student_degrees, rows)
    side.Lambda[:] = 0.0
    own = np.zeros((rows, size))
    for group in model.groups(data.name):
        columns = slice(group.first, group.end)
        if group.hyper is None:
            mean, precision = np.full(1, h.bias_mean), np.full((1, 1), h.bias_precision)
        else:
            mean, precision = _normal_wishart(group.hyper, rng)
        side.mu[columns], side.Lambda[columns, columns] = mean, precision
        weights = side.scale if group.end > 1 else np.ones(rows)
        own[:, columns] = _gaussians(mean, precision, weights, rng)
    columns = slice(model.first_shifted, size)
    for shift in side.shifts:
        mean, precision = _normal_wishart(model.wishart(size - model.first_shifted), rng)
        shift.mu[columns], shift.Lambda[columns, columns] = mean, precision
        shift.W[:, columns] = _gaussians(mean, precision, np.ones(len(shift.W)), rng)
    refresh_offsets(side, data)
    side.x[:, :size] = own + side.offset if side.shifts else own


def _normal_wishart(prior, rng: np.random.Generator):
    scale = np.linalg.inv(prior.inverse_scale)
    precision = np.atleast_2d(stats.wishart(prior.nu, scale).rvs(random_state=rng))
    return _gaussians(prior.mean, precision, np.array([prior.beta]), rng)[0], precision


def _gaussians(mean, precision, weights, rng: np.random.Generator) -> np.ndarray:
    root = np.linalg.inv(np.linalg.cholesky(precision))  # precision^-1 = root' root
    return mean + rng.normal(size=(len(weights), len(mean))) @ root / np.sqrt(weights)[:, None]


def draw_ratings(data: Data, state: State, rng: np.random.Generator) -> Data:
    """New ratings of the same pairs, given the parameters."""
    user = np.repeat(np.arange(len(data.user.counts)), data.user.counts)
    item = data.user.observed.index
    fitted = state.user.x[user, 0] + state.item.x[item, 0]
    fitted = fitted + (state.user.x[user, 1:] * state.item.x[item, 1:]).sum(axis=1)
    weight = state.tau * state.user.alpha[user] * state.item.alpha[item]
    if len(data.user.observed.weights):
        weight = weight * data.user.observed.weights
    values = fitted + rng.normal(size=len(user)) / np.sqrt(weight)
    by_item = np.lexsort((user, item))
    return _with(data, {"values": values}, {"values": values[by_item]})


def uncentred(data: Data) -> Data:
    """The same ratings with no mean taken off: as the model draws them."""
    return replace(_with(data, {"mean": 0.0}, {"mean": 0.0}), mean=0.0)


def _with(data: Data, by_user: dict, by_item: dict) -> Data:
    return replace(
        data,
        user=replace(data.user, observed=data.user.observed._replace(**by_user)),
        item=replace(data.item, observed=data.item.observed._replace(**by_item)),
    )


def statistics(model: Model, state: State) -> dict[str, float]:
    """Bounded functions of the parameters that do not change under rotations of the features.

    Features enter by lengths, inner products and traces only; tanh bounds all of it.
    """
    size = state.user.size
    x, y = state.user.x[:, :size], state.item.x[:, :size]
    out = {
        "tau": np.tanh(state.tau / 2),
        "gamma": np.tanh(x[:, 0]).mean(),
        "gamma^2": np.tanh(x[:, 0] ** 2).mean(),
        "eta": np.tanh(y[:, 0]).mean(),
        "eta^2": np.tanh(y[:, 0] ** 2).mean(),
    }
    if size > 1:
        inner = x[:, 1:] @ y[:, 1:].T
        out["S'T"] = np.tanh(inner).mean()
        out["(S'T)^2"] = np.tanh(inner**2).mean()
    for name, side in (("user", state.user), ("item", state.item)):
        out[f"{name} mean^2"] = np.tanh(side.mu @ side.mu)
        out[f"{name} log det"] = np.tanh(np.linalg.slogdet(side.Lambda)[1] / 4)
        out[f"{name} trace"] = np.tanh(np.trace(side.Lambda) / 10)
        if model.rank:
            out[f"{name} |x|^2"] = np.tanh((side.x[:, 1:size] ** 2).sum(axis=1) / 2).mean()
        if model.precision != "constant":
            out[f"{name} alpha"] = np.tanh(side.alpha / 2).mean()
            out[f"{name} alpha, first"] = np.tanh(side.alpha[0] / 2)
        if model.prior == "student-t":
            out[f"{name} scale"] = np.tanh(side.scale / 2).mean()
        for number, shift in enumerate(side.shifts):
            W = f"{name} W_{number}"
            out[f"{W} |W|^2"] = np.tanh((shift.W**2).sum(axis=1) / 2).mean()
            out[f"{W} trace"] = np.tanh(np.trace(shift.Lambda) / 10)
            out[f"{W} mean^2"] = np.tanh(shift.mu @ shift.mu)
            out[f"{W} |offset|^2"] = np.tanh((shift.offset**2).sum(axis=1) / 2).mean()
        if side.shifts:
            out[f"{name} |own|^2"] = np.tanh((side.own**2).sum(axis=1) / 2).mean()
        if len(side.shifts) > 1:
            out[f"{name} |offset|^2"] = np.tanh((side.offset**2).sum(axis=1) / 2).mean()
    return out
