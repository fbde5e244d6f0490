"""Errata of the paper: what is printed fails a check that what is right passes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special, stats

from bayesmf.inference.map.fit import fit_precisions
from bayesmf.inference.target import Target
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import Data
from bayesmf.model.distributions import Gamma, NormalWishart, TruncatedGamma
from bayesmf.model.likelihood import Gaussian
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep import sweep as sweeping
from bayesmf.sweep.designs import update_design
from oracle.conditionals import rated
from oracle.joint import log_joint
from oracle.variants import VARIANTS, random_state, small_ratings
from oracle.variational import Watched, fitted
from statistical import mistakes

PAGE = Path(__file__).parents[2] / "docs" / "errata.md"
MANY = 4000  # draws
NEAR, FAR = 4.0, 10.0  # standard errors: chance never, the mistake always

# Updates: where Q is nearly the best, the printed update makes the bound fall


def falls(name: str, before=lambda q, state: None) -> set[str]:
    """The blocks of one sweep that make the bound fall, after 100 right sweeps and ``before``."""
    model = VARIANTS[name]
    data = Data.of(small_ratings(12, 9), model)
    state, q = fitted(model, data, 100, Watched)
    before(q, state)
    q.begin(model, data, state)
    sweeping.sweep(model, data, state, q)
    return {what for what, _ in q.falls()}


@pytest.mark.parametrize("name", ["no side, robust", "user side", "no side, truncated"])
def test_right_updates_never_make_the_bound_fall(name):
    assert falls(name) == set()


def test_global_precision_rate(monkeypatch):
    """b + tau/2 sum in place of b + 1/2 sum."""
    right = Gaussian.tau

    def before(q, state):
        monkeypatch.setattr(
            Gaussian, "tau", lambda self, h, n, total: right(self, h, n, state.tau * total)
        )

    assert falls("no side", before) == {"tau"}


def test_item_mean_without_the_users_features(monkeypatch):
    """sum_i alpha_i (r - S_i'V_j), a number, in place of sum_i alpha_i S_i (r - gamma - eta)."""
    right = sweeping.update_rows

    def printed(model, data, me, others, state, algorithm):
        errors = right(model, data, me, others, state, algorithm)
        if data.name == "item":
            cov = algorithm.covariances("item").own
            for j in range(len(me.x)):
                total = sum(
                    others.alpha[i] * (r - others.x[i, 1:3] @ me.x[j, 1:3])
                    for i, r in rated(data, j)
                )
                linear = me.Lambda[1:, 1:] @ me.mu[1:] + state.tau * me.alpha[j] * total
                me.x[j, 1:3] = unpack(cov[j])[1:, 1:] @ linear
            algorithm.note_update("items as printed")
        return errors

    def before(q, state):
        monkeypatch.setattr(sweeping, "update_rows", printed)

    assert "items as printed" in falls("no side", before)


def test_first_moments_only():
    """Said to agree with the Gibbs conditional: no update sees the others' covariances."""

    def before(q, state):
        q.second = False

    assert falls("no side, robust", before) >= {"user hyper", "user alpha", "item alpha", "tau"}
    assert "user W hyper" in falls("user side", before)
    model = VARIANTS["user side"]
    data = Data.of(small_ratings(12, 9), model)
    for rows in (True, False):
        state, q = fitted(model, data, 100, Watched)
        q.second = False
        q.begin(model, data, state)
        if rows:
            sweeping.update_rows(model, data.item, state.item, state.user, state, q)
        else:
            update_design(model, data.user, state.user, state.item, 0, state, q)
        assert [what for what, _ in q.falls()] == ["item rows" if rows else "user W"]


def test_degrees_of_freedom(monkeypatch):
    """nu~ + 1 in place of nu~."""
    found = falls("no side", lambda q, state: mistakes.one_degree_more(monkeypatch))
    assert found >= {"user hyper", "item hyper"}


def test_clamped_precisions():
    """shape / rate cut to the bounds is neither the mode nor the mean of a truncated Gamma."""
    for shape, rate in ((3.0, 1.2), (3.0, 4.0), (5.0, 3.0)):
        one = TruncatedGamma(np.array([shape]), np.array([rate]), 0.5, 2.0)
        printed = np.clip(shape / rate, 0.5, 2.0)
        x = np.linspace(0.5, 2.0, 20_001)
        density = np.exp(TruncatedGamma(np.full(20_001, shape), np.full(20_001, rate), 0.5, 2.0)
                         .log_density(x))  # fmt: skip
        mean = integrate.simpson(x * density, x=x)
        assert one.mean()[0] == pytest.approx(mean, rel=1e-8)
        assert abs(printed - mean) > 0.02
        mode = x[np.argmax(density)]
        assert mode == pytest.approx(np.clip((shape - 1) / rate, 0.5, 2.0), abs=1e-4)
        assert abs(printed - mode) > 0.05 or shape / rate > 2

    def before(q, state):
        q.clamp = True

    assert falls("no side, truncated", before)


# Terms of the bound: against means over draws from Q

SIZE = 3
MEAN, COVARIANCE = np.array([1.0, -0.5, 2.0]), np.diag([0.5, 1.0, 2.0]) + 0.3
Q = NormalWishart(np.array([0.2, 0.4, 0.1]), 3.0, np.diag([2.0, 1.0, 3.0]) + 0.2, 9.0)


def hypers(q: NormalWishart = Q) -> list[tuple[np.ndarray, np.ndarray]]:
    return [q.sample(Draws(1, sweep=k)) for k in range(MANY)]


def scores(values: np.ndarray, *claims: float) -> list[float]:
    """How many standard errors each claim is from the mean of the values."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return [abs(claim - values.mean()) / error for claim in claims]


def test_log_determinant_of_a_wishart():
    """2 log 2 in place of d log 2."""
    values = np.array([np.linalg.slogdet(precision)[1] for _, precision in hypers()])
    right = Q.expected_log_det()
    near, far = scores(values, right, right - SIZE * np.log(2) + 2 * np.log(2))
    assert near < NEAR
    assert far > FAR


def test_user_term_of_the_bound():
    """nu~ tr(W~ C) / beta~ in place of nu~ tr(W~ C), and d / beta~ apart."""
    rng = np.random.default_rng(0)
    U = rng.multivariate_normal(MEAN, COVARIANCE, MANY)
    values = np.array([(u - m) @ L @ (u - m) for u, (m, L) in zip(U, hypers(), strict=True)])
    W, e = np.linalg.inv(Q.inverse_scale), MEAN - Q.mean
    trace = np.trace(W @ COVARIANCE)
    right = Q.nu * (e @ W @ e + trace) + SIZE / Q.beta
    near, far = scores(values, right, Q.nu * (e @ W @ e + trace / Q.beta))
    assert near < NEAR
    assert far > FAR


def test_mu_term_of_the_bound():
    """nu~ tr(W~ Lam~^-1), Lam~ = beta~ Lam being random, in place of d / beta~.

    Its value changes with Lam; its mean is nu~ / (nu~ - d - 1) times what is right.
    """
    drawn = hypers()
    values = np.array([(m - Q.mean) @ L @ (m - Q.mean) for m, L in drawn])
    W = np.linalg.inv(Q.inverse_scale)
    printed = np.array([Q.nu * np.trace(W @ np.linalg.inv(Q.beta * L)) for _, L in drawn])
    near, far = scores(values, SIZE / Q.beta, printed.mean())
    assert near < NEAR
    assert far > FAR
    assert printed.mean() == pytest.approx(Q.nu / (Q.nu - SIZE - 1) * SIZE / Q.beta, rel=0.05)


def test_bias_term_of_the_bound():
    """Var = lambda_i, the precision, in place of 1 / lambda_i."""
    precision, mean, mu, lam = 8.0, 0.4, 0.1, 2.0
    rng = np.random.default_rng(0)
    values = stats.norm(mu, lam**-0.5).logpdf(rng.normal(mean, precision**-0.5, MANY))
    start = 0.5 * np.log(lam / (2 * np.pi))
    right, printed = (start - lam / 2 * (v + (mean - mu) ** 2) for v in (1 / precision, precision))
    near, far = scores(values, right, printed)
    assert near < NEAR
    assert far > FAR


def test_entropy_of_a_feature_vector():
    """The quadratic form is said to be zero; its mean is d."""
    rng = np.random.default_rng(0)
    U = rng.multivariate_normal(MEAN, COVARIANCE, MANY)
    values = stats.multivariate_normal(MEAN, COVARIANCE).logpdf(U)
    zero = -0.5 * (np.linalg.slogdet(COVARIANCE)[1] + SIZE * np.log(2 * np.pi))
    near, far = scores(values, zero - SIZE / 2, zero)
    assert near < NEAR
    assert far > FAR


def test_entropy_of_a_gamma():
    """E log Q = -a - log b - log Gamma(a) - (a - 1) psi(a), with two signs wrong."""
    a, b = 5.0, 3.0
    q = Gamma(np.array([a]), np.array([b]))
    right = q.expected_log_density(q.mean_log(), q.mean())[0]
    assert right == pytest.approx(-stats.gamma(a, scale=1 / b).entropy())
    assert right == pytest.approx(np.log(b) - special.gammaln(a) + (a - 1) * special.digamma(a) - a)
    printed = -a - np.log(b) - special.gammaln(a) - (a - 1) * special.digamma(a)
    assert abs(printed - right) > 1


def test_entropy_of_a_normal_wishart():
    """beta~/2 log|Lam| in place of 1/2 log|Lam| + d/2 log beta~: what doubling beta~ adds."""
    other = NormalWishart(Q.mean, 2 * Q.beta, Q.inverse_scale, Q.nu)
    # the same random numbers: Lam is the same, mu is nearer to its mean
    values = np.array([
        other.log_density(*b) - Q.log_density(*a)
        for a, b in zip(hypers(), hypers(other), strict=True)
    ])  # fmt: skip
    right = other.expected_log_density(other) - Q.expected_log_density(Q)
    assert right == pytest.approx(SIZE / 2 * np.log(2))
    assert values == pytest.approx(np.full(MANY, right))
    assert abs(Q.beta / 2 * Q.expected_log_det() - right) > 1


def test_the_divergence_and_its_parts():
    """The integral of Q log(Q/p) is KL(Q‖p), and a sum over factors, not a product."""
    q, p = stats.norm(0.3, 0.5), stats.norm(0.0, 1.0)

    def divergence(one, two):
        return integrate.quad(lambda x: one.pdf(x) * (one.logpdf(x) - two.logpdf(x)), -9, 9)[0]

    assert abs(divergence(q, p) - divergence(p, q)) > 0.1
    x = q.rvs((MANY, 2), random_state=1)
    values = (q.logpdf(x) - p.logpdf(x)).sum(axis=1)
    near, far = scores(values, 2 * divergence(q, p), divergence(q, p) ** 2)
    assert near < NEAR
    assert far > FAR


# MAP, side features, predictions


def test_precision_tau_of_maximum_likelihood():
    """tau in its own equation: 1/tau = tau mean(alpha_i beta_j e_ij^2) is no maximum."""
    model = VARIANTS["no side"]
    data = Data.of(small_ratings(12, 9), model)
    state = random_start(model, data, 0)
    state.user.x[:, 0] += 2.0  # errors that are far from 1

    def likelihood(tau: float) -> float:
        state.tau = tau
        prior = Gamma(np.full(1, model.hyper.noise_shape), np.full(1, model.hyper.noise_rate))
        return log_joint(model, data, state) - prior.log_density(np.array([tau]))[0]

    fit_precisions(model, data, state)
    right = state.tau
    best = likelihood(right)
    assert best > max(likelihood(right * 1.01), likelihood(right / 1.01))
    assert best > likelihood(right**0.5) + 1


def test_transposed_side_features():
    """sum_l W_l in place of sum_l I_lj W_l: every item would have the same offset."""
    model = VARIANTS["item side"]
    data = Data.of(small_ratings(12, 9), model)
    state = random_state(model, data)
    for j in range(9):
        raters = [i for i, _ in rated(data.item, j)]
        W, scale = state.item.shifts[0].W, data.item.matrices[0].scale[j]
        right = W[raters].sum(axis=0) * scale
        assert state.item.offset[j] == pytest.approx(right, abs=1e-12)
        printed = W.sum(axis=0) * scale
        assert len(raters) == 12 or not np.allclose(printed[1:], right[1:]) or not raters


def test_prediction_with_side_features():
    """U'V in place of S'V."""
    model = VARIANTS["user side"]
    ratings = small_ratings(12, 9)
    data = Data.of(ratings, model)
    state = random_state(model, data)
    found = Target(ratings, data, model).predict(state)
    user, item = ratings.by_user.row_index, ratings.by_user.index
    for features, same in ((state.user.x[:, 1:3], True), (state.user.own[:, 1:], False)):
        inner = (features[user] * state.item.x[item, 1:3]).sum(axis=1)
        said = data.mean + state.user.x[user, 0] + state.item.x[item, 0] + inner
        assert np.allclose(found, said) == same


def test_errors_by_bin():
    """Weighted as the bins are defined, they are far below the overall errors of Table 2."""
    from bayesmf.report import paper

    for name, cell in (("no-side-constant", ("no-side", "gibbs", "constant")),
                       ("side-constant", ("side", "gibbs", "constant"))):  # fmt: skip
        assert paper.overall_of_bins(name) < paper.OVERALL["ml-1m"][cell] - 0.015


def test_every_test_that_the_page_names_is_here():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) >= 14
    assert named <= set(globals())
