"""Draws from the prior and of the data, by NumPy's generator: independent of the sampler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Side, State, random_start, refresh_offset


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
        side.noise[:] = rng.gamma(h.precision_shape, 1 / h.precision_rate, rows)
        while model.precision == "truncated":
            low, high = model.bounds
            out = (side.noise < low) | (side.noise > high)
            if not out.any():
                break
            side.noise[out] = rng.gamma(h.precision_shape, 1 / h.precision_rate, out.sum())
    if model.prior == "student-t" and model.has_own(data.name):
        side.spread[:] = rng.gamma(h.student_degrees / 2, 2 / h.student_degrees, rows)
    side.precision[:] = 0.0
    own = np.zeros((rows, size))
    for group in model.groups(data.name):
        columns = slice(group.first, group.end)
        if group.hyper is None:
            mean, precision = np.full(1, h.bias_mean), np.full((1, 1), h.bias_precision)
        else:
            mean, precision = _normal_wishart(group.hyper, rng)
        side.mean[columns], side.precision[columns, columns] = mean, precision
        weights = side.spread if group.end > 1 else np.ones(rows)
        own[:, columns] = _gaussians(mean, precision, weights, rng)
    if model.has_side(data.name):
        columns = slice(model.first_side, size)
        mean, precision = _normal_wishart(model.wishart(size - model.first_side), rng)
        side.W_mean[columns], side.W_precision[columns, columns] = mean, precision
        side.W[:, columns] = _gaussians(mean, precision, np.ones(len(side.W)), rng)
        refresh_offset(side, data)
        own = own + side.offset
    side.x[:, :size] = own


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
    weight = state.tau * state.user.noise[user] * state.item.noise[item]
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
        out[f"{name} mean^2"] = np.tanh(side.mean @ side.mean)
        out[f"{name} log det"] = np.tanh(np.linalg.slogdet(side.precision)[1] / 4)
        out[f"{name} trace"] = np.tanh(np.trace(side.precision) / 10)
        if model.features != "none":
            out[f"{name} |x|^2"] = np.tanh((side.x[:, 1:size] ** 2).sum(axis=1) / 2).mean()
        if model.precision != "constant":
            out[f"{name} noise"] = np.tanh(side.noise / 2).mean()
            out[f"{name} noise, first"] = np.tanh(side.noise[0] / 2)
        if model.prior == "student-t":
            out[f"{name} spread"] = np.tanh(side.spread / 2).mean()
        if model.has_side(name):
            out[f"{name} |W|^2"] = np.tanh((side.W**2).sum(axis=1) / 2).mean()
            out[f"{name} W trace"] = np.tanh(np.trace(side.W_precision) / 10)
            out[f"{name} W mean^2"] = np.tanh(side.W_mean @ side.W_mean)
            out[f"{name} |own|^2"] = np.tanh((side.own**2).sum(axis=1) / 2).mean()
            out[f"{name} |offset|^2"] = np.tanh((side.offset**2).sum(axis=1) / 2).mean()
    return out
