"""The prior of a row that training has not seen, given how many ratings it has and of what.

The prior of the model is right for the rows of training, which have many ratings. A newcomer has
few, and that somebody rates an item says something about them: the raters of an item are not like
the mean user. Both are read from a draw itself, by regressing its rows S_i on who else rates what
they rated. With weights w_i in proportion to n_i, K the prior count and Sbar the weighted mean,

    Q_k  = (sum of S_i over the raters i of k + K Sbar) / (m_k + K) - Sbar
    q_i  = the mean of Q_k over what i rated, each without the part of i itself
    C_S, C_q, C_sq   the covariances of S_i, of q_i (without the scatter of the Q_k) and of both
    C_w  = the covariance of the Q_k within what a row rated
    H_g  = C_sq (C_q + C_w / g)^-1,  H_0 = 0

and a row with g ratings, whose Q_k have the sum s, has the prior N(a_g(s), R_g) with

    a_g(s) = Sbar + H_g (s / g - qbar)        R_g = C_S - H_g C_sq'

A question about item j is asked of those who will rate it. That adds H_{g+1} Q_j / (g + 1) to the
prior mean, of which the likelihood leaves the part G = P^-1 R_g^-1. The part that all items have in
common, a_{g+1}(s) - a_g(s), is in the row; the rest is a product newness_i b_j of two numbers,

    b_j = T_j' H_1 Q_j      newness = tr(G H_{g+1} M) / ((g + 1) tr(H_1 M)),  M = mean of Q_j T_j'

so that a known user has newness 0 and a stranger 1. It is a share, and cut off where it is not one:
if raters tell hardly anything, it is a ratio of two numbers near 0. In all products T_j stands for
(1, T_j).

Of given designs X, such as attributes, newcomers have rows too. Then S_i stands for S_i - X_i W,
and X_i W is added to the mean of a newcomer. This W is not the model's, which is what X adds to
what the rated sets add: of a newcomer these are not known. It is the regression of S on X alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from bayesmf.kernels.designs import Sparse, lines_of_sums, offsets
from bayesmf.kernels.reduce import weighted_moments
from bayesmf.model.data import RowPriors

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
PRIOR_COUNT = 5.0  # K: raters that an item has besides its own, all like the mean user
DENSE = 2000  # columns of given designs, up to which their square matrix is computed
MOST_KEPT = 128  # arrays for numbers of ratings
ARRAYS = 7  # for one number of ratings, at most
MOST_PREPARED = 16  # numbers of ratings
ROUNDING = 1e-9  # covariances of two unit variances, below which nothing is shared
MARGIN = 1.05  # by which what q tells of S stays below all that there is to tell


@dataclass(frozen=True)
class Rated:
    """Who rated what in training: by the rows of one side, and by those of the other."""

    by_row: Sparse
    by_other: Sparse
    counts: Counts  # the ratings of each row

    @property
    def other_counts(self) -> Counts:
        """The ratings of each row of the other side."""
        return np.asarray(np.diff(self.by_other.starts))


class GroupPriors(NamedTuple):
    """The priors of rows in many draws, which rows with as many ratings share but for ``linear``.

    The draw is the first axis of all arrays but ``group``.
    """

    group: NDArray[np.int64]  # of each row
    precision: Array  # of each group: lower triangles row by row
    linear: Array  # of each row
    traces: Array  # of each group: T_g of ``NewRows.newness``


@dataclass(frozen=True)
class NewRows:
    """What one draw says of rows that are not in it.

    ``stack`` joins those of many draws. Its arrays, and what ``known_priors`` returns, have the
    draw as their first axis.
    """

    rated: Rated
    mean: Array  # Sbar
    cov: Array  # C_S
    raters: Array  # Q_k, one row for each row of the other side
    told: Array  # q_i, one row for each row of the side
    told_mean: Array  # qbar
    cross: Array  # C_sq
    between: Array  # C_q
    within: Array  # C_w
    W: Array  # one row for each column of given designs
    asked: Array  # M

    @classmethod
    def of(
        cls,
        rows: Array,
        rated: Rated,
        others: Array,
        prior_cov: Array,
        power: float = 1.0,
        cov: Array | None = None,
        given: Any = None,
    ) -> NewRows:
        """Measure the rows S of a draw; weights are n_i^power.

        ``others`` are the rows (bias, T_j) of the other side, and ``given`` is the sparse matrix X
        of given designs, if there are any.

        ``prior_cov`` is the covariance of the model's prior. It counts as much as there are
        columns, so that few rows leave a newcomer in doubt. ``cov`` is C_S, if rows are means and
        their scatter is not all there is.
        """
        n, m = rated.counts, rated.other_counts
        weight = np.where(n > 0, np.maximum(n, 1.0) ** power, 0.0)
        weight /= max(weight.sum(), 1.0)
        W = np.zeros((0, rows.shape[1]))
        if given is not None:
            W = _regress(given, rows, weight, int((n > 0).sum()))
            rows = rows - given @ W
        mean = weight @ rows
        raters = _sums(rated.by_other, rows - mean, 1 / (m + PRIOR_COUNT))
        each, size = 1 / np.maximum(n, 1), rows.shape[1]
        without = 1 / (m + PRIOR_COUNT - 1)  # the weight of a row that is taken out of Q_k
        both = _sums(rated.by_row, np.c_[raters, without[:, None] * raters, without], each)
        full, own = both[:, :size], both[:, size:-1]
        told = full + own - both[:, -1:] * (rows - mean)
        total, second = weighted_moments(np.c_[rows - mean, told], weight, 0, 2 * size)[1:]
        told_mean = total[size:]
        second -= np.outer(total, total)
        within = _within(raters, full, n, weight, rated)
        if cov is None:
            share = size * float(weight @ weight)  # of the prior, beside 1 / sum w^2 rows
            cov = (second[:size, :size] + share * prior_cov) / (1 + share)
        cross = _without_rounding(cov, second[:size, size:])
        scatter = second[size:, size:] - float(weight @ each) * within
        between = _between(cov, cross, scatter, within)
        asked = (raters * (m / max(m.sum(), 1))[:, None]).T @ _with_one(others)
        return cls(rated, mean, cov, raters, told, told_mean, cross, between, within, W, asked)

    @cached_property
    def _kept(self) -> dict[tuple[str, int], Array]:
        """What was computed for numbers of ratings, for those who come next with as many."""
        return {}

    def _once(self, what: str, count: int, compute: Callable[[int], Array]) -> Array:
        found = self._kept.get((what, count))
        if found is None:
            found = compute(count)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()  # in which another thread may be looking
            self._kept[what, count] = found
        return found

    def gain(self, count: int) -> Array:
        """H_g: what a row's mean of Q_k over so many ratings says of the row."""
        return self._once("gain", count, self._gain)

    def _gain(self, count: int) -> Array:
        if not count or not self.cross.any():
            return np.zeros_like(self.cross)
        left, right, scale, _, _ = self._axes
        return np.asarray(left * (count / (count + scale))[..., None, :] @ right.mT)

    @cached_property
    def _axes(self) -> tuple[Array, Array, Array, Array, Array]:
        """H_g = F (g / (g + w)) G' and R_g^-1 - C_S^-1 = E (g / (g + v)) E': F, G, w, E and v.

        The numbers g / (g + w) and g / (g + v) are diagonals. So nothing has to be solved for one
        number of ratings after the other. With V'C_q V = 1 and V'C_w V = w it is F = C_sq V, G = V.
        The same of B = C_q - C_sq' C_S^-1 C_sq in place of C_q gives E = C_S^-1 C_sq V, by
        Woodbury's identity. All is computed where C_S is the identity, as in ``_between``.
        """
        L = np.linalg.cholesky(self.cov)
        inverse = np.linalg.inv(L)
        C, Q, W = (
            inverse @ matrix @ inverse.mT for matrix in (self.cross, self.between, self.within)
        )
        V, w = _diagonalise(Q, W)
        own, v = _diagonalise(Q - C.mT @ C, W)
        return L @ C @ V, inverse.mT @ V, w, inverse.mT @ C @ own, v

    def remainder(self, count: int) -> Array:
        """R_g: the covariance that is left."""
        return np.asarray(self.cov - self.gain(count) @ self.cross.mT)

    def precision(self, count: int) -> Array:
        """R_g^-1."""
        return self._once("precision", count, self._precision)

    def _precision(self, count: int) -> Array:
        if not count or not self.cross.any():
            return self._cov_inverse
        _, _, _, E, v = self._axes
        return np.asarray(self._cov_inverse + E * (count / (count + v))[..., None, :] @ E.mT)

    @cached_property
    def _cov_inverse(self) -> Array:
        return np.asarray(np.linalg.inv(self.cov))

    def newness(self, count: int) -> Array:
        """T_g: tr(T_g P^-1) is how much of b_j a row with so many ratings has.

        It is a lower triangle with twice what is beside the diagonal.
        """
        return self._once("newness", count, self._newness)

    def slope(self, count: int) -> Array:
        """H_{g+1}' R_g^-1 / (g + 1): what s adds to the linear term R_g^-1 a_{g+1}(s)."""
        return self._once("slope", count, self._slope)

    def _slope(self, count: int) -> Array:
        return np.asarray(self.gain(count + 1).mT @ self.precision(count) / (count + 1))

    def _newness(self, count: int) -> Array:
        rows, columns = np.tril_indices(self.mean.shape[-1])
        whole = np.trace(self.gain(1) @ self.asked, axis1=-2, axis2=-1)
        share = np.where(whole > 0, 1 / np.where(whole > 0, whole, 1.0), 0.0) / (count + 1)
        part = self.precision(count) @ self.gain(count + 1) @ self.asked
        both = (part + part.mT)[..., rows, columns] * np.where(rows == columns, 0.5, 1.0)
        return np.asarray(both * share[..., None])

    def means(self, count: int, sums: Array, asked: int = 0) -> Array:
        """a_g(s) for rows of so many ratings, one more if an item is ``asked`` about."""
        g = count + asked
        about = sums / max(g, 1) - self.told_mean[..., None, :]
        return np.asarray(self.mean[..., None, :] + about @ self.gain(g).mT)

    @cached_property
    def stranger(self) -> Array:
        """The mean of a row without ratings, asked about an item: a_1(0)."""
        return np.asarray(self.means(0, np.zeros((1, len(self.mean))), 1)[0])

    def query(self, others: Array) -> Array:
        """b_j for every row (bias, T_j) of the other side."""
        return np.asarray(np.einsum("ja,ja->j", _with_one(others), self.raters @ self.gain(1).T))

    def priors(self, by_row: Sparse, rated: NDArray[Any], added: Array | None) -> GroupPriors:
        """The priors of rows with these ratings, asked about an item, in each of many draws.

        ``rated`` has the row of the other side for each column of ``by_row``. ``added`` is what
        designs that do not depend on ratings add to each row, if there are any.
        """
        counts = np.diff(by_row.starts)
        distinct, group = np.unique(counts, return_inverse=True)
        each = distinct.tolist()
        precision, traces, constant, slope = (
            np.stack(found, axis=1) for found in zip(*map(self.shared, each), strict=True)
        )
        linear = np.empty((len(self.mean), len(counts), self.mean.shape[-1]))
        lines_of_sums(by_row, rated, self.raters, group, constant, slope, linear)
        if added is not None:
            for count in each:
                mine = counts == count
                linear[:, mine] += added[:, mine] @ self.precision(count)
        return GroupPriors(group, precision, linear, traces)

    def shared(self, count: int) -> tuple[Array, Array, Array, Array]:
        """What rows with so many ratings have in common, asked about an item.

        Returns the lower triangle of R_g^-1, T_g, R_g^-1 a_{g+1}(0), and what s adds to that.
        """
        triangle = self._once("triangle", count, self._triangle)
        constant = self._once("constant", count, self._constant)
        return triangle, self.newness(count), constant, self.slope(count)

    def _triangle(self, count: int) -> Array:
        return np.asarray(self.precision(count)[..., *np.tril_indices(self.mean.shape[-1])])

    def _constant(self, count: int) -> Array:
        means = self.means(count, 0 * self.mean[..., None, :], 1)
        return np.asarray((means @ self.precision(count))[..., 0, :])

    def prepare(self, counts: Counts) -> None:
        """Compute what rows with so many ratings share in all draws, for every ``take`` of them.

        If there are more numbers of ratings than are kept, every part computes its own.
        """
        distinct = np.unique(counts).tolist()
        missing = [count for count in distinct if ("constant", count) not in self._kept]
        if len(distinct) <= MOST_PREPARED:
            if len(self._kept) + ARRAYS * len(missing) > MOST_KEPT:
                self._kept.clear()
            for count in distinct:
                self.shared(count)

    def known_priors(self, counts: Counts, sums: Array, added: Array) -> RowPriors:
        """The priors of rows of training: so many ratings, whose Q_k have these sums."""
        rows, columns = np.tril_indices(self.mean.shape[-1])
        precision, linear = np.empty((*sums.shape[:-1], len(rows))), np.empty_like(sums)
        for count in np.unique(counts).tolist():
            mine, inverse = counts == count, self.precision(count)
            precision[..., mine, :] = inverse[..., None, rows, columns]
            means = self.means(count, sums[..., mine, :]) + added[..., mine, :]
            linear[..., mine, :] = means @ inverse
        return RowPriors(precision, linear)

    def told_sums(self, rows: Any = slice(None)) -> Array:
        """The sum of Q_k over what rows of training rated, each without the row's own part."""
        return np.asarray(self.rated.counts[rows][:, None] * self.told[..., rows, :].astype(float))

    @classmethod
    def stack(cls, draws: Iterable[NewRows]) -> NewRows:
        """Join those of many draws; the long arrays are kept in single precision."""
        found: dict[str, list[Any]] = {part.name: [] for part in fields(cls)}
        for one in draws:
            for name, values in found.items():
                part = getattr(one, name)
                values.append(part.astype(np.float32) if name in ("raters", "told") else part)
        rated = found.pop("rated")[0]
        return cls(rated, **{name: np.stack(values) for name, values in found.items()})

    def take(self, span: slice | int) -> NewRows:
        """Return some of the draws that were joined, or one of them alone."""
        if span == slice(0, len(self.mean)):
            return self
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        rated = parts.pop("rated")
        found = NewRows(rated, **{name: values[span] for name, values in parts.items()})
        kept = dict(self._kept)  # at once: another thread may add to it
        found._kept.update({key: values[span] for key, values in kept.items()})
        vars(found)["_cov_inverse"] = self._cov_inverse[span]  # what was computed of all draws
        if self.cross.any():
            vars(found)["_axes"] = tuple(values[span] for values in self._axes)
        return found


def as_share(newness: Array) -> Array:
    """How much of b_j a row has: nothing, all, or what is between."""
    return np.clip(newness, 0.0, 1.0)


def _regress(X: Any, rows: Array, weight: Array, count: int) -> Array:
    """The regression of so many weighted rows on the columns of X, and a constant.

    Its ridge counts as many rows as there are columns.
    """
    columns, mean = X.shape[1], X.T @ weight
    weighted = X.multiply(weight[:, None]).T.tocsr()
    cross = weighted @ rows - np.outer(mean, weight @ rows)
    ridge = columns / max(count, 1)
    if columns <= DENSE:
        square = (weighted @ X).toarray() - np.outer(mean, mean) + ridge * np.eye(columns)
        return np.asarray(np.linalg.solve(square, cross))

    def product(v: Array) -> Array:
        return np.asarray(weighted @ (X @ v) - mean * (mean @ v) + ridge * v)

    square = LinearOperator((columns, columns), matvec=product)
    return np.stack([cg(square, each, rtol=1e-8)[0] for each in cross.T], axis=1)


def _sums(by_row: Sparse, values: Array, scale: Array) -> Array:
    """scale_i times the sum of values_k over the entries k of each row i."""
    out = np.empty((len(scale), values.shape[1]))
    offsets(by_row, values, scale, out)
    return out


def _within(raters: Array, full: Array, n: Counts, weight: Array, rated: Rated) -> Array:
    """C_w: the covariance of the Q_k of one row, averaged over rows with two ratings or more."""
    again = np.where(n >= 2, weight, 0.0)
    again /= max(again.sum(), np.finfo(float).tiny)
    shared = again / np.maximum(n - 1, 1)
    by_other = _sums(rated.by_other, shared[:, None], np.ones(len(raters)))[:, 0]
    size = raters.shape[1]
    one = weighted_moments(raters, by_other, 0, size)[2]
    return np.asarray(one - weighted_moments(full, shared * n, 0, size)[2])


def _between(cov: Array, cross: Array, scatter: Array, within: Array) -> Array:
    """C_q, whose scatter is known: not below ``MARGIN`` times what q tells of S.

    Eigenvalues depend on the units of the columns, so they are looked at where C_S is the identity.
    """
    L = np.linalg.cholesky(cov)
    inverse = np.linalg.inv(L)
    C, S, W = (inverse @ matrix @ inverse.T for matrix in (cross, scatter, within))
    least = MARGIN * C.T @ C
    between = least + _positive(_positive(S) - least)
    between += 1e-9 * (np.trace(between) + np.trace(W)) * np.eye(len(cov))
    return np.asarray(L @ between @ L.T)


def _without_rounding(cov: Array, cross: Array) -> Array:
    """C_sq, or zeros if it is no more than rounding leaves, looked at where C_S is the identity.

    That is so where no two rows have rated the same; C_q is then as small, and H_g is made of both.
    """
    inverse = np.linalg.inv(np.linalg.cholesky(cov))
    return cross if np.abs(inverse @ cross @ inverse.T).max() > ROUNDING else np.zeros_like(cross)


def _diagonalise(A: Array, W: Array) -> tuple[Array, Array]:
    """V and w with V'A V = 1 and V'W V = w, a diagonal that is not negative.

    Directions in which A has nothing, but for rounding, count as if they had very little.
    """
    values, U = np.linalg.eigh((A + A.mT) / 2)
    most = np.maximum(values[..., -1:], np.finfo(float).tiny)
    half = U / np.sqrt(np.maximum(values, 1e-12 * most))[..., None, :]
    reduced = half.mT @ W @ half
    w, V = np.linalg.eigh((reduced + reduced.mT) / 2)
    return np.asarray(half @ V), np.maximum(w, 0.0)


def _positive(matrix: Array) -> Array:
    """The part of a symmetric matrix with positive eigenvalues."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def _with_one(rows: Array) -> Array:
    """(1, T_j) of rows (bias, T_j)."""
    out = rows.copy()
    out[:, 0] = 1.0
    return out
