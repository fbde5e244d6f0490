"""The innermost loops in plain Numba: slower twins of those in ``llvm``, equal to rounding."""

from __future__ import annotations

import numpy as np

from bayesmf.machine import LANES, serial


@serial
def add_products(z, index, values, mean, first, rows, sums, width):
    """Adds sum over ``rows`` ratings k of y_ka y_kb to sums[a, b], for b <= a.

    k runs from ``first`` on; y_k is z[index[k]], but for the target z_0 (values[k] - mean - z_last)
    in its last column.
    """
    last = LANES * len(width) - 1
    y = np.empty(last + 1)
    for k in range(first, first + rows):
        row = z[index[k]]
        y[:] = row
        y[last] = row[0] * (values[k] - mean - row[last])
        for a in range(last + 1):
            for b in range(a + 1):
                sums[a, b] += y[a] * y[b]


@serial
def subtract_4(Q, i, j, n):
    """Does for rows i to i + 3 what ``subtract_1`` does for row i."""
    for r in range(4):
        subtract_1(Q, i + r, j, n)


@serial
def subtract_1(Q, i, j, n):
    """Subtracts sum over k < n of Q[i, k, :] Q[j, k, :] from Q[i, n, :]."""
    for k in range(n):
        for lane in range(LANES):
            Q[i, n, lane] -= Q[i, k, lane] * Q[j, k, lane]


@serial
def add_rows(index, values, begin, end, weight, rows, total):
    """Adds weight_i row_i to ``total``, for the entries ``begin`` to ``end`` of a sparse matrix.

    Row i is that of the entry's column; ``values`` belong to the signature of all four such loops.
    """
    for p in range(begin, end):
        i = index[p]
        for a in range(LANES):
            total[a] += weight[i] * rows[i, a]


@serial
def add_valued_rows(index, values, begin, end, weight, rows, total):
    """Adds weight_i v row_i to ``total``, where v is the value of the entry."""
    for p in range(begin, end):
        i = index[p]
        factor = weight[i] * values[p]
        for a in range(LANES):
            total[a] += factor * rows[i, a]


@serial
def subtract_from_rows(index, values, begin, end, weight, rows, total):
    """Subtracts ``total`` from every row_i."""
    for p in range(begin, end):
        i = index[p]
        for a in range(LANES):
            rows[i, a] -= total[a]


@serial
def subtract_from_valued_rows(index, values, begin, end, weight, rows, total):
    """Subtracts v ``total`` from every row_i, where v is the value of the entry."""
    for p in range(begin, end):
        i = index[p]
        for a in range(LANES):
            rows[i, a] -= values[p] * total[a]
