"""Side features: what a row's rated set adds to it, and the draws of W.

Row i of one side is shifted by offset_i = c_i sum of W_k over the k it rated, c_i = n_i^-p.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from bayesmf.kernels.gram import add_covariances, everywhere, gram
from bayesmf.machine import LANES, aligned, parallel, serial
from bayesmf.random.philox import bits, fill_normal, normal_quantile, to_unit

COLUMNS = LANES  # of W that are drawn side by side; each such strip is independent of the others


def _over_raters(action):
    """A loop over index[begin:end] in which row i of a strip is one vector.

    ``action(builder, vector, row, weight_i, total)`` sees the place of the row, the weight of the
    row spread over a vector, and the place of the running total; both stay in registers.
    """

    @intrinsic
    def loop(typingctx, index, begin, end, weight, rows, total):
        signature = types.void(index, types.intp, types.intp, weight, rows, total)

        def codegen(context, builder, signature, args):
            kinds = signature.args
            vector = ir.VectorType(ir.DoubleType(), COLUMNS)

            def data(n):
                return context.make_array(kinds[n])(context, builder, args[n]).data

            places, weights, base, totals = data(0), data(3), data(4), data(5)
            outside = builder.bitcast(totals, vector.as_pointer())
            inside = cgutils.alloca_once(builder, vector)
            builder.store(builder.load(outside, align=8), inside)
            with cgutils.for_range(builder, args[2], start=args[1]) as span:
                at = builder.load(builder.gep(places, [span.index], inbounds=True))
                i = builder.sext(at, span.index.type)
                row = builder.gep(
                    base, [builder.mul(i, ir.Constant(i.type, COLUMNS))], inbounds=True
                )
                one = builder.load(builder.gep(weights, [i], inbounds=True))
                action(builder, vector, builder.bitcast(row, vector.as_pointer()), one, inside)
            builder.store(builder.load(inside), outside, align=8)
            return context.get_dummy_value()

        return signature, codegen

    return loop


def _add(builder, vector, row, weight, total):
    product = builder.fmul(everywhere(builder, weight, vector), builder.load(row, align=8),
                           flags=("contract",))  # fmt: skip
    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)


def _subtract(builder, vector, row, weight, total):
    builder.store(builder.fsub(builder.load(row, align=8), builder.load(total)), row, align=8)


_add_rows = _over_raters(_add)  # total += weight_i row_i
_subtract_from_rows = _over_raters(_subtract)  # row_i -= total


def strips(rows: Any) -> Any:
    """(row, column) as (strip, row, COLUMNS), zeros where a strip is not full."""
    out = aligned((-(-rows.shape[1] // COLUMNS), len(rows), COLUMNS))
    _cut(rows, out)
    return out


@parallel
def _cut(rows, out):
    for i in prange(rows.shape[0]):
        for b in range(out.shape[0] * COLUMNS):
            out[b // COLUMNS, i, b % COLUMNS] = rows[i, b] if b < rows.shape[1] else 0.0


def offsets(observed: Any, W: Any, c: Any, out: Any) -> None:
    """out_i = c_i sum of W_k over the k that row i rated."""
    offsets_of_strips(observed, strips(W), c, out)


@parallel
def offsets_of_strips(observed, cut, c, out):
    """The same of a W that is cut into strips already."""
    ones = np.ones(cut.shape[1])
    for i in prange(len(c)):
        total = np.empty(COLUMNS)
        for strip in range(cut.shape[0]):
            total[:] = 0.0
            _add_rows(observed.index, observed.starts[i], observed.starts[i + 1], ones, cut[strip],
                      total)  # fmt: skip
            for b in range(strip * COLUMNS, min((strip + 1) * COLUMNS, out.shape[1])):
                out[i, b] = c[i] * total[b - strip * COLUMNS]


@parallel
def draw_centred(raters, weight, scale, mean, place, sample, residual, W, from_strip):
    """Every W_k in turn given the rows' own values S, in coordinates that decouple its columns.

    There W_k ~ N(mean, 1) and row i's residual f_i = (S_i - mu - offset_i) / c_i has precision
    weight_i scale_a in column a, where weight_i = spread_i c_i^2:

    precision  1 + scale_a q_k,                  q_k = sum_i weight_i
    linear     mean_a + scale_a (sum_i weight_i f_i + q_k W_k)
    after      f_i -= new W_k - old W_k

    sums over the rows i in ``raters`` of k. ``residual`` and ``W`` are (strip, row, column), and
    ``from_strip`` is the number of the first strip that is here.
    """
    sums = np.empty(W.shape[1])
    for k in prange(W.shape[1]):
        q = 0.0
        for p in range(raters.starts[k], raters.starts[k + 1]):
            q += weight[raters.index[p]]
        sums[k] = q
    for strip in prange(W.shape[0]):
        total = np.empty(COLUMNS)
        rows, mine = residual[strip], W[strip]
        for k in range(W.shape[1]):
            begin, end, q = raters.starts[k], raters.starts[k + 1], sums[k]
            total[:] = 0.0
            _add_rows(raters.index, begin, end, weight, rows, total)
            for a in range(COLUMNS):
                precision = 1.0 + scale[strip, a] * q
                linear = mean[strip, a] + scale[strip, a] * (total[a] + q * mine[k, a])
                new = linear / precision
                if sample:
                    number = (from_strip + strip) * COLUMNS + a
                    first, second = bits(place, k, number // 2)
                    word = second if number % 2 else first
                    new += normal_quantile(to_unit(word)) / np.sqrt(precision)
                total[a] = new - mine[k, a]
                mine[k, a] = new
            _subtract_from_rows(raters.index, begin, end, weight, rows, total)


@parallel
def store_grams(observed, known, size, width, out):
    """The matrix of ``gram`` for every row, both triangles."""
    columns = len(width)
    for i in prange(out.shape[0]):
        gram(observed, i, known.z, out[i], width)
        if len(known.cov):
            scratch = np.empty(size * (size + 1) // 2)
            add_covariances(observed, i, known, scratch, out[i], size)
        for a in range(columns):
            for b in range(a):
                out[i, b, a] = out[i, a, b]


@serial
def squared_error(A, x, cov, size):
    """sum_j w_j (r_ij - fitted)^2 = [-x, 1]' A [-x, 1]; plus tr(A C) if ``cov`` is not empty."""
    last = A.shape[0] - 1
    total = A[last, last]
    for a in range(size):
        inner = -2.0 * A[last, a]
        for b in range(size):
            inner += (A[a, b] if b <= a else A[b, a]) * x[b]
        total += x[a] * inner
    if len(cov):
        cell = 0
        for a in range(size):
            for b in range(a + 1):
                total += (1.0 if a == b else 2.0) * A[a, b] * cov[cell]
                cell += 1
    return max(total, 0.0)


@parallel
def squared_errors(grams, x, cov, size, out):
    """``squared_error`` of every row."""
    for i in prange(len(out)):
        out[i] = squared_error(grams[i], x[i], cov[i] if len(cov) else x[i, :0], size)


@parallel
def expected_errors(observed, x, cov, known, size, width, out):
    """The mean of sum_j w_j (r_ij - fitted)^2 for the ratings of every row, under moments."""
    columns = len(width)
    for i in prange(len(out)):
        A = np.empty((columns, columns))
        scratch = np.empty(size * (size + 1) // 2)
        gram(observed, i, known.z, A, width)
        add_covariances(observed, i, known, scratch, A, size)
        out[i] = squared_error(A, x[i], cov[i], size)


@serial
def draw_non_centred(raters, c, weight, grams, prior, linear, first, place, sample, x, W):
    """Every W_k in turn given the rows' own part U_i = S_i - offset_i; S moves along.

    precision  prior + sum_i c_i^2 weight_i A_i
    linear     prior mean term + sum_i c_i g_i + (sum_i c_i^2 weight_i A_i) W_k
    after      g_i -= c_i weight_i A_i (new - old),   S_i += c_i (new - old)

    g_i = weight_i (h_i - A_i S_i) is the gradient of the likelihood in S_i. Columns before
    ``first`` (a bias that side features do not shift) are left alone.
    """
    size = prior.shape[0]
    last = grams.shape[1] - 1
    end = first + size
    g = np.zeros((x.shape[0], size))
    for i in range(x.shape[0]):
        for a in range(size):
            total = grams[i, last, first + a]
            for b in range(end):
                total -= grams[i, first + a, b] * x[i, b]
            g[i, a] = weight[i] * total
    P = np.empty((size, size))
    step = np.empty(size)
    draws = np.empty(size)
    for k in range(W.shape[0]):
        P[:] = 0.0
        step[:] = linear
        for p in range(raters.starts[k], raters.starts[k + 1]):
            i = raters.index[p]
            factor = c[i] * c[i] * weight[i]
            for a in range(size):
                step[a] += c[i] * g[i, a]
                for b in range(a + 1):
                    P[a, b] += factor * grams[i, first + a, first + b]
        for a in range(size):
            for b in range(size):
                step[a] += (P[a, b] if b <= a else P[b, a]) * W[k, first + b]
        for a in range(size):
            for b in range(a + 1):
                P[a, b] += prior[a, b]
        if sample:
            fill_normal(place, k, draws)
        else:
            draws[:] = 0.0
        solve_one(P, step, draws, size)
        for a in range(size):
            new = step[a]
            step[a] = new - W[k, first + a]
            W[k, first + a] = new
        for p in range(raters.starts[k], raters.starts[k + 1]):
            i = raters.index[p]
            factor = c[i] * weight[i]
            for a in range(size):
                total = 0.0
                for b in range(size):
                    total += grams[i, first + a, first + b] * step[b]
                g[i, a] -= factor * total
                x[i, first + a] += c[i] * step[a]


@serial
def solve_one(Q, x, noise, size):
    """x becomes Q^-1 x + L^-T noise; the lower triangle of Q becomes L."""
    for j in range(size):
        for i in range(j, size):
            total = Q[i, j]
            for k in range(j):
                total -= Q[i, k] * Q[j, k]
            Q[i, j] = np.sqrt(total) if i == j else total / Q[j, j]
    for i in range(size):
        for k in range(i):
            x[i] -= Q[i, k] * x[k]
        x[i] /= Q[i, i]
    for i in range(size - 1, -1, -1):
        x[i] += noise[i]
        for k in range(i + 1, size):
            x[i] -= Q[k, i] * x[k]
        x[i] /= Q[i, i]
