"""Densities of one number: moments by quadrature, draws by slices, and a basis drawn by many.

The quadrature has full precision wherever the bounds of a truncated Gamma are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from bayesmf.machine import parallel, serial
from bayesmf.random.philox import bits, normal_quantile, to_unit

DEPTH = 40.0  # a density e^-40 below its maximum adds nothing that doubles can hold
MOST = 100  # steps out to either side, and steps back in; more than any density here needs


@parallel
def truncated_moments(shape, rate, low, high, nodes, weights, out):
    """Fills out_i = (log of int x^(a-1) e^(-bx) b^a dx, E[x], E[log x]) over (low, high).

    In t = log x the density is exp(f), f(t) = a t - b e^t, which is concave with its maximum at
    t* = log(a / b). Where f is more than DEPTH below its greatest value in the interval it is left
    out: with g(s) = e^s - 1 - s, f(t* + s) = f(t*) - a g(s), and

    a g(s) >= DEPTH  for s < -min(sqrt(3 DEPTH / a) + 3 DEPTH / a, DEPTH / a + 1)
                     and s > min(sqrt(2 DEPTH / a), max(1.26, log(1 + 2 DEPTH / a)))

    If t* is outside, f falls from the nearer end faster than from t*, and faster than its slope
    there. What is left of the interval is smooth on its own scale, and the nodes see all of it.
    """
    for i in prange(len(shape)):
        a, b = shape[i], rate[i]
        left, right = np.log(low), np.log(high)
        top = min(max(np.log(a / b), left), right)
        slope = a - b * np.exp(top)
        depth = DEPTH / a
        before = min(np.sqrt(3.0 * depth) + 3.0 * depth, depth + 1.0)
        after = min(np.sqrt(2.0 * depth), max(1.26, np.log1p(2.0 * depth)))
        if top == right and slope > 0.0:
            before = min(before, DEPTH / slope)
        if top == left and slope < 0.0:
            after = min(after, -DEPTH / slope)
        left, right = max(left, top - before), min(right, top + after)
        # x / e^top stays near 1, so that nothing overflows
        scale = np.exp(top)
        half, middle = (right - left) / 2.0, (left + right) / 2.0
        mass, first, logs = 0.0, 0.0, 0.0
        for k in range(len(nodes)):
            s = middle + half * nodes[k] - top
            ratio = np.exp(s)
            value = weights[k] * np.exp(a * s - b * scale * np.expm1(s))
            mass += value
            first += value * ratio
            logs += value * s
        out[i, 0] = a * (top + np.log(b)) - b * scale + np.log(half * mass)
        out[i, 1] = min(max(scale * first / mass, low), high)
        out[i, 2] = top + logs / mass


@serial
def unit(counter, row, number):
    """Returns one uniform."""
    return to_unit(bits(counter, row, number)[0])


class LogDensity(NamedTuple):
    """Of a number s, but for a constant.

    slope s - up e^s - up_2 e^2s - down e^-s - down_2 e^-2s - sum_i weight_i log(1 + e^s rate_i)
    """

    slope: float
    up: float
    up_2: float
    down: float
    down_2: float
    weight: Any
    rate: Any


@serial
def log_density(f, s):
    """Returns the log density at s."""
    e = np.exp(s)
    total = f.slope * s - e * (f.up + f.up_2 * e) - (f.down + f.down_2 / e) / e
    for i in range(len(f.rate)):
        total -= f.weight[i] * np.log1p(e * f.rate[i])
    return total


@serial
def slice_sample(f, s, width, counter, row):
    """Returns a draw given the last one, s (Neal 2003): step out, then shrink.

    ``width`` must not depend on s.
    """
    level = log_density(f, s) + np.log(unit(counter, row, 0))
    left = s - width * unit(counter, row, 1)
    right = left + width
    for _ in range(MOST):
        if log_density(f, left) <= level:
            break
        left -= width
    for _ in range(MOST):
        if log_density(f, right) <= level:
            break
        right += width
    for number in range(2, 2 + MOST):
        new = left + (right - left) * unit(counter, row, number)
        if log_density(f, new) > level:
            return new
        if new < s:
            left = new
        else:
            right = new
    return s


@serial
def draw_basis(M, N, h, g, G, m, delta, first, rounds, counter):
    """Draws the basis A of the features: mine become x A, those of the other side y A^-T.

    M and N are the sums of Lambda of both sides, h and g those of Lambda mu, G = K + m m' / beta_0
    and m = beta_0 mu_0 from the priors. The log density, on the group of invertible A, is

        -delta log |A| - tr(G A^-1 M A^-T) / 2 + m' A^-1 h - tr(G A' N A) / 2 + m' A' g

    A step is A (I + t e_a e_b'), with t Gaussian, or scales column a by e^s. M, N, h and g are
    changed along. Columns before ``first`` stay.
    """
    size = len(M)
    A, none = np.eye(size), (np.empty(0), np.empty(0))
    row = 0
    for _ in range(rounds):
        for a in range(first, size):
            for b in range(first, size):
                row += 1
                if a == b:
                    mine, theirs = -m[a] * h[a], -m[a] * g[a]
                    for k in range(size):
                        if k != a:
                            mine += G[a, k] * M[a, k]
                            theirs += G[a, k] * N[a, k]
                    f = LogDensity(
                        -delta,
                        theirs,
                        G[a, a] * N[a, a] / 2.0,
                        mine,
                        G[a, a] * M[a, a] / 2.0,
                        *none,
                    )
                    # the product is the same before and after, so the width is
                    width = 2.5 / np.sqrt(4.0 * G[a, a] * np.sqrt(M[a, a] * N[a, a]) + 1.0)
                    c = np.exp(slice_sample(f, 0.0, width, counter, row))
                    M[a] /= c
                    M[:, a] /= c
                    N[a] *= c
                    N[:, a] *= c
                    A[:, a] *= c
                    h[a] /= c
                    g[a] *= c
                else:
                    slope = m[b] * g[a] - m[a] * h[b]
                    for k in range(size):
                        slope += G[a, k] * M[k, b] - G[b, k] * N[k, a]
                    curvature = G[a, a] * M[b, b] + G[b, b] * N[a, a]
                    z = normal_quantile(unit(counter, row, 0))
                    t = slope / curvature + z / np.sqrt(curvature)
                    M[a] -= t * M[b]
                    M[:, a] -= t * M[:, b]
                    N[b] += t * N[a]
                    N[:, b] += t * N[:, a]
                    A[:, b] += t * A[:, a]
                    h[a] -= t * h[b]
                    g[b] += t * g[a]
    return A


@serial
def draw_scales(Q, q, R, r, power, rounds, counter):
    """Draws factors c of parts of the rows, beginning at 1; those with a power of 0 stay there.

    The log density of s = log c is

        -c'Q c / 2 + q'c - power's - d'R d / 2 + r'd,    d = 1 / c

    with the ratings in Q and q, and the priors in the rest.
    """
    size = len(q)
    c, none = np.ones(size), (np.empty(0), np.empty(0))
    row = 0
    for _ in range(rounds):
        for k in range(size):
            row += 1
            if power[k] == 0.0:
                continue
            up, down = -q[k], -r[k]
            for b in range(size):
                if b != k:
                    up += Q[k, b] * c[b]
                    down += R[k, b] / c[b]
            f = LogDensity(-power[k], up, Q[k, k] / 2.0, down, R[k, k] / 2.0, *none)
            # about the curvature at the maximum; the same wherever c_k is, so the width is
            curvature = 2.0 * power[k]
            if Q[k, k] > 0.0:
                curvature += up * up / Q[k, k]
            width = 2.5 / np.sqrt(curvature)
            c[k] = np.exp(slice_sample(f, np.log(c[k]), width, counter, row))
    return c
