"""Ratings that are the cell of a latent Gaussian number between cut points.

A latent z ~ N(f, 1 / w) is in cell k if it lies between the cuts k - 1 and k; the outer cells have
no end. Everything is computed on the side of f where probabilities are small, so that nothing is
lost far out in a tail. Users with cut points of their own come with a row of cuts each; otherwise
all share the only row. Their gaps g_k and cuts are c = middle + A g, A_jk = [k < j] - 1/2.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from bayesmf.machine import parallel, serial
from bayesmf.random.philox import bits, fill_uniform, normal_quantile, to_unit

PEAK = 1 / math.sqrt(2 * math.pi)  # the density at 0
LOG_ROOT_2PI = -math.log(PEAK)
FAR = 37.0  # standard deviations beyond which a tail is too small for doubles
DEGREES = 8  # of freedom of proposals; even, so that a chi-square comes from uniforms
PIECES, DEGREE = 128, 7  # of the polynomials by which a tail is computed
BLOCK = 64  # users whose gaps are added up together, whatever the number of threads


def _fit_ratios():
    """Returns polynomials for tail / density at x >= 0, each on a piece of 1 / (1 + x / 4)."""
    out = np.zeros((PIECES, DEGREE + 1))
    for k in range(PIECES):

        def ratio(t, k=k):
            y = np.maximum((k + (t + 1) / 2) / PIECES, 1e-9)
            return math.sqrt(math.pi / 2) * erfcx((4 / y - 4) * math.sqrt(0.5))

        found = chebyshev.cheb2poly(chebyshev.chebinterpolate(ratio, DEGREE))
        out[k, : len(found)] = found  # without zeros at its end
    return out


RATIOS = _fit_ratios()


@serial
def density_and_tail(x):
    """Returns the standard normal's density at x >= 0, and what lies beyond x.

    The ratio of the two is smooth, so that one exponential is enough, to 15 digits.
    """
    density = PEAK * math.exp(-0.5 * x * x)
    y = PIECES * (4.0 / (4.0 + x))
    piece = min(int(y), PIECES - 1)
    t = 2.0 * (y - piece) - 1.0
    a, b, c, d, e, f, g, h = RATIOS[piece]
    ratio = ((((((h * t + g) * t + f) * t + e) * t + d) * t + c) * t + b) * t + a
    return density, density * ratio


@serial
def tail(x):
    """Returns P(x < standard normal)."""
    beyond = density_and_tail(abs(x))[1]
    return beyond if x > 0.0 else 1.0 - beyond


@serial
def far_mass(a, b):
    """Returns 1 - e^-s, where s is about how much the log of a tail falls from a to b > a."""
    return -math.expm1(-(a + b) * (b - a) / 2.0) if b < np.inf else 1.0


@serial
def cell_of(centred, first, step, last):
    """Returns the cell of a rating."""
    return min(max(int((centred - first) / step + 0.5), 0), last)


@serial
def bounds(cuts, k, f, root):
    """Returns the ends of cell k in standard deviations from f."""
    a = (cuts[k - 1] - f) * root if k > 0 else -np.inf
    b = (cuts[k] - f) * root if k < len(cuts) else np.inf
    return a, b


@serial
def log_mass(a, b):
    """Returns l = log(Phi(b) - Phi(a)), its slopes in a and b, and -l_aa, -l_bb, -l_ab.

    On the side of the nearer end, low, of which high may be the infinite other end.
    """
    flip = a + b < 0.0
    low, high = (-b, -a) if flip else (a, b)
    if low > FAR:
        part = math.log(far_mass(low, high))
        value, in_low, in_high = -0.5 * low * low - math.log(low) - LOG_ROOT_2PI + part, -low, 0.0
        ll, hh = 1.0, 0.0
    else:
        density, beyond = density_and_tail(abs(low))
        mass = beyond if low > 0.0 else 1.0 - beyond
        in_high, hh = 0.0, 0.0
        if high < np.inf:
            in_high, beyond = density_and_tail(high)
            mass = max(mass - beyond, 1e-300)
            in_high /= mass
            hh = max(in_high * (in_high + high), 0.0)
        value, in_low = math.log(mass), -density / mass
        ll = max(in_low * (in_low + low), 0.0)
    if flip:
        return value, -in_high, -in_low, hh, ll, in_low * in_high
    return value, in_low, in_high, ll, hh, in_low * in_high


@parallel
def measure(starts, centred, first, step, f, root, factor, cuts, out):
    """Fills a row for the ratings of each user with the log likelihood and its curvature.

    With C cuts and s = log tau the columns are the log likelihood; its slopes in the C cuts and in
    s; then, of minus its second derivatives where those of a and b in s are left out: C of the
    cuts, C of a cut and the next, C of a cut and s, and the one of s. ``root`` are square roots of
    weights, which ``factor`` multiplies. A single row of cuts is that of all.
    """
    size = cuts.shape[1]
    for i in prange(len(starts) - 1):
        mine, row = cuts[min(np.int64(i), len(cuts) - 1)], out[i]
        row[:] = 0.0
        slope, diagonal, off, cross = 1, size + 2, 2 * size + 2, 3 * size + 2
        for p in range(starts[i], starts[i + 1]):
            k = cell_of(centred[p], first, step, size)
            w = root[p] * factor
            a, b = bounds(mine, k, f[p], w)
            value, in_a, in_b, aa, bb, ab = log_mass(a, b)
            row[0] += value
            if k == 0:
                a = 0.0
            else:
                row[slope + k - 1] += in_a * w
                row[diagonal + k - 1] += aa * w * w
                row[cross + k - 1] += 0.5 * w * (aa * a + (ab * b if k < size else 0.0))
            if k == size:
                b = 0.0
            else:
                row[slope + k] += in_b * w
                row[diagonal + k] += bb * w * w
                row[cross + k] += 0.5 * w * (ab * a + bb * b)
                if k > 0:
                    row[off + k - 1] += ab * w * w
            row[slope + size] += 0.5 * (in_a * a + in_b * b)
            row[cross + size] += 0.25 * (aa * a * a + 2.0 * ab * a * b + bb * b * b)


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
    size = len(gaps) + 1
    diagonal, off, cross = row[size + 2 :], row[2 * size + 2 :], row[3 * size + 2 :]
    slope[0], precision[0, 0] = row[size + 1], row[4 * size + 2]
    to_gaps(row[1:], gaps, slope[1:])
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
def add_up(rows, gaps, slope, precision):
    """Returns the log likelihood of all, and fills in its slope and curvature in s and log gaps."""
    count, size = gaps.shape[0], gaps.shape[1] + 1
    blocks = -(-count // BLOCK)
    values, slopes = np.zeros(blocks), np.zeros((blocks, size))
    precisions = np.zeros((blocks, size, size))
    for block in prange(blocks):
        column, s, P = np.empty(size), np.empty(size), np.empty((size, size))
        for i in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            gap_moments(rows[i], gaps[i], column, s, P)
            values[block] += rows[i, 0]
            slopes[block] += s
            precisions[block] += P
    slope[:] = 0.0
    precision[:] = 0.0
    value = 0.0
    for block in range(blocks):
        value += values[block]
        slope += slopes[block]
        precision += precisions[block]
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


@serial
def within(a, b, u):
    """Returns the standard normal between a and b whose share below it, of what is there, is u."""
    if a > FAR:
        x = a - math.log1p(-u * far_mass(a, b)) / a
    elif a > 0.0:
        near = tail(a)
        x = -normal_quantile(near - u * (near - tail(b)))
    else:
        low, high = tail(-a), tail(b)
        mass = 1.0 - low - high
        if low + u * mass <= 0.5:
            x = normal_quantile(low + u * mass)
        else:
            x = -normal_quantile(high + (1.0 - u) * mass)
    return min(max(x, a), b)


@parallel
def draw_latent(user, centred, first, step, f, weight, cuts, counter, out):
    """Draws the latent z of every rating, within its cell."""
    for p in prange(len(out)):
        mine, root = cuts[min(np.int64(user[p]), len(cuts) - 1)], math.sqrt(weight[p])
        k = cell_of(centred[p], first, step, len(mine))
        a, b = bounds(mine, k, f[p], root)
        u = to_unit(bits(counter, p, 0)[0])
        x = within(a, b, u) if b > 0.0 else -within(-b, -a, u)
        out[p] = f[p] + x / root


@parallel
def cell_chances(row, f, sd, cuts, out):
    """Adds the probability of every cell of each pair, whose cuts are in this row."""
    size = cuts.shape[1]
    for p in prange(len(out)):
        below = 0.0
        for k in range(size):
            upto = tail((f[p] - cuts[row[p], k]) / sd[p])
            out[p, k] += max(upto - below, 0.0)
            below = upto
        out[p, size] += 1.0 - below
