"""For those who work with scikit-learn: an estimator of pairs, X = [[user, item], ...]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import pairs_of
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.inference.gibbs import Gibbs
from bayesmf.model.spec import Model

try:
    from sklearn.base import BaseEstimator, RegressorMixin
except ImportError as error:
    raise DataError("scikit-learn is not installed; pip install 'bayesmf[sklearn]'") from error


class MatrixFactorization(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gibbs sampling behind ``fit``, ``predict`` and ``score``; works in ``GridSearchCV``.

    The default is the best model known; the arguments are those of ``Model`` and ``Gibbs``.
    ``fit_`` is the fit itself, with all it can do.
    """

    def __init__(
        self,
        rank: int = 20,
        features: str = "side",
        side_of: str = "both",
        side_power: float = 0.5,
        precision: str = "robust",
        bias: str = "joint",
        sweeps: int = 200,
        burn_in: int = 20,
        duplicates: str = "error",
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.rank = rank
        self.features = features
        self.side_of = side_of
        self.side_power = side_power
        self.precision = precision
        self.bias = bias
        self.sweeps = sweeps
        self.burn_in = burn_in
        self.duplicates = duplicates
        self.seed = seed
        self.threads = threads

    def fit(self, X: Any, y: Any) -> MatrixFactorization:
        """From pairs (two columns of an array, a frame, or a list) and their ratings ``y``."""
        pairs = pairs_of(X)
        ratings = Ratings.from_triplets(
            users=_plain(pairs.user), items=_plain(pairs.item), ratings=np.asarray(y, float),
            duplicates=self.duplicates,  # type: ignore[arg-type]
        )  # fmt: skip
        model = Model(
            self.rank, self.features, self.side_of, self.side_power, self.precision,  # type: ignore[arg-type]
            bias=self.bias, hyper=Model.best().hyper,  # type: ignore[arg-type]
        )  # fmt: skip
        gibbs = Gibbs(model, self.sweeps, self.burn_in, seed=self.seed, threads=self.threads)
        self.fit_ = gibbs.fit(ratings)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Expected ratings, an array; with ``return_std`` also the sd of ratings about them."""
        if not hasattr(self, "fit_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("fit it first")
        pairs = pairs_of(X)
        table = self.fit_.predict(list(zip(_plain(pairs.user), _plain(pairs.item), strict=True)))
        mean: NDArray[np.float64] = table["mean"].to_numpy()
        return (mean, table["sd"].to_numpy()) if return_std else mean


def _plain(values: Any) -> Any:
    """Ids of an array of objects as what they are: all integers, or all text."""
    listed = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]
