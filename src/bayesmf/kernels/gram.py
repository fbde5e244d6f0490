"""The inner loop of everything: A += Z'Z for a small panel Z, at the speed of a matrix product.

LLVM does not keep a block of sums in registers on its own, so the block is written out in its
language: MR rows of A by up to NB vectors of W columns stay in registers while the panel's rows
stream past. Only blocks on or below the diagonal are computed.
"""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bayesmf.kernels import LANES, serial

PANEL = 64  # rows gathered at a time: with 24 columns, 12 kB, well within the first cache
WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))
W, MR, NB = (8, 8, 3) if WIDE else (4, 4, 3)  # 24 sums of 8 in 32 registers, or 12 of 4 in 16


def padded(columns: int) -> int:
    """Columns of a panel: a whole number of lanes."""
    return -(-columns // LANES) * LANES


@intrinsic
def _add_products(typingctx, panel, rows, sums, width):
    """sums[a, b] += sum over k < rows of panel[k, a] panel[k, b], for b's block <= a's block."""
    columns = len(width)
    signature = types.void(panel, types.intp, sums, width)

    def codegen(context, builder, signature, args):
        panel_type, _, sums_type, _ = signature.args
        z = context.make_array(panel_type)(context, builder, args[0]).data
        a = context.make_array(sums_type)(context, builder, args[2]).data
        tile = _Tile(builder, z, args[1], a, columns)
        for block in range(columns // MR):
            vectors = -(-(block + 1) * MR // W)
            for first in range(0, vectors, NB):
                tile.emit(block, range(first, min(first + NB, vectors)))
        return context.get_dummy_value()

    return signature, codegen


class _Tile:
    """Code for one block of sums: load it, add the products of every panel row, store it."""

    def __init__(self, builder, panel, rows, sums, columns) -> None:
        self.builder, self.panel, self.rows, self.sums = builder, panel, rows, sums
        self.columns, self.index = columns, rows.type
        self.vector = ir.VectorType(ir.DoubleType(), W)

    def number(self, value: int) -> ir.Constant:
        return ir.Constant(self.index, value)

    def place(self, base, offset, vector: bool):
        pointer = self.builder.gep(base, [offset], inbounds=True)
        return self.builder.bitcast(pointer, self.vector.as_pointer()) if vector else pointer

    def emit(self, block: int, vectors: range) -> None:
        build = self.builder
        places = [
            self.place(self.sums, self.number((block * MR + a) * self.columns + v * W), True)
            for a in range(MR)
            for v in vectors
        ]
        start = [build.load(place, align=8) for place in places]
        totals = [cgutils.alloca_once(build, self.vector) for _ in start]
        for total, value in zip(totals, start, strict=True):
            build.store(value, total)
        with cgutils.for_range(build, self.rows) as loop:
            base = build.mul(loop.index, self.number(self.columns))
            row = [
                build.load(
                    self.place(self.panel, build.add(base, self.number(v * W)), True), align=8
                )
                for v in vectors
            ]
            for a in range(MR):
                at = build.add(base, self.number(block * MR + a))
                one = build.load(self.place(self.panel, at, False), align=8)
                factor = everywhere(build, one, self.vector)
                for n, values in enumerate(row):
                    total = totals[a * len(row) + n]
                    product = build.fmul(factor, values, flags=("contract",))
                    added = build.fadd(build.load(total), product, flags=("contract",))
                    build.store(added, total)
        for total, place in zip(totals, places, strict=True):
            build.store(build.load(total), place, align=8)


def everywhere(builder, value, vector):
    """The vector that holds ``value`` in every place."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, empty, same)


@serial
def gram(observed, row, other, root, panel, sums, width):
    """A = sum over j rated by ``row`` of w_j z_j z_j', z_j = (1, T_j, r_j - mean - bias_j).

    ``other`` holds (bias_j, T_j) and zeros up to the panel's width, ``root`` the square roots of
    the weights. The target stands in the last column, so the last row of A is the linear term.
    """
    columns = len(width)
    for a in range(columns):
        for b in range(columns):
            sums[a, b] = 0.0
    start, end = observed.starts[row], observed.starts[row + 1]
    while start < end:
        rows = min(np.int64(PANEL), end - start)
        for k in range(rows):
            j = observed.index[start + k]
            w = root[j]
            for b in range(columns):
                panel[k, b] = w * other[j, b]
            panel[k, 0] = w
            panel[k, columns - 1] = w * (observed.values[start + k] - observed.mean - other[j, 0])
        _add_products(panel, rows, sums, width)  # type: ignore[call-arg]
        start += rows


@serial
def add_covariances(observed, row, root, cov, scratch, sums, size):
    """A += sum over j rated by ``row`` of w_j Cov[z_j], when the other side is known in moments.

    ``cov`` holds the lower triangle of Cov[(bias_j, T_j)] row by row; in the target r_j - bias_j
    the bias stands with a minus.
    """
    last = sums.shape[0] - 1
    scratch[:] = 0.0
    for p in range(observed.starts[row], observed.starts[row + 1]):
        j = observed.index[p]
        w = root[j] * root[j]
        for k in range(len(scratch)):
            scratch[k] += w * cov[j, k]
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
