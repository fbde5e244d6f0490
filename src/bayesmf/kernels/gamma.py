"""Moments of truncated Gammas by quadrature, at full precision wherever the bounds are."""

from __future__ import annotations

import numpy as np
from numba import prange

from bayesmf.machine import parallel

DEPTH = 40.0  # a density e^-40 below its maximum adds nothing that doubles can hold


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
