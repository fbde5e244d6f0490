"""Rows drawn from their Gram matrices, when the ratings behind these are elsewhere."""

from __future__ import annotations

import numpy as np
from numba import prange

from bayesmf.kernels import parallel
from bayesmf.kernels.gram import gram
from bayesmf.kernels.philox import fill_normal
from bayesmf.kernels.side import solve_one, squared_error


@parallel
def pack_grams(observed, known, size, width, out):
    """The matrix of ``gram`` for every row, without its zeros: a lower triangle, row by row."""
    columns = len(width)
    for i in prange(out.shape[0]):
        A = np.empty((columns, columns))
        gram(observed, i, known.z, A, width)
        cell = 0
        for a in range(size + 1):
            row = a if a < size else columns - 1
            for b in range(a + 1):
                column = b if b < size else columns - 1
                out[i, cell] = A[row, column]
                cell += 1


@parallel
def draw_from_grams(grams, weight, prior, place, out, errors):
    """``rows.draw_rows`` for rows whose (A_i, h_i) have been summed before, without offsets.

    precision  fixed + spread_i scaled + weight_i A_i
    linear     linear_fixed + spread_i linear_scaled + weight_i h_i

    ``errors`` receive sum_j w_j (r_ij - fitted)^2, from the same sums.
    """
    size = prior.fixed.shape[0]
    for i in prange(out.shape[0]):
        A = np.empty((size + 1, size + 1))
        Q = np.empty((size, size))
        noise = np.empty(size)
        cell = 0
        for a in range(size + 1):
            for b in range(a + 1):
                A[a, b] = grams[i, cell]
                cell += 1
        w, s = weight[i], prior.spread[i]
        for a in range(size):
            out[i, a] = prior.linear_fixed[a] + s * prior.linear_scaled[a] + w * A[size, a]
            for b in range(a + 1):
                Q[a, b] = prior.fixed[a, b] + s * prior.scaled[a, b] + w * A[a, b]
        fill_normal(place, i, noise)
        solve_one(Q, out[i], noise, size)
        errors[i] = squared_error(A, out[i], out[i, :0], size)
