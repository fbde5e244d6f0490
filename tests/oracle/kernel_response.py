"""Naive twins of the kernels of the working response: rating by rating, in Python."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from bayesmf.kernels.response import chain, rated
from bayesmf.kernels.rows import batches
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_uniform
from oracle.twins import Pairs, case

S2, CODES = 0.3, 6  # the last code is that of a first rating
RHO = np.append(np.linspace(0.97, 0.2, CODES - 1), 0.0)
FRESH = S2 * (1 - RHO**2)


def make_chains(users: int = 90) -> dict:
    """Ratings of users, of whom one in twelve has none, in another order than that of time."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 12, users)
    counts[3] = 700  # more than what is computed at a time
    starts = np.concatenate([[0], np.cumsum(counts)])
    order = np.concatenate([a + rng.permutation(n) for a, n in zip(starts, counts, strict=False)])
    codes = rng.integers(0, CODES - 1, len(order)).astype(np.uint8)
    codes[starts[:-1][counts > 0]] = CODES - 1
    return {
        "starts": starts, "order": order, "codes": codes, "batches": batches(counts),
        "y": rng.normal(size=len(order)), "w": rng.gamma(2.0, size=len(order)),
    }  # fmt: skip


def naive_chain(mine: range, given: dict, u: np.ndarray, x: np.ndarray) -> None:
    """Forward filtering and backward sampling of one user, one rating after the other."""
    before, means, variances = (0.0, 0.0), {}, {}
    for k in mine:
        p, r = given["order"][k], RHO[given["codes"][k]]
        v = r**2 * before[1] + FRESH[given["codes"][k]]
        V = 1 / (1 / v + given["w"][p])
        means[k], variances[k] = V * (r * before[0] / v + given["w"][p] * given["y"][p]), V
        before = means[k], V
    for number, k in enumerate(reversed(mine)):
        m, V = means[k], variances[k]
        if number:
            r, later = RHO[given["codes"][k + 1]], x[given["order"][k + 1]]
            G = r * V / (r**2 * V + FRESH[given["codes"][k + 1]])
            m, V = m + G * (later - r * m), V * (1 - G * r)
        x[given["order"][k]] = m + math.sqrt(V) * ndtri(u[number])


@case
def chain_draws() -> Pairs:
    """What the ratings of each user share with those before."""
    given, counter = make_chains(), Draws(7, sweep=4).counter()
    x, naive = np.empty((2, len(given["y"])))
    sides = (given[name] for name in ("starts", "order", "codes", "batches"))
    chain.draw_chains(*sides, RHO, FRESH, given["y"], given["w"], counter, x)
    for i, (first, end) in enumerate(zip(given["starts"], given["starts"][1:], strict=False)):
        u = np.empty(end - first)
        fill_uniform(counter, i, u)
        naive_chain(range(first, end), given, u, naive)
    return [(x, naive)]


@case
def chain_between() -> Pairs:
    """What a pair has, given the ratings before and after it, by the covariance of the three."""
    rng, size = np.random.default_rng(8), 400
    x = rng.normal(size=50)
    before, after = rng.integers(-1, 50, size), rng.integers(-1, 50, size)
    codes = rng.integers(0, CODES - 1, (2, size)).astype(np.uint8)
    mean, doubt = np.empty((2, size))
    chain.interpolate(before, after, *codes, x, RHO, S2, mean, doubt)
    plain_mean, plain_doubt = np.empty((2, size))
    for q in range(size):
        a, b, (r, s) = before[q], after[q], RHO[codes[:, q]]
        if a >= 0 and a == b:
            plain_mean[q], plain_doubt[q] = x[a], 0.0
            continue
        C = S2 * np.array([[1, r, r * s], [r, 1, s], [r * s, s, 1]])  # before, the pair, after
        there = [k for k, p in ((0, a), (2, b)) if p >= 0]
        gain = C[1, there] @ np.linalg.inv(C[np.ix_(there, there)])
        plain_mean[q] = gain @ x[[(a, None, b)[k] for k in there]]
        plain_doubt[q] = S2 - gain @ C[there, 1]
    return [(mean, plain_mean), (doubt, plain_doubt)]


@case
def rated_pairs() -> Pairs:
    """Linear predictors and precisions, of users with one rating and with many."""
    rng = np.random.default_rng(6)
    user = np.repeat(np.arange(300, dtype=np.int32), rng.integers(0, 23, 300))
    item = rng.integers(0, 40, len(user)).astype(np.int32)
    x, y = rng.normal(size=(300, 8)), rng.normal(size=(40, 8))  # of whose columns six count
    alpha, beta = rng.gamma(3.0, size=300), rng.gamma(3.0, size=40)
    f, w = np.empty((2, len(user)))
    rated.predict_rated(user, item, x, y, 6, 1.7, alpha, beta, f, w)
    plain = [x[i, 0] + y[j, 0] + x[i, 1:6] @ y[j, 1:6] for i, j in zip(user, item, strict=True)]
    return [(f, np.array(plain)), (w, 1.7 * alpha[user] * beta[item])]


@case
def reordered() -> Pairs:
    """Values in another order, of more than two pieces of work."""
    values = np.random.default_rng(4).normal(size=5000)
    order, out = np.argsort(values), np.empty(5000)
    rated.reorder(values, order, out)
    return [(out, np.sort(values))]
