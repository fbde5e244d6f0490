"""With one user, one item and one rating, few enough unknowns are left to integrate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import special, stats
from scipy.interpolate import CubicSpline

from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.model.data import Data
from bayesmf.model.designs import RatedSet
from bayesmf.model.spec import Model
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.designs import Labelled
from oracle.variants import BASE

from . import mistakes, prior
from .scores import bound, standard_error

LABELLED = Labelled((2,))
ONE = replace(BASE, rank=1, bias="fixed")
SMALLEST: dict[str, Model] = {
    "constant": ONE,
    "robust": replace(ONE, precision="robust"),
    "truncated": replace(ONE, precision="truncated"),
    "student-t": replace(ONE, prior="student-t"),
    "user side": replace(ONE, user_designs=(RatedSet(1.0),)),
    "user side only": replace(ONE, user_designs=(RatedSet(1.0),), own_features=False),
    "user design": replace(ONE, user_designs=(LABELLED,)),
    "two designs only": replace(ONE, user_designs=(RatedSet(0.5), LABELLED), own_features=False),
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


def share(design: RatedSet | Labelled) -> float:
    """X_11: the one user has one rating, and an entry in the one column of ``LABELLED``."""
    if isinstance(design, RatedSet):
        return 1.0
    c, v = design.numbers(np.arange(1))
    return float(c[0] * v[0, 0])


def pair_nodes(model: Model, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of S_1 and V_1, every one with every other, and their probabilities."""
    v, v_weight = feature_nodes(model, count, True)
    s, s_weight = feature_nodes(model, count, True) if model.has_own("user") else (0.0, 1.0)
    for design in model.user_designs:
        w, w_weight = feature_nodes(model, count, False)
        s = np.add.outer(s, share(design) * w).ravel()
        s_weight = np.outer(s_weight, w_weight).ravel()
    return np.repeat(s, count), np.tile(v, len(s)), np.outer(s_weight, v_weight).ravel()


def noise_nodes(model: Model, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """tau, alpha beta tau and their probabilities."""
    h = model.hyper
    tau, tau_weight = gamma_nodes(h.noise_shape, h.noise_rate, count)
    one, one_weight = np.ones(1), np.ones(1)
    if model.precision == "robust":
        one, one_weight = gamma_nodes(*model.precision_prior, count)
    if model.precision == "truncated":
        low, high = model.bounds
        nodes, weights = np.polynomial.legendre.leggauss(count)
        one = (low + high) / 2 + (high - low) / 2 * nodes
        shape, rate = model.precision_prior
        one_weight = weights * stats.gamma(shape, scale=1 / rate).pdf(one)
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
        w = state.tau * state.user.alpha[0] * state.item.alpha[0]
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
        (mistakes.wrong_rate, {"name": "alpha", "factor": 1.1}, "robust"),
        (mistakes.one_degree_more, {}, "constant"),
        (mistakes.wrong_prior, {"spread": np.ones(1)}, "student-t"),
    ],
    ids=["tau", "alpha", "degrees", "scale"],
)
def test_mistakes_are_caught_by_one_rating(mistake, options, name, monkeypatch):
    mistake(monkeypatch, **options)
    z = smallest_scores(name, 20_000)
    assert max(map(abs, z.values())) > bound(len(z) * len(SMALLEST)), z
