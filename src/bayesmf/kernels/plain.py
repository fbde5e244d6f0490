"""The innermost loops in plain Numba: slower twins of those in ``llvm``, equal to rounding."""

from __future__ import annotations

import numpy as np

from bayesmf.machine import LANES, serial


@serial
def add_products(z, index, values, mean, first, rows, sums, width):
    """sums[a, b] += sum over ``rows`` ratings k of y_ka y_kb, for b <= a.

    k runs from ``first`` on; y_k is z[index[k]], but for the target z_0 (values[k] - mean - z_last)
    in its last column.
    """
    last = len(width) - 1
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
    """Q[i + r, n, :] -= sum over k < n of Q[i + r, k, :] Q[j, k, :], for r < 4."""
    for r in range(4):
        subtract_1(Q, i + r, j, n)


@serial
def subtract_1(Q, i, j, n):
    """Q[i, n, :] -= sum over k < n of Q[i, k, :] Q[j, k, :]."""
    for k in range(n):
        for lane in range(LANES):
            Q[i, n, lane] -= Q[i, k, lane] * Q[j, k, lane]


@serial
def add_rows(index, values, begin, end, weight, rows, total):
    """total += weight_i row_i, over the entries of a sparse matrix from ``begin`` to ``end``."""
    for p in range(begin, end):
        i = index[p]
        for a in range(LANES):
            total[a] += weight[i] * rows[i, a]


@serial
def add_valued_rows(index, values, begin, end, weight, rows, total):
    """total += weight_i v row_i, where v is the value of the entry."""
    for p in range(begin, end):
        i = index[p]
        factor = weight[i] * values[p]
        for a in range(LANES):
            total[a] += factor * rows[i, a]


@serial
def subtract_from_rows(index, values, begin, end, weight, rows, total):
    """row_i -= total."""
    for p in range(begin, end):
        i = index[p]
        for a in range(LANES):
            rows[i, a] -= total[a]


@serial
def subtract_from_valued_rows(index, values, begin, end, weight, rows, total):
    """row_i -= v total, where v is the value of the entry."""
    for p in range(begin, end):
        i = index[p]
        for a in range(LANES):
            rows[i, a] -= values[p] * total[a]
