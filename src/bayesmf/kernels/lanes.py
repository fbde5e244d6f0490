"""Cholesky factors and solutions of eight small systems side by side, one in each lane.

Matrices are (row, column, lane).
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.inner import serial, subtract_1, subtract_4
from bayesmf.machine import LANES


@serial
def cholesky(Q, size):
    """Turns every Q into its lower Cholesky factor, in place: Q[a, b, lane], b <= a."""
    inverse = np.empty(LANES)
    for j in range(size):
        i = j
        while i + 4 <= size:  # four rows share what they read of row j
            subtract_4(Q, i, j, j)
            i += 4
        while i < size:
            subtract_1(Q, i, j, j)
            i += 1
        for lane in range(LANES):
            Q[j, j, lane] = np.sqrt(Q[j, j, lane])
            inverse[lane] = 1.0 / Q[j, j, lane]
        for i in range(j + 1, size):
            for lane in range(LANES):
                Q[i, j, lane] *= inverse[lane]


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
