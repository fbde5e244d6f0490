"""The three ways of drawing side features have one posterior.

On one fixed data set, chains of each form must agree in the means of what the posterior says,
within standard errors that count their autocorrelation.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bayesmf.model.data import Data
from bayesmf.model.spec import Model
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import VARIANTS, small_ratings

from . import mistakes, prior
from .scores import bound, standard_error

FORMS = ("centred", "non-centred", "interwoven")
FORMED = [
    name
    for name, m in VARIANTS.items()
    if any(m.designs(side) and m.has_own(side) for side in ("user", "item"))
]
CHAINS, BURN_IN, SWEEPS = 2, 100, 3000


def traces(model: Model, data: Data, form: str, seed: int) -> dict[str, np.ndarray]:
    """The statistics of the prior's test over chains that begin at draws from the prior."""
    rng = np.random.default_rng(seed)
    found = []
    for chain in range(CHAINS):
        state = prior.draw_prior(model, data, rng)
        for k in range(SWEEPS):
            gibbs_sweep(model, data, state, Draws(seed, chain, k), form)
            if k >= BURN_IN:
                found.append(prior.statistics(model, state))
    return {key: np.array([f[key] for f in found]).reshape(CHAINS, -1) for key in found[0]}


def z_scores(name: str) -> dict[str, float]:
    """Differences between forms over their standard errors, for every statistic."""
    model = VARIANTS[name]
    rng = np.random.default_rng(7)
    data = prior.uncentred(Data.of(small_ratings(8, 6), model))
    data = prior.draw_ratings(data, prior.draw_prior(model, data, rng), rng)
    found = {form: traces(model, data, form, seed) for seed, form in enumerate(FORMS)}
    out = {}
    for one, two in itertools.combinations(FORMS, 2):
        for key, trace in found[one].items():
            other = found[two][key]
            if np.ptp(trace) > 0:  # a fixed prior does not move
                error = np.hypot(standard_error(trace), standard_error(other))
                out[f"{key}: {one}, {two}"] = (trace.mean() - other.mean()) / error
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMED)
def test_forms_have_one_posterior(name):
    z = z_scores(name)
    assert max(map(abs, z.values())) < bound(len(z) * len(FORMED)), z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "wrong"),
    [(mistakes.n_for_n_squared, "centred"), (mistakes.rows_stand_still, "non-centred")],
)
def test_a_mistake_in_one_form_is_caught(mistake, wrong, monkeypatch):
    mistake(monkeypatch)
    z = z_scores("user side")
    far = [key for key, value in z.items() if abs(value) > bound(len(z) * len(FORMED))]
    assert any(wrong in key.split(": ")[1].split(", ") for key in far), z
