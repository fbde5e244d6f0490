"""Scores of predictive distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from bayesmf import Gibbs, Model, load, split
from bayesmf.evaluation.metrics import LEVELS, inside, log_score
from bayesmf.model.likelihood import Normal


def test_intervals_of_the_right_gaussian_hold_what_they_promise():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=20_000), rng.uniform(0.5, 2, 20_000)
    values = rng.normal(mean, sd)
    for level in LEVELS:
        held = inside(values, Normal(mean, sd), level).mean()
        assert held == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 20_000))


@pytest.mark.parametrize("value", [-1.0, 0.3, 4.0])
def test_crps_is_its_integral(value):
    """The integral of (F(x) - 1[x >= value])^2."""
    mean, sd = 0.5, 1.3
    cdf = stats.norm(mean, sd).cdf
    below = integrate.quad(lambda x: cdf(x) ** 2, -np.inf, value)[0]
    above = integrate.quad(lambda x: (1 - cdf(x)) ** 2, value, np.inf)[0]
    found = Normal(np.array([mean]), np.array([sd])).crps(np.array([value]))
    assert found[0] == pytest.approx(below + above, rel=1e-6)


def test_the_log_score_is_best_for_the_right_spread():
    rng = np.random.default_rng(1)
    values = rng.normal(size=5000)
    scores = [log_score(values, 0 * values, 0 * values + sd).mean() for sd in (0.7, 1.0, 1.4)]
    assert scores[1] == max(scores)


def test_a_sampled_fit_is_calibrated_on_the_data_it_was_made_for():
    """The demo ratings are drawn from the model and rounded, so about so many must be inside."""
    train, test = split(load("demo"), "paper", seed=0)
    p = Gibbs(Model(rank=6), sweeps=120, burn_in=40, chains=1).fit(train, test).predictions
    values = np.asarray(test.by_user.values, float)
    for level in LEVELS:
        held = inside(values, Normal(p.mean, p.rating_sd), level).mean()
        assert held == pytest.approx(level, abs=0.03)
        assert inside(values, Normal(p.mean, p.sd), level).mean() < level - 0.1  # noise left out
