"""Ratings that are the cell of a latent Gaussian number between cut points.

A latent z ~ N(f, 1 / w) is in cell k if it lies between the cuts k and k + 1; the first cut is
minus infinity and the last one infinity. Users with cut points of their own have a row of cuts
each, otherwise all share the only row. With gaps g between those that are finite, they are
c = middle + A g, A_jk = [k < j] - 1/2.

Everything is computed on the side of f where the nearer end of the cell is, so that nothing is lost
far out in a tail. Ratings go through in batches: what has neither branches nor calls is a loop of
its own, which the compiler runs for several ratings at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from bayesmf.machine import parallel, serial
from bayesmf.random.philox import (
    CENTRE,
    bits,
    fill_uniform,
    normal_quantile,
    polynomial,
    to_unit,
)

PEAK = 1 / math.sqrt(2 * math.pi)  # the density at 0
LOG_PEAK = math.log(PEAK)
FAR = 37.0  # standard deviations beyond which a tail is too small for doubles
END = 37.3  # stands for the end of a cell that has none
TINY = 1e-100
DEGREES = 8  # of freedom of proposals; even, so that a chi-square comes from uniforms
BATCH = 128  # ratings that go through the arithmetic together
BLOCK = 16  # users whose ratings are one piece of work, whatever the number of threads
PART = 2048  # ratings that are one piece of work, where all users share the cuts


class Cells(NamedTuple):
    """Ratings with levels, in by-user order."""

    user: Any
    centred: Any  # the ratings, about the same number as f and the cuts
    first: float  # the first level
    per_step: float  # 1 / the step from one level to the next
    f: Any
    root: Any  # the square root of the weight


def _fit_ratio():
    """Returns (1 + x) tail / density at x >= 0 as a polynomial in (x - 4) / (x + 4), in 3 parts.

    The coefficients of each part begin with that of the highest power.
    """

    def ratio(t):
        x = 4 * (1 + t) / np.maximum(1 - t, 1e-12)
        return (1 + x) * math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5))

    found = chebyshev.cheb2poly(chebyshev.chebinterpolate(ratio, 20))
    parts = np.append(found, np.zeros(24 - len(found))).reshape(3, 8)
    return tuple(tuple(part[::-1].tolist()) for part in parts)


RATIO = _fit_ratio()
EXPONENTIAL = tuple(
    tuple(1 / math.factorial(k) for k in range(first + 7, first - 1, -1)) for first in (0, 8)
)


@serial
def tails(x, density, tail):
    """Fills in the standard normal's density at each x in [0, END], and the mass beyond x.

    Twelve digits are right.
    """
    for i in range(len(x)):
        v = x[i]
        y = v * v * (-0.5 / 2048.0)
        y2 = y * y
        y4 = y2 * y2
        e = polynomial(EXPONENTIAL[1], y) * (y4 * y4) + polynomial(EXPONENTIAL[0], y)
        e = e * e * (e * e)  # to the power of 2048, in the end
        e = e * e * (e * e)
        e = e * e * (e * e)
        e = e * e * (e * e)
        e = e * e * (e * e)
        e = PEAK * (e * e)
        t = (v - 4.0) / (v + 4.0)
        t2 = t * t
        t4 = t2 * t2
        t8 = t4 * t4
        r = (polynomial(RATIO[2], t) * t8 + polynomial(RATIO[1], t)) * t8 + polynomial(RATIO[0], t)
        density[i] = e
        tail[i] = e * r / (1.0 + v)


@serial
def cell_of(cells, p, last):
    """Returns the cell of rating p."""
    return min(max(int((cells.centred[p] - cells.first) * cells.per_step + 0.5), 0), last)


@serial
def place(cells, begin, end, cuts, factor, low, high, side, x):
    """Finds the cells of the ratings from ``begin`` to ``end``, in standard deviations from f.

    ``low`` is the end nearer to f, ``high`` the other one; ``side`` is -1 if it was mirrored to get
    them so. The first half of ``x`` is |low|, the second one high, both at most END.
    """
    own = len(cuts) > 1
    for p in range(begin, end):
        mine, q = cuts[cells.user[p] if own else 0], p - begin
        k, f, root = cell_of(cells, p, len(mine) - 2), cells.f[p], cells.root[p] * factor
        a, b = (mine[k] - f) * root, (mine[k + 1] - f) * root
        mirrored = a + b < 0.0
        low[q] = -b if mirrored else a
        high[q] = -a if mirrored else b
        side[q] = -1.0 if mirrored else 1.0
        x[q] = min(abs(low[q]), END)
        x[BATCH + q] = min(high[q], END)


@serial
def far_mass(low, high):
    """Returns 1 - e^-s, where s is about how much the log of a tail falls from low to high."""
    return -math.expm1(-0.5 * (low + high) * (high - low))


@serial
def slopes(low, density, beyond, mass):
    """Fills in the mass of each cell, and makes densities the slopes of its log in its ends."""
    for q in range(BATCH):
        near = beyond[q] if low[q] > 0.0 else 1.0 - beyond[q]
        m = near - beyond[BATCH + q]
        m = m if m > 1e-300 else 1e-300
        mass[q] = m
        density[q] = -density[q] / m
        density[BATCH + q] = density[BATCH + q] / m


@serial
def add_rating(row, size, k, low, high, in_low, in_high, side, root):
    """Adds a rating in cell k to a row of ``measure``, but for its log likelihood.

    ``in_low`` and ``in_high`` are the slopes in the ends of the cell.
    """
    ll, hh, lh = in_low * (in_low + low), in_high * (in_high + high), in_low * in_high
    ll, square, scale = max(ll, 0.0), root * root, 0.5 * side * root
    mirrored = int(side < 0.0)  # of the cuts k and k + 1, the second is then the near end
    one, two = k + mirrored, k + 1 - mirrored
    slope, diagonal, off, cross = 1, size + 2, 2 * size + 2, 3 * size + 2
    row[slope + one] += 2.0 * scale * in_low
    row[slope + two] += 2.0 * scale * in_high
    row[diagonal + one] += square * ll
    row[diagonal + two] += square * hh
    row[off + k] += square * lh
    row[cross + one] += scale * (ll * low + lh * high)
    row[cross + two] += scale * (lh * low + hh * high)
    row[slope + size] += 0.5 * (in_low * low + in_high * high)
    # max changes nothing here. Of a sum of two products the compiler fuses either with the sum, and
    # not the same one with threads and without
    near, far = max(ll * low * low, 0.0), max(hh * high, 0.0)
    row[cross + size] += 0.25 * (near + (2.0 * lh * low + far) * high)


@serial
def log_far(low, high):
    """Returns the log of the mass from low to high, far out."""
    return LOG_PEAK - 0.5 * low * low - math.log(low) + math.log(far_mass(low, high))


@serial
def width_of(size):
    """Returns the columns of ``measure`` for so many cuts, infinite ones too."""
    return 4 * size + 3


@parallel
def measure(cells, parts, factor, cuts, out):
    """Adds the log likelihood and its curvature to a row for each user, or for each part.

    With C cuts and s = log tau the columns are the log likelihood; its slopes in the C cuts and in
    s; then, of minus its second derivatives where those of the ends in s are left out: C of the
    cuts, C of a cut and the next, C of a cut and s, and the one of s. ``factor`` multiplies the
    roots of weights. ``parts`` say where each piece of work begins and ends; if users have cuts of
    their own, no user is in two.
    """
    size, own = cuts.shape[1], len(cuts) > 1
    for part in prange(len(parts) - 1):
        low, high, side, mass = np.zeros(BATCH), np.empty(BATCH), np.empty(BATCH), np.empty(BATCH)
        x, density, beyond = np.zeros(2 * BATCH), np.empty(2 * BATCH), np.empty(2 * BATCH)
        last, product = np.int64(-1), 1.0
        for begin in range(parts[part], parts[part + 1], BATCH):
            end = min(begin + BATCH, parts[part + 1])
            place(cells, begin, end, cuts, factor, low, high, side, x)
            tails(x, density, beyond)
            slopes(low, density, beyond, mass)
            for p in range(begin, end):
                i = np.int64(cells.user[p]) if own else np.int64(part)
                q, extra = p - begin, 0.0
                if i != last:
                    if last >= 0:
                        out[last, 0] += math.log(product)
                    last, product = i, 1.0
                if low[q] > FAR:
                    mass[q], extra = 1.0, log_far(low[q], high[q])
                    density[q], density[BATCH + q] = -(low[q] + 1.0 / low[q]), 0.0
                k, root = cell_of(cells, p, size - 2), cells.root[p] * factor
                add_rating(
                    out[i], size, k, low[q], x[BATCH + q], density[q], density[BATCH + q], side[q],
                    root,
                )  # fmt: skip
                product *= max(mass[q], TINY)  # one log for many ratings
                if product <= TINY or extra != 0.0:
                    out[i, 0] += math.log(product) + extra + math.log(min(mass[q] / TINY, 1.0))
                    product = 1.0
        if last >= 0:
            out[last, 0] += math.log(product)


@serial
def to_gaps(values, gaps, out):
    """Takes a vector on the cuts to the log gaps: out_k = g_k sum_j A_jk values_j."""
    total, after = 0.0, 0.0
    for j in range(len(gaps) + 1):
        total += values[j]
    for k in range(len(gaps) - 1, -1, -1):
        after += values[k + 1]
        out[k] = gaps[k] * (after - 0.5 * total)


@serial
def gap_moments(row, gaps, column, slope, precision):
    """Takes a row of ``measure`` to s and the log gaps: slopes, and minus second derivatives.

    Entry 0 belongs to s, the others to the log gaps. ``column`` is a space for one column.
    """
    size, whole = len(gaps) + 1, len(gaps) + 3  # cuts that are finite, and all
    diagonal, off, cross = row[whole + 3 :], row[2 * whole + 3 :], row[3 * whole + 3 :]
    slope[0], precision[0, 0] = row[whole + 1], row[4 * whole + 2]
    to_gaps(row[2:], gaps, slope[1:])
    to_gaps(cross, gaps, precision[0, 1:])
    for k in range(size - 1):
        precision[k + 1, 0] = precision[0, k + 1]
        for j in range(size):  # T A, where T has the cuts on three diagonals
            total = diagonal[j] * (0.5 if k < j else -0.5)
            if j > 0:
                total += off[j - 1] * (0.5 if k < j - 1 else -0.5)
            if j < size - 1:
                total += off[j] * (0.5 if k < j + 1 else -0.5)
            column[j] = gaps[k] * total
        to_gaps(column, gaps, precision[1 + k, 1:])


@parallel
def add_up(rows, gaps, apart, slope, precision):
    """Returns the log likelihood of all, and fills in its slope and curvature.

    Entry 0 belongs to s. The log gaps of user i are m + e^t d_i, where d_i are ``apart``: the next
    entries belong to m, and the last ones to t at 0.
    """
    count, size = gaps.shape[0], gaps.shape[1] + 1
    blocks, wide = -(-count // BLOCK), len(slope)
    values, slopes = np.zeros(blocks), np.zeros((blocks, wide))
    precisions = np.zeros((blocks, wide, wide))
    for block in prange(blocks):
        column, s, P = np.empty(size), np.empty(size), np.empty((size, size))
        for i in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            gap_moments(rows[i], gaps[i], column, s, P)
            values[block] += rows[i, 0]
            for a in range(wide):
                j, by = (a, 1.0) if a < size else (a - size + 1, apart[i, a - size])
                slopes[block, a] += by * s[j]
                for b in range(a + 1):
                    k, too = (b, 1.0) if b < size else (b - size + 1, apart[i, b - size])
                    precisions[block, a, b] += by * too * P[j, k]
    slope[:] = 0.0
    precision[:] = 0.0
    value = 0.0
    for block in range(blocks):
        value += values[block]
        slope += slopes[block]
        precision += precisions[block]
    for a in range(wide):
        for b in range(a):
            precision[b, a] = precision[a, b]
    return value


@serial
def factor_at(row, theta, gaps, mean, precision, column, slope, P):
    """Fills P with the Cholesky factor of one user's curvature, and slope with the Newton step."""
    size = len(theta)
    gap_moments(row, gaps, column, slope, P)
    for k in range(size):
        slope[1 + k] -= precision[k] * (theta[k] - mean[k])
        P[1 + k, 1 + k] += precision[k]
    for k in range(1, size + 1):
        for j in range(1, k + 1):
            total = P[k, j]
            for m in range(1, j):
                total -= P[k, m] * P[j, m]
            P[k, j] = math.sqrt(total) if j == k else total / P[j, j]
        total = slope[k]
        for m in range(1, k):
            total -= P[k, m] * slope[m]
        slope[k] = total / P[k, k]
    for k in range(size, 0, -1):
        total = slope[k]
        for m in range(k + 1, size + 1):
            total -= P[m, k] * slope[m]
        slope[k] = total / P[k, k]


@serial
def student_scale(uniforms):
    """Returns what turns normals into Student's t with DEGREES of freedom, from half as many."""
    total = 0.0
    for u in uniforms:
        total -= 2.0 * math.log(u)
    return math.sqrt(DEGREES / total)


@serial
def log_student(squares, size):
    """Returns the log density of t but for a constant and log det, at a sum of squares."""
    return -0.5 * (DEGREES + size) * math.log1p(squares / DEGREES)


@parallel
def propose(rows, theta, gaps, mean, precision, counter, to, forward):
    """Proposes log gaps for every user, by a Newton step from theta and a Student's t.

    ``to`` are the proposals, ``forward`` the log densities of proposing them.
    """
    size = theta.shape[1]
    for i in prange(len(theta)):
        column, slope, P = np.empty(size + 1), np.empty(size + 1), np.empty((size + 1, size + 1))
        factor_at(rows[i], theta[i], gaps[i], mean, precision, column, slope, P)
        drawn = np.empty(size + DEGREES // 2)
        fill_uniform(counter, i, drawn)
        z, scale, squares = drawn[:size], student_scale(drawn[size:]), 0.0
        forward[i] = 0.0
        for k in range(size):
            z[k] = scale * normal_quantile(z[k])
            squares += z[k] * z[k]
            forward[i] += math.log(P[1 + k, 1 + k])
        forward[i] += log_student(squares, size)
        for k in range(size - 1, -1, -1):
            total = z[k]
            for m in range(k + 1, size):
                total -= P[1 + m, 1 + k] * z[m]
            z[k] = total / P[1 + k, 1 + k]
            to[i, k] = theta[i, k] + slope[1 + k] + z[k]


@parallel
def accept(rows, theta, to_rows, new_gaps, to, mean, precision, counter, forward):
    """Puts the proposals that are accepted in the place of theta (Metropolis and Hastings)."""
    size = theta.shape[1]
    for i in prange(len(theta)):
        column, slope, P = np.empty(size + 1), np.empty(size + 1), np.empty((size + 1, size + 1))
        factor_at(to_rows[i], to[i], new_gaps[i], mean, precision, column, slope, P)
        gain = to_rows[i, 0] - rows[i, 0] - forward[i]
        for k in range(size):
            before, after = theta[i, k] - mean[k], to[i, k] - mean[k]
            gain += 0.5 * precision[k] * (before * before - after * after)
            column[k] = theta[i, k] - to[i, k] - slope[1 + k]
        squares = 0.0
        for k in range(size):
            total = 0.0
            for m in range(k, size):
                total += P[1 + m, 1 + k] * column[m]
            gain += math.log(P[1 + k, 1 + k])
            squares += total * total
        gain += log_student(squares, size)
        if math.log(to_unit(bits(counter, i, size + DEGREES)[0])) < gain:
            theta[i] = to[i]


@parallel
def draw_latent(cells, cuts, counter, out):
    """Draws the latent z of every rating, within its cell.

    The number u of rating p is the share, of what is in its cell, between z and the near end.
    """
    for part in prange(-(-len(out) // PART)):
        low, high, side = np.empty(BATCH), np.empty(BATCH), np.empty(BATCH)
        x, density, beyond = np.zeros(2 * BATCH), np.empty(2 * BATCH), np.empty(2 * BATCH)
        u, v = np.empty(BATCH), np.empty(BATCH)
        first = int(part) * PART
        for begin in range(first, min(first + PART, len(out)), BATCH):
            end = min(begin + BATCH, len(out))
            place(cells, begin, end, cuts, 1.0, low, high, side, x)
            tails(x, density, beyond)
            for q in range(0, BATCH, 2):
                a, b = bits(counter, (begin + q) // 2, 0)
                u[q], u[q + 1] = to_unit(a), to_unit(b)
            within(low, beyond, u, v, density)
            for p in range(begin, end):
                q = p - begin
                z = density[q]
                if low[q] > FAR:
                    z = low[q] - math.log1p(-u[q] * far_mass(low[q], high[q])) / low[q]
                elif abs(v[q]) < 0.075:
                    z = -normal_quantile(v[q]) if v[q] > 0.0 else normal_quantile(-v[q])
                z = min(max(z, low[q]), high[q])
                out[p] = cells.f[p] + side[q] * z / cells.root[p]


@serial
def within(low, beyond, u, v, z):
    """Fills in the quantiles z of standard normals within their cells, where they are central.

    v is the tail at z, with a minus sign if z is below 0; it is at most one half.
    """
    for q in range(BATCH):
        near, far = beyond[q], beyond[BATCH + q]
        positive = low[q] > 0.0
        mass = (near if positive else 1.0 - near) - far
        under = near + u[q] * mass  # of z if low is negative: low is below 0, and near under it
        over = far + (1.0 - u[q]) * mass
        over = near - u[q] * mass if positive else over
        v[q] = -under if (under <= 0.5) and not positive else over
    for q in range(BATCH):
        c = 0.5 - abs(v[q])
        r = 0.180625 - c * c
        y = c * polynomial(CENTRE[0], r) / polynomial(CENTRE[1], r)
        z[q] = y if v[q] > 0.0 else -y


@parallel
def cell_chances(row, f, sd, cuts, out):
    """Fills in the probability of every cell of each pair, whose cuts are in this row.

    The difference of two tails is taken on the side where they are small.
    """
    for part in prange(-(-len(out) // BATCH)):
        x, density, beyond = np.zeros(BATCH), np.empty(BATCH), np.empty(BATCH)
        before, sign = np.zeros(BATCH), np.ones(BATCH)
        begin = int(part) * BATCH
        end = min(begin + BATCH, len(out))
        for k in range(cuts.shape[1] - 1):
            for p in range(begin, end):
                q = p - begin
                out[p, k] = (cuts[row[p], k + 1] - f[p]) / sd[p]
                x[q] = min(abs(out[p, k]), END)
            tails(x, density, beyond)
            for p in range(begin, end):
                q = p - begin
                above, here = out[p, k] > 0.0, beyond[q]
                if k == 0:
                    mass = 1.0 - here if above else here
                elif sign[q] > 0.0:  # both ends are above f
                    mass = before[q] - here
                else:
                    mass = 1.0 - before[q] - here if above else here - before[q]
                before[q], sign[q] = here, 1.0 if above else -1.0
                out[p, k] = max(mass, 0.0)
