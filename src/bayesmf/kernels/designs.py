"""Designs: what a sparse matrix adds to the rows of one side, and the draws of its weights W.

A design X has a row for each row of the side, X_ik = c_i v_ik: ``c`` scales rows, ``v`` are the
entries of a ``Sparse`` matrix. Row i is shifted by offset_i = sum_k X_ik W_k. The rated set is a
design with v_ik = 1 for each k that row i rated, and c_i = n_i^-p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from bayesmf.kernels.gram import add_covariances, gram
from bayesmf.kernels.inner import (
    add_rows,
    add_valued_rows,
    parallel,
    serial,
    subtract_from_rows,
    subtract_from_valued_rows,
)
from bayesmf.machine import LANES, aligned
from bayesmf.random.philox import bits, fill_normal, normal_quantile, to_unit

COLUMNS = LANES  # of W that are drawn side by side; each such strip is independent of the others
NO_VALUES: Any = np.empty(0)
NO_VALUES.flags.writeable = False  # as the ratings are: the kernels are compiled for that


class Sparse(NamedTuple):
    """A sparse matrix by rows: entries starts[i] to starts[i + 1] belong to row i.

    The same class holds a matrix by columns, which is its transpose by rows.
    """

    starts: Any
    index: Any  # the column of each entry
    values: Any = NO_VALUES  # float64, the value of each entry; of length 0 if all are 1


def pattern(observed: Any) -> Sparse:
    """Returns the matrix with a 1 for each rating of ``observed``."""
    return Sparse(observed.starts, observed.index, NO_VALUES)


def squared(matrix: Sparse) -> Sparse:
    """Returns the matrix of the squared entries."""
    return matrix._replace(values=matrix.values**2) if len(matrix.values) else matrix


def strips(rows: Any) -> Any:
    """Returns rows cut into (strip, row, COLUMNS), with zeros where a strip is not full."""
    out = aligned((-(-rows.shape[1] // COLUMNS), len(rows), COLUMNS))
    _cut(rows, out)
    return out


@parallel
def _cut(rows, out):
    for i in prange(rows.shape[0]):
        for b in range(out.shape[0] * COLUMNS):
            out[b // COLUMNS, i, b % COLUMNS] = rows[i, b] if b < rows.shape[1] else 0.0


def offsets(matrix: Sparse, W: Any, c: Any, out: Any) -> None:
    """Fills out_i = c_i sum_k v_ik W_k, with ``matrix`` by rows."""
    offsets_of_strips(matrix, strips(W), c, out)


@parallel
def offsets_of_strips(matrix, cut, c, out):
    """Does the same as ``offsets``, for a W that is cut into strips already."""
    starts, index, values = matrix.starts, matrix.index, matrix.values
    ones = np.ones(cut.shape[1])
    for i in prange(len(c)):
        total = np.empty(COLUMNS)
        for strip in range(cut.shape[0]):
            total[:] = 0.0
            if len(values):
                add_valued_rows(index, values, starts[i], starts[i + 1], ones, cut[strip], total)
            else:
                add_rows(index, values, starts[i], starts[i + 1], ones, cut[strip], total)
            for b in range(strip * COLUMNS, min((strip + 1) * COLUMNS, out.shape[1])):
                out[i, b] = c[i] * total[b - strip * COLUMNS]


@parallel
def draw_centred(columns, weight, scale, mean, counter, sample, residual, W, from_strip):
    """Draws every W_k in turn given the rows S, in coordinates that decouple its columns.

    There W_k ~ N(mean, 1) and row i's residual f_i = (S_i - mu - offset_i) / c_i has precision
    weight_i scale_a in column a, where weight_i = spread_i c_i^2:

    precision  1 + scale_a q_k,                  q_k = sum_i weight_i v_ik^2
    linear     mean_a + scale_a (sum_i weight_i v_ik f_i + q_k W_k)
    after      f_i -= v_ik (new W_k - old W_k)

    ``columns`` is the design by columns, so that its row k holds the v_ik. ``residual`` and ``W``
    are (strip, row, column), and ``from_strip`` is the number of the first strip that is here.
    """
    starts, index, values = columns.starts, columns.index, columns.values
    sums = np.empty(W.shape[1])
    for k in prange(W.shape[1]):
        q = 0.0
        if len(values):
            for p in range(starts[k], starts[k + 1]):
                q += weight[index[p]] * values[p] * values[p]
        else:
            for p in range(starts[k], starts[k + 1]):
                q += weight[index[p]]
        sums[k] = q
    for strip in prange(W.shape[0]):
        total = np.empty(COLUMNS)
        rows, mine = residual[strip], W[strip]
        for k in range(W.shape[1]):
            begin, end, q = starts[k], starts[k + 1], sums[k]
            total[:] = 0.0
            if len(values):
                add_valued_rows(index, values, begin, end, weight, rows, total)
            else:
                add_rows(index, values, begin, end, weight, rows, total)
            for a in range(COLUMNS):
                precision = 1.0 + scale[strip, a] * q
                linear = mean[strip, a] + scale[strip, a] * (total[a] + q * mine[k, a])
                new = linear / precision
                if sample:
                    number = (from_strip + strip) * COLUMNS + a
                    first, second = bits(counter, k, number // 2)
                    word = second if number % 2 else first
                    new += normal_quantile(to_unit(word)) / np.sqrt(precision)
                total[a] = new - mine[k, a]
                mine[k, a] = new
            if len(values):
                subtract_from_valued_rows(index, values, begin, end, weight, rows, total)
            else:
                subtract_from_rows(index, values, begin, end, weight, rows, total)


@parallel
def store_grams(observed, other, size, width, out):
    """Fills ``out`` with the matrix of ``gram`` of every row, both triangles."""
    columns = LANES * len(width)
    for i in prange(out.shape[0]):
        gram(observed, i, other.z, out[i], width)
        if len(other.cov):
            scratch = np.empty(size * (size + 1) // 2)
            add_covariances(observed, i, other, scratch, out[i], size)
        for a in range(columns):
            for b in range(a):
                out[i, b, a] = out[i, a, b]


@serial
def squared_error(A, x, cov, size):
    """Returns sum_j w_j (r_ij - fitted)^2 = [-x, 1]' A [-x, 1]; plus tr(A C) if ``cov`` has C."""
    last = A.shape[0] - 1
    total = A[last, last]
    for a in range(size):
        inner = -2.0 * A[last, a]
        for b in range(size):
            inner += (A[a, b] if b <= a else A[b, a]) * x[b]
        total += x[a] * inner
    if len(cov):
        cell = 0
        for a in range(size):
            for b in range(a + 1):
                total += (1.0 if a == b else 2.0) * A[a, b] * cov[cell]
                cell += 1
    return max(total, 0.0)


@parallel
def squared_errors(grams, x, cov, size, out):
    """Fills ``out`` with the ``squared_error`` of every row."""
    for i in prange(len(out)):
        out[i] = squared_error(grams[i], x[i], cov[i] if len(cov) else x[i, :0], size)


@parallel
def expected_errors(observed, x, cov, other, size, width, out):
    """Fills ``out`` with the mean of sum_j w_j (r_ij - fitted)^2 of every row, under moments."""
    columns = LANES * len(width)
    for i in prange(len(out)):
        A = np.empty((columns, columns))
        scratch = np.empty(size * (size + 1) // 2)
        gram(observed, i, other.z, A, width)
        add_covariances(observed, i, other, scratch, A, size)
        out[i] = squared_error(A, x[i], cov[i], size)


@serial
def slopes(grams, weight, first, size, x):
    """Returns g_i = weight_i (h_i - A_i x_i), the columns from ``first`` on."""
    last = grams.shape[1] - 1
    g = np.zeros((x.shape[0], size))
    for i in range(x.shape[0]):
        for a in range(size):
            total = grams[i, last, first + a]
            for b in range(first + size):
                total -= grams[i, first + a, b] * x[i, b]
            g[i, a] = weight[i] * total
    return g


@serial
def draw_non_centred(columns, c, weight, grams, prior, linear, first, counter, sample, x, W):
    """Draws every W_k in turn given the rows' own part U_i = S_i - offset_i; S moves along.

    precision  prior + sum_i X_ik^2 weight_i A_i
    linear     prior mean term + sum_i X_ik g_i + (sum_i X_ik^2 weight_i A_i) W_k
    after      g_i -= X_ik weight_i A_i (new - old),   S_i += X_ik (new - old)

    X_ik = c_i v_ik, and ``columns`` holds v by columns. g_i = weight_i (h_i - A_i S_i) is the
    gradient of the likelihood in S_i. Columns before ``first`` (a bias that the design does not
    shift) are left alone.
    """
    starts, index, values = columns.starts, columns.index, columns.values
    size = prior.shape[0]
    g = slopes(grams, weight, first, size, x)
    P = np.empty((size, size))
    step = np.empty(size)
    normals = np.empty(size)
    for k in range(W.shape[0]):
        P[:] = 0.0
        step[:] = linear
        for p in range(starts[k], starts[k + 1]):
            i = index[p]
            X = c[i] * values[p] if len(values) else c[i]
            factor = X * X * weight[i]
            for a in range(size):
                step[a] += X * g[i, a]
                for b in range(a + 1):
                    P[a, b] += factor * grams[i, first + a, first + b]
        for a in range(size):
            for b in range(size):
                step[a] += (P[a, b] if b <= a else P[b, a]) * W[k, first + b]
        for a in range(size):
            for b in range(a + 1):
                P[a, b] += prior[a, b]
        if sample:
            fill_normal(counter, k, normals)
        else:
            normals[:] = 0.0
        solve_one(P, step, normals, size)
        for a in range(size):
            new = step[a]
            step[a] = new - W[k, first + a]
            W[k, first + a] = new
        for p in range(starts[k], starts[k + 1]):
            i = index[p]
            X = c[i] * values[p] if len(values) else c[i]
            factor = X * weight[i]
            for a in range(size):
                total = 0.0
                for b in range(size):
                    total += grams[i, first + a, first + b] * step[b]
                g[i, a] -= factor * total
                x[i, first + a] += X * step[a]


@serial
def solve_one(Q, x, normals, size):
    """Turns x into Q^-1 x + L^-T normals, and the lower triangle of Q into L."""
    for j in range(size):
        for i in range(j, size):
            total = Q[i, j]
            for k in range(j):
                total -= Q[i, k] * Q[j, k]
            Q[i, j] = np.sqrt(total) if i == j else total / Q[j, j]
    for i in range(size):
        for k in range(i):
            x[i] -= Q[i, k] * x[k]
        x[i] /= Q[i, i]
    for i in range(size - 1, -1, -1):
        x[i] += normals[i]
        for k in range(i + 1, size):
            x[i] -= Q[k, i] * x[k]
        x[i] /= Q[i, i]
