"""The adapter keeps scikit-learn's promises."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold

import bayesmf.sklearn
from bayesmf import DataError, Gibbs, Ratings
from bayesmf.machine import MOST_THREADS
from bayesmf.sklearn import MatrixFactorization

SMALL = {"rank": 2, "sweeps": 20, "burn_in": 5}


def pairs():
    rng = np.random.default_rng(0)
    X = np.array([(u, i) for u in range(12) for i in range(8) if rng.random() < 0.7])
    return X, np.clip(np.round(3 + rng.normal(size=len(X))), 1, 5)


def best(**changes):
    from dataclasses import replace

    return replace(Gibbs().model, **changes)


def test_it_is_the_sampler_in_other_clothes():
    X, y = pairs()
    estimator = MatrixFactorization(precision="constant", random_state=7, **SMALL).fit(X, y)
    ratings = Ratings.from_triplets(users=X[:, 0], items=X[:, 1], ratings=y)
    fit = Gibbs(best(rank=2, precision="constant"), sweeps=20, burn_in=5, seed=7, chains=1).fit(
        ratings
    )
    np.testing.assert_array_equal(estimator.predict(X), fit.predict(X)["mean"].to_numpy())
    mean, sd = estimator.predict(X[:3], return_std=True)
    assert (sd > 0).all()
    assert len(mean) == 3
    assert estimator.predict([(999, 999)]).shape == (1,)  # unknown, not an error


def test_the_default_is_the_best_model():
    X, y = pairs()
    estimator = MatrixFactorization(sweeps=2, burn_in=1).fit(X, y)
    unit = estimator.fit_.model.unit
    assert estimator.fit_.model == best(unit=unit)
    assert MatrixFactorization(**SMALL).fit(X, y).fit_.model == best(rank=2, unit=unit)


def test_parameters_and_clones():
    estimator = MatrixFactorization(**SMALL)
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(rank=5).rank == 5
    given = {name: object() for name in estimator.get_params()}
    stored = MatrixFactorization(**given)  # as given, and looked at by fit alone
    assert all(getattr(stored, name) is value for name, value in given.items())
    with pytest.raises(NotFittedError):
        estimator.predict([(1, 2)])
    with pytest.raises(DataError, match="precision='loud'"):
        MatrixFactorization(precision="loud", **SMALL).fit(*pairs())


def test_random_states_are_scikit_learn_s():
    X, y = pairs()

    def predict(state):
        return MatrixFactorization(random_state=state, **SMALL).fit(X, y).predict(X[:5])

    np.testing.assert_array_equal(predict(3), predict(3))
    np.testing.assert_array_equal(predict(np.int64(3)), predict(3))
    np.testing.assert_array_equal(predict(np.random.RandomState(1)),
                                  predict(np.random.RandomState(1)))  # fmt: skip
    assert (predict(None) != predict(None)).all()


def test_jobs_are_threads():
    for n_jobs, threads in ((None, 1), (1, 1), (-1, MOST_THREADS), (999, MOST_THREADS), (-999, 1)):
        assert MatrixFactorization(n_jobs=n_jobs, burn_in=5)._sampler().threads == threads
    with pytest.raises(ValueError, match="n_jobs=0"):
        MatrixFactorization(n_jobs=0, **SMALL).fit(*pairs())


@pytest.mark.parametrize("kind", ["array", "frame", "text"])
def test_grid_search(kind):
    X, y = pairs()
    if kind == "frame":
        X = pd.DataFrame(X, columns=["user", "item"], index=np.arange(len(X))[::-1])
    if kind == "text":
        X = np.array([(f"u{u}", f"i{i}") for u, i in X], dtype=object)
    search = GridSearchCV(
        MatrixFactorization(**SMALL), {"precision": ["constant", "robust"]}, cv=KFold(2),
        scoring="neg_root_mean_squared_error", error_score="raise",
    ).fit(X, y)  # fmt: skip
    assert search.best_params_["precision"] in ("constant", "robust")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X[:2]).shape == (2,)


def test_a_missing_scikit_learn_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=r"pip install 'bayesmf\[sklearn\]'"):
        importlib.reload(bayesmf.sklearn)
