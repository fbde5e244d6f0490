"""The moves of a sweep: what they may not change, and the densities that they draw from."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels.densities import LogDensity, draw_basis, slice_sample
from bayesmf.model import distributions
from bayesmf.model.data import Data, RowPriors
from bayesmf.model.state import refresh_offsets
from bayesmf.random.draws import Draws
from bayesmf.sweep import moves
from oracle.joint import log_joint
from oracle.variants import VARIANTS, random_state, small_ratings

FEATURES = [name for name, model in VARIANTS.items() if model.rank]
PRECISIONS = [name for name, model in VARIANTS.items() if model.precision != "constant"]


def world(name):
    model = VARIANTS[name]
    data = Data.of(small_ratings(), model)
    return model, data, random_state(model, data, 4)


def predictors(state):
    x, y = state.user.x[:, : state.user.size], state.item.x[:, : state.item.size]
    return x[:, :1] + y[:, 0] + x[:, 1:] @ y[:, 1:].T


@pytest.mark.parametrize("name", FEATURES)
def test_no_prediction_changes(name):
    model, data, state = world(name)
    before, old = predictors(state), copy.deepcopy(state)
    moves.move_features(model, data, state, Draws(1))
    np.testing.assert_allclose(predictors(state), before, atol=1e-9)
    for me, was, mine in ((state.user, old.user, data.user), (state.item, old.item, data.item)):
        assert not np.allclose(me.x, was.x)
        for number, shift in enumerate(me.shifts):
            moved = shift.offset.copy()
            refresh_offsets(me, mine, number)
            np.testing.assert_allclose(shift.offset, moved, atol=1e-9)


def test_rows_with_priors_of_their_own_stay():
    model, data, state = world("no side")
    before = copy.deepcopy(state)
    priors = RowPriors(np.empty(0), np.empty(0))
    given = replace(data, item=replace(data.item, priors=priors))
    moves.move_features(model, given, state, Draws(1))
    np.testing.assert_array_equal(state.user.x, before.user.x)


@pytest.mark.parametrize(
    ("name", "side"),
    [(name, side) for name in FEATURES for side in ("user", "item")
     if VARIANTS[name].has_own(side)],
)  # fmt: skip
def test_the_mean_is_drawn_from_the_joint_density(name, side, monkeypatch):
    """log p along the move is the quadratic form of the Gaussian that it draws from."""
    model, data, state = world(name)
    found = []

    def sample(self, normals):
        found.append(self)
        return normals

    monkeypatch.setattr(distributions.Gaussian, "sample", sample)
    for seed in (1, 2, 3):
        new, draws = copy.deepcopy(state), Draws(seed)
        moves._move_mean(model, side, new, draws)
        a = draws.normals(1, model.rank)[0]
        quadratic = found[-1].linear @ a - a @ found[-1].precision @ a / 2
        change = log_joint(model, data, new) - log_joint(model, data, state)
        assert change == pytest.approx(quadratic, abs=1e-8)


@pytest.mark.parametrize("name", FEATURES)
def test_the_basis_is_drawn_from_the_joint_density(name, monkeypatch):
    """log p along the move, with the volume that it stretches, is what the kernel takes it for."""
    model, data, state = world(name)
    rng = np.random.default_rng(0)
    size, first = model.size, 1 - model.first_shifted
    block = size - model.first_shifted
    for _ in range(3):
        A = np.eye(block)
        A[first:, first:] += 0.4 * rng.normal(size=(model.rank, model.rank))
        target = []

        def draw_basis(M, N, h, g, G, m, delta, begin, *rest, A=A, target=target):
            assert begin == first
            inverse = np.linalg.inv(A)

            def log_density(A, inverse):
                mine, theirs = inverse @ M @ inverse.T, A.T @ N @ A
                linear = m @ inverse @ h + m @ A.T @ g
                return linear - delta * np.linalg.slogdet(A)[1] - np.trace(G @ (mine + theirs)) / 2

            target.append(log_density(A, inverse) - log_density(np.eye(block), np.eye(block)))
            return A

        monkeypatch.setattr(moves, "draw_basis", draw_basis)
        new = copy.deepcopy(state)
        moves._move_basis(model, new, Draws(0))
        change = log_joint(model, data, new) - log_joint(model, data, state)
        power = volume(model, "user", state.user, block) - volume(model, "item", state.item, block)
        change += power * np.linalg.slogdet(A)[1]
        assert change == pytest.approx(target[0], abs=1e-8)


def volume(model, name, side, block):
    """The power of |A| by which x A, A'mu and A^-1 Lambda A^-T stretch the parameters of a side."""
    own = len(side.x) + 1 - (block + 1) if model.has_own(name) else 0
    return own + sum(len(shift.W) + 1 - (block + 1) for shift in side.shifts)


@pytest.mark.parametrize(
    ("f", "to_known"),
    [
        (LogDensity(3.0, 2.0, 0.0, 0.0, 0.0, np.empty(0), np.empty(0)),
         lambda s: stats.gamma(3, scale=1 / 2).cdf(np.exp(s))),
        (LogDensity(-3.0, 0.0, 0.0, 2.0, 0.0, np.empty(0), np.empty(0)),
         lambda s: stats.gamma(3, scale=1 / 2).cdf(np.exp(-s))),
        (LogDensity(4.0, 0.0, 1.5, 0.0, 0.0, np.empty(0), np.empty(0)),
         lambda s: stats.gamma(2, scale=1 / 1.5).cdf(np.exp(2 * s))),
        (LogDensity(-4.0, 0.0, 0.0, 0.0, 1.5, np.empty(0), np.empty(0)),
         lambda s: stats.gamma(2, scale=1 / 1.5).cdf(np.exp(-2 * s))),
        (LogDensity(3.0, 0.0, 0.0, 0.0, 0.0, np.array([2.0, 5.0]), np.array([0.5, 0.5])),
         lambda s: stats.betaprime(3, 4).cdf(np.exp(s) / 2)),
    ],
    ids=["up", "down", "up twice", "down twice", "sum"],
)  # fmt: skip
def test_slices_are_of_the_density(f, to_known):
    s, found = 0.0, []
    for number in range(20_000):
        s = slice_sample(f, s, 1.0, Draws(5, sweep=number).counter(), 0)
        found.append(s)
    z = stats.norm.ppf(to_known(np.array(found[::10])))
    assert stats.kstest(z, "norm").pvalue > 1e-3


@pytest.mark.parametrize("name", PRECISIONS)
def test_tau_is_drawn_with_the_precisions_integrated_out(name):
    """Against sums over a fine grid of log tau."""
    model, data, state = world(name)
    errors = np.random.default_rng(2).gamma(2.0, size=len(data.user.counts))
    found = []
    for number in range(20_000):
        moves.draw_tau(model, data.user, errors, data.size, state, Draws(3, sweep=number))
        found.append(np.log(state.tau))
    grid = np.linspace(-8, 8, 4001)
    h, (a, b) = model.hyper, model.precision_prior
    log_p = (h.noise_shape + data.size / 2) * grid - h.noise_rate * np.exp(grid)
    for n, error in zip(data.user.counts, errors, strict=True):
        rate = b + np.exp(grid) * error / 2
        log_p -= (a + n / 2) * np.log(rate)
        if model.precision == "truncated":
            low, high = (stats.gamma(a + n / 2, scale=1 / rate).cdf(end) for end in model.bounds)
            log_p += np.log(np.maximum(high - low, 1e-300))
    p = np.exp(log_p - log_p.max())
    below = np.interp(found[::20], grid, np.cumsum(p) / p.sum())
    assert stats.kstest(below, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in PRECISIONS])
def test_tau_is_left_alone_where_no_precision_can_be_integrated_out(name):
    model, data, state = world(name)
    before = state.tau
    moves.draw_tau(model, data.user, np.ones(len(data.user.counts)), data.size, state, Draws(3))
    assert state.tau == before


def test_the_basis_leaves_its_density_as_it_is():
    """The mean slope of the log density in every direction is zero under the density itself."""
    rng = np.random.default_rng(1)
    M, N, G = (root @ root.T + np.eye(3) for root in rng.normal(size=(3, 3, 3)))
    h, g, m = rng.normal(size=(3, 3))
    slopes = []
    for number in range(8000):
        counter = Draws(2, sweep=number).counter()
        draw_basis(M, N, h, g, G, m, 1.5, 0, 1, counter)
        slopes.append(G @ M - N @ G + np.outer(g, m) - np.outer(m, h) - 1.5 * np.eye(3))
    means = np.array(slopes).reshape(40, 200, 9).mean(axis=1)
    z = means.mean(axis=0) / (means.std(axis=0, ddof=1) / np.sqrt(40))
    assert np.abs(z).max() < 4.5, z
