"""Geweke's joint-distribution test: a sampler that leaves the posterior as it is leaves the prior.

Parameters and data are drawn from the model; a few rounds of (sweep, new data) must not change
their distribution. Every replicate starts afresh, so the paired differences between start and end
are independent, and their mean over its standard error is a z score.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.inference.map.descent import residuals
from bayesmf.kernels.designs import NO_VALUES
from bayesmf.model.data import Data
from bayesmf.random.draws import Draws
from bayesmf.sweep import algorithm, moves, scales, sweep
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import VARIANTS, WEIGHTED, small_ratings

from . import mistakes, prior
from .scores import bound

ROUNDS = 4
HEAVY = small_ratings(8, 6, weighted=True)  # more than rows can fit without an error
LIGHT = small_ratings(6, 5, weighted=True)  # fewer than columns, so that scales are moved


def z_scores(model, replicates: int, form: str = "interwoven", seed: int = 0,
             rounds: int = ROUNDS, step=gibbs_sweep, ratings=None
             ) -> dict[str, float]:  # fmt: skip
    rng = np.random.default_rng(seed)
    data = prior.uncentred(Data.of(small_ratings() if ratings is None else ratings, model))
    differences: list[list[float]] = []
    for replicate in range(replicates):
        state = prior.draw_prior(model, data, rng)
        before = prior.statistics(model, state)
        for k in range(rounds):
            data = prior.draw_ratings(data, state, rng)
            step(model, data, state, Draws(seed, sweep=replicate * rounds + k), form)
        after = prior.statistics(model, state)
        differences.append([after[key] - before[key] for key in before])
    d = np.array(differences)
    spread = d.std(axis=0, ddof=1)
    z = np.where(spread > 0, d.mean(axis=0) / np.maximum(spread, 1e-300) * np.sqrt(len(d)), 0.0)
    return dict(zip(before, z, strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_quick(name):
    z = z_scores(VARIANTS[name], 150)
    assert max(map(abs, z.values())) < bound(len(z) * len(VARIANTS)), z


@pytest.mark.parametrize("ratings", [HEAVY, LIGHT], ids=["heavy", "light"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_ratings_with_weights(name, ratings):
    z = z_scores(WEIGHTED[name], 150, ratings=ratings)
    assert max(map(abs, z.values())) < bound(2 * len(z) * len(WEIGHTED)), z


@pytest.mark.slow
@pytest.mark.parametrize("form", ["centred", "non-centred", "interwoven"])
@pytest.mark.parametrize("name", VARIANTS)
def test_thorough(name, form):
    model = VARIANTS[name]
    sides = [side for side in ("user", "item") if model.designs(side) and model.has_own(side)]
    if form != "interwoven" and not sides:
        pytest.skip("one form only")
    z = z_scores(model, 1500, form, seed=1)
    assert max(map(abs, z.values())) < bound(3 * len(z) * len(VARIANTS)), z


def reused_counter(monkeypatch):
    """The same random numbers in every sweep of a replicate."""
    right = algorithm.stream

    def stream(draws, *rest):
        return right(Draws(draws.seed, draws.chain, draws.sweep // ROUNDS), *rest)

    monkeypatch.setattr(algorithm, "stream", stream)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "options", "name", "replicates"),
    [
        (mistakes.wrong_rate, {"name": "alpha", "factor": 1.1}, "no side, robust", 1500),
        (mistakes.wrong_rate, {"name": "tau", "factor": 1.1}, "no side", 1500),
        (mistakes.no_prior_mean, {}, "no side", 400),
        (mistakes.offset_left_out, {}, "user side", 400),
        (reused_counter, {}, "no side", 800),
        (mistakes.one_degree_more, {}, "no side", 800),
    ],
    ids=["alpha", "tau", "prior mean", "offset", "counter", "degrees"],
)
def test_mistakes_are_caught(mistake, options, name, replicates, monkeypatch):
    mistake(monkeypatch, **options)
    z = z_scores(VARIANTS[name], replicates, "centred")
    assert max(map(abs, z.values())) > bound(len(z) * len(VARIANTS)), z


def squared_weights(data):
    """The sampler is told the squares of the weights."""
    sides = (replace(s, observed=s.observed._replace(weights=s.observed.weights**2))
             for s in (data.user, data.item))  # fmt: skip
    return replace(data, **dict(zip(("user", "item"), sides, strict=True)))


def errors_without_weights(monkeypatch):
    """Rows are drawn with the weights, but precisions given squared errors that lack them."""
    right = sweep.update_rows

    def wrong(model, data, me, others, state, algorithm):
        right(model, data, me, others, state, algorithm)
        plain = replace(data, observed=data.observed._replace(weights=NO_VALUES))
        return residuals(plain, me, others, others.alpha)[1]

    monkeypatch.setattr(sweep, "update_rows", wrong)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["squared", "forgotten in the errors"])
def test_mistakes_with_weights_are_caught(mistake, monkeypatch):
    def step(model, data, *rest):
        gibbs_sweep(model, squared_weights(data) if mistake == "squared" else data, *rest)

    if mistake != "squared":
        errors_without_weights(monkeypatch)
    z = z_scores(VARIANTS["no side, robust"], 300, step=step, ratings=HEAVY)
    assert max(map(abs, z.values())) > bound(len(z) * len(WEIGHTED)), z


def moves_alone(model, data, state, draws, form):
    """What a sweep does besides drawing each parameter given all others."""
    moves.move_features(model, data, state, draws)
    for mine in (data.user, data.item):
        me, others = state.sides(mine.name)
        scales.move_scales(model, mine, me, others, state, draws)
        row = np.repeat(np.arange(len(mine.counts)), mine.counts)
        other, size = mine.observed.index, me.size
        fitted = me.x[row, 0] + others.x[other, 0]
        fitted += (me.x[row, 1:size] * others.x[other, 1:size]).sum(axis=1)
        squares = others.alpha[other] * (mine.observed.values - fitted) ** 2
        errors = np.bincount(row, squares, len(mine.counts))
        sweep.draw_tau(model, mine, errors, data.size, state, draws)
        sweep.update_alpha(model, mine, me, errors, state, algorithm.Sampling(draws))


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_moves_alone(name):
    """Nothing else is drawn, which would hide some of what a wrong move does."""
    z = z_scores(VARIANTS[name], 1000, rounds=5, step=moves_alone)
    assert max(map(abs, z.values())) < bound(len(z) * len(VARIANTS)), z


def test_the_prior_is_left_alone_without_sweeps():
    state = prior.draw_prior(VARIANTS["no side"], Data.of(small_ratings(), VARIANTS["no side"]),
                             np.random.default_rng(0))  # fmt: skip
    assert prior.statistics(VARIANTS["no side"], copy.deepcopy(state)) == prior.statistics(
        VARIANTS["no side"], state
    )
