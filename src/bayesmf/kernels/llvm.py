"""The innermost loops in LLVM's language, whose sums stay in registers.

LLVM does not keep a block of sums in registers on its own, so the blocks are written out here.
``plain`` holds the same loops in Numba, and ``inner`` decides which of the two the kernels call.
"""

from __future__ import annotations

from functools import partial

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from bayesmf.machine import LANES, serial

AHEAD, LINE = 8, 8  # rows between asking for one and its turn; numbers in a cache line
WIDE = bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))
W, MR, NB = (8, 8, 3) if WIDE else (4, 4, 3)  # 24 sums of 8 in 32 registers, or 12 of 4 in 16


@intrinsic
def add_products(typingctx, z, index, values, mean, first, rows, sums, width):
    """Adds sum over ``rows`` ratings k of y_ka y_kb to sums[a, b], for b's block <= a's block.

    k runs from ``first`` on; y_k is z[index[k]], but for the target z_0 (values[k] - mean - z_last)
    in its last column.
    """
    columns = LANES * len(width)
    if any(array.layout != "C" for array in (z, index, values, sums)):
        raise TypingError("the rows of a Gram matrix must lie side by side")
    signature = types.void(z, index, values, types.float64, types.intp, types.intp, sums, width)

    def codegen(context, builder, signature, args):
        arrays = [
            context.make_array(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, args, strict=True)
        ][:-1]
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
    """Returns passes over the ratings; a pass has as many blocks of sums as there are registers.

    A block is given by its number and by the vectors of columns that it spans.
    """
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
    """Writes the code of a pass: load its sums, add the products of every rated row, store them."""

    def __init__(self, context, builder, signature, args, columns) -> None:
        self.context, self.builder, self.types, self.columns = context, builder, signature, columns
        self.args = args
        self.z, _, _, self.mean, self.first, self.rows, self.sums = args
        self.vector = ir.VectorType(ir.DoubleType(), W)

    def pointer(self, base, offset, vector: bool = False):
        at = self.builder.gep(base, [offset], inbounds=True)
        return self.builder.bitcast(at, self.vector.as_pointer()) if vector else at

    def entry(self, argument: int, k, kind):
        """Loads entry ``k`` of an array among the arguments, as a number of type ``kind``."""
        value = self.builder.load(self.pointer(self.args[argument], k))
        return self.context.cast(self.builder, value, self.types.args[argument].dtype, kind)

    def rated(self, k):
        """Returns where the row of the k-th rating begins in z."""
        row = self.entry(1, k, types.intp)
        return self.builder.mul(row, ir.Constant(row.type, self.columns))

    def prefetch(self, base):
        """Asks for a row of z, cache line by cache line."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = self.builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for line in range(0, self.columns, LINE):
            at = self.pointer(self.z, self.builder.add(base, ir.Constant(base.type, line)))
            asked = [self.builder.bitcast(at, byte), number(0), number(3), number(1)]
            self.builder.call(call, asked)  # to read, into the first cache, as data

    def emit(self, tiles) -> None:
        build = self.builder
        number = partial(ir.Constant, self.first.type)
        last = self.columns - 1
        pointers = {
            (block * MR + a, v): self.pointer(
                self.sums, number((block * MR + a) * self.columns + v * W), True
            )
            for block, vectors in tiles
            for a in range(MR)
            for v in vectors
        }
        totals = {}
        for key, pointer in pointers.items():
            totals[key] = cgutils.alloca_once(build, self.vector)
            build.store(build.load(pointer, align=8), totals[key])
        end = build.add(self.first, self.rows)
        with cgutils.for_range_slice(build, self.first, end, number(1)) as (k, _):
            base = self.rated(k)
            if tiles[0][0] == 0:  # the pass that meets a row first
                ahead = build.add(k, number(AHEAD))
                ahead = build.select(build.icmp_signed("<", ahead, end), ahead, k)
                self.prefetch(self.rated(ahead))

            def load(column, vector=False, base=base):
                at = build.add(base, number(column))
                return build.load(self.pointer(self.z, at, vector), align=8)

            rows = {v: load(v * W, True) for v in sorted({v for _, v in pointers})}
            if any(a == last for a, _ in pointers):
                rating = build.fsub(self.entry(2, k, types.float64), self.mean)
                off = build.fsub(rating, load(last))
                target = build.fmul(load(0), off)
                if last // W in rows:
                    lane = ir.Constant(ir.IntType(32), last % W)
                    rows[last // W] = build.insert_element(rows[last // W], target, lane)
            for a in sorted({a for a, _ in pointers}):
                factor = everywhere(build, target if a == last else load(a), self.vector)
                for v in [v for b, v in pointers if b == a]:
                    product = build.fmul(factor, rows[v], flags=("contract",))
                    total = totals[a, v]
                    build.store(build.fadd(build.load(total), product, flags=("contract",)), total)
        for key, pointer in pointers.items():
            build.store(build.load(totals[key]), pointer, align=8)


def everywhere(builder, value, vector):
    """Returns the vector that holds ``value`` in every lane."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, empty, same)


def _subtract_products(count: int):
    """Returns an intrinsic that works on ``count`` rows r at once.

    Q[i + r, n, :] -= sum over k < n of Q[i + r, k, :] Q[j, k, :]
    """

    @intrinsic
    def subtract(typingctx, Q, i, j, n):
        signature = types.void(Q, types.intp, types.intp, types.intp)

        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            i, j, n = args[1:]
            width = builder.extract_value(array.shape, 1)
            vector = ir.VectorType(ir.DoubleType(), LANES)

            def pointer(row, column):
                cell = builder.add(builder.mul(row, width), column)
                at = builder.mul(cell, ir.Constant(cell.type, LANES))
                start = builder.gep(array.data, [at], inbounds=True)
                return builder.bitcast(start, vector.as_pointer())

            rows = [builder.add(i, ir.Constant(i.type, r)) for r in range(count)]
            sums = [cgutils.alloca_once(builder, vector) for _ in rows]
            for row, total in zip(rows, sums, strict=True):
                builder.store(builder.load(pointer(row, n), align=8), total)
            with cgutils.for_range(builder, n) as loop:
                shared = builder.load(pointer(j, loop.index), align=8)
                for row, total in zip(rows, sums, strict=True):
                    own = builder.load(pointer(row, loop.index), align=8)
                    product = builder.fmul(own, shared, flags=("contract",))
                    left = builder.fsub(builder.load(total), product, flags=("contract",))
                    builder.store(left, total)
            for row, total in zip(rows, sums, strict=True):
                builder.store(builder.load(total), pointer(row, n), align=8)
            return context.get_dummy_value()

        return signature, codegen

    return subtract


subtract_4 = _subtract_products(4)
subtract_1 = _subtract_products(1)


def _over_entries(action, valued: bool):
    """Returns an intrinsic that loops over entries ``begin`` to ``end`` of a sparse matrix.

    ``action(builder, vector, row, weight, value, total)`` sees, for an entry in column i, a pointer
    to row i of a strip as one vector, weight_i, the value of the entry (None unless ``valued``),
    and a pointer to the running total, which stays in registers.
    """

    @intrinsic
    def loop(typingctx, index, values, begin, end, weight, rows, total):
        numbers = (values, weight, rows, total)
        if any(array.layout != "C" for array in (index, *numbers)):
            raise TypingError("the entries, weights and rows of a design must be contiguous")
        if any(array.dtype != types.float64 for array in numbers):
            raise TypingError("the values, weights and rows of a design must be float64")
        signature = types.void(index, values, types.intp, types.intp, weight, rows, total)

        def codegen(context, builder, signature, args):
            kinds = signature.args
            vector = ir.VectorType(ir.DoubleType(), LANES)

            def data(n):
                return context.make_array(kinds[n])(context, builder, args[n]).data

            columns, entries, weights, base, totals = (data(n) for n in (0, 1, 4, 5, 6))
            outside = builder.bitcast(totals, vector.as_pointer())
            inside = cgutils.alloca_once(builder, vector)
            builder.store(builder.load(outside, align=8), inside)
            with cgutils.for_range(builder, args[3], start=args[2]) as span:
                at = builder.load(builder.gep(columns, [span.index], inbounds=True))
                i = builder.sext(at, span.index.type)
                first = builder.mul(i, ir.Constant(i.type, LANES))
                row = builder.gep(base, [first], inbounds=True)
                weight = builder.load(builder.gep(weights, [i], inbounds=True))
                value = None
                if valued:
                    value = builder.load(builder.gep(entries, [span.index], inbounds=True))
                pointer = builder.bitcast(row, vector.as_pointer())
                action(builder, vector, pointer, weight, value, inside)
            builder.store(builder.load(inside), outside, align=8)
            return context.get_dummy_value()

        return signature, codegen

    return loop


def _add(builder, vector, row, weight, value, total):
    factor = weight if value is None else builder.fmul(weight, value)
    factors = everywhere(builder, factor, vector)
    product = builder.fmul(factors, builder.load(row, align=8), flags=("contract",))
    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)


def _subtract(builder, vector, row, weight, value, total):
    step = builder.load(total)
    if value is not None:
        step = builder.fmul(everywhere(builder, value, vector), step, flags=("contract",))
    left = builder.fsub(builder.load(row, align=8), step, flags=("contract",))
    builder.store(left, row, align=8)


add_rows = _over_entries(_add, False)  # total += weight_i row_i
add_valued_rows = _over_entries(_add, True)  # total += weight_i v row_i
subtract_from_rows = _over_entries(_subtract, False)  # row_i -= total
subtract_from_valued_rows = _over_entries(_subtract, True)  # row_i -= v total


@serial
def _run_all(z, index, values, sums, width, Q, total):
    add_products(z, index, values, 0.0, 0, 1, sums, width)  # type: ignore[call-arg]
    subtract_4(Q, 0, 0, 1)
    subtract_1(Q, 0, 0, 1)
    add_rows(index, values, 0, 1, values, z, total)
    add_valued_rows(index, values, 0, 1, values, z, total)
    subtract_from_rows(index, values, 0, 1, values, z, total)
    subtract_from_valued_rows(index, values, 0, 1, values, z, total)


def try_out() -> None:
    """Compiles every loop, or loads it from Numba's cache, and runs it once on ones.

    Raises whatever the compiler raises, and ArithmeticError if a number comes out wrong.
    """
    z, index, values = np.ones((1, LANES)), np.zeros(1, np.int32), np.full(1, 3.0)
    sums, Q, total = np.zeros((LANES, LANES)), np.ones((4, 2, LANES)), np.zeros(LANES)
    _run_all(z, index, values, sums, (0,), Q, total)
    y = np.array([1.0] * (LANES - 1) + [3.0 - 0.0 - 1.0])  # the target is in the last column
    right = (np.tril(sums) == np.tril(np.outer(y, y))).all()
    right &= (Q[:, 1] == np.array([[-1.0], [0.0], [0.0], [0.0]])).all()
    if not (right and (total == 12.0).all() and (z == 1.0 - 12.0 - 36.0).all()):
        raise ArithmeticError("a loop gave a wrong number")
