"""Geweke's joint-distribution test: a sampler that leaves the posterior as it is leaves the prior.

Parameters and data are drawn from the model; a few rounds of (sweep, new data) must not change
their distribution. Every replicate starts afresh, so the paired differences between start and end
are independent, and their mean over its standard error is a z score.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import stats

from bayesmf.inference import sweep as sweeping
from bayesmf.inference.sweep import gibbs_sweep
from bayesmf.model import conditionals
from bayesmf.model.state import Data, SideData
from bayesmf.prob.distributions import Gamma
from bayesmf.prob.draws import Draws
from variants import VARIANTS, small_ratings

from . import prior

ROUNDS = 4


def z_scores(model, replicates: int, form: str = "interwoven", seed: int = 0) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    data = Data.of(small_ratings(), model)
    zero = {"mean": 0.0}
    data = Data(
        SideData("user", data.user.observed._replace(**zero), data.user.counts, model.side_power),
        SideData("item", data.item.observed._replace(**zero), data.item.counts, model.side_power),
        0.0, data.size,
    )  # fmt: skip
    differences: list[list[float]] = []
    for replicate in range(replicates):
        state = prior.draw_prior(model, data, rng)
        before = prior.statistics(model, state)
        for k in range(ROUNDS):
            data = prior.draw_ratings(data, state, rng)
            gibbs_sweep(model, data, state, Draws(seed, sweep=replicate * ROUNDS + k), form)
        after = prior.statistics(model, state)
        differences.append([after[key] - before[key] for key in before])
    d = np.array(differences)
    spread = d.std(axis=0, ddof=1)
    z = np.where(spread > 0, d.mean(axis=0) / np.maximum(spread, 1e-300) * np.sqrt(len(d)), 0.0)
    return dict(zip(before, z, strict=True))


def bound(count: int, level: float = 1e-3) -> float:
    """|z| beyond this has probability ``level`` over all ``count`` scores, if all is well."""
    return float(stats.norm.isf(level / count / 2))


@pytest.mark.parametrize("name", VARIANTS)
def test_quick(name):
    z = z_scores(VARIANTS[name], 150)
    assert max(map(abs, z.values())) < bound(len(z) * len(VARIANTS)), z


@pytest.mark.slow
@pytest.mark.parametrize("form", ["centred", "non-centred", "interwoven"])
@pytest.mark.parametrize("name", VARIANTS)
def test_thorough(name, form):
    model = VARIANTS[name]
    if form != "interwoven" and not (model.has_side("user") or model.has_side("item")):
        pytest.skip("no side features")
    z = z_scores(model, 3000, form, seed=1)
    assert max(map(abs, z.values())) < bound(3 * len(z) * len(VARIANTS)), z


def wrong_rate(monkeypatch):
    right = conditionals.noise

    def noise(model, counts, errors, tau):
        found = right(model, counts, errors, tau)
        return Gamma(found.shape, 1.1 * found.rate)

    monkeypatch.setattr(conditionals, "noise", noise)
    return "no side, robust", 1500


def wrong_tau(monkeypatch):
    right = conditionals.tau

    def tau(model, size, total):
        found = right(model, size, total)
        return Gamma(found.shape, 1.1 * found.rate)

    monkeypatch.setattr(conditionals, "tau", tau)
    return "no side", 1500


def no_prior_mean(monkeypatch):
    right = sweeping.prior_of
    monkeypatch.setattr(
        sweeping, "prior_of", lambda *a: right(*a)._replace(linear_scaled=np.zeros(3))
    )
    return "no side", 400


def offset_left_out(monkeypatch):
    right = sweeping.prior_of
    monkeypatch.setattr(
        sweeping, "prior_of", lambda *a: right(*a)._replace(offset=np.zeros((0, 3)))
    )
    return "user side", 400


def reused_counter(monkeypatch):
    """The same random numbers in every sweep of a replicate."""
    right = sweeping.stream

    def stream(draws, *rest):
        return right(Draws(draws.seed, draws.chain, draws.sweep // ROUNDS), *rest)

    monkeypatch.setattr(sweeping, "stream", stream)
    return "no side", 800


def stale_scatter(monkeypatch):
    """One degree of freedom too many in the Wishart, as the paper's appendix has it."""
    from dataclasses import replace

    right = conditionals.hyper
    monkeypatch.setattr(
        conditionals, "hyper", lambda *a: (lambda p: replace(p, nu=p.nu + 1))(right(*a))
    )
    return "no side", 800


MUTATIONS = [wrong_rate, wrong_tau, no_prior_mean, offset_left_out, reused_counter, stale_scatter]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mistakes_are_caught(mutation, monkeypatch):
    name, replicates = mutation(monkeypatch)
    z = z_scores(VARIANTS[name], replicates, "centred")
    assert max(map(abs, z.values())) > bound(len(z) * len(VARIANTS)), z


def test_the_prior_is_left_alone_without_sweeps():
    state = prior.draw_prior(VARIANTS["no side"], Data.of(small_ratings(), VARIANTS["no side"]),
                             np.random.default_rng(0))  # fmt: skip
    assert prior.statistics(VARIANTS["no side"], copy.deepcopy(state)) == prior.statistics(
        VARIANTS["no side"], state
    )
