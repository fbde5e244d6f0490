"""Fits of ordinal and binary ratings: everything that a fit can do, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings, Scale
from bayesmf.model.likelihood import Gaussian
from bayesmf.model.ordinal import Binary, Ordinal


def ratings_on(levels, users=50, items=25, seed=0) -> Ratings:
    """Cells of a number that depends on user and item; users differ in how wide theirs are."""
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((users, items)) < 0.7)
    z = rng.normal(size=users)[user] + rng.normal(size=items)[item] + rng.normal(size=len(user))
    width = np.exp(0.3 * rng.normal(size=users))[user]
    middle = (len(levels) - 1) / 2
    at = np.clip(np.rint(middle + z / width * len(levels) / 5), 0, len(levels) - 1).astype(int)
    scale = Scale(levels[0], levels[-1], levels[1] - levels[0])
    values = np.asarray(levels, float)[at]
    return Ratings.from_triplets(users=user, items=item, ratings=values, scale=scale)


SCALES = {
    "stars": ("ordinal", np.arange(1, 6)),
    "half stars": ("ordinal", np.arange(1, 11) / 2),
    "eleven steps": ("ordinal", np.arange(11)),
    "three steps, shared cuts": (Ordinal(cuts="global"), np.arange(3)),
    "thumbs": ("binary", np.array([0, 1])),
}


@pytest.fixture(scope="module", params=SCALES)
def fitted(request):
    likelihood, levels = SCALES[request.param]
    train, test = bayesmf.split(ratings_on(levels), "random", seed=0)
    sampler = Gibbs(Model(rank=1, likelihood=likelihood), sweeps=40, chains=1, seed=0, threads=1)
    return sampler.fit(train, test), np.asarray(levels, float), train, test


def test_predictions_are_of_levels(fitted):
    fit, levels, _, test = fitted
    table, chances = fit.predict(test), fit.probabilities(test)
    p = np.stack([chances[f"p{level:g}"].to_numpy() for level in levels], axis=1)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.allclose(p @ levels, table["mean"].to_numpy())
    assert np.isin(table["q05"].to_numpy(), levels).all()
    assert (table["q05"].to_numpy() <= table["q95"].to_numpy()).all()
    found = fit.evaluate(test)
    assert found["rmse"] == fit.test_rmse
    share = np.bincount(np.searchsorted(levels, np.asarray(test.values, float))) / len(test)
    entropy = np.sum(share[share > 0] * np.log(share[share > 0]))
    assert found["log_probability"] > entropy  # better than the share of each level
    assert abs(found["coverage_80"] - 0.8) < 0.1  # 260 test ratings: four standard errors


def test_a_fit_is_saved_and_takes_in_newcomers_and_new_ratings(fitted, tmp_path):
    fit, levels, train, test = fitted
    fit.save(tmp_path / "model")
    again = bayesmf.load_model(tmp_path / "model")
    assert again.predict(test).equals(fit.predict(test))
    items = train.items.values[:8]
    high, low = (
        Ratings.from_triplets(users=[who] * 8, items=items, ratings=[value] * 8, scale=train.scale)
        for who, value in ((98, levels[-1]), (99, levels[0]))
    )
    more = fit.fold_in(high).fold_in(low)
    pairs = [(98, int(train.items[12])), (99, int(train.items[12]))]
    mean = more.predict(pairs)["mean"].to_numpy()
    assert mean[0] > mean[1] + 0.3 * (levels[-1] - levels[0])
    assert np.allclose(more.predict(test)["mean"], fit.predict(test)["mean"])
    user = int(train.users[4])
    one = Ratings.from_triplets(users=[user] * 25, items=train.items.values,
                                ratings=[levels[-1]] * 25, scale=train.scale)  # fmt: skip
    changed = fit.update(one)
    pair = [(user, int(train.items[3]))]
    assert changed.predict(pair)["mean"][0].as_py() >= fit.predict(pair)["mean"][0].as_py()
    assert fit.fold_in(high.T, "item").predict([(int(items[0]), 98)])["known"][0].as_py()


def test_ratings_off_the_levels_are_refused(fitted):
    fit, levels, _, _ = fitted
    for bad in (levels[0] + (levels[1] - levels[0]) / 3, levels[-1] + 1):
        new = Ratings.from_triplets(users=[900], items=[0], ratings=[bad])
        told = f"the rating {bad:g} of item 0 by user 900 is not on the scale"
        for use in (fit.fold_in, fit.update, fit.evaluate):
            with pytest.raises(DataError, match=told):
                use(new)


def test_recommendations_are_in_the_order_of_expected_ratings(fitted):
    fit, _, train, _ = fitted
    user = int(train.users[0])
    table = fit.recommend([user], 5, exclude_seen=False)
    score = table["score"].to_numpy()
    assert (np.diff(score) <= 0).all()
    pairs = [(user, item) for item in table["item"].to_pylist()]
    assert np.allclose(fit.predict(pairs)["mean"], score, atol=1e-5)
    assert np.isfinite(fit.predict([(777, int(train.items[0]))])["mean"][0].as_py())
    assert fit.explain(user, int(train.items[0]))["parts"]


def test_the_same_bits_on_two_threads_and_after_a_resume(tmp_path):
    train = ratings_on(np.arange(1, 6))
    sampler = Gibbs(Model(rank=1, likelihood="ordinal"), sweeps=8, chains=2, seed=0)
    whole = replace(sampler, threads=1).fit(train)
    two = replace(sampler, threads=min(2, numba.config.NUMBA_NUM_THREADS))
    two.fit(train, checkpoint=tmp_path / "run", every=0, callbacks=[lambda p: p.sweep == 3])
    again = two.fit(train, checkpoint=tmp_path / "run", every=0, resume=True)
    for name, values in whole.draws.arrays.items():
        assert np.array_equal(values, again.draws.arrays[name]), name


@pytest.mark.parametrize(
    ("levels", "kind"), [([0, 1], Binary), ([1, 2, 3], Ordinal), (range(1, 101), Gaussian)]
)
def test_auto_looks_at_the_scale(levels, kind):
    found = Model(likelihood="auto").settle(ratings_on(list(levels)))
    assert isinstance(found.likelihood, kind) or len(found.likelihood.levels) == len(levels)


def test_what_has_no_levels_is_refused():
    numbers = Ratings.from_triplets(users=[1, 1, 2], items=[1, 2, 1], ratings=[0.31, 2.7, 1.01])
    stars = ratings_on(np.arange(1, 6))
    for likelihood, ratings in (("ordinal", numbers), ("binary", stars)):
        with pytest.raises(DataError, match="likelihood"):
            Gibbs(Model(rank=1, likelihood=likelihood), sweeps=2, chains=1).fit(ratings)
    with pytest.raises(DataError, match="likelihood='poisson': choose"):
        Model(likelihood="poisson")
    with pytest.raises(DataError, match="sample the model with Gibbs"):
        bayesmf.Variational(Model(likelihood="ordinal"))
