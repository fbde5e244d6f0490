"""Chains in time: a number for each rating, tied to the one before it of the same user.

    x_k = rho_k x_(k-1) + N(0, s^2 (1 - rho_k^2))

rho depends on the time since the rating before, of which ``codes`` holds a step of a grid. The
first rating of a user has a code whose rho is 0. Ratings of a user are visited in the order of
time, where ``order`` says which rating comes k-th.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from bayesmf.machine import parallel, serial
from bayesmf.random.philox import bits, normal_quantile, to_unit

BLOCKS = 64  # of users, whose sums are added in this order on any number of threads


@parallel
def draw_chains(starts, order, codes, rho, fresh, y, w, counter, m, V, x):
    """Draws x given y_p = x_p + N(0, 1 / w_p): forward filtering, backward sampling.

    ``rho`` and ``fresh`` = s^2 (1 - rho^2) are tables by code, ``m`` and ``V`` are scratch.
    """
    for i in prange(len(starts) - 1):
        draw_chain(starts[i], starts[i + 1], order, codes, rho, fresh, y, w, counter, i, m, V, x)


@serial
def draw_chain(first, end, order, codes, rho, fresh, y, w, counter, row, m, V, x):
    """Draws the chain of one user.

    filter    v = rho^2 V + s^2 (1 - rho^2);  1/V = 1/v + w;  m = V (rho m / v + w y)
    backward  G = rho V / v_next;  x = m + G (x_next - rho m) + N(0, V (1 - G rho))
    """
    mean, variance = 0.0, 0.0
    for k in range(first, end):
        p, r = order[k], rho[codes[k]]
        ahead = r * r * variance + fresh[codes[k]]
        share = 1.0 / (1.0 + ahead * w[p])
        mean = (r * mean + ahead * w[p] * y[p]) * share
        variance = ahead * share
        m[k], V[k] = mean, variance
    later, words = 0.0, bits(counter, row, 0)
    for k in range(end - 1, first - 1, -1):
        number = end - 1 - k
        if number % 2 == 0:
            words = bits(counter, row, number // 2)
        z = normal_quantile(to_unit(words[number % 2]))
        mean, variance = m[k], V[k]
        if k < end - 1:
            r = rho[codes[k + 1]]
            G = r * variance / (r * r * variance + fresh[codes[k + 1]])
            mean += G * (later - r * mean)
            variance *= 1.0 - G * r
        later = mean + np.sqrt(max(variance, 0.0)) * z
        x[order[k]] = later


@parallel
def sum_steps(starts, order, codes, x, out):
    """Sums x_k^2, x_k x_(k-1) and x_(k-1)^2 by code, for each of ``len(out)`` blocks of users."""
    users = len(starts) - 1
    for block in prange(len(out)):
        for i in range(block * users // len(out), (block + 1) * users // len(out)):
            before = 0.0
            for k in range(starts[i], starts[i + 1]):
                value, code = x[order[k]], codes[k]
                out[block, code, 0] += value * value
                out[block, code, 1] += value * before
                out[block, code, 2] += before * before
                before = value


@parallel
def locate(starts, times, items, user, time, item, position, is_there):
    """Finds the place of pairs among the ratings of their users, by time and then by item.

    ``position`` is where the pair would stand in the order of time, -1 for a user who is not known;
    ``is_there`` says whether it is the rating that stands there.
    """
    for q in prange(len(user)):
        if user[q] < 0:
            position[q] = -1
            is_there[q] = False
            continue
        low, high = starts[user[q]], starts[user[q] + 1]
        end = high
        while low < high:
            middle = (low + high) // 2
            earlier = times[middle] < time[q]
            if times[middle] == time[q]:
                earlier = items[middle] < item[q]
            if earlier:
                low = middle + 1
            else:
                high = middle
        position[q] = low
        is_there[q] = low < end and times[low] == time[q] and items[low] == item[q]


@parallel
def interpolate(before, after, code_before, code_after, x, rho, variance, mean, doubt):
    """Fills mean and variance of x at pairs, given those of the ratings before and after them.

    A neighbour of -1 is none; a pair whose two neighbours are one rating is that rating.
    """
    for q in prange(len(before)):
        a, b = before[q], after[q]
        if a >= 0 and a == b:
            mean[q], doubt[q] = x[a], 0.0
            continue
        r = rho[code_before[q]] if a >= 0 else 0.0
        s = rho[code_after[q]] if b >= 0 else 0.0
        known_a = x[a] if a >= 0 else 0.0
        known_b = x[b] if b >= 0 else 0.0
        free = 1.0 - r * r * s * s
        mean[q] = (r * (1.0 - s * s) * known_a + s * (1.0 - r * r) * known_b) / free
        doubt[q] = variance * (1.0 - r * r) * (1.0 - s * s) / free
