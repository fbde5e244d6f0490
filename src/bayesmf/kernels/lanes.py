"""Cholesky factors and solutions of eight small systems side by side, one in each lane.

Matrices are (row, column, lane).
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.inner import (
    add_lanes,
    divide_cell,
    multiply_4,
    normalise_row,
    pivot_column,
    serial,
    subtract_1,
    subtract_4,
)
from bayesmf.machine import LANES

FOUR = 4  # rows that share what they read of another


@serial
def cholesky(Q, size):
    """Turns every Q into its lower Cholesky factor, in place: Q[a, b, lane], b <= a."""
    for j in range(size):
        i = j
        while i + FOUR <= size:
            subtract_4(Q, i, j, 0, j, j)
            i += FOUR
        while i < size:
            subtract_1(Q, i, j, 0, j, j)
            i += 1
        pivot_column(Q, j, size)


@serial
def solve_and_draw(Q, x, normals, size):
    """Turns x into Q^-1 x + L^-T normals, a mean plus a draw, where Q holds L and means L L'."""
    for i in range(size):
        for k in range(i):
            for lane in range(LANES):
                x[i, lane] -= Q[i, k, lane] * x[k, lane]
        for lane in range(LANES):
            x[i, lane] /= Q[i, i, lane]
    for i in range(size):
        for lane in range(LANES):
            x[i, lane] += normals[i, lane]
    for i in range(size - 1, -1, -1):
        for lane in range(LANES):
            x[i, lane] /= Q[i, i, lane]
        for k in range(i):
            for lane in range(LANES):
                x[k, lane] -= Q[i, k, lane] * x[i, lane]


@serial
def inverse(Q, R, out, size):
    """Fills ``out`` with the lower triangles of (L L')^-1, row by row, given L in Q.

    R = L^-1 is scratch: R_jj = 1 / L_jj, R_ij = -sum_k<i L_ik R_kj / L_ii; then out = R'R.
    """
    for j in range(size):
        for lane in range(LANES):
            R[j, j, lane] = 1.0 / Q[j, j, lane]
        for i in range(j + 1, size):
            for lane in range(LANES):
                R[i, j, lane] = 0.0
            for k in range(j, i):
                for lane in range(LANES):
                    R[i, j, lane] -= Q[i, k, lane] * R[k, j, lane]
            for lane in range(LANES):
                R[i, j, lane] /= Q[i, i, lane]
    cell = 0
    for a in range(size):
        for b in range(a + 1):
            for lane in range(LANES):
                out[cell, lane] = 0.0
            for k in range(a, size):
                for lane in range(LANES):
                    out[cell, lane] += R[k, a, lane] * R[k, b, lane]
            cell += 1


@serial
def solve_row(Q, i, size):
    """Turns row i of Q, which is beneath L, from q into L^-1 q."""
    for j in range(size):
        subtract_1(Q, i, j, 0, j, j)
        divide_cell(Q, i, j)


@serial
def invert(Q, first, size):
    """Fills X = L^-T into the rows of Q from ``first`` on, and divides the rows of L by L_jj.

    X_mj = (1 if j = m, else - sum over m <= k < j of X_mk L_jk) / L_jj, and L_jj becomes 1 / L_jj.
    There is room for a whole number of fours of rows.
    """
    for j in range(size):
        normalise_row(Q, j, 0)
    for m in range(0, size, FOUR):
        end = min(m + FOUR, size)
        for a in range(FOUR):
            for b in range(m, end):
                for lane in range(LANES):
                    Q[first + m + a, b, lane] = Q[b, b, lane] if b == m + a else 0.0
        for j in range(m + 1, end):
            subtract_4(Q, first + m, j, m, j, j)
        for j in range(end, size):
            multiply_4(Q, first + m, j, m, j, j)


@serial
def times_inverse(Q, first, j, column, size):
    """Puts X times row j of Q, times -1, into a column beside X, which is of ``invert``."""
    for m in range(0, size, FOUR):
        multiply_4(Q, first + m, j, m, size, column)


@serial
def trace_inverse(Q, first, T, totals, size):
    """Fills ``totals`` with tr(T (L L')^-1) = sum of T_ab X_a'X_b, where X is of ``invert``.

    T is a lower triangle row by row, with twice what is beside the diagonal. ``totals`` has one
    cell of lanes for each column, whose sum is the trace. The X_a'X_b are put beside X.
    """
    rows = Q.reshape(len(Q), -1)
    totals[:] = 0.0
    for m in range(0, size, FOUR):
        for b in range(min(m + FOUR, size)):
            multiply_4(Q, first + m, first + b, m, size, size + b)
        for a in range(m, min(m + FOUR, size)):
            # numbered from 0 on, so that the loop becomes one over vectors
            products, weights = rows[first + a, size * LANES :], T[a * (a + 1) // 2 * LANES :]
            for n in range((a + 1) * LANES):
                totals[n] -= weights[n] * products[n]


@serial
def find_lanes(stack, batch, rows, groups):
    """Fills ``rows`` and ``groups`` with those of a batch; returns whether groups have changed."""
    changed = False
    for lane in range(LANES):
        rows[lane] = min(batch * LANES + lane, len(stack.weight) - 1)
        group = stack.group[rows[lane]]
        changed |= group != groups[lane]
        groups[lane] = group
    return changed


@serial
def gather(values, groups, out):
    """Fills the flat ``out`` with the values of the group of each lane."""
    for cell in range(values.shape[1]):
        for lane in range(LANES):
            out[cell * LANES + lane] = values[groups[lane], cell]


@serial
def fill_stack(stack, batch, rows, precision, Q, size):
    """Fills Q with the precisions of a batch, and its row ``size`` with the linear terms.

    ``precision`` is flat, as the sums of the batch are: triangles row by row, all lanes of a cell.
    """
    A, w, flat, width = stack.sums[batch], np.empty(LANES), Q.reshape(-1), Q.shape[1]
    for lane in range(LANES):
        w[lane] = stack.weight[rows[lane]]
        for a in range(size):
            Q[size, a, lane] = stack.linear[rows[lane], a]
    for a in range(size):
        cell = a * (a + 1) // 2
        add_lanes(flat, a * width, precision, cell, A, cell, w, a + 1)
    cell = size * (size + 1) // 2
    add_lanes(flat, size * width, flat, size * width, A, cell, w, size)


@serial
def store_errors(A, x, slopes, rows, errors, size):
    """Stores x'A x - 2 x'h + the sum of squared targets, of each row of a batch.

    A, with h as its last row, is flat as that of ``fill_stack``; so are x and ``slopes``.
    """
    twice, last = np.empty(LANES), size * (size + 1) // 2
    for a in range(size):
        cell = a * (a + 1) // 2
        for lane in range(LANES):
            n = a * LANES + lane
            slopes[n] = A[cell * LANES + n] * x[n] - 2.0 * A[last * LANES + n]
            twice[lane] = 2.0 * x[n]
        add_lanes(slopes, 0, slopes, 0, A, cell, twice, a)
    for lane in range(LANES):
        total = A[(last + size) * LANES + lane]
        for a in range(size):
            total += x[a * LANES + lane] * slopes[a * LANES + lane]
        errors[rows[lane]] = max(total, 0.0)
