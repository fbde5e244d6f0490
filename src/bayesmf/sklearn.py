"""For those who work with scikit-learn: an estimator of pairs, X = [[user, item], ...]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.columns import ID_NAMES, as_frame, simplify
from bayesmf.data.pairs import Pairs, pairs_of
from bayesmf.data.ratings import Ratings
from bayesmf.inference.gibbs import Gibbs
from bayesmf.machine import MOST_THREADS
from bayesmf.model.attributes import with_attributes
from bayesmf.model.spec import Model

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError(
        "bayesmf.sklearn needs scikit-learn, which is not installed; run pip install "
        "'bayesmf[sklearn]'"
    ) from error

OF_MODEL = (
    "rank",
    "user_designs",
    "item_designs",
    "own_features",
    "precision",
    "bias",
    "likelihood",
    "time",
)


class MatrixFactorization(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gibbs sampling behind ``fit``, ``predict`` and ``score``; works in ``GridSearchCV``.

    Parameters:

    - ``rank``, ``user_designs``, ``item_designs``, ``own_features``, ``precision``, ``bias``,
      ``likelihood``, ``time``: those of ``Model``. A time chain needs a column of times beside the
      pairs, by its name in a frame. None stands for what ``Model()`` has, so that the default is
      the best model.
    - ``user_attributes``, ``item_attributes``: what is known about users and items beforehand:
      ``Attributes``, a frame, or the path of a file.
    - ``sweeps``, ``burn_in``: those of ``Gibbs``, for one chain. With None, ``Gibbs`` chooses the
      burn-in.
    - ``duplicates``: what to do if a pair is rated twice: "error", "last" or "mean".
    - ``random_state``: an integer, a NumPy ``RandomState``, or None for another result every time.
    - ``n_jobs``: the number of threads. As everywhere in scikit-learn, None is one and -1 is all.
      The result does not depend on it.

    After ``fit``, ``fit_`` is the fit itself, with all it can do.
    """

    def __init__(
        self,
        rank: int | None = None,
        *,
        user_designs: Sequence[Any] | None = None,
        item_designs: Sequence[Any] | None = None,
        own_features: bool | None = None,
        precision: str | None = None,
        bias: str | None = None,
        likelihood: Any = None,
        time: str | None = None,
        user_attributes: Any = None,
        item_attributes: Any = None,
        sweeps: int = 200,
        burn_in: int | None = None,
        duplicates: str = "error",
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.rank = rank
        self.user_designs = user_designs
        self.item_designs = item_designs
        self.own_features = own_features
        self.precision = precision
        self.bias = bias
        self.likelihood = likelihood
        self.time = time
        self.user_attributes = user_attributes
        self.item_attributes = item_attributes
        self.sweeps = sweeps
        self.burn_in = burn_in
        self.duplicates = duplicates
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MatrixFactorization:
        """Fit to pairs (two columns of an array, a frame, or a list) and their ratings ``y``.

        The columns of a frame are recognised by their names; two whose names say nothing, such as 0
        and 1, are the user and the item.
        ``sample_weight`` are positive weights of the ratings.
        """
        pairs = _plain_pairs(X)
        ratings = Ratings.from_triplets(
            users=pairs.user,
            items=pairs.item,
            ratings=np.asarray(y, float),
            times=pairs.seconds() if self.time not in (None, "none") else None,
            weights=sample_weight,
            duplicates=self.duplicates,  # type: ignore[arg-type]
        )
        self.fit_ = self._sampler().fit(ratings)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the expected ratings, an array; with ``return_std`` also the sd of a rating."""
        check_is_fitted(self, "fit_")
        table = self.fit_.predict(_plain_pairs(X))
        mean: NDArray[np.float64] = table["mean"].to_numpy()
        return (mean, table["sd"].to_numpy()) if return_std else mean

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every rating of a scale with steps, in ascending order."""
        check_is_fitted(self, "fit_")
        table = self.fit_.probabilities(_plain_pairs(X))
        return np.column_stack([column.to_numpy() for column in table.columns[2:]])

    def _sampler(self) -> Gibbs:
        """Translate the parameters: the one place that knows ``Model`` and ``Gibbs``."""
        given = {name: getattr(self, name) for name in OF_MODEL}
        model = Model(**{k: v for k, v in given.items() if v is not None})
        model = with_attributes(model, self.user_attributes, self.item_attributes)
        options: dict[str, Any] = {} if self.burn_in is None else {"burn_in": self.burn_in}
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        return Gibbs(
            model,
            sweeps=self.sweeps,
            chains=1,
            until="sweeps",
            seed=int(seed),
            threads=_threads(self.n_jobs),
            **options,
        )


def _threads(n_jobs: int | None) -> int:
    """Count threads as joblib counts processes: -1 is all of them, -2 all but one."""
    jobs = 1 if n_jobs is None else n_jobs
    if jobs == 0:
        raise ValueError("n_jobs=0: choose a number of threads, or -1 for all")
    return max(MOST_THREADS + 1 + jobs, 1) if jobs < 0 else min(jobs, MOST_THREADS)


def _plain_pairs(X: Any) -> Pairs:
    """Read pairs whose ids are what they are in an array of objects: all integers, or all text.

    Two columns of a frame whose names say nothing are the user and the item, in this order.
    """
    try:
        names = [simplify(str(name)) for name in as_frame(X).columns]
    except TypeError:
        names = []
    unnamed = len(names) == 2 and ID_NAMES.isdisjoint(names)
    pairs = pairs_of(X, user=1, item=2) if unnamed else pairs_of(X)
    return Pairs(_to_list(pairs.user), _to_list(pairs.item), pairs.time)


def _to_list(values: Any) -> list[Any]:
    listed = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]
