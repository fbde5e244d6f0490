"""Geweke's test of ordinal and binary ratings: the cuts, tau and all else keep their prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import Model
from bayesmf.data.ratings import Ratings
from bayesmf.model.data import Data
from bayesmf.model.ordinal import Binary, Ordinal
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import BASE, small_ratings

from . import prior
from .scores import bound

ROUNDS, QUICK = 4, 200


def scale(levels: int) -> dict:
    """Levels one apart, and a mean that is not their middle."""
    return {"levels": tuple(np.arange(levels, dtype=float)), "origin": levels / 2 - 0.2}


ROBUST = replace(BASE, precision="robust")
MODELS: dict[str, Model] = {
    "global": replace(ROBUST, likelihood=Ordinal(**scale(5), cuts="global")),
    "global, one gap": replace(BASE, likelihood=Ordinal(**scale(3), cuts="global")),
    "users": replace(ROBUST, likelihood=Ordinal(**scale(4))),
    "users, one gap, joint bias": replace(BASE, likelihood=Ordinal(**scale(3)), bias="joint"),
    "users, half stars": replace(BASE, likelihood=Ordinal(**scale(10))),
    "binary": replace(ROBUST, likelihood=Binary((-1.0, 1.0), 0.3)),
}


def draw_likelihood(model: Model, state, rng: np.random.Generator) -> None:
    """Gaps from their prior."""
    likelihood, users = model.likelihood, len(state.user.x)
    if isinstance(likelihood, Binary):
        state.tau = 1.0
        return
    G = len(likelihood.levels) - 2
    mean = np.log(G * rng.dirichlet(np.full(G, 2.0)))
    state.likelihood = {"mean": mean}
    if likelihood.cuts == "users":
        variance = 0.05 / rng.gamma(1.0, size=G)
        gaps = mean + np.sqrt(variance) * rng.normal(size=(users + 1, G))
        state.likelihood |= {"variance": variance, "newcomer": gaps[0], "user.gaps": gaps[1:]}


def draw_ratings(model: Model, data: Data, state, rng: np.random.Generator) -> None:
    """New ratings of the same pairs: the latent numbers are counted into cells one by one."""
    likelihood, cells = model.likelihood, data.response.cells
    x, y = state.user.x, state.item.x
    f = x[cells.user, 0] + y[cells.item, 0] + (x[cells.user, 1:] * y[cells.item, 1:]).sum(axis=1)
    weight = state.tau * state.user.alpha[cells.user] * state.item.alpha[cells.item]
    z = likelihood.origin + f + rng.normal(size=len(f)) / np.sqrt(weight)
    for p, (user, latent) in enumerate(zip(cells.user, z, strict=True)):
        cut = 0.0  # of binary ratings
        cell = int(latent > cut)
        if "mean" in state.likelihood:
            own = state.likelihood.get("user.gaps")
            gaps = np.exp(state.likelihood["mean"] if own is None else own[user])
            cut = (likelihood.levels[0] + likelihood.levels[-1]) / 2 - gaps.sum() / 2
            cell = int(latent > cut)
            for gap in gaps:
                cut += gap
                cell += latent > cut
        data.response.centred[p] = likelihood.levels[cell] - likelihood.origin


def statistics(model: Model, state) -> dict[str, float]:
    out = prior.statistics(model, state)
    own = state.likelihood
    for k in range(len(own.get("mean", ()))):
        out[f"mean gap {k}"] = np.tanh(own["mean"][k])
        if "variance" in own:
            out[f"variance {k}"] = np.tanh(np.log(own["variance"][k]) / 2)
            out[f"gap {k}"] = np.tanh(own["user.gaps"][:, k]).mean()
            out[f"gap {k} of one"] = np.tanh(own["user.gaps"][0, k])
            out[f"newcomer {k}"] = np.tanh(own["newcomer"][k])
            apart = own["user.gaps"][:-1, k] - own["mean"][k]
            out[f"gap {k} apart"] = np.tanh(apart**2 / own["variance"][k]).mean()
            out[f"gap {k} with tau"] = np.tanh(own["user.gaps"][0, k] * np.log(state.tau))
        else:
            out[f"mean gap {k} with tau"] = np.tanh(own["mean"][k] * np.log(state.tau))
    return out


def z_scores(model: Model, replicates: int, seed: int = 0) -> dict[str, float]:
    rng, found = np.random.default_rng(seed), []
    pairs = small_ratings(8, 6)
    rows, level = pairs.by_user, model.likelihood.levels[0]
    start = Ratings.from_sorted(
        pairs.users, pairs.items, rows.row_index, rows.index, np.full(len(pairs), level), None,
        pairs.scale,
    )  # fmt: skip
    data = Data.of(start, model)
    for replicate in range(replicates):
        state = prior.draw_prior(model, data, rng)
        draw_likelihood(model, state, rng)
        before = statistics(model, state)
        for k in range(ROUNDS):
            draw_ratings(model, data, state, rng)
            gibbs_sweep(model, data, state, Draws(seed, sweep=replicate * ROUNDS + k), "interwoven")
        after = statistics(model, state)
        found.append([after[key] - before[key] for key in before])
    d = np.array(found)
    spread = d.std(axis=0, ddof=1)
    z = np.where(spread > 1e-9, d.mean(axis=0) / np.maximum(spread, 1e-300) * np.sqrt(len(d)), 0.0)
    return dict(zip(before, z, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_quick(name):
    z = z_scores(MODELS[name], QUICK)
    assert max(map(abs, z.values())) < bound(len(z) * len(MODELS)), z


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_thorough(name):
    z = z_scores(MODELS[name], 3000, seed=1)
    assert max(map(abs, z.values())) < bound(len(z) * len(MODELS)), z
