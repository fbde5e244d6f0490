"""Draw every row of one side given the other: Gram matrix, Cholesky factor, solve, draw.

Rows go eight at a time, so that the small factorisations run side by side in the lanes of a
vector. A row's arithmetic and its draws do not depend on the others in its batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from bayesmf.kernels import LANES, parallel, serial
from bayesmf.kernels.gram import PANEL, add_covariances, gram
from bayesmf.kernels.lanes import cholesky, inverse, solve_and_draw
from bayesmf.kernels.philox import fill_normal

TASK = 8  # batches that share their scratch memory
NO_ROWS = np.empty((0, 0))


class Observed(NamedTuple):
    """The ratings of one side as a kernel sees them."""

    starts: Any
    index: Any
    values: Any
    mean: float
    order: Any  # rows of similar length side by side, -1 where a batch is not full
    first: int = 0  # the number, among all rows of the side, of the first that is here


class Known(NamedTuple):
    """What is known of the other side: its rows, and their covariances if they are moments."""

    x: Any
    root: Any  # square roots of the rows' noise precisions
    cov: Any  # lower triangles row by row; no rows if x is a point


class Prior(NamedTuple):
    """Row i ~ N(mean, fixed + spread_i scaled), given by precision and linear term.

    ``own`` and ``own_linear``, if they have rows, are added to those: what is known beforehand of
    each row by itself.
    """

    fixed: Any
    scaled: Any
    linear_fixed: Any  # fixed @ mean
    linear_scaled: Any  # scaled @ mean
    spread: Any
    offset: Any  # added to the mean of row i under ``scaled``; no rows if there is none
    offset_cov: Any  # its covariance, if it is known in moments
    own: Any = NO_ROWS  # lower triangles row by row
    own_linear: Any = NO_ROWS


def batches(counts: Any) -> Any:
    """Rows sorted by length in batches of eight, batches dealt so that any cut is balanced."""
    rows = np.argsort(counts, kind="stable")[::-1]
    size = -(-len(rows) // LANES)
    padded = np.full(size * LANES, -1, np.int64)
    padded[: len(rows)] = rows
    stride = next(s for s in range(max(int(size * 0.618), 1), 2 * size + 2) if np.gcd(s, size) == 1)
    return padded.reshape(size, LANES)[(np.arange(size) * stride) % size]


@serial
def add_fitted(A, h, x, squares, size):
    """squares += x'A x - 2 x'h: the squared error, from the sum of squared targets."""
    for a in range(size):
        for lane in range(LANES):
            squares[lane] += x[a, lane] * (A[a, a, lane] * x[a, lane] - 2.0 * h[a, lane])
        for b in range(a):
            for lane in range(LANES):
                squares[lane] += 2.0 * x[a, lane] * A[a, b, lane] * x[b, lane]


@serial
def add_spread(A, C, squares, size):
    """squares += tr(A C): what a row's covariance adds to its mean squared error."""
    cell = 0
    for a in range(size):
        for b in range(a + 1):
            twice = 1.0 if a == b else 2.0
            for lane in range(LANES):
                squares[lane] += twice * A[a, b, lane] * C[cell, lane]
            cell += 1


@parallel
def draw_rows(observed, known, weight, prior, place, sample, out, errors, covs, logdets, width):
    """For each row i, x_i = (bias_i, S_i) from its conditional, or its mean if not ``sample``.

    precision  fixed + spread_i scaled + own_i + weight_i A_i
    linear     linear_fixed + spread_i (linear_scaled + scaled offset_i) + own_linear_i
               + weight_i h_i

    with (A_i, h_i) from ``gram``, and from ``add_covariances`` if the other side is moments. Arrays
    that have rows receive more: ``errors`` sum_j w_j (r_ij - fitted)^2, or its mean; ``covs`` the
    covariance apart from the offset's, and ``logdets`` its log determinant.
    """
    columns = len(width)
    size = prior.fixed.shape[0]
    cells = size * (size + 1) // 2
    count = observed.order.shape[0]
    moments = len(known.cov) > 0
    for task in prange(-(-count // TASK)):
        panel = np.empty((PANEL, columns))
        sums = np.empty((columns, columns))
        A = np.empty((size, size, LANES))
        h = np.empty((size, LANES))
        squares = np.empty(LANES)
        Q = np.empty((size, size, LANES))
        R = np.empty((size, size, LANES))
        C = np.empty((cells, LANES))
        scratch = np.empty(cells)
        x = np.empty((size, LANES))
        noise = np.zeros((size, LANES))
        draws = np.empty(size)  # also scratch
        for batch in range(task * TASK, min((task + 1) * TASK, count)):
            for lane in range(LANES):
                row = observed.order[batch, lane]
                if row < 0:
                    row = observed.order[batch, 0]  # an idle lane repeats the first
                gram(observed, row, known.x, known.root, panel, sums, width)
                if moments:
                    add_covariances(observed, row, known.root, known.cov, scratch, sums, size)
                w, s = weight[row], prior.spread[row]
                for a in range(size):
                    linear = sums[columns - 1, a]
                    x[a, lane] = prior.linear_fixed[a] + s * prior.linear_scaled[a] + w * linear
                    for b in range(a + 1):
                        Q[a, b, lane] = prior.fixed[a, b] + s * prior.scaled[a, b] + w * sums[a, b]
                if len(prior.own):
                    cell = 0
                    for a in range(size):
                        x[a, lane] += prior.own_linear[row, a]
                        for b in range(a + 1):
                            Q[a, b, lane] += prior.own[row, cell]
                            cell += 1
                if len(prior.offset):
                    draws[:] = 0.0
                    for b in range(size):
                        for a in range(size):
                            draws[a] += prior.scaled[b, a] * prior.offset[row, b]
                    for a in range(size):
                        x[a, lane] += s * draws[a]
                if sample:
                    fill_normal(place, observed.first + row, draws)
                    for a in range(size):
                        noise[a, lane] = draws[a]
                if len(errors):
                    squares[lane] = sums[columns - 1, columns - 1]
                    for a in range(size):
                        h[a, lane] = sums[columns - 1, a]
                        for b in range(a + 1):
                            A[a, b, lane] = sums[a, b]
            cholesky(Q, size)
            solve_and_draw(Q, x, noise, size)
            if len(errors):
                add_fitted(A, h, x, squares, size)
            if len(covs):
                inverse(Q, R, C, size)
                for lane in range(LANES):
                    row = observed.order[batch, lane]
                    if row >= 0:
                        total = 0.0
                        for a in range(size):
                            total -= 2.0 * np.log(Q[a, a, lane])
                        logdets[row] = total
                        for cell in range(cells):
                            covs[row, cell] = C[cell, lane]
                            if len(prior.offset_cov):
                                C[cell, lane] += prior.offset_cov[row, cell]
                if moments and len(errors):
                    add_spread(A, C, squares, size)
            for lane in range(LANES):
                row = observed.order[batch, lane]
                if row >= 0:
                    for a in range(size):
                        out[row, a] = x[a, lane]
                    if len(errors):
                        errors[row] = max(squares[lane], 0.0)
