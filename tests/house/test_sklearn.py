"""The adapter keeps scikit-learn's promises."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold

from bayesmf import Gibbs, Model, Ratings
from bayesmf.sklearn import MatrixFactorization

SMALL = {"rank": 2, "features": "user-item", "precision": "constant", "bias": "learned",
         "sweeps": 20, "burn_in": 5}  # fmt: skip


def pairs():
    rng = np.random.default_rng(0)
    X = np.array([(u, i) for u in range(12) for i in range(8) if rng.random() < 0.7])
    return X, np.clip(np.round(3 + rng.normal(size=len(X))), 1, 5)


def test_it_is_the_sampler_in_other_clothes():
    X, y = pairs()
    estimator = MatrixFactorization(**SMALL).fit(X, y)
    ratings = Ratings.from_triplets(users=X[:, 0], items=X[:, 1], ratings=y)
    model = Model(2, "user-item", "both", 0.5, bias="learned", hyper=Model.best().hyper)
    fit = Gibbs(model, 20, 5).fit(ratings)
    np.testing.assert_array_equal(estimator.predict(X), fit.predict(X)["mean"].to_numpy())
    mean, sd = estimator.predict(X[:3], return_std=True)
    assert (sd > 0).all()
    assert len(mean) == 3
    assert estimator.predict([(999, 999)]).shape == (1,)  # unknown, not an error


def test_the_default_is_the_best_model():
    X, y = pairs()
    assert MatrixFactorization(rank=2, sweeps=2, burn_in=1).fit(X, y).fit_.model == Model.best(2)


def test_parameters_and_clones():
    estimator = MatrixFactorization(**SMALL)
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(rank=5).rank == 5
    with pytest.raises(NotFittedError):
        estimator.predict([(1, 2)])


@pytest.mark.parametrize("kind", ["array", "frame", "text"])
def test_grid_search(kind):
    X, y = pairs()
    if kind == "frame":
        X = pd.DataFrame(X, columns=["user", "item"])
    if kind == "text":
        X = np.array([(f"u{u}", f"i{i}") for u, i in X], dtype=object)
    search = GridSearchCV(
        MatrixFactorization(**SMALL), {"precision": ["constant", "robust"]}, cv=KFold(2),
        scoring="neg_root_mean_squared_error", error_score="raise",
    ).fit(X, y)  # fmt: skip
    assert search.best_params_["precision"] in ("constant", "robust")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X[:2]).shape == (2,)
