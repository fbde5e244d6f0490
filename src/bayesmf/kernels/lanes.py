"""Cholesky factors and solutions of eight small systems side by side, one in each lane.

Matrices are (row, column, lane). The inner loop, a dot product of two rows in every lane, is
written in LLVM's language, four rows at a time, so that its sums stay in registers.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bayesmf.machine import LANES, serial

ROWS = 4


def _subtract_products(count: int):
    """Q[i + r, n, :] -= sum over k < n of Q[i + r, k, :] Q[j, k, :], for r < count."""

    @intrinsic
    def subtract(typingctx, Q, i, j, n):
        signature = types.void(Q, types.intp, types.intp, types.intp)

        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            i, j, n = args[1:]
            width = builder.extract_value(array.shape, 1)
            vector = ir.VectorType(ir.DoubleType(), LANES)

            def place(row, column):
                cell = builder.add(builder.mul(row, width), column)
                at = builder.mul(cell, ir.Constant(cell.type, LANES))
                pointer = builder.gep(array.data, [at], inbounds=True)
                return builder.bitcast(pointer, vector.as_pointer())

            rows = [builder.add(i, ir.Constant(i.type, r)) for r in range(count)]
            sums = [cgutils.alloca_once(builder, vector) for _ in rows]
            for row, total in zip(rows, sums, strict=True):
                builder.store(builder.load(place(row, n), align=8), total)
            with cgutils.for_range(builder, n) as loop:
                shared = builder.load(place(j, loop.index), align=8)
                for row, total in zip(rows, sums, strict=True):
                    own = builder.load(place(row, loop.index), align=8)
                    product = builder.fmul(own, shared, flags=("contract",))
                    left = builder.fsub(builder.load(total), product, flags=("contract",))
                    builder.store(left, total)
            for row, total in zip(rows, sums, strict=True):
                builder.store(builder.load(total), place(row, n), align=8)
            return context.get_dummy_value()

        return signature, codegen

    return subtract


_subtract_4 = _subtract_products(ROWS)
_subtract_1 = _subtract_products(1)


@serial
def cholesky(Q, size):
    """Lower factors in place: Q[a, b, lane], b <= a."""
    inverse = np.empty(LANES)
    for j in range(size):
        i = j
        while i + ROWS <= size:
            _subtract_4(Q, i, j, j)
            i += ROWS
        while i < size:
            _subtract_1(Q, i, j, j)
            i += 1
        for lane in range(LANES):
            Q[j, j, lane] = np.sqrt(Q[j, j, lane])
            inverse[lane] = 1.0 / Q[j, j, lane]
        for i in range(j + 1, size):
            for lane in range(LANES):
                Q[i, j, lane] *= inverse[lane]


@serial
def solve_and_draw(Q, x, noise, size):
    """x becomes Q^-1 x + L^-T noise, where Q = L L' and L is given: the mean, plus a draw."""
    for i in range(size):
        for k in range(i):
            for lane in range(LANES):
                x[i, lane] -= Q[i, k, lane] * x[k, lane]
        for lane in range(LANES):
            x[i, lane] /= Q[i, i, lane]
    for i in range(size):
        for lane in range(LANES):
            x[i, lane] += noise[i, lane]
    for i in range(size - 1, -1, -1):
        for lane in range(LANES):
            x[i, lane] /= Q[i, i, lane]
        for k in range(i):
            for lane in range(LANES):
                x[k, lane] -= Q[i, k, lane] * x[i, lane]


@serial
def inverse(Q, R, out, size):
    """out = (L L')^-1, its lower triangles row by row, given L in Q.

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
