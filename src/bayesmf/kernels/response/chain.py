"""Chains in time: a number for each rating, tied to the one before it of the same user.

    x_k = rho_k x_(k-1) + N(0, s^2 (1 - rho_k^2))

rho depends on the time since the rating before, of which ``codes`` holds a step of a grid. The
first rating of a user has a code whose rho is 0. Ratings of a user are visited in the order of
time, where ``order`` says which rating comes k-th.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from bayesmf.machine import LANES, parallel, serial
from bayesmf.random.philox import fill_lanes, lane_scratch

BLOCKS = 64  # of users, whose sums are added in this order on any number of threads
ONE_DRAW = 2**62  # rows that a draw has at most, so that all are of one


@parallel
def draw_chains(starts, order, codes, batches, rho, fresh, y, w, counter, x):
    """Draws x given y_p = x_p + N(0, 1 / w_p): forward filtering, backward sampling.

    ``rho`` and ``fresh`` = s^2 (1 - rho^2) are tables by code. The users of a batch go side by
    side, one in each lane, and end together: what a lane has before its user's first rating says
    nothing, as that rating forgets what came before.
    """
    for number in prange(len(batches)):
        users = batches[number]
        size = longest(starts, users)
        r, f = np.zeros((size + 1, LANES)), np.ones((size + 1, LANES))
        m, V = np.zeros((size, LANES)), np.zeros((size, LANES))
        for lane in range(LANES):
            if users[lane] >= 0:
                last = starts[users[lane] + 1]
                for k in range(starts[users[lane]], last):
                    p, t = order[k], size - last + k
                    r[t, lane], f[t, lane] = rho[codes[k]], fresh[codes[k]]
                    m[t, lane], V[t, lane] = y[p], w[p]
        filter_lanes(r, f, m, V)
        z = np.empty((size, LANES))
        fill_lanes(counter, np.maximum(users, 0), ONE_DRAW, lane_scratch(size), z)
        sample_lanes(r, f, m, V, z)
        for lane in range(LANES):
            if users[lane] >= 0:
                last = starts[users[lane] + 1]
                for k in range(starts[users[lane]], last):
                    x[order[k]] = m[size - last + k, lane]


@serial
def longest(starts, users):
    """Returns how many ratings the user of a batch has who has most; -1 stands for nobody."""
    size = 0
    for i in users:
        if i >= 0:
            size = max(size, starts[i + 1] - starts[i])
    return size


@serial
def filter_lanes(r, f, m, V):
    """Turns y and w into mean and variance of x given what came until then, where f is fresh.

    v = r^2 V + f;  1/V = 1/v + w;  m = V (r m / v + w y)
    """
    mean, variance = np.zeros(LANES), np.zeros(LANES)
    for t in range(len(m)):
        for lane in range(LANES):
            rho, w = r[t, lane], V[t, lane]
            ahead = rho * rho * variance[lane] + f[t, lane]
            share = 1.0 / (1.0 + ahead * w)
            mean[lane] = (rho * mean[lane] + ahead * w * m[t, lane]) * share
            variance[lane] = ahead * share
            m[t, lane], V[t, lane] = mean[lane], variance[lane]


@serial
def sample_lanes(r, f, m, V, z):
    """Turns means into draws, from the last to the first; z are standard normals in that order.

    G = r V / v_next;  x = m + G (x_next - r m) + N(0, V (1 - G r)).  f and V are overwritten.
    """
    gain, ahead, sd = f.reshape(-1), r.reshape(-1)[LANES:], V.reshape(-1)
    for n in range(len(sd)):
        rho, variance = ahead[n], sd[n]
        G = rho * variance / (rho * rho * variance + gain[n + LANES])
        gain[n], sd[n] = G, np.sqrt(max(variance * (1.0 - G * rho), 0.0))
    later = np.zeros(LANES)
    for t in range(len(m) - 1, -1, -1):
        for lane in range(LANES):
            mean = m[t, lane]
            mean += f[t, lane] * (later[lane] - r[t + 1, lane] * mean)
            later[lane] = mean + V[t, lane] * z[len(m) - 1 - t, lane]
            m[t, lane] = later[lane]


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
        ahead = r * x[a] if a >= 0 else 0.0
        free = 1.0 - r * r * s * s
        gain = s * (1.0 - r * r) / free
        # not as a sum of two products, of which the compiler may fuse either with the sum
        mean[q] = ahead + gain * ((x[b] if b >= 0 else 0.0) - s * ahead)
        doubt[q] = variance * (1.0 - r * r) * (1.0 - s * s) / free
