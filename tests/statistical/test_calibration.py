"""Simulation-based calibration: true values fall anywhere among posterior draws.

Parameters come from the prior and ratings from the parameters, so the truth is one more draw from
the posterior, and its rank among independent posterior draws is uniform (Talts et al. 2018).
Chains do not begin at the truth: their draws would be exact but tied to it, and a rank is then
uniform only if the truth has a random place in a reversible chain, which a sweep in fixed order
is not. They begin at another draw from the prior, independent of the truth and more dispersed
than the posterior. In these small worlds the integrated autocorrelation times are 1 to 5 sweeps,
so a burn-in of 12 sweeps and every fourth sweep after it are close to independent draws.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import stats

from bayesmf.model.data import Data
from bayesmf.model.spec import Model
from bayesmf.model.state import State
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import VARIANTS, small_ratings

from . import mistakes, prior

BURN_IN, THIN, DRAWS = 12, 4, 7
REPLICATES = 300
QUANTITIES = 7  # at most, for the bound
LEVEL = 1e-3 / (QUANTITIES * len(VARIANTS))
OBSERVED, UNOBSERVED, UNRATED = (0, 1), (1, 1), (-1, 0)  # pairs; the last user has no ratings


def quantities(model: Model, data: Data, state: State, rng) -> dict[str, float]:
    """What is ranked: all of it has a meaning however the features are rotated."""
    x, y = state.user.x, state.item.x

    def fitted(i, j):
        return x[i, 0] + y[j, 0] + (x[i, 1:] * y[j, 1:]).sum(-1)

    def weight(i, j):
        return state.tau * state.user.alpha[i] * state.item.alpha[j]

    user = np.repeat(np.arange(len(x)), data.user.counts)
    item, values = data.user.observed.index, data.user.observed.values
    w = weight(user, item)
    out = {
        "tau": state.tau,
        "observed": fitted(*OBSERVED),
        "unobserved": fitted(*UNOBSERVED),
        "new rating": fitted(*UNRATED) + rng.normal() / np.sqrt(weight(*UNRATED)),
        "likelihood": (np.log(w) - w * (values - fitted(user, item)) ** 2).sum(),
    }
    if model.rank:
        out["inner"] = x[0, 1:] @ x[1, 1:]
    if model.precision != "constant":
        out["alpha"] = state.user.alpha[0]
    return out


def p_values(model: Model, replicates: int = REPLICATES, seed: int = 0) -> dict[str, float]:
    """How likely ranks less uniform than those found are, for each quantity."""
    rng = np.random.default_rng(seed)
    data = prior.uncentred(Data.of(small_ratings(), model))
    ranks: dict[str, list[int]] = {}
    for replicate in range(replicates):
        truth, state = (prior.draw_prior(model, data, rng) for _ in range(2))
        data = prior.draw_ratings(data, truth, rng)
        drawn = []
        for k in range(BURN_IN + THIN * DRAWS):
            draws = Draws(seed, sweep=replicate * (BURN_IN + THIN * DRAWS) + k)
            gibbs_sweep(model, data, state, draws, "interwoven")
            if k >= BURN_IN and (k - BURN_IN) % THIN == THIN - 1:
                drawn.append(quantities(model, data, state, rng))
        for key, value in quantities(model, data, truth, rng).items():
            ranks.setdefault(key, []).append(sum(draw[key] < value for draw in drawn))
    return {key: uniformity(np.array(rank), DRAWS) for key, rank in ranks.items()}


def uniformity(ranks: np.ndarray, draws: int) -> float:
    """The p-value of ranks in 0..draws, by simultaneous bands of their ECDF, exactly.

    The statistic is the smallest two-sided binomial tail over the points of the ECDF (Sailynoja
    et al. 2022). Its law follows from the counts below each point, which are a Markov chain.
    """
    n = len(ranks)
    points = np.arange(1, draws + 1) / (draws + 1)

    def tails(count, point):
        law = stats.binom(n, point)
        return np.minimum(1, 2 * np.minimum(law.cdf(count), law.sf(count - 1)))

    below = np.cumsum(np.bincount(ranks, minlength=draws + 1))[:-1]
    worst = tails(below, points).min()
    counts = np.arange(n + 1)
    alive = (counts == 0).astype(float)  # chance to be at a count, with every tail so far larger
    for step, point in zip(transitions(n, draws), points, strict=True):
        alive = alive @ step
        alive[tails(counts, point) <= worst * (1 + 1e-9)] = 0.0
    return float(1 - alive.sum())


@functools.cache
def transitions(n: int, draws: int) -> list[np.ndarray]:
    """From the count below one point to that below the next: a binomial share of the rest."""
    counts = np.arange(n + 1)
    gained, rest = counts - counts[:, None], n - counts[:, None]
    return [stats.binom(rest, 1 / (draws + 1 - k)).pmf(gained) for k in range(draws)]


def test_uniform_ranks_have_uniform_p_values():
    """Uniform ranks have uniform p-values; a shift and a wrong spread have small ones."""
    rng = np.random.default_rng(0)
    found = [uniformity(rng.integers(0, 8, 100), 7) for _ in range(200)]
    for level in (0.02, 0.1, 0.5):  # counts are whole, so p can only be too large: one side
        assert np.mean(np.array(found) <= level) < level + 4 * np.sqrt(level / 200)
        assert np.mean(np.array(found) <= level) > 0.6 * level - 4 * np.sqrt(level / 200)
    assert uniformity(rng.binomial(7, 0.55, 300), 7) < 1e-6
    assert uniformity(np.minimum(rng.integers(0, 10, 300), 7), 7) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_ranks_are_uniform(name):
    p = p_values(VARIANTS[name])
    assert min(p.values()) > LEVEL, p


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "options", "name"),
    [
        (mistakes.wrong_rate, {"name": "tau", "factor": 1.2}, "no side"),
        (mistakes.wrong_rate, {"name": "alpha", "factor": 1.2}, "no side, robust"),
        (mistakes.no_prior_mean, {}, "no side"),
        (mistakes.offset_left_out, {}, "user side"),
    ],
    ids=["tau", "alpha", "prior mean", "offset"],
)
def test_mistakes_are_caught(mistake, options, name, monkeypatch):
    mistake(monkeypatch, **options)
    p = p_values(VARIANTS[name])
    assert min(p.values()) < LEVEL, p
