"""Ratings in other units have the same predictions in these units, whatever the algorithm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import MAP, Gibbs, Model, Propagation, Ratings, Variational, fit
from bayesmf.data.synthetic import World, generate

STARS = generate(World(60, 40, 1200, rank=3), seed=3)[0]
ALGORITHMS = {
    "gibbs": Gibbs(Model(rank=3), sweeps=25, chains=2),
    "gibbs, learned bias": Gibbs(Model(rank=3, bias="learned"), sweeps=25, chains=1),
    "gibbs, fixed bias": Gibbs(Model(rank=3, bias="fixed", precision="truncated"), sweeps=25),
    "student-t": Gibbs(Model(rank=2, prior="student-t"), sweeps=25, chains=1),
    "vi": Variational(Model(rank=3), sweeps=15),
    "vi, map-driven": Variational(Model(rank=3), sweeps=15, prior="map-driven"),
    "map": MAP(Model(rank=3), sweeps=10),
    "momentum": MAP(Model(rank=3), sweeps=30, method="momentum"),
    "propagation": Propagation(replace(Model.paper("no-side", rank=2), unit=None), sweeps=10),
}
SCALES = {"1..100": (20.0, -0.5), "-10..10": (5.0, -15.0), "0..1": (0.25, -0.25), "tiny": (1e-3, 0)}


def rescaled(ratings: Ratings, a: float, b: float) -> Ratings:
    rows = ratings.by_user
    return Ratings.from_triplets(
        users=ratings.users.values[rows.row_index],
        items=ratings.items.values[rows.index],
        ratings=a * np.asarray(rows.values, float) + b,
    )


def predictions(algorithm, ratings):
    table = algorithm.fit(ratings).predict(STARS)
    strangers = algorithm.fit(ratings).predict([(-1, 1), (1, -1), (-1, -1)])
    return [
        np.concatenate([np.asarray(t[name]) for t in (table, strangers)]) for name in ("mean", "sd")
    ]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_predictions_follow_the_ratings(name):
    algorithm = ALGORITHMS[name]
    mean, sd = predictions(algorithm, STARS)
    found_mean, found_sd = predictions(algorithm, rescaled(STARS, 20.0, 3.0))
    # draws are kept in single precision, and rounding grows a little from sweep to sweep
    np.testing.assert_allclose(found_mean, 20 * mean + 3, rtol=0, atol=20 * 2e-5)
    np.testing.assert_allclose(found_sd, 20 * sd, rtol=1e-4)


@pytest.mark.parametrize("scale", SCALES)
def test_any_scale_is_fitted_without_a_setting(scale):
    a, b = SCALES[scale]
    one = fit(STARS, rank=3, sweeps=25, chains=1)
    two = fit(rescaled(STARS, a, b), rank=3, sweeps=25, chains=1)
    means = [np.asarray(each.predict(STARS)["mean"]) for each in (one, two)]
    np.testing.assert_allclose(means[1], a * means[0] + b, rtol=0, atol=2e-5 * a)


def test_thumbs_are_fitted_without_a_setting():
    rows = STARS.by_user
    thumbs = Ratings.from_triplets(
        users=STARS.users.values[rows.row_index],
        items=STARS.items.values[rows.index],
        ratings=(np.asarray(rows.values) >= 4).astype(int),
    )
    found = fit(thumbs, rank=3, sweeps=25, chains=1).predict(STARS)
    mean = np.asarray(found["mean"])
    assert np.isfinite(mean).all()
    assert np.mean((mean - thumbs.values) ** 2) < 0.9 * thumbs.sd**2


def test_the_papers_models_keep_the_units_of_the_ratings():
    assert Model.paper().settle(STARS).unit == 1.0
    assert Model().settle(STARS).unit == STARS.sd
    means = [
        np.asarray(Gibbs(Model.paper(rank=2), sweeps=10, chains=1).fit(r).predict(STARS)["mean"])
        for r in (STARS, rescaled(STARS, 20.0, 3.0))
    ]
    assert np.max(np.abs(20 * means[0] + 3 - means[1])) > 0.1


def test_ratings_that_are_all_the_same_have_a_unit():
    same = rescaled(STARS, 0.0, 3.7)
    assert Model().settle(same).unit == 1.0
    assert np.isfinite(
        np.asarray(fit(same, rank=2, sweeps=5, chains=1).predict(STARS)["mean"])
    ).all()
