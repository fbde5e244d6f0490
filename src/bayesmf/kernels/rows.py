"""Draws every row of one side given the other: Gram matrix, Cholesky factor, solve, draw.

Rows go eight at a time, so that the small factorisations run side by side in the lanes of a
vector. A row's arithmetic and its draws do not depend on the others in its batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from bayesmf.kernels.designs import NO_VALUES, solve_one, squared_error
from bayesmf.kernels.gram import add_covariances, gram
from bayesmf.kernels.inner import parallel, serial, step_back
from bayesmf.kernels.lanes import (
    FOUR,
    cholesky,
    fill_stack,
    find_lanes,
    gather,
    inverse,
    invert,
    solve_and_draw,
    solve_row,
    store_errors,
    times_inverse,
    trace_inverse,
)
from bayesmf.machine import LANES, aligned
from bayesmf.random.philox import fill_lanes, fill_normal, lane_scratch

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
    weights: Any = NO_VALUES  # float64, the weight of each rating; of length 0 if all are 1


class OtherSide(NamedTuple):
    """The rows of the other side as a kernel sees them, with covariances if they are moments."""

    z: Any  # (1, T_j) times the root of j's precision, zeros, and the bias in the last column
    cov: Any  # lower triangles row by row; no rows if T_j is a point

    @classmethod
    def of(cls, x: Any, alpha: Any, cov: Any) -> OtherSide:
        """Makes them from rows (bias, T), with zeros up to their width, and noise precisions."""
        root = np.sqrt(alpha)
        z = np.multiply(root[:, None], x, out=aligned(x.shape))
        z[:, 0], z[:, -1] = root, x[:, 0]
        return cls(z, cov)


class Prior(NamedTuple):
    """Row i ~ N(mean, fixed + spread_i scaled), given by precision and linear term.

    ``own`` and ``own_linear``, if they have rows, are priors of each row by itself, added to those.
    """

    fixed: Any
    scaled: Any
    linear_fixed: Any  # fixed @ mean
    linear_scaled: Any  # scaled @ mean
    spread: Any
    offset: Any  # added to the mean of row i under ``scaled``; no rows if there is none
    offset_cov: Any  # its covariance, if it is given by moments
    own: Any = NO_ROWS  # lower triangles row by row
    own_linear: Any = NO_ROWS


def batches(counts: Any) -> Any:
    """Returns rows sorted by length in batches of eight, dealt so that any cut is balanced."""
    rows = np.argsort(counts, kind="stable")[::-1]
    size = -(-len(rows) // LANES)
    padded = np.full(size * LANES, -1, np.int64)
    padded[: len(rows)] = rows
    stride = next(s for s in range(max(int(size * 0.618), 1), 2 * size + 2) if np.gcd(s, size) == 1)
    return padded.reshape(size, LANES)[(np.arange(size) * stride) % size]


@serial
def add_fitted(A, h, x, squares, size):
    """Adds x'A x - 2 x'h to sums of squared targets, which makes them squared errors."""
    for a in range(size):
        for lane in range(LANES):
            squares[lane] += x[a, lane] * (A[a, a, lane] * x[a, lane] - 2.0 * h[a, lane])
        for b in range(a):
            for lane in range(LANES):
                squares[lane] += 2.0 * x[a, lane] * A[a, b, lane] * x[b, lane]


@serial
def add_trace(A, C, squares, size):
    """Adds tr(A C), a row's part in its mean squared error, to ``squares``."""
    cell = 0
    for a in range(size):
        for b in range(a + 1):
            twice = 1.0 if a == b else 2.0
            for lane in range(LANES):
                squares[lane] += twice * A[a, b, lane] * C[cell, lane]
            cell += 1


@serial
def sum_ratings(observed, other, batch, rows, scratch, sums, width, size):
    """Fills ``rows`` with those of a batch and ``sums`` with their sums over ratings.

    An idle lane repeats the first row.
    """
    for lane in range(LANES):
        row = observed.order[batch, lane]
        rows[lane] = row if row >= 0 else observed.order[batch, 0]
        gram(observed, rows[lane], other.z, sums[lane], width)
        if len(other.cov):
            add_covariances(observed, rows[lane], other, scratch, sums[lane], size)


@serial
def fill(sums, rows, weight, prior, Q, x, size):
    """Fills Q and x with the rows' precisions and linear terms, from their sums and the prior."""
    last = sums.shape[1] - 1
    w, s = np.empty(LANES), np.empty(LANES)
    for lane in range(LANES):
        w[lane], s[lane] = weight[rows[lane]], prior.spread[rows[lane]]
    for a in range(size):
        fixed, scaled = prior.linear_fixed[a], prior.linear_scaled[a]
        for lane in range(LANES):
            x[a, lane] = fixed + s[lane] * scaled + w[lane] * sums[lane, last, a]
        for b in range(a + 1):
            fixed, scaled = prior.fixed[a, b], prior.scaled[a, b]
            for lane in range(LANES):
                Q[a, b, lane] = fixed + s[lane] * scaled + w[lane] * sums[lane, a, b]


@serial
def add_own_priors(prior, rows, Q, x, size):
    """Adds the priors that rows have by themselves."""
    for lane in range(LANES):
        row = rows[lane]
        cell = 0
        for a in range(size):
            x[a, lane] += prior.own_linear[row, a]
            for b in range(a + 1):
                Q[a, b, lane] += prior.own[row, cell]
                cell += 1


@serial
def add_offsets(prior, rows, scratch, x, size):
    """Adds spread_i scaled offset_i, the linear term of an offset, to x_i."""
    for lane in range(LANES):
        row = rows[lane]
        scratch[:] = 0.0
        for b in range(size):
            for a in range(size):
                scratch[a] += prior.scaled[b, a] * prior.offset[row, b]
        for a in range(size):
            x[a, lane] += prior.spread[row] * scratch[a]


@serial
def fill_normals(counter, first, rows, scratch, normals):
    """Fills ``normals`` with those of the rows, side by side."""
    for lane in range(LANES):
        fill_normal(counter, first + rows[lane], scratch)
        for a in range(len(scratch)):
            normals[a, lane] = scratch[a]


@serial
def copy_sums(sums, A, h, squares, size):
    """Copies A, h and the sums of squared targets, side by side."""
    last = sums.shape[1] - 1
    for lane in range(LANES):
        squares[lane] = sums[lane, last, last]
    for a in range(size):
        for lane in range(LANES):
            h[a, lane] = sums[lane, last, a]
        for b in range(a + 1):
            for lane in range(LANES):
                A[a, b, lane] = sums[lane, a, b]


@serial
def store_covariances(rows, Q, offset_cov, C, covs, logdets, size):
    """Stores C and its log determinant, and then adds the offset's covariance to C."""
    for lane in range(LANES):
        row = rows[lane]
        if row >= 0:
            total = 0.0
            for a in range(size):
                total -= 2.0 * np.log(Q[a, a, lane])
            logdets[row] = total
            for cell in range(len(C)):
                covs[row, cell] = C[cell, lane]
                if len(offset_cov):
                    C[cell, lane] += offset_cov[row, cell]


@serial
def store_rows(rows, x, squares, out, errors, size):
    """Stores the rows of a batch, and their squared errors if ``errors`` has rows."""
    for lane in range(LANES):
        row = rows[lane]
        if row >= 0:
            for a in range(size):
                out[row, a] = x[a, lane]
            if len(errors):
                errors[row] = max(squares[lane], 0.0)


@parallel
def draw_rows(observed, other, weight, prior, counter, sample, out, errors, covs, logdets, width):
    """Draws every x_i = (bias_i, S_i) from its conditional, or takes its mean if not ``sample``.

    precision  fixed + spread_i scaled + own_i + weight_i A_i
    linear     linear_fixed + spread_i (linear_scaled + scaled offset_i) + own_linear_i
               + weight_i h_i

    with (A_i, h_i) from ``gram``, and from ``add_covariances`` if the other side is moments. Arrays
    that have rows receive more: ``errors`` sum_j w_j (r_ij - fitted)^2, or its mean; ``covs`` the
    covariance apart from the offset's, and ``logdets`` its log determinant.
    """
    columns = LANES * len(width)
    size = prior.fixed.shape[0]
    cells = size * (size + 1) // 2
    count = observed.order.shape[0]
    for task in prange(-(-count // TASK)):
        sums = np.empty((LANES, columns, columns))
        A, h, squares = np.empty((size, size, LANES)), np.empty((size, LANES)), np.empty(LANES)
        Q, x = np.empty((size, size, LANES)), np.empty((size, LANES))
        R, C = np.empty((size, size, LANES)), np.empty((cells, LANES))
        normals = np.zeros((size, LANES))
        of_cells, of_row = np.empty(cells), np.empty(size)  # scratch
        rows = np.empty(LANES, np.int64)
        for batch in range(task * TASK, min((task + 1) * TASK, count)):
            sum_ratings(observed, other, batch, rows, of_cells, sums, width, size)
            fill(sums, rows, weight, prior, Q, x, size)
            if len(prior.own):
                add_own_priors(prior, rows, Q, x, size)
            if len(prior.offset):
                add_offsets(prior, rows, of_row, x, size)
            if sample:
                fill_normals(counter, observed.first, rows, of_row, normals)
            if len(errors):
                copy_sums(sums, A, h, squares, size)
            cholesky(Q, size)
            solve_and_draw(Q, x, normals, size)
            if len(errors):
                add_fitted(A, h, x, squares, size)
            if len(covs):
                inverse(Q, R, C, size)
                store_covariances(
                    observed.order[batch], Q, prior.offset_cov, C, covs, logdets, size
                )
                if len(other.cov) and len(errors):
                    add_trace(A, C, squares, size)
            store_rows(observed.order[batch], x, squares, out, errors, size)


@parallel
def pack_grams(observed, other, size, width, out):
    """Fills ``out`` with the matrix of ``gram`` of every row: lower triangles without its zeros."""
    columns = LANES * len(width)
    for i in prange(out.shape[0]):
        A = np.empty((columns, columns))
        gram(observed, i, other.z, A, width)
        cell = 0
        for a in range(size + 1):
            row = a if a < size else columns - 1
            for b in range(a + 1):
                column = b if b < size else columns - 1
                out[i, cell] = A[row, column]
                cell += 1


@parallel
def draw_from_grams(grams, weight, prior, counter, out, errors):
    """Draws rows as ``draw_rows`` does, from (A_i, h_i) summed before and without offsets.

    precision  fixed + spread_i scaled + weight_i A_i
    linear     linear_fixed + spread_i linear_scaled + weight_i h_i

    ``errors`` receives sum_j w_j (r_ij - fitted)^2, from the same sums.
    """
    size = prior.fixed.shape[0]
    for i in prange(out.shape[0]):
        A = np.empty((size + 1, size + 1))
        Q = np.empty((size, size))
        normals = np.empty(size)
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
        fill_normal(counter, i, normals)
        solve_one(Q, out[i], normals, size)
        errors[i] = squared_error(A, out[i], out[i, :0], size)


class Stack(NamedTuple):
    """Rows of several draws, draw after draw; row s has the random numbers of row s % rows of the
    chain s // rows after that of a counter.

    Their prior is given by precision and linear term; rows of one group share a precision.
    """

    sums: Any  # of each batch: from ``pack_lanes``
    weight: Any  # of the sums of each row
    linear: Any  # of each row
    group: Any  # of each row
    precision: Any  # lower triangles row by row, of each group
    rows: int  # of one chain


@parallel
def pack_lanes(observed, z, size, width, out):
    """Fills out[batch] with the matrices of ``gram`` of rows 8 batch to 8 batch + 7.

    They are lower triangles row by row without zeros, all lanes of a cell side by side. An idle
    lane repeats the last row.
    """
    columns, last = LANES * len(width), len(observed.starts) - 2
    for task in prange(-(-out.shape[0] // TASK)):
        A = np.empty((LANES, columns, columns))
        for batch in range(task * TASK, min((task + 1) * TASK, out.shape[0])):
            for lane in range(LANES):
                gram(observed, min(batch * LANES + lane, last), z, A[lane], width)
            cell = 0
            for a in range(size + 1):
                row = a if a < size else columns - 1
                for b in range(a + 1):
                    column = b if b < size else columns - 1
                    for lane in range(LANES):
                        out[batch, cell + lane] = A[lane, row, column]
                    cell += LANES


@parallel
def draw_stack(stack, counter, errors):
    """Draws the rows of a stack, and fills ``errors`` with sum_j w_j (r_ij - fitted)^2.

    precision  that of the group + weight_s A_s
    linear     linear_s + weight_s h_s

    with (A_s, h_s) from ``gram``. Draw k has the random numbers of the chain of ``counter`` and k
    more.
    """
    size, count = stack.linear.shape[1], stack.sums.shape[0]
    cells = size * (size + 1) // 2
    for task in prange(-(-count // TASK)):
        Q, normals = np.empty((size + 1, size, LANES)), np.empty((size, LANES))
        precision, slopes = np.empty(cells * LANES), np.empty(size * LANES)
        rows, groups, scratch = np.empty(LANES, np.int64), np.full(LANES, -1), lane_scratch(size)
        for batch in range(task * TASK, min((task + 1) * TASK, count)):
            if find_lanes(stack, batch, rows, groups):
                gather(stack.precision, groups, precision)
            fill_stack(stack, batch, rows, precision, Q, size)
            fill_lanes(counter, rows, stack.rows, scratch, normals)
            cholesky(Q, size)
            solve_row(Q, size, size)
            x, shift = Q[size].reshape(-1), normals.reshape(-1)
            for n in range(size * LANES):
                x[n] += shift[n]
            for i in range(size - 1, -1, -1):
                step_back(Q, i, size)
            store_errors(stack.sums[batch], x, slopes, rows, errors, size)


@parallel
def settle_stack(stack, counter, traces, mean, noise, newness):
    """Fills in the means of the rows of ``draw_stack``, and what a draw adds to each as its noise.

    ``newness`` receives tr(T C_s), with C_s the covariance of row s, and T in ``traces`` for each
    group: lower triangles, with twice what is beside the diagonal.
    """
    size, count = stack.linear.shape[1], stack.sums.shape[0]
    cells, first = size * (size + 1) // 2, size + 2
    for task in prange(-(-count // TASK)):
        # L; the linear term; the normals; L^-T and, beside it, products of its rows
        Q = np.empty((first + FOUR * -(-size // FOUR), 2 * size + 2, LANES))
        precision, T, totals = (
            np.empty(cells * LANES),
            np.empty(cells * LANES),
            np.empty(size * LANES),
        )
        rows, groups, scratch = np.empty(LANES, np.int64), np.full(LANES, -1), lane_scratch(size)
        for batch in range(task * TASK, min((task + 1) * TASK, count)):
            if find_lanes(stack, batch, rows, groups):
                gather(stack.precision, groups, precision)
                gather(traces, groups, T)
            fill_stack(stack, batch, rows, precision, Q, size)
            fill_lanes(counter, rows, stack.rows, scratch, Q[size + 1, :size])
            cholesky(Q, size)
            solve_row(Q, size, size)
            invert(Q, first, size)
            trace_inverse(Q, first, T, totals, size)
            times_inverse(Q, first, size, 2 * size, size)
            times_inverse(Q, first, size + 1, 2 * size + 1, size)
            for lane in range(LANES):
                newness[rows[lane]] = np.sum(totals[lane::LANES])
                for a in range(size):
                    mean[rows[lane], a] = -Q[first + a, 2 * size, lane]
                    noise[rows[lane], a] = -Q[first + a, 2 * size + 1, lane]
