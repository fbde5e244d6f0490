"""The model is open: a likelihood, a design and an effect from outside are sampled and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings, Scale
from bayesmf.data.ids import Ids
from bayesmf.model.data import Data
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import BASE, small_ratings
from statistical import prior
from statistical.scores import bound
from toys.attributes import Attributes
from toys.thumbs import Thumbs
from toys.weekday import DAY, Weekday

ROUNDS, REPLICATES = 4, 250
LIGHT, HEAVY = small_ratings(), small_ratings(8, 6, weighted=True)
TOYS = Path(__file__).parents[1] / "toys"
COUNTS = np.random.default_rng(3).normal(size=(5, 2))
ATTRIBUTES = Attributes(tuple((who, tuple(row)) for who, row in enumerate(COUNTS.tolist())))
MODELS = {
    "likelihood": replace(BASE, likelihood=Thumbs(), precision="robust"),
    "design": replace(BASE, user_designs=(ATTRIBUTES,), bias="joint"),
    "effect": replace(BASE, effects=(Weekday(),)),
    "all three": replace(
        BASE, likelihood=Thumbs(), effects=(Weekday(2.0), Weekday(8.0)), user_designs=(ATTRIBUTES,)
    ),
}


def with_times(ratings: Ratings, values=None) -> Ratings:
    """The ratings with times, and with their weights if they have any."""
    rows = ratings.by_user
    times = np.arange(len(ratings)) * DAY * 3
    return Ratings.from_sorted(
        ratings.users, ratings.items, rows.row_index, rows.index,
        rows.values if values is None else values, times, ratings.scale, weights=rows.weights,
    )  # fmt: skip


def simulate(model: Model, data: Data, state, rng) -> Data:
    """New ratings of the same pairs from the model, for the sampler to see."""
    if data.response is None:
        return prior.draw_ratings(data, state, rng)
    cells = data.response.cells
    x, y = state.user.x, state.item.x
    f = x[cells.user, 0] + y[cells.item, 0] + (x[cells.user, 1:] * y[cells.item, 1:]).sum(axis=1)
    for effect, parameters in zip(model.every_effect, state.effects, strict=True):
        f = f + effect.fitted(parameters, cells)
    weight = state.tau * state.user.alpha[cells.user] * state.item.alpha[cells.item]
    if data.response.weights is not None:
        weight = weight * data.response.weights
    z = f + rng.normal(size=len(f)) / np.sqrt(weight)
    values = (z > 0).astype(float) if model.likelihood.latent else z
    data.response.centred[:] = values
    return data


def z_scores(
    model: Model, seed: int = 0, ratings: Ratings = LIGHT, step=gibbs_sweep
) -> dict[str, float]:
    """Geweke's test, as in tests/statistical, with effects and latent ratings."""
    rng = np.random.default_rng(seed)
    start = with_times(ratings, np.zeros(len(ratings)))
    data = prior.uncentred(Data.of(start, model))
    found = []
    for replicate in range(REPLICATES):
        state = prior.draw_prior(model, data, rng)
        if model.likelihood.latent:
            state.tau = 1.0
        for effect, parameters in zip(model.every_effect, state.effects, strict=True):
            parameters["mood"] = rng.normal(size=7) / np.sqrt(effect.precision)
        before = statistics(model, state)
        for k in range(ROUNDS):
            data = simulate(model, data, state, rng)
            step(model, data, state, Draws(seed, sweep=replicate * ROUNDS + k), "interwoven")
        after = statistics(model, state)
        found.append([after[key] - before[key] for key in before])
    d = np.array(found)
    sd = np.maximum(d.std(axis=0, ddof=1), 1e-300)
    z = np.where(d.std(axis=0) > 0, d.mean(axis=0) / sd * np.sqrt(len(d)), 0.0)
    return dict(zip(before, z, strict=True))


def statistics(model: Model, state) -> dict[str, float]:
    out = prior.statistics(model, state)
    for number, parameters in enumerate(state.effects):
        mood = parameters["mood"]
        out[f"mood {number}"], out[f"mood^2 {number}"] = np.tanh(mood[0]), np.tanh(mood**2).mean()
    return out


@pytest.mark.parametrize("toy", ["thumbs", "attributes", "weekday"])
def test_a_toy_is_one_short_file_outside_the_package(toy):
    assert len((TOYS / f"{toy}.py").read_text().splitlines()) < 60


@pytest.mark.parametrize("name", MODELS)
def test_geweke(name):
    z = z_scores(MODELS[name])
    assert max(map(abs, z.values())) < bound(len(z) * len(MODELS)), z


@pytest.mark.parametrize("name", ["likelihood", "effect"])
def test_geweke_with_weights(name):
    """The latent ratings and the effects see the weights of the ratings."""
    z = z_scores(MODELS[name], ratings=HEAVY)
    assert max(map(abs, z.values())) < bound(len(z) * len(MODELS)), z


@pytest.mark.parametrize("name", ["likelihood", "effect"])
def test_geweke_catches_a_response_without_weights(name):
    def step(model, data, *rest):
        gibbs_sweep(model, replace(data, response=replace(data.response, weights=None)), *rest)

    z = z_scores(MODELS[name], ratings=HEAVY, step=step)
    assert max(map(abs, z.values())) > bound(len(z) * len(MODELS)), z


class NarrowThumbs(Thumbs):
    """The latent ratings are drawn too close to f."""

    def respond(self, parameters, seen, draws):
        return super().respond(parameters, seen._replace(weight=25 * seen.weight), draws)


class ForgetfulWeekday(Weekday):
    """The prior of the moods is left out."""

    def update(self, *given):
        return replace(Weekday(), precision=1e-3).update(*given)


class UnevenAttributes(Attributes):
    """By column the matrix is another one than by row."""

    def matrix(self, side):
        right = super().matrix(side)
        return replace(right, columns=right.columns._replace(values=2 * right.columns.values))


@pytest.mark.parametrize(
    "model",
    [
        replace(MODELS["likelihood"], likelihood=NarrowThumbs()),
        replace(MODELS["effect"], effects=(ForgetfulWeekday(),)),
        replace(MODELS["design"], user_designs=(UnevenAttributes(ATTRIBUTES.rows),)),
    ],
    ids=["likelihood", "effect", "design"],
)
def test_geweke_catches_a_mistake(model):
    z = z_scores(model)
    assert max(map(abs, z.values())) > bound(len(z) * len(MODELS)), z


def week(n_users=60, n_items=20, seed=0) -> Ratings:
    """Thumbs that depend on the day and on an attribute of the user."""
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((n_users, n_items)) < 0.7)
    times = rng.integers(0, 7 * 52, len(user)) * DAY
    f = 1.5 * np.where(times // DAY % 7 < 2, 1, -1) + np.where(user % 2, 1, -1)
    values = (f + rng.normal(size=len(user)) > 0).astype(np.int8)
    return Ratings.from_sorted(
        Ids(np.arange(n_users)), Ids(np.arange(n_items)), user.astype(np.int32),
        item.astype(np.int32), values, times, Scale(0, 1, 1),
    )  # fmt: skip


def test_a_fit_with_all_three_predicts_is_saved_and_takes_in_newcomers(tmp_path):
    model = Model(rank=1, precision="constant", likelihood=Thumbs(), effects=(Weekday(),),
                  user_designs=(Attributes(tuple((k, (k % 2 - 0.5,)) for k in range(99))),),
                  item_designs=())  # fmt: skip
    train, test = bayesmf.split(week(), "random", seed=0)
    fit = Gibbs(model, sweeps=60, seed=0, chains=1).fit(train, test)
    table = fit.predict(test)
    mean = table["mean"].to_numpy()
    assert ((mean > 0) & (mean < 1)).all()
    accuracy = np.mean((mean > 0.5) == (test.values > 0))
    assert accuracy > 0.85  # guessing the more frequent thumb gives 0.55
    chances = fit.probabilities(test)
    assert np.allclose(chances["p1"].to_numpy(), 1 - chances["p0"].to_numpy())
    fit.save(tmp_path / "model")
    again = bayesmf.load_model(tmp_path / "model")
    assert again.posterior.model == replace(model, unit=1.0)  # thumbs have no unit
    assert again.predict(test).equals(table)
    assert again.evaluate(test)["rmse"] == fit.test_rmse
    new = Ratings.from_triplets(users=[98] * 4, items=[0, 1, 2, 3], ratings=[1, 1, 0, 1],
                                times=[DAY * k for k in range(4)])  # fmt: skip
    more = fit.fold_in(new)
    assert more.predict([(98, 5)])["known"].to_pylist() == ["warm"]


def test_what_only_sampling_on_threads_can_do_is_refused_elsewhere():
    for algorithm in (bayesmf.Variational, bayesmf.MAP):
        with pytest.raises(DataError, match="no update for effects; sample the model with Gibbs"):
            algorithm(MODELS["effect"])
        with pytest.raises(DataError, match="no update for the likelihood 'thumbs'"):
            algorithm(MODELS["likelihood"])
    with pytest.raises(DataError, match=r"one process, which .* choose Ray\(resident=False\)"):
        Gibbs(MODELS["effect"], engine=bayesmf.Ray(resident=True))
    with pytest.raises(DataError, match="thumbs are 0 or 1"):
        Gibbs(MODELS["likelihood"], sweeps=2, chains=1).fit(small_ratings())
