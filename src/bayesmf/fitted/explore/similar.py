"""Which items are alike, which users are, and a map of them: by what every draw identifies.

The features of a draw have no basis and no origin of their own: it predicts the same if the items'
features T are multiplied by any A and the users' S by the inverse of A', and if T or S is moved and
the biases of the other side make up for it. What all of them agree on is how much more, or less,
each user likes each item than is usual for the two. Its covariance over users of two items is

    c_jk = (T_j - T_mean)' Cov(S) (T_k - T_mean),

so items are compared by the correlation c_jk / sqrt(c_jj c_kk) in every draw. An item is a user of
the transposed data, so users are compared by the covariance over items.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from bayesmf.errors import DataError, Option
from bayesmf.fitted.newcomers import drawn_rows
from bayesmf.fitted.posterior import Posterior
from bayesmf.kernels.ranking import largest
from bayesmf.model.designs import Name

Array = NDArray[np.float64]
FEW_ROWS = 64  # of which all products fit into a small matrix


def check_features(posterior: Posterior) -> None:
    """Refuse a model of biases alone, in which no two rows are more alike than others."""
    if posterior.model.rank == 0:
        raise DataError(
            "a model of biases alone has no features by which to compare; fit one with "
            f"{Option('rank', 20, 'Model')} or the like"
        )


class Metric(NamedTuple):
    """What rows of one side are compared by in one draw."""

    centre: Array  # the mean of their features
    root: Array  # L, where L L' is the covariance of the other side's features
    length: Array  # sqrt(c_jj) of every row

    def place(self, features: Any) -> Array:
        """Return L'(T_j - T_mean) of these rows: their products are the covariances c_jk."""
        return np.asarray((features - self.centre) @ self.root)


def metrics(posterior: Posterior, side: Name) -> list[Metric]:
    """Return the metric of every draw; rows without training ratings have no part in it.

    It is computed once for a posterior.
    """
    kept: dict[Name, list[Metric]] = vars(posterior).setdefault("_metrics", {})
    if side not in kept:
        other: Name = "item" if side == "user" else "user"
        mine, theirs = posterior.counts(side) > 0, posterior.counts(other) > 0
        found = []
        for number in range(len(posterior)):
            own, features = (features_of(posterior, number, name) for name in (side, other))
            features = features[theirs] - features[theirs].mean(axis=0)
            values, vectors = np.linalg.eigh(features.T @ features / len(features))
            metric = Metric(
                own[mine].mean(axis=0), vectors * np.sqrt(np.maximum(values, 0.0)), np.empty(0)
            )
            found.append(metric._replace(length=np.linalg.norm(metric.place(own), axis=1)))
        kept[side] = found
    return kept[side]


def features_of(posterior: Posterior, number: int, side: Name) -> Array:
    """Return the features of all rows in one draw."""
    return drawn_rows(posterior.draws, number, side)[:, 1 : posterior.model.size]


def correlate(posterior: Posterior, side: Name, row: int, number: int) -> Array:
    """Return the correlation of one row with every row in one draw; a row of zeros has 0.

    With w = Cov(S) (T_j - T_mean) it takes one product of a matrix and a vector.
    """
    metric, draws, some = metrics(posterior, side)[number], posterior.draws, slice(row, row + 1)
    features = slice(1, posterior.model.size)
    parts = [
        draws[f"{side}.{name}"][number] for name in ("x", "noise") if f"{side}.{name}" in draws
    ]
    mine = sum(part[some, features].astype(float) for part in parts)
    w = metric.root @ metric.place(mine)[0]
    products = sum(part[:, features] @ w.astype(np.float32) for part in parts)
    product, scale = products - metric.centre @ w, metric.length * metric.length[row]
    return np.asarray(np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0))


class Neighbours(NamedTuple):
    """The rows that are most like one row, the nearest first."""

    row: NDArray[np.int64]
    similarity: Array  # the mean over the draws
    low: Array  # the quantiles 0.05 and 0.95 over the draws
    high: Array
    probability: Array  # the share of draws in which the row is among so many nearest


def nearest(posterior: Posterior, side: Name, row: int, n: int, among: Any) -> Neighbours:
    """Find the ``n`` rows of ``among`` that are most like ``row``, which is none of them."""
    check_features(posterior)
    rows = np.setdiff1d(among, [row])
    found = np.empty((len(posterior), len(rows)), np.float32)
    for number in range(len(posterior)):
        found[number] = correlate(posterior, side, row, number)[rows]
    n = min(n, found.shape[1])
    mean = found.mean(axis=0, dtype=np.float64)
    order = np.argsort(-mean, kind="stable")[:n]
    top = np.empty((len(found), n), np.int64)
    largest(found, top)
    counts = np.bincount(top.ravel(), minlength=found.shape[1])
    low, high = np.quantile(found[:, order], [0.05, 0.95], axis=0)
    return Neighbours(rows[order], mean[order], low, high, counts[order] / len(found))


def principal(posterior: Posterior, side: Name, rows: Any) -> Array:
    """Return two coordinates of each row: those in which the rows differ most.

    They are the principal coordinates of the posterior mean of c_jk: the squared distance of two
    rows is, as far as two coordinates can show it, the variance over the other side of the
    difference between the two. The coordinate that is farthest from 0 is positive.
    """
    check_features(posterior)
    count = len(rows)
    draws = [
        metric.place(features_of(posterior, number, side)[rows])
        for number, metric in enumerate(metrics(posterior, side))
    ]

    def times(v: Array) -> Array:
        return np.asarray(sum(z @ (z.T @ v) for z in draws) / len(draws))

    if count <= FEW_ROWS:
        values, found = np.linalg.eigh(times(np.eye(count)))
    else:
        start = np.cos(np.arange(count))  # any numbers, but the same ones always
        operator = LinearOperator((count, count), matvec=times, matmat=times, dtype=np.float64)
        values, found = eigsh(operator, k=2, v0=start)
    order = np.argsort(-values, kind="stable")[:2]
    out = np.zeros((count, 2))
    out[:, : len(order)] = found[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    farthest = out[np.argmax(np.abs(out), axis=0), [0, 1]]
    return np.asarray(out * np.where(farthest < 0, -1.0, 1.0))
