"""Many small symmetric matrices at once: inverses, and products with vectors."""

from __future__ import annotations

import numpy as np
from numba import prange

from bayesmf.kernels.inner import parallel
from bayesmf.kernels.lanes import cholesky, inverse
from bayesmf.machine import LANES


@parallel
def pack_scaled(grams, scale, first, size, out):
    """Fills out_i with scale_i times the lower triangle of grams_i from column ``first`` on."""
    for i in prange(len(out)):
        cell = 0
        for a in range(size):
            for b in range(a + 1):
                out[i, cell] = scale[i] * grams[i, first + a, first + b]
                cell += 1


@parallel
def inverses(blocks, prior, first, out, logdet):
    """Fills out_k with (prior + blocks_k)^-1 and its log determinant, eight at a time.

    ``blocks`` are lower triangles; ``out`` holds those of wider matrices, in which the inverse
    begins at row and column ``first``.
    """
    size = prior.shape[0]
    cells = size * (size + 1) // 2
    count = len(blocks)
    for batch in prange(-(-count // LANES)):
        Q = np.empty((size, size, LANES))
        R = np.empty((size, size, LANES))
        C = np.empty((cells, LANES))
        for lane in range(LANES):
            k = min(batch * LANES + lane, count - 1)  # an idle lane repeats the last
            cell = 0
            for a in range(size):
                for b in range(a + 1):
                    Q[a, b, lane] = prior[a, b] + blocks[k, cell]
                    cell += 1
        cholesky(Q, size)
        inverse(Q, R, C, size)
        for lane in range(min(LANES, count - batch * LANES)):
            k = batch * LANES + lane
            total = 0.0
            cell = 0
            for a in range(size):
                total -= 2.0 * np.log(Q[a, a, lane])
                for b in range(a + 1):
                    out[k, (first + a) * (first + a + 1) // 2 + first + b] = C[cell, lane]
                    cell += 1
            logdet[k] = total


@parallel
def triangles_times(triangles, first, v, out):
    """Fills out_k with C_k v_k, where C_k is a wider lower triangle from ``first`` on."""
    size = v.shape[1]
    for k in prange(len(v)):
        for a in range(size):
            out[k, a] = 0.0
        for a in range(size):
            row = (first + a) * (first + a + 1) // 2 + first
            for b in range(a):
                c = triangles[k, row + b]
                out[k, a] += c * v[k, b]
                out[k, b] += c * v[k, a]
            out[k, a] += triangles[k, row + a] * v[k, a]


@parallel
def grams_times(grams, scale, first, v, out):
    """Fills out_i with scale_i A_i v_i, where A_i is grams_i from row and column ``first`` on."""
    size = v.shape[1]
    for i in prange(len(v)):
        for a in range(size):
            out[i, a] = 0.0
        for b in range(size):
            factor = scale[i] * v[i, b]
            for a in range(size):
                out[i, a] += factor * grams[i, first + b, first + a]
