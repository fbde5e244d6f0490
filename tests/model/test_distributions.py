"""Distributions against scipy and numerical integration, far tails included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp
from scipy import integrate, stats

from bayesmf.model import distributions
from bayesmf.model.distributions import Gamma, Gaussian, NormalWishart, TruncatedGamma
from bayesmf.random.draws import Draws

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


# Moments that variational inference needs


def exact_moments(shape: float, rate: float, low: float, high: float) -> tuple[float, ...]:
    """log mass, E[x] and E[log x] of a truncated Gamma, integrated over log x to 30 digits.

    The interval is cut at distances from the greatest density that double from a small start, so
    that the integrand is smooth between any two cuts.
    """
    with mp.workdps(30):
        a, b = mp.mpf(shape), mp.mpf(rate)
        peak = mp.log(a / b)
        right = mp.log(high) if high < np.inf else peak + 20
        left = mp.log(low) if low > 0 else min(peak, right) - 100 / a - 20
        top = min(max(peak, left), right)
        step = 1 / max(mp.sqrt(a), abs(a - b * mp.exp(top)))
        cuts = {left, top, right}
        while step < right - left:
            cuts |= {t for t in (top - step, top + step) if left < t < right}
            step *= 2
        greatest = a * top - b * mp.exp(top)
        nodes, weights = _polished(np.polynomial.legendre.leggauss(24)[0])
        mass = first = logs = mp.mpf(0)
        cuts = sorted(cuts)
        for begin, end in pairwise(cuts):
            for node, weight in zip(nodes, weights, strict=True):
                t = (begin + end) / 2 + (end - begin) / 2 * node
                x = mp.exp(t)
                value = weight * (end - begin) / 2 * mp.exp(a * t - b * x - greatest)
                mass, first, logs = mass + value, first + value * x, logs + value * t
        log_mass = mp.log(mass) + greatest + a * mp.log(b) - mp.loggamma(a)
        return float(log_mass), float(first / mass), float(logs / mass)


def _polished(nodes: np.ndarray) -> tuple[list, list]:
    """Gauss-Legendre nodes to the working precision by Newton's method, and their weights."""
    n, out = len(nodes), []
    for x in map(mp.mpf, nodes):
        for _ in range(3):
            slope = n * (x * mp.legendre(n, x) - mp.legendre(n - 1, x)) / (x * x - 1)
            x -= mp.legendre(n, x) / slope
        slope = n * (x * mp.legendre(n, x) - mp.legendre(n - 1, x)) / (x * x - 1)
        out.append((x, 2 / ((1 - x * x) * slope**2)))
    return [x for x, _ in out], [w for _, w in out]


BOUNDS = [(0.5, 2.0), (0.01, 100.0), (0.0, 1.0), (0.999, 1.001), (1.0, np.inf)]


def moments_agree(shape: float, bounds: tuple[float, float]) -> bool:
    """All rates at once, from 1e-3 to 1e4: the mass is in either tail, or within."""
    rates = np.array([1e-3, 0.3, 2.0, 60.0, 1e4])
    found = TruncatedGamma(np.full(len(rates), shape), rates, *bounds)
    ours = np.column_stack([found.log_mass(), found.mean(), found.mean_log()])
    exact = np.array([exact_moments(shape, rate, *bounds) for rate in rates])
    # Below 1 the density of log x falls slowly on the left: more of it for the same nodes.
    close = 1e-10 if shape >= 1 else 1e-8
    # a log mass is what is left of terms of the size of shape log(rate)
    sizes = shape * np.abs(np.log(rates)) + rates * min(bounds[1], 100.0)
    return bool(
        (np.abs(ours[:, 0] - exact[:, 0]) < close + 1e-14 * sizes).all()
        and np.allclose(ours[:, 1], exact[:, 1], rtol=close, atol=0)
        and np.allclose(ours[:, 2], exact[:, 2], rtol=close, atol=close)
    )


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("shape", [0.5, 2.0, 30.0, 5000.0])
def test_moments_of_truncated_gammas(shape, bounds):
    """To ten digits, far tails included; to eight if the shape is below 1."""
    assert moments_agree(shape, bounds)


def test_too_few_nodes_are_noticed(monkeypatch):
    monkeypatch.setattr(distributions, "NODES", np.polynomial.legendre.leggauss(24))
    assert not moments_agree(2.0, (0.01, 100.0))


def test_the_exact_moments_are_exact():
    """Against incomplete Gamma functions, where these can be had."""
    with mp.workdps(30):
        for shape, rate, low, high in ((2.0, 3.0, 0.5, 2.0), (30.0, 2.0, 0.01, 100.0)):
            mass = mp.gammainc(shape, rate * low, rate * high)
            first = mp.gammainc(shape + 1, rate * low, rate * high) / mass / rate
            found = exact_moments(shape, rate, low, high)
            assert found[0] == pytest.approx(float(mp.log(mass / mp.gamma(shape))), abs=1e-14)
            assert found[1] == pytest.approx(float(first), rel=1e-14)


def test_bounds_that_cut_nothing_off():
    shape, rate = np.array([2.0, 7.5, 800.0]), np.array([2.0, 0.4, 30.0])
    cut, whole = TruncatedGamma(shape, rate, 0.0, np.inf), Gamma(shape, rate)
    assert cut.log_mass() == pytest.approx(np.zeros(3), abs=1e-11)
    assert cut.mean() == pytest.approx(whole.mean(), rel=1e-12)
    assert cut.mean_log() == pytest.approx(whole.mean_log(), rel=1e-12)


def test_entropies_of_gammas():
    """Minus the expected log density of a distribution under itself."""
    shape, rate = np.array([0.7, 2.0, 300.0]), np.array([2.0, 0.1, 40.0])
    whole = Gamma(shape, rate)
    found = -whole.expected_log_density(whole.mean_log(), whole.mean())
    assert found == pytest.approx(stats.gamma(shape, scale=1 / rate).entropy(), rel=1e-10)
    cut = TruncatedGamma(shape, rate, 0.5, 2.0)
    found = -cut.expected_log_density(cut.mean_log(), cut.mean())
    for k in range(3):
        one = TruncatedGamma(shape[k : k + 1], rate[k : k + 1], 0.5, 2.0)

        def minus(x, one=one):
            log = one.log_density(np.array([x]))[0]
            return -log * np.exp(log)

        assert found[k] == pytest.approx(integrate.quad(minus, 0.5, 2.0)[0], rel=1e-8)


@pytest.mark.parametrize("size", [1, 3])
def test_expectations_under_a_normal_wishart(size):
    """E log |Lambda| exactly; E log density under another, and the entropy, from draws."""
    rng = np.random.default_rng(2)
    one = NormalWishart(rng.normal(size=size), 2.0, spd(size), size + 3.5)
    other = NormalWishart(rng.normal(size=size), 0.7, spd(size, 5), size + 6.0)
    # Bartlett: a determinant of independent chi-squares, and that of the scale
    logs = sum(stats.loggamma((one.nu - a) / 2).mean() + np.log(2) for a in range(size))
    logs -= np.linalg.slogdet(one.inverse_scale)[1]
    assert one.expected_log_det() == pytest.approx(logs, rel=1e-12)
    drawn = [one.sample(Draws(1, sweep=k)) for k in range(4000)]
    for density in (one, other):
        values = np.array([density.log_density(*draw) for draw in drawn])
        z = (values.mean() - density.expected_log_density(one)) / (values.std() / np.sqrt(4000))
        assert abs(z) < 4  # one in 16,000 by chance
    assert one.expected_log_density(one) > other.expected_log_density(one)
