"""Neighbours and the map, against plain loops, and in another basis of every draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Model
from bayesmf.fitted.base import SavedFit
from bayesmf.fitted.explore import similar as module
from oracle.explored import correlations, covariances, fitted

ROUNDING = 2e-5  # of features kept as float32, through products of a few of them


@pytest.fixture(scope="module")
def fit():
    return fitted()


def in_another_basis(fit, seed=0):
    """The same fit with other features in every draw, of which no prediction tells.

    T becomes T A + e and S becomes S A'^-1 + c, and the biases make up for it.
    """
    rng, posterior = np.random.default_rng(seed), fit.posterior
    draws = {name: np.array(values) for name, values in posterior.draws.items()}
    rank = posterior.model.rank
    for number in range(len(posterior)):
        A, (c, e) = rng.normal(size=(rank, rank)) + 2 * np.eye(rank), rng.normal(size=(2, rank))
        T = draws["item.x"][number][:, 1 : rank + 1] @ A
        draws["item.x"][number][:, 1 : rank + 1] = T + e
        draws["item.x"][number][:, 0] -= T @ c
        for name, added in (("user.x", c), ("user.noise", 0.0)):
            if name in draws:
                values = draws[name][number]
                S = values[:, 1 : rank + 1] @ np.linalg.inv(A).T
                values[:, 1 : rank + 1] = S + added
                values[:, 0] -= (S + added) @ e
    return SavedFit(replace(posterior, draws=draws))


@pytest.mark.parametrize("side", ["item", "user"])
def test_neighbours_are_those_of_plain_loops(fit, side):
    posterior = fit.posterior
    every = correlations(posterior, side)
    ids = posterior.ids(side).values
    for row in (0, 7):
        table = fit.similar(**{side: ids[row]}, n=5).to_pydict()
        mean = every[:, row].mean(axis=0)
        mean[row] = -np.inf
        order = np.argsort(-mean, kind="stable")[:5]
        assert table[side] == ids[order].tolist()
        np.testing.assert_allclose(table["similarity"], mean[order], atol=ROUNDING)
        found = every[:, row][:, order]
        np.testing.assert_allclose(table["q05"], np.quantile(found, 0.05, axis=0), atol=ROUNDING)
        np.testing.assert_allclose(table["q95"], np.quantile(found, 0.95, axis=0), atol=ROUNDING)
        among = np.zeros(len(ids))
        for draw in every:
            others = [k for k in np.argsort(-draw[row], kind="stable") if k != row]
            among[others[:5]] += 1 / len(every)
        np.testing.assert_allclose(table["probability"], among[order], atol=1e-12)
        assert table["ratings"] == posterior.counts(side)[order].tolist()


def test_another_basis_has_the_same_neighbours_and_the_same_map(fit):
    other = in_another_basis(fit)
    pairs = [("u1", "i1"), ("u2", "i3")]
    np.testing.assert_allclose(other.predict(pairs)["mean"], fit.predict(pairs)["mean"], atol=1e-4)
    for asked in ({"item": "i3"}, {"user": "u3"}):
        mine, theirs = fit.similar(**asked, n=4), other.similar(**asked, n=4)
        assert mine[0].to_pylist() == theirs[0].to_pylist()
        np.testing.assert_allclose(mine["similarity"], theirs["similarity"], atol=5e-4)
    for side in ("item", "user"):
        mine, theirs = fit.map(side=side), other.map(side=side)
        for axis in ("x", "y"):
            np.testing.assert_allclose(mine[axis], theirs[axis], atol=2e-3)


def test_the_cosine_of_the_bare_features_would_depend_on_the_basis(fit):
    """So that the test above could fail: features by themselves say something else."""

    def cosine(one):
        T = one.posterior.draws["item.x"][0][:, 1:4].astype(float)
        return T[0] @ T[1] / np.linalg.norm(T[0]) / np.linalg.norm(T[1])

    assert abs(cosine(fit) - cosine(in_another_basis(fit))) > 0.05


@pytest.mark.parametrize("few", [module.FEW_ROWS, 0])
@pytest.mark.parametrize("side", ["item", "user"])
def test_the_map_has_the_principal_coordinates(fit, side, few, monkeypatch):
    monkeypatch.setattr(module, "FEW_ROWS", few)
    table = fit.map(side=side)
    K = covariances(fit.posterior, side)
    values, vectors = np.linalg.eigh(K)
    expected = vectors[:, :-3:-1] * np.sqrt(values[:-3:-1])
    expected *= np.sign(expected[np.argmax(np.abs(expected), axis=0), [0, 1]])
    counts = fit.posterior.counts(side)
    order = np.argsort(-counts, kind="stable")
    assert table[side].to_pylist() == fit.posterior.ids(side).values[order].tolist()
    assert table["ratings"].to_pylist() == counts[order].tolist()
    np.testing.assert_allclose(table["x"], expected[order, 0], atol=1e-4)
    np.testing.assert_allclose(table["y"], expected[order, 1], atol=1e-4)
    assert fit.map(3, side).equals(table.slice(0, 3))


MODELS = {
    "time": {"model": Model(2, time="chain")},
    "ordinal": {"model": Model(2, likelihood="ordinal")},
    "vi": {"inference": "vi", "sweeps": 5},
    "map": {"inference": "map", "sweeps": 10},
    "rank 1": {"rank": 1, "inference": "map", "sweeps": 10},  # one point, on one line
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_fit_has_neighbours_and_a_map(name):
    fit = fitted(**MODELS[name])
    table = fit.similar(item="i0", n=30)
    every = correlations(fit.posterior, "item")[:, 0].mean(axis=0)
    rows = fit.posterior.row_of("item", table["item"])
    assert sorted(rows) == [k for k in range(len(every)) if k != 0]
    np.testing.assert_allclose(table["similarity"], every[rows], atol=ROUNDING)
    assert set(table["probability"].to_pylist()) == {1.0}  # of all that there are
    x, y = fit.map()["x"].to_numpy(), fit.map()["y"].to_numpy()
    assert x.std() > 0
    assert np.abs(x).max() == x.max()
    assert (np.abs(y).max() < 1e-6) == (name == "rank 1")


def test_rows_without_ratings_are_no_neighbours():
    frame = bayesmf.Ratings.from_triplets(
        users=[1, 1, 2, 2, 3, 3], items=[1, 2, 1, 3, 2, 3], ratings=[1, 5, 2, 4, 5, 4]
    )
    fit = bayesmf.fit(frame.select(frame.by_user.index != 2), rank=1, sweeps=8, chains=1)
    assert fit.similar(item=1)["item"].to_pylist() == [2]
    with pytest.raises(DataError, match="the item 3 was not in training; fold it in first"):
        fit.similar(item=3)


def test_bad_questions_get_a_sentence(fit):
    with pytest.raises(DataError, match="the item 'no' was not in training; fold it in first"):
        fit.similar(item="no")
    with pytest.raises(DataError, match="the user ids are text here but integers in the question"):
        fit.similar(user=3)
    for asked in ({}, {"item": "i1", "user": "u1"}):
        with pytest.raises(TypeError, match="give one item= or one user="):
            fit.similar(**asked)
    with pytest.raises(TypeError, match="give one item, not a list"):
        fit.similar(item=["i1"])
    with pytest.raises(TypeError, match="leave them out"):
        fit.similar(user="u1", items=["i1"])
    with pytest.raises(DataError, match="n=0: choose 1 or more"):
        fit.similar(item="i1", n=0)
    with pytest.raises(DataError, match="side='both': choose one of user, item"):
        fit.map(side="both")
    bare = fitted(rank=0, sweeps=4)
    for ask in (lambda: bare.similar(item="i1"), bare.map, lambda: bare.recommend(diversify=0.5)):
        with pytest.raises(DataError, match="biases alone has no features by which to compare"):
            ask()


def test_neighbours_among_some_items(fit):
    allowed = ["i1", "i2", "i5", "unheard"]
    assert set(fit.similar(item="i3", items=allowed)["item"].to_pylist()) == set(allowed[:3])
    found = fit.similar(item="i3", items=allowed, exclude=["i2"], n=1)
    assert found["item"][0].as_py() in ("i1", "i5")
    whole = fit.similar(item="i3", n=40).to_pydict()
    place = whole["item"].index(found["item"][0].as_py())
    assert found["similarity"][0].as_py() == pytest.approx(whole["similarity"][place], abs=1e-6)
