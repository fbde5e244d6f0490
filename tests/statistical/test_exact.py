"""Posteriors that are known in closed form or by quadrature, against what the sampler draws.

With one side and every precision held, rows and side features together are one Bayesian linear
regression. With one user, one item and one rating, few enough unknowns are left to integrate.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import special, stats
from scipy.interpolate import CubicSpline

from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.inference import sweep as sweeping
from bayesmf.inference.sweep import gibbs_sweep
from bayesmf.kernels.rows import Known, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, random_start, stream
from bayesmf.prob.draws import Draws
from variants import BASE, VARIANTS, random_state, small_ratings

from . import mistakes, prior
from .scores import bound, standard_error

WITH_OWN = [name for name, m in VARIANTS.items() if m.has_own("user") or m.features == "none"]
WITH_SIDE = [name for name, m in VARIANTS.items() if m.has_side("user")]
FORMS = ["centred", "non-centred", "interwoven"]

# One side held: Bayesian linear regression


def regression(model: Model, ratings, state, joint: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the users' unknowns given the items, by stacking one design matrix.

    The unknowns are the rows x_i = (gamma_i, S_i) given W or, if ``joint``, the own parts
    (gamma_i, U_i) of all users followed by every W_k.
    """
    me, items = state.user, state.item
    size, first = me.size, model.first_side
    users, n_items = ratings.n_users, ratings.n_items
    free = first if not model.has_own("user") and model.features != "none" else size
    dims = users * free + (n_items * (size - first) if joint else 0)
    user, item = ratings.by_user.row_index, ratings.by_user.index
    n = np.bincount(user, minlength=users)
    X, y = np.zeros((len(user), dims)), np.zeros(len(user))
    weight = state.tau * me.noise[user] * items.noise[item]
    for row, (i, j, r) in enumerate(zip(user, item, ratings.values, strict=True)):
        z = np.array([1.0, *items.x[j, 1:size]])
        X[row, i * free : (i + 1) * free] = z[:free]
        y[row] = r - ratings.mean - items.x[j, 0]
        if joint:
            for k in item[user == i]:
                at = users * free + k * (size - first)
                X[row, at : at + size - first] += z[first:] / n[i] ** model.side_power
    P, mean = np.zeros((dims, dims)), np.zeros(dims)
    for i in range(users):
        at = slice(i * free, (i + 1) * free)
        scale = np.full(size, me.spread[i])
        if model.bias != "joint":
            scale[0] = 1.0  # the bias has a prior of its own
        P[at, at] = (np.sqrt(np.outer(scale, scale)) * me.precision)[:free, :free]
        mean[at] = me.mean[:free]
        if not joint and model.has_side("user"):
            mean[at] += sum(me.W[k] for k in item[user == i]) / max(n[i], 1) ** model.side_power
    for k in range(n_items if joint else 0):
        at = slice(users * free + k * (size - first), users * free + (k + 1) * (size - first))
        P[at, at], mean[at] = me.W_precision[first:, first:], me.W_mean[first:]
    covariance = np.linalg.inv(P + X.T @ (weight[:, None] * X))
    return covariance @ (P @ mean + X.T @ (weight * y)), covariance


def unknowns(model: Model, state, joint: bool) -> np.ndarray:
    """What ``regression`` is about, in its order."""
    me = state.user
    if not joint:
        return me.x[:, : me.size].ravel().copy()
    own = me.own if model.has_own("user") else me.x[:, : model.first_side]
    return np.concatenate([own.ravel(), me.W[:, model.first_side :].ravel()])


def hold(monkeypatch, state) -> None:
    """Hyper-parameters, Student-t scales and precisions stay as they are in ``state``."""

    class Held:
        def __init__(self, value):
            self.sample = lambda draws: copy.copy(value)

    kept = copy.deepcopy(state)

    def hyper(group, own, spread, cov):  # of W: the rows' own are not drawn at all
        assert own is state.user.W or own is state.item.W
        side = kept.user if own is state.user.W else kept.item
        columns = slice(group.first, group.end)
        return Held((side.W_mean[columns], side.W_precision[columns, columns]))

    def noise(model, counts, errors, tau):
        return Held((kept.user if len(counts) == len(kept.user.x) else kept.item).noise)

    monkeypatch.setattr(sweeping, "update_hyper", lambda *a: None)
    monkeypatch.setattr(conditionals, "hyper", hyper)
    monkeypatch.setattr(conditionals, "noise", noise)
    monkeypatch.setattr(conditionals, "tau", lambda *a: Held(np.array([kept.tau])))


def held_draws(model: Model, ratings, state, form: str, sweeps: int, joint: bool) -> np.ndarray:
    """The users' unknowns over sweeps that begin with the same items every time."""
    data = Data.of(ratings, model)
    kept = copy.deepcopy(state.item)
    out = []
    for k in range(sweeps):
        for name in ("x", "W", "offset"):
            getattr(state.item, name)[:] = getattr(kept, name)
        gibbs_sweep(model, data, state, Draws(2, sweep=k), form)
        out.append(unknowns(model, state, joint))
    return np.array(out[100:] if joint else out)  # without W the draws are independent


def regression_scores(draws: np.ndarray, mean, covariance) -> np.ndarray:
    """z scores of all means and (co)variances, in coordinates where these should be 0 and I."""
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    a, b = np.tril_indices(len(white))
    traces = np.concatenate([white, white[a] * white[b] - (a == b)[:, None]])
    return np.array([t.mean() / standard_error(t) for t in traces])


@pytest.mark.parametrize("name", WITH_OWN)
def test_rows_are_a_linear_regression(name):
    """The kernel's means, and the spread of its draws, for every user at once."""
    model, ratings = VARIANTS[name], small_ratings(9, 6)
    data = Data.of(ratings, model)
    state = random_state(model, data)
    mean, covariance = regression(model, ratings, state, joint=False)
    me, items = state.user, state.item
    known = Known(items.x, np.sqrt(items.noise), sweeping.POINTS)
    inputs = (data.user.observed, known, state.tau * me.noise,
              sweeping.prior_of(model, data.user, me))  # fmt: skip
    outputs = (me.x, np.empty(0), sweeping.POINTS, np.empty(0), state.width())
    place = stream(Draws(0), "user", "rows").place()
    draw_rows(*inputs, place, False, *outputs)
    assert unknowns(model, state, joint=False) == pytest.approx(mean, rel=1e-9, abs=1e-9)
    draws = np.empty((1500, len(mean)))
    for k in range(len(draws)):
        place = stream(Draws(1, sweep=k), "user", "rows").place()
        draw_rows(*inputs, place, True, *outputs)
        draws[k] = unknowns(model, state, joint=False)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    n, size = len(draws), len(mean)
    limit = bound((size + size * (size + 1) // 2) * len(WITH_OWN))
    assert np.abs(white.mean(axis=1)).max() < limit / np.sqrt(n)
    # A squared standard normal has a heavier tail than a normal; its mean has a known one.
    squares = (white**2).sum(axis=1)
    tail = stats.norm.sf(limit)
    assert (stats.chi2(n).ppf(tail) < squares).all()
    assert (squares < stats.chi2(n).isf(tail)).all()
    a, b = np.tril_indices(size, -1)
    assert np.abs((white[a] * white[b]).mean(axis=1)).max() < limit / np.sqrt(n)


def held_scores(name: str, form: str, sweeps: int, joint: bool, monkeypatch) -> np.ndarray:
    """z scores of whole sweeps in which all but the users' unknowns is held."""
    model, ratings = VARIANTS[name], small_ratings()
    state = random_state(model, Data.of(ratings, model))
    mean, covariance = regression(model, ratings, state, joint)
    hold(monkeypatch, state)
    draws = held_draws(model, ratings, state, form, sweeps, joint)
    return regression_scores(draws, mean, covariance)


@pytest.mark.parametrize("name", ["no side, joint bias", "no side, robust"])
def test_sweeps_draw_a_linear_regression(name, monkeypatch):
    """The same through whole sweeps, with the items put back before each."""
    z = held_scores(name, "centred", 600, False, monkeypatch)
    assert np.abs(z).max() < bound(2 * len(z))


@pytest.mark.parametrize(
    "mistake", [mistakes.no_prior_mean, mistakes.noise_forgotten, mistakes.loud_rows]
)
def test_mistakes_in_rows_are_caught(mistake, monkeypatch):
    mistake(monkeypatch)
    z = held_scores("no side, robust", "centred", 600, False, monkeypatch)
    assert np.abs(z).max() > bound(2 * len(z))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WITH_SIDE)
def test_side_features_and_rows_are_one_linear_regression(name, form, monkeypatch):
    """Rows and W drawn in turn, in each form, have the joint posterior of all of them."""
    if form != "interwoven" and not VARIANTS[name].has_own("user"):
        pytest.skip("one form only")
    z = held_scores(name, form, 4000, True, monkeypatch)
    assert np.abs(z).max() < bound(len(z) * len(FORMS) * len(WITH_SIDE)), z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "options", "name", "form"),
    [
        (mistakes.n_for_n_squared, {}, "user side", "centred"),
        (mistakes.n_for_n_squared, {"kernel": "draw_non_centred"}, "user side", "non-centred"),
        (mistakes.quiet_side_features, {}, "both sides, joint bias", "centred"),
        (mistakes.offset_left_out, {}, "user side, robust", "interwoven"),
    ],
    ids=["centred", "non-centred", "quiet", "offset"],
)
def test_mistakes_in_side_features_are_caught(mistake, options, name, form, monkeypatch):
    mistake(monkeypatch, **options)
    z = held_scores(name, form, 4000, True, monkeypatch)
    assert np.abs(z).max() > bound(len(z) * len(FORMS) * len(WITH_SIDE)), z


# One user, one item, one rating: quadrature

ONE = replace(BASE, rank=1, bias="fixed")
SMALLEST: dict[str, Model] = {
    "constant": ONE,
    "robust": replace(ONE, precision="robust"),
    "truncated": replace(ONE, precision="truncated"),
    "student-t": replace(ONE, prior="student-t"),
    "user side": replace(ONE, features="side"),
    "user side only": replace(ONE, features="side-only"),
}
RATING = 2.5


def gamma_nodes(shape: float, rate: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = special.roots_genlaguerre(count, shape - 1)
    return nodes / rate, weights / weights.sum()


def feature_nodes(model: Model, count: int, scaled: bool) -> tuple[np.ndarray, np.ndarray]:
    """A feature with (mu, Lambda) integrated out: Student-t, or a mixture of these over a_i.

    Lambda ~ Gamma(nu/2, 1/(2 scale)) and u | Lambda, a ~ N(mu_0, Lambda / (1/a + 1/beta_0)).
    The trapezoidal rule in asinh(u) converges geometrically.
    """
    h = model.hyper
    t = np.linspace(-7, 7, count)
    u = h.feature_mean + np.sinh(t)
    a, weights = np.ones(1), np.ones(1)
    if scaled and model.prior == "student-t":
        a, weights = gamma_nodes(h.student_degrees / 2, h.student_degrees / 2, 60)
    nu = h.feature_degrees
    scale = np.sqrt((1 / a + 1 / h.feature_count) / (nu * h.feature_scale))
    density = stats.t(nu, h.feature_mean, scale).pdf(u[:, None]) @ weights
    out = density * np.cosh(t) * (t[1] - t[0])
    assert out.sum() == pytest.approx(1, abs=1e-6)
    return u, out / out.sum()


def pair_nodes(model: Model, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of S_1 and V_1, every one with every other, and their probabilities."""
    v, v_weight = feature_nodes(model, count, True)
    s, s_weight = feature_nodes(model, count, model.has_own("user"))
    if model.features == "side":
        w, w_weight = feature_nodes(model, count, False)
        s, s_weight = np.add.outer(s, w).ravel(), np.outer(s_weight, w_weight).ravel()
    return np.repeat(s, count), np.tile(v, len(s)), np.outer(s_weight, v_weight).ravel()


def noise_nodes(model: Model, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """tau, alpha beta tau and their probabilities."""
    h = model.hyper
    tau, tau_weight = gamma_nodes(h.noise_shape, h.noise_rate, count)
    one, one_weight = np.ones(1), np.ones(1)
    if model.precision == "robust":
        one, one_weight = gamma_nodes(h.noise_shape, h.noise_rate, count)
    if model.precision == "truncated":
        low, high = model.bounds
        nodes, weights = np.polynomial.legendre.leggauss(count)
        one = (low + high) / 2 + (high - low) / 2 * nodes
        one_weight = weights * stats.gamma(h.noise_shape, scale=1 / h.noise_rate).pdf(one)
        one_weight /= one_weight.sum()
    t, a, b = np.meshgrid(tau, one, one, indexing="ij")
    weight = np.einsum("t,a,b->tab", tau_weight, one_weight, one_weight)
    return t.ravel(), (t * a * b).ravel(), weight.ravel()


def quadrature(model: Model, count: int, noise_count: int) -> dict[str, float]:
    """Posterior means of functions of the prediction p and of the precisions.

    p | S'T ~ N(2 mean + S'T, precision / 2) with the biases in it, r | p ~ N(p, alpha beta tau).
    What is left after p and the precisions is a smooth function of S'T alone: a spline of it.
    """
    h = model.hyper
    z, z_weight = hermegauss(40)
    z_weight = z_weight / z_weight.sum()
    variance = 2 / h.bias_precision
    grid = np.linspace(-14, 14, 40 * noise_count)  # of asinh(S'T)
    centre = 2 * h.bias_mean + np.sinh(grid)
    total = {key: np.zeros(len(grid)) for key in ("evidence", "tanh p", "p near r", "tau", "w")}
    for t, w, weight in zip(*noise_nodes(model, noise_count), strict=True):
        evidence = weight * stats.norm.pdf(RATING, centre, np.sqrt(variance + 1 / w))
        precision = 1 / variance + w
        p = ((centre / variance + w * RATING) / precision)[:, None] + z / np.sqrt(precision)
        total["evidence"] += evidence
        total["tanh p"] += evidence * (np.tanh(p) @ z_weight)
        total["p near r"] += evidence * (np.exp(-((p - RATING) ** 2)) @ z_weight)
        total["tau"] += t * evidence
        total["w"] += np.tanh(w / 2) * evidence
    S, V, weight = pair_nodes(model, count)
    spline = {key: CubicSpline(grid, value)(np.arcsinh(S * V)) for key, value in total.items()}
    found = {key: weight @ value for key, value in spline.items()}
    evidence = found.pop("evidence")
    found["S near 0"] = weight @ (np.exp(-(S**2)) * spline["evidence"])
    found["V near 0"] = weight @ (np.exp(-(V**2)) * spline["evidence"])
    return {key: float(value / evidence) for key, value in found.items()}


def sampled(model: Model, sweeps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Traces of what ``quadrature`` integrates, from a chain on one rating."""
    ratings = Ratings.from_sorted(
        Ids(np.arange(1)), Ids(np.arange(1)), np.zeros(1, np.int32), np.zeros(1, np.int32),
        np.array([RATING]), None, Scale(-9, 9),
    )  # fmt: skip
    data = prior.uncentred(Data.of(ratings, model))
    state = random_start(model, data, seed)
    traces = []
    for k in range(sweeps):
        gibbs_sweep(model, data, state, Draws(seed, sweep=k), "interwoven")
        x, y = state.user.x[0], state.item.x[0]
        p = x[0] + y[0] + x[1] * y[1]
        w = state.tau * state.user.noise[0] * state.item.noise[0]
        traces.append({
            "tanh p": np.tanh(p), "p near r": np.exp(-((p - RATING) ** 2)), "tau": state.tau,
            "w": np.tanh(w / 2), "S near 0": np.exp(-(x[1] ** 2)), "V near 0": np.exp(-(y[1] ** 2)),
        })  # fmt: skip
    return {key: np.array([t[key] for t in traces[200:]]) for key in traces[0]}


def smallest_scores(name: str, sweeps: int) -> dict[str, float]:
    exact, traces = quadrature(SMALLEST[name], 61, 16), sampled(SMALLEST[name], sweeps)
    return {key: (t.mean() - exact[key]) / standard_error(t) for key, t in traces.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_the_quadrature_has_converged(name):
    """Far closer than the chains' standard errors, which are above 1e-3."""
    one, two = quadrature(SMALLEST[name], 61, 16), quadrature(SMALLEST[name], 85, 20)
    assert one == pytest.approx(two, abs=1e-5)


def test_one_rating_quick():
    z = smallest_scores("constant", 2000)
    assert max(map(abs, z.values())) < bound(len(z)), z


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_one_rating(name):
    z = smallest_scores(name, 20_000)
    assert max(map(abs, z.values())) < bound(len(z) * len(SMALLEST)), z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "options", "name"),
    [
        (mistakes.wrong_rate, {"name": "tau", "factor": 1.05}, "constant"),
        (mistakes.wrong_rate, {"name": "noise", "factor": 1.1}, "robust"),
        (mistakes.one_degree_more, {}, "constant"),
        (mistakes.wrong_prior, {"spread": np.ones(1)}, "student-t"),
    ],
    ids=["tau", "noise", "degrees", "spread"],
)
def test_mistakes_are_caught_by_one_rating(mistake, options, name, monkeypatch):
    mistake(monkeypatch, **options)
    z = smallest_scores(name, 20_000)
    assert max(map(abs, z.values())) > bound(len(z) * len(SMALLEST)), z
