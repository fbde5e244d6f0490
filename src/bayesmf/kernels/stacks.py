"""Draws rows of several draws at once: those of one draw after those of another.

The sums over ratings are made once, and rows are drawn from them as often as it takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from bayesmf.kernels.gram import gram
from bayesmf.kernels.inner import parallel, step_back
from bayesmf.kernels.lanes import (
    FOUR,
    cholesky,
    fill_stack,
    find_lanes,
    gather,
    invert,
    solve_row,
    store_errors,
    times_inverse,
    trace_inverse,
)
from bayesmf.machine import LANES
from bayesmf.random.philox import fill_lanes, lane_scratch

TASK = 8  # batches that share their scratch memory


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
