"""The moves of a sweep: what they may not change, and the densities that they draw from."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels import densities
from bayesmf.kernels.densities import LogDensity
from bayesmf.model import conditionals, distributions
from bayesmf.model.data import Data, RowPriors
from bayesmf.model.state import refresh_offsets
from bayesmf.random.draws import Draws
from bayesmf.sweep import moves, sweep
from oracle.joint import log_joint
from oracle.variants import VARIANTS, random_state, small_ratings
from statistical import mistakes

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
        turns = moves.Turns(new)
        moves._move_mean(model, side, turns, draws)
        turns.apply()
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
        turns = moves.Turns(new)
        moves._move_basis(model, turns, Draws(0))
        turns.apply()
        change = log_joint(model, data, new) - log_joint(model, data, state)
        power = volume(model, "user", state.user, block) - volume(model, "item", state.item, block)
        change += power * np.linalg.slogdet(A)[1]
        assert change == pytest.approx(target[0], abs=1e-8)


def volume(model, name, side, block):
    """The power of |A| by which x A, A'mu and A^-1 Lambda A^-T stretch the parameters of a side."""
    own = len(side.x) + 1 - (block + 1) if model.has_own(name) else 0
    return own + sum(len(shift.W) + 1 - (block + 1) for shift in side.shifts)


def log_density(**terms):
    none = np.empty(0)
    zero = {"slope": 0.0, "up": 0.0, "up_2": 0.0, "down": 0.0, "down_2": 0.0}
    return LogDensity(**{**zero, "weight": none, "rate": none, **terms})


DENSITIES = {  # of s, and the distribution function that they have
    "up": (log_density(slope=3.0, up=2.0), lambda s: stats.gamma(3, scale=1 / 2).cdf(np.exp(s))),
    "down": (log_density(slope=-3.0, down=2.0),
             lambda s: stats.gamma(3, scale=1 / 2).cdf(np.exp(-s))),
    "up twice": (log_density(slope=4.0, up_2=1.5),
                 lambda s: stats.gamma(2, scale=1 / 1.5).cdf(np.exp(2 * s))),
    "down twice": (log_density(slope=-4.0, down_2=1.5),
                   lambda s: stats.gamma(2, scale=1 / 1.5).cdf(np.exp(-2 * s))),
    "sum": (log_density(slope=3.0, weight=np.array([2.0, 5.0]), rate=np.array([0.5, 0.5])),
            lambda s: stats.betaprime(3, 4).cdf(np.exp(s) / 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSITIES)
def test_slices_are_of_the_density(name):
    (f, distribution), s, found = DENSITIES[name], 0.0, []
    for number in range(20_000):
        s = densities.slice_sample(f, s, 1.0, Draws(5, sweep=number).counter(), 0)
        found.append(s)
    z = stats.norm.ppf(distribution(np.array(found[::10])))
    assert stats.kstest(z, "norm").pvalue > 1e-3


def check_tau(name, draws):
    """Against sums over a fine grid of log tau.

    Bounds, where there are any, are so near to each other that tau must heed them.
    """
    model = VARIANTS[name]
    if model.precision == "truncated":
        model = replace(model, bounds=(0.8, 1.25))
    data = Data.of(small_ratings(12, 8), model)
    state, found = random_state(model, data, 4), []
    errors = np.random.default_rng(2).gamma((1 + data.user.counts) / 2)
    for number in range(draws):
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


@pytest.mark.parametrize("name", PRECISIONS)
def test_tau_is_drawn_with_the_precisions_integrated_out(name):
    check_tau(name, 20_000)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in PRECISIONS])
def test_tau_is_left_alone_where_no_precision_can_be_integrated_out(name):
    model, data, state = world(name)
    before = state.tau
    moves.draw_tau(model, data.user, np.ones(len(data.user.counts)), data.size, state, Draws(3))
    assert state.tau == before


def test_precisions_are_drawn_given_the_tau_that_was_drawn_without_them(monkeypatch):
    model, data, state = world("no side, robust")
    right, drawn, given = conditionals.alpha, [], []

    def draw_tau(model, data, errors, size, state, draws):
        state.tau = 2.0 + len(drawn)
        drawn.append(state.tau)

    def alpha(model, counts, errors, tau):
        given.append(tau)
        return right(model, counts, errors, tau)

    monkeypatch.setattr(sweep, "draw_tau", draw_tau)
    monkeypatch.setattr(conditionals, "alpha", alpha)
    sweep.gibbs_sweep(model, data, state, Draws(1), "centred")
    assert given == drawn == [2.0, 3.0]


def some_basis():
    rng = np.random.default_rng(1)
    M, N, G = (root @ root.T + np.eye(3) for root in rng.normal(size=(3, 3, 3)))
    h, g, m = rng.normal(size=(3, 3))
    return M, N, h, g, G, m


def test_the_basis_leaves_its_density_as_it_is():
    """Under the density itself, in every direction, the slope of its log has the mean 0.

    Its square has the mean of the curvature: along A (I + t e_a e_b') G_aa M_bb + G_bb N_aa, and
    where a column is scaled by e^t also the terms of the slope that t changes.
    """
    M, N, h, g, G, m = some_basis()
    moments = []
    for number in range(8000):
        counter = Draws(2, sweep=number).counter()
        densities.draw_basis(M, N, h, g, G, m, 1.5, 0, 1, counter)
        mine, theirs = G @ M - np.outer(m, h), N @ G - np.outer(g, m)
        slope = mine - theirs - 1.5 * np.eye(3)
        curvature = np.outer(np.diag(G), np.diag(M)) + np.outer(np.diag(N), np.diag(G))
        curvature += np.diag(np.diag(mine + theirs))
        moments.append([slope, slope**2 - curvature])
    means = np.array(moments).reshape(40, 200, 18).mean(axis=1)
    z = means.mean(axis=0) / (means.std(axis=0, ddof=1) / np.sqrt(40))
    assert np.abs(z).max() < 4.5, z


def test_the_width_of_a_slice_does_not_depend_on_its_begin(monkeypatch):
    """A basis of one column is drawn again and again, by the function that is compiled."""
    one, widths, right = np.ones((1, 1)), [], densities.slice_sample

    def slice_sample(f, s, width, *rest):
        widths.append(width)
        return right(f, s, width, *rest)

    monkeypatch.setattr(densities, "slice_sample", slice_sample)
    densities.draw_basis.py_func(
        2 * one, 3 * one, one[0].copy(), one[0].copy(), one, one[0], 1.5, 0, 5, Draws(2).counter()
    )
    np.testing.assert_allclose(widths, widths[0], rtol=1e-12)


@pytest.mark.parametrize("first", [0, 1])
def test_what_the_basis_changes_along_is_what_it_makes_of_it(first):
    """M, N, h and g are those of x A and y A^-T, and columns before the first stay."""
    M, N, h, g, G, m = some_basis()
    old = [each.copy() for each in (M, N, h, g)]
    A = densities.draw_basis(M, N, h, g, G, m, 1.5, first, 2, Draws(2).counter())
    inverse = np.linalg.inv(A)
    expected = (inverse @ old[0] @ inverse.T, A.T @ old[1] @ A, inverse @ old[2], A.T @ old[3])
    for found, each in zip((M, N, h, g), expected, strict=True):
        np.testing.assert_allclose(found, each, atol=1e-9)
    np.testing.assert_array_equal(A[:first], np.eye(3)[:first])
    np.testing.assert_array_equal(A[:, :first], np.eye(3)[:, :first])


JOINT, LEARNED, DESIGN = "both sides, joint bias", "no side", "user side"
PREDICTIONS = test_no_prediction_changes, JOINT
OWN_PREDICTIONS = test_no_prediction_changes, LEARNED
MEAN = test_the_mean_is_drawn_from_the_joint_density, JOINT, "user"
OWN_MEAN = test_the_mean_is_drawn_from_the_joint_density, LEARNED, "user"
BASIS = test_the_basis_is_drawn_from_the_joint_density, DESIGN
MOMENTS = (test_the_basis_leaves_its_density_as_it_is,)
ALONG = test_what_the_basis_changes_along_is_what_it_makes_of_it, 0
WIDTH = (test_the_width_of_a_slice_does_not_depend_on_its_begin,)
TAU, TRUNCATED = (check_tau, "no side, robust", 20_000), (check_tau, "no side, truncated", 6000)
SLICES = test_slices_are_of_the_density, "up"
MISTAKES = {  # of each function: what is right, what is written for it, and what notices
    moves.draw_tau: [
        ("size / 2, rate,", "size / 2, 0.0,", TAU),  # the prior's rate b_t left out
        ("shape + size / 2", "shape - 1 + size / 2", TAU),  # the density of tau for that of log tau
        ("shape + size / 2", "shape + size", TAU),
        ("a + halves, errors", "halves, errors", TAU),
        ("errors / (2 * b)", "errors / b", TAU),
        ("+= sign *", "+= 0 *", TRUNCATED),  # the bounds' mass left out
        ("((to, 1), (at, -1))", "((to, 1),)", TRUNCATED),
        ("< gain", "< np.inf", TRUNCATED),
    ],
    moves._move_mean: [
        ("linear = -prior.beta", "linear = prior.beta", MEAN),
        ("prior.beta * Lambda[features", "Lambda[features", MEAN),
        (" + M[0, 0] * G[1:, 1:]", "", MEAN),
        (" + h[0] * m[1:]", "", MEAN),
        (" - M[0, 0] * G[1:, 0]", "", MEAN),
        (" - G[1:, 1:] @ M[1:, 0]", " + G[1:, 1:] @ M[1:, 0]", MEAN),
        (" + lam * scatter[1:, 1:]", "", OWN_MEAN),
        (" - mu * total[1:]", "", OWN_MEAN),
        ("me.mu[1:] += a", "me.mu[1:] -= a", OWN_MEAN),
        ("= -a, a", "= a, -a", PREDICTIONS),
        (
            "_transform(model, other, turns, C, inverse)",
            "turns.add(other, C, np.zeros(size))",
            MEAN,
        ),
    ],
    moves._move_basis: [
        ("prior.nu * (", "0 * (", BASIS),
        ("prior.nu * (", "-prior.nu * (", BASIS),
        ("prior.nu * (", "(prior.nu + 1) * (", BASIS),
        ("turns, inverse.T, A.T", "turns, A, inverse", PREDICTIONS),
        ("turns, inverse.T, A.T", "turns, inverse, A", PREDICTIONS),
    ],
    moves._transform: [("own + side.shifts", "own", BASIS)],
    moves.turn_prior: [
        ("turned = inverse @ layer.Lambda @ inverse.T", "turned = layer.Lambda", BASIS),
        ("inverse @ layer.Lambda @ inverse.T", "A.T @ layer.Lambda @ A", BASIS),
        ("A.T @ layer.mu", "A @ layer.mu", BASIS),
    ],
    moves.Turns.add: [
        ("there @ A", "A @ there", PREDICTIONS),
        ("to @ A + a", "to + a", PREDICTIONS),
    ],
    moves.Turns.apply: [
        ("shift.W @ A", "shift.W", PREDICTIONS),
        ("shift.offset @ A", "shift.offset", PREDICTIONS),
        ("self.maps[name] = self._nowhere(name)", "pass", OWN_PREDICTIONS),
    ],
    moves.with_mean: [(" + np.outer(mean, prior.mean)", "", BASIS)],
    moves._summed: [("in side.shifts]", "in side.shifts[1:]]", BASIS)],
    moves._wisharts: [(" + len(model.designs(name))", "", BASIS)],
    densities.slice_sample: [
        ("+ np.log(unit(counter, row, 0))", "+ 2.0 * np.log(unit(counter, row, 0))", SLICES),
        ("right += width", "break", SLICES),
    ],
}
IN_BASIS = [  # each of them is compiled
    ("slope / curvature +", "0.4 * slope / curvature +", MOMENTS),
    ("z / np.sqrt(curvature)", "z / np.sqrt(1.1 * curvature)", MOMENTS),
    ("m[b] * g[a] - m[a] * h[b]", "m[a] * h[b] - m[b] * g[a]", MOMENTS),
    (" + G[b, b] * N[a, a]", "", MOMENTS),
    (" -delta,", " delta,", MOMENTS),
    (" -delta,", " 0.0,", MOMENTS),
    ("G[a, a] * N[a, a] / 2.0", "G[a, a] * N[a, a]", MOMENTS),
    ("-m[a] * h[a], -m[a] * g[a]", "m[a] * h[a], m[a] * g[a]", MOMENTS),
    ("row += 1", "row += 0", MOMENTS),
    ("h[a] /= c", "h[a] *= c", ALONG),
    ("g[b] += t * g[a]", "g[b] += 0.0", ALONG),
    ("A[:, b] += t * A[:, a]", "A[:, a] += t * A[:, b]", ALONG),
    ("A[:, a] *= c", "A[a] *= c", ALONG),
    ("np.sqrt(M[a, a] * N[a, a])", "M[a, a]", WIDTH),
]


def given(function, right, wrong, check, **options):
    name = f"{function.__name__}: {right.strip(' +')} -> {wrong.strip(' +')}"
    return pytest.param(function, right, wrong, check, id=name, **options)


@pytest.mark.parametrize(
    ("function", "right", "wrong", "check"),
    [given(function, *each) for function, every in MISTAKES.items() for each in every]
    + [given(densities.draw_basis, *each, marks=pytest.mark.slow) for each in IN_BASIS],
)
def test_mistakes_in_moves_are_caught(function, right, wrong, check, monkeypatch):
    """Each line of a move, written wrong, is noticed by a check above."""
    mistakes.rewrite(monkeypatch, function, right, wrong)
    mistakes.expect_failure(check, monkeypatch)
