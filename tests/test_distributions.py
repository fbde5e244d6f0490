"""Distributions against scipy and numerical integration, far tails included."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from bayesmf.prob.distributions import Gamma, Gaussian, NormalWishart, TruncatedGamma
from bayesmf.prob.draws import Draws

LEVEL = 1e-4
N = 20_000


def spd(size: int, seed: int = 0) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + np.eye(size)


def test_gaussian():
    precision, mean = spd(3), np.array([1.0, -2.0, 0.5])
    ours = Gaussian(precision, precision @ mean)
    scipys = stats.multivariate_normal(mean, np.linalg.inv(precision))
    x = np.array([0.3, -1.0, 0.0])
    assert ours.mean() == pytest.approx(mean)
    assert ours.log_density(x) == pytest.approx(scipys.logpdf(x))
    white = np.array([ours.sample(z) for z in Draws(1).normals(4000, 3)]) - mean
    assert np.cov(white.T) @ precision == pytest.approx(np.eye(3), abs=0.2)


def test_gamma():
    x = np.array([0.1, 1.0, 7.0])
    shape, rate = np.full(3, 2.5), np.full(3, 3.0)
    assert Gamma(shape, rate).log_density(x) == pytest.approx(stats.gamma(2.5, 0, 1 / 3).logpdf(x))
    drawn = Gamma(np.full(N, 2.5), np.full(N, 3.0)).sample(Draws(1))
    assert stats.kstest(drawn, stats.gamma(2.5, 0, 1 / 3).cdf).pvalue > LEVEL


@pytest.mark.parametrize(
    ("shape", "rate", "low", "high"),
    [
        (2.0, 2.0, 0.5, 2.0),
        (50.0, 50.0, 0.5, 2.0),
        (50.0, 20.0, 0.5, 2.0),  # the mode lies above
        (50.0, 200.0, 0.5, 2.0),  # and below
        (1000.0, 4000.0, 0.5, 2.0),  # a mass of e^-400 or so
        (1000.0, 200.0, 0.5, 2.0),
        (20_000.0, 100_000.0, 0.5, 2.0),  # which no double holds
        (20_000.0, 2_000.0, 0.5, 2.0),
        (20_000.0, 20_000.0, 0.999, 1.001),
        (0.5, 1.0, 3.0, 4.0),
    ],
)
def test_truncated_gamma(shape, rate, low, high):
    """Against its own density, integrated in logs on a fine grid."""
    drawn = TruncatedGamma(np.full(N, shape), np.full(N, rate), low, high).sample(Draws(3))
    assert ((drawn >= low) & (drawn <= high)).all()
    mode = np.clip((shape - 1) / rate, low, high)
    scale = 1 / max(abs((shape - 1) / mode - rate), np.sqrt(rate**2 / shape), 1 / (high - low))
    grid = np.unique(np.clip(mode + scale * np.linspace(-60, 60, 400_001), low, high))
    log = (shape - 1) * np.log(grid) - rate * grid
    mass = integrate.cumulative_simpson(np.exp(log - log.max()), x=grid, initial=0)
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, mass / mass[-1])).pvalue > LEVEL


def test_truncated_gamma_density_integrates_to_one():
    for shape, rate in ((2.0, 2.0), (50.0, 20.0), (50.0, 200.0)):
        one = TruncatedGamma(np.array([shape]), np.array([rate]), 0.5, 2.0)
        total, _ = integrate.quad(lambda x, d=one: np.exp(d.log_density(np.array([x]))[0]), 0.5, 2)
        assert total == pytest.approx(1.0, rel=1e-8)
        assert one.log_density(np.array([2.1]))[0] == -np.inf


def test_normal_wishart():
    scale_inverse, mean = spd(3), np.array([0.5, 0.0, -1.0])
    ours = NormalWishart(mean, 2.0, scale_inverse, 6.0)
    precision, mu = spd(3, 4), np.array([0.1, 0.2, 0.3])
    expected = stats.wishart(6, np.linalg.inv(scale_inverse)).logpdf(precision)
    expected += stats.multivariate_normal(mean, np.linalg.inv(2 * precision)).logpdf(mu)
    assert ours.log_density(mu, precision) == pytest.approx(expected)
    drawn = [ours.sample(Draws(1, sweep=k)) for k in range(4000)]
    average = np.mean([p for _, p in drawn], axis=0)
    assert average == pytest.approx(6 * np.linalg.inv(scale_inverse), abs=0.15)
    white = np.array([np.sqrt(2) * np.linalg.cholesky(p).T @ (m - mean) for m, p in drawn])
    assert stats.kstest(white.ravel(), "norm").pvalue > LEVEL
    traces = [np.linalg.slogdet(p)[1] for _, p in drawn]
    # log det of a Wishart: sum of log chi-squares, plus that of the scale
    exact = sum(stats.loggamma((6 - a) / 2).mean() + np.log(2) for a in range(3))
    exact -= np.linalg.slogdet(scale_inverse)[1]
    assert np.mean(traces) == pytest.approx(exact, abs=5 * np.std(traces) / np.sqrt(4000))


def test_the_posterior_of_weighted_vectors():
    """Weights w are w-fold repetitions, except that the Wishart counts vectors."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(7, 2)), np.array([1, 2, 3, 1, 1, 2, 1])
    prior = NormalWishart(np.array([0.3, -0.2]), 1.5, spd(2), 5.0)
    weighted = prior.posterior(w.sum(), w @ x, (x.T * w) @ x, 7)
    repeated = np.repeat(x, w, axis=0)
    plain = prior.posterior(11, repeated.sum(axis=0), repeated.T @ repeated, 11)
    assert weighted.mean == pytest.approx(plain.mean)
    assert weighted.inverse_scale == pytest.approx(plain.inverse_scale)
    assert (weighted.beta, weighted.nu) == (plain.beta, plain.nu - 4)
    # the textbook form with deviations from the mean
    centred = repeated - repeated.mean(axis=0)
    off = repeated.mean(axis=0) - prior.mean
    textbook = prior.inverse_scale + centred.T @ centred + 11 * 1.5 / 12.5 * np.outer(off, off)
    assert plain.inverse_scale == pytest.approx(textbook)
