"""Gram matrices of the other side's rows: A = sum of z z' over the ratings of one row.

Most of a sweep's time is spent here, in ``add_products``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from bayesmf.kernels.inner import add_products, serial
from bayesmf.machine import LANES, parallel

PANEL = 64  # rated rows at a time: with 24 columns, 12 kB, well within the first cache


def padded(columns: int) -> int:
    """Returns how wide a row with its target is stored: a whole number of lanes."""
    return -(-columns // LANES) * LANES


@parallel
def fill_others(x, noise, alpha, rows, z):
    """Fills z with some rows of an ``OtherSide`` in draw after draw, as ``gram`` takes them.

    ``x`` holds (bias, T), ``noise`` what is added to it, no draws if that is nothing, and ``alpha``
    the precisions: (draw, row, ...), of single precision.
    """
    count, size, last = len(rows), x.shape[2], z.shape[1] - 1
    for q in prange(z.shape[0]):
        number = q // count
        j = rows[q - number * count]
        root = np.sqrt(np.float64(alpha[number, j]))
        bias = np.float64(x[number, j, 0])
        if len(noise):
            bias += np.float64(noise[number, j, 0])
            for a in range(1, size):
                z[q, a] = root * (np.float64(x[number, j, a]) + np.float64(noise[number, j, a]))
        else:
            for a in range(1, size):
                z[q, a] = root * np.float64(x[number, j, a])
        for a in range(size, last):
            z[q, a] = 0.0
        z[q, 0], z[q, last] = root, bias


@serial
def gram(observed, row, z, sums, width):
    """Fills ``sums`` with A = sum over the j that ``row`` rated of w_j y_j y_j'.

    y_j = (1, T_j, r_j - mean - bias_j)

    ``z`` holds the rows of an ``OtherSide``. The target stands in the last column, so the last row
    of A is the linear term. If the ratings have weights, w_j has that of the rating as a factor.
    """
    sums[:] = 0.0
    if len(observed.weights):
        add_weighted(observed, row, z, sums, width)
        return
    start, end = observed.starts[row], observed.starts[row + 1]
    while start < end:
        rows = min(np.int64(PANEL), end - start)
        add_products(z, observed.index, observed.values, observed.mean, start, rows, sums, width)
        start += rows


@serial
def add_weighted(observed, row, z, sums, width):
    """Adds A of ratings with weights g_j, from copies of the rated rows times the root of g_j.

    The bias in the last column is no factor of its row, and stays as it is.
    """
    last = LANES * len(width) - 1
    copies, targets, places = np.empty((PANEL, last + 1)), np.empty(PANEL), np.arange(PANEL)
    start, end = observed.starts[row], observed.starts[row + 1]
    while start < end:
        rows = min(np.int64(PANEL), end - start)
        for k in range(rows):
            j, root = observed.index[start + k], np.sqrt(observed.weights[start + k])
            for a in range(last):
                copies[k, a] = root * z[j, a]
            copies[k, last] = z[j, last]
            targets[k] = observed.values[start + k] - observed.mean
        add_products(copies, places, targets, 0.0, 0, rows, sums, width)
        start += rows


@serial
def add_covariances(observed, row, other, scratch, sums, size):
    """Adds sum over the j that ``row`` rated of w_j Cov[y_j], if the other side is moments.

    ``other.cov`` holds the lower triangle of Cov[(bias_j, T_j)] row by row; in the target
    r_j - bias_j the bias stands with a minus.
    """
    last = sums.shape[0] - 1
    scratch[:] = 0.0
    for p in range(observed.starts[row], observed.starts[row + 1]):
        j = observed.index[p]
        w = other.z[j, 0] * other.z[j, 0]
        if len(observed.weights):
            w *= observed.weights[p]
        for k in range(len(scratch)):
            scratch[k] += w * other.cov[j, k]
    k = 0
    for a in range(size):
        for b in range(a + 1):
            if b > 0:
                sums[a, b] += scratch[k]
            elif a > 0:
                sums[last, a] -= scratch[k]
            else:
                sums[last, last] += scratch[k]
            k += 1
