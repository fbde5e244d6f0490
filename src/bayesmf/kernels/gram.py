"""The inner loop of everything: A += sum of z z' over rated rows, at the speed of a matrix product.

LLVM does not keep a block of sums in registers on its own, so the block is written out in its
language: MR rows of A by up to NB vectors of W columns stay in registers while the rated rows
stream past, each read where it lies. Only blocks on or below the diagonal are computed.
"""

from __future__ import annotations

from functools import partial

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from bayesmf.machine import LANES, serial

PANEL = 64  # rated rows at a time: with 24 columns, 12 kB, well within the first cache
AHEAD, LINE = 8, 8  # rows between asking for one and its turn; numbers in a cache line
WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))
W, MR, NB = (8, 8, 3) if WIDE else (4, 4, 3)  # 24 sums of 8 in 32 registers, or 12 of 4 in 16


def padded(columns: int) -> int:
    """Columns of a row with the target: a whole number of lanes."""
    return -(-columns // LANES) * LANES


@intrinsic
def _add_products(typingctx, z, index, values, mean, first, rows, sums, width):
    """sums[a, b] += sum over ``rows`` ratings k of y_ka y_kb, for b's block <= a's block.

    k runs from ``first`` on; y_k is z[index[k]], but for the target z_0 (values[k] - mean - z_last)
    in its last column.
    """
    columns = len(width)
    if any(array.layout != "C" for array in (z, index, values, sums)):
        raise TypingError("rows lie side by side here")
    signature = types.void(z, index, values, types.float64, types.intp, types.intp, sums, width)

    def codegen(context, builder, signature, args):
        arrays = [context.make_array(t)(context, builder, v).data if isinstance(t, types.Array)
                  else v for t, v in zip(signature.args, args, strict=True)][:-1]  # fmt: skip
        for number, tiles in enumerate(in_passes(columns)):
            # a function of its own: in the caller's, the sums of all passes compete for registers
            called = ir.Function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [value.type for value in arrays]),
                f"{builder.function.name}.products.{columns}.{number}",
            )
            called.linkage = "internal"
            called.attributes.add("noinline")
            body = ir.IRBuilder(called.append_basic_block())
            _Pass(context, body, signature, called.args, columns).emit(tiles)
            body.ret_void()
            builder.call(called, arrays)
        return context.get_dummy_value()

    return signature, codegen


def in_passes(columns: int) -> list[list[tuple[int, range]]]:
    """Blocks of sums, each a number of rows and its vectors, as many in a pass as there is room."""
    passes: list[list[tuple[int, range]]] = []
    room = 0
    for block in range(columns // MR):
        vectors = -(-(block + 1) * MR // W)
        for first in range(0, vectors, NB):
            tile = (block, range(first, min(first + NB, vectors)))
            if len(tile[1]) > room:
                passes.append([])
                room = NB
            passes[-1].append(tile)
            room -= len(tile[1])
    return passes


class _Pass:
    """Code of a pass: load its sums, add the products of every rated row, store them."""

    def __init__(self, context, builder, signature, args, columns) -> None:
        self.context, self.builder, self.types, self.columns = context, builder, signature, columns
        self.args = args
        self.z, _, _, self.mean, self.first, self.rows, self.sums = args
        self.vector = ir.VectorType(ir.DoubleType(), W)

    def place(self, base, offset, vector: bool = False):
        pointer = self.builder.gep(base, [offset], inbounds=True)
        return self.builder.bitcast(pointer, self.vector.as_pointer()) if vector else pointer

    def entry(self, argument: int, k, kind):
        """Number ``k`` of an array among the arguments, as the kind of number asked for."""
        value = self.builder.load(self.place(self.args[argument], k))
        return self.context.cast(self.builder, value, self.types.args[argument].dtype, kind)

    def rated(self, k):
        """Where the row of the k-th rating begins in z."""
        row = self.entry(1, k, types.intp)
        return self.builder.mul(row, ir.Constant(row.type, self.columns))

    def prefetch(self, base):
        """Ask for a row of z, cache line by cache line."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = self.builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for line in range(0, self.columns, LINE):
            at = self.place(self.z, self.builder.add(base, ir.Constant(base.type, line)))
            asked = [self.builder.bitcast(at, byte), number(0), number(3), number(1)]
            self.builder.call(call, asked)  # to read, into the first cache, as data

    def emit(self, tiles) -> None:
        build = self.builder
        number = partial(ir.Constant, self.first.type)
        last = self.columns - 1
        places = {
            (block * MR + a, v): self.place(
                self.sums, number((block * MR + a) * self.columns + v * W), True
            )
            for block, vectors in tiles
            for a in range(MR)
            for v in vectors
        }
        totals = {}
        for key, place in places.items():
            totals[key] = cgutils.alloca_once(build, self.vector)
            build.store(build.load(place, align=8), totals[key])
        end = build.add(self.first, self.rows)
        with cgutils.for_range_slice(build, self.first, end, number(1)) as (k, _):
            base = self.rated(k)
            if tiles[0][0] == 0:  # the pass that meets a row first
                ahead = build.add(k, number(AHEAD))
                ahead = build.select(build.icmp_signed("<", ahead, end), ahead, k)
                self.prefetch(self.rated(ahead))

            def load(column, vector=False, base=base):
                at = build.add(base, number(column))
                return build.load(self.place(self.z, at, vector), align=8)

            rows = {v: load(v * W, True) for v in sorted({v for _, v in places})}
            if any(a == last for a, _ in places):
                rating = build.fsub(self.entry(2, k, types.float64), self.mean)
                off = build.fsub(rating, load(last))
                target = build.fmul(load(0), off)
                if last // W in rows:
                    lane = ir.Constant(ir.IntType(32), last % W)
                    rows[last // W] = build.insert_element(rows[last // W], target, lane)
            for a in sorted({a for a, _ in places}):
                factor = everywhere(build, target if a == last else load(a), self.vector)
                for v in [v for b, v in places if b == a]:
                    product = build.fmul(factor, rows[v], flags=("contract",))
                    total = totals[a, v]
                    build.store(build.fadd(build.load(total), product, flags=("contract",)), total)
        for key, place in places.items():
            build.store(build.load(totals[key]), place, align=8)


def everywhere(builder, value, vector):
    """The vector that holds ``value`` in every place."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, empty, same)


@serial
def gram(observed, row, z, sums, width):
    """A = sum over j rated by ``row`` of w_j y_j y_j', y_j = (1, T_j, r_j - mean - bias_j).

    ``z`` holds the rows of ``Known``. The target stands in the last column, so the last row of A
    is the linear term.
    """
    sums[:] = 0.0
    start, end = observed.starts[row], observed.starts[row + 1]
    while start < end:
        rows = min(np.int64(PANEL), end - start)
        _add_products(  # type: ignore[call-arg]
            z, observed.index, observed.values, observed.mean, start, rows, sums, width
        )
        start += rows


@serial
def add_covariances(observed, row, known, scratch, sums, size):
    """A += sum over j rated by ``row`` of w_j Cov[z_j], when the other side is known in moments.

    ``known.cov`` holds the lower triangle of Cov[(bias_j, T_j)] row by row; in the target
    r_j - bias_j the bias stands with a minus.
    """
    last = sums.shape[0] - 1
    scratch[:] = 0.0
    for p in range(observed.starts[row], observed.starts[row + 1]):
        j = observed.index[p]
        w = known.z[j, 0] * known.z[j, 0]
        for k in range(len(scratch)):
            scratch[k] += w * known.cov[j, k]
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
