"""Naive twins of the kernels of ordinal ratings, rating by rating, with SciPy's normal."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import log_ndtr, ndtr

from bayesmf.kernels.response import ordinal as kernels
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_uniform
from oracle.twins import Pairs, case

LEVELS, STEP, FIRST = 5, 0.5, -1.2


def log_mass(a: float, b: float) -> float:
    """log(Phi(b) - Phi(a)), from the side where both are small."""
    if a > 0:
        a, b = -b, -a
    high, low = log_ndtr(b), log_ndtr(a)
    return float(high + np.log1p(-np.exp(low - high)))


def make(levels: int = LEVELS, users: int = 150, seed: int = 0) -> dict:
    """Ratings of users, one of whom has none; cuts of each user."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, users)
    counts[1] = 0
    user = np.repeat(np.arange(users, dtype=np.int32), counts)
    theta = 0.3 * rng.normal(size=(users, levels - 2))
    gaps = STEP * np.exp(theta)
    cuts = FIRST + STEP * (levels - 1) / 2 - gaps.sum(axis=1, keepdims=True) / 2
    cuts = np.hstack([cuts, cuts + np.cumsum(gaps, axis=1)])
    cell = rng.integers(0, levels, len(user))
    return {
        "user": user, "starts": np.concatenate([[0], np.cumsum(counts)]), "theta": theta,
        "gaps": gaps, "cuts": cuts, "cell": cell, "centred": FIRST + STEP * cell,
        "f": 0.7 * rng.normal(size=len(user)), "root": rng.gamma(8.0, 0.3, len(user)),
    }  # fmt: skip


def cells_of(w: dict) -> kernels.Cells:
    return kernels.Cells(w["user"], w["centred"], FIRST, 1 / STEP, w["f"], w["root"])


def with_ends(cuts: np.ndarray) -> np.ndarray:
    return np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))


def measured(w: dict, cuts: np.ndarray, factor: float = 1.0) -> np.ndarray:
    starts, size = w["starts"], cuts.shape[1] + 2
    rows = np.zeros((len(starts) - 1, kernels.width_of(size)))
    kernels.measure(cells_of(w), starts[[0, 70, 71, -1]], factor, with_ends(cuts), rows)
    return rows


def without_ends(rows: np.ndarray) -> np.ndarray:
    """The columns of ``measure`` that belong to cuts which are finite, and the others."""
    size = (rows.shape[1] - 3) // 4
    skipped = [1 + k for k in (0, size - 1)]
    skipped += [2 + n * size + k for n in (1, 2, 3) for k in (0, size - 1)]
    assert np.abs(rows[:, skipped]).max() < 1e-9
    return np.delete(rows, skipped, axis=1)


def naive_rows(w: dict, cuts: np.ndarray, factor: float) -> np.ndarray:
    """By hand: the derivatives of log(Phi(b) - Phi(a)), and the chain rule with a full matrix."""
    users, size = len(w["starts"]) - 1, cuts.shape[1]
    out = np.zeros((users, 4 * size + 3))
    for p, i in enumerate(w["user"]):
        root, k = w["root"][p] * factor, w["cell"][p]
        ends = np.concatenate([[-np.inf], cuts[i], [np.inf]])[k : k + 2]
        a, b = (ends - w["f"][p]) * root
        value = log_mass(a, b)
        inner = np.array([-np.exp(stats.norm.logpdf(a) - value),
                          np.exp(stats.norm.logpdf(b) - value)])  # fmt: skip
        own = np.array([0.0 if np.isinf(x) else x for x in (a, b)])
        bent = np.outer(inner, inner) + np.diag(inner * own)
        J = np.zeros((2, size + 1))  # of a and b in the cuts and in log tau
        for e, c in ((0, k - 1), (1, k)):
            if 0 <= c < size:
                J[e, c] = root
        J[:, size] = own / 2
        slope, precision = J.T @ inner, J.T @ bent @ J
        out[i, 0] += value
        out[i, 1 : size + 2] += slope
        out[i, size + 2 : 2 * size + 2] += np.diag(precision)[:size]
        out[i, 2 * size + 2 : 3 * size + 1] += np.diag(precision[:size, :size], 1)
        out[i, 3 * size + 2 : 4 * size + 3] += precision[size]
    return out


def naive_moments(row: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and precision in (log tau, log gaps), by c = middle + A g with a dense A."""
    size = len(gaps) + 1
    A = np.array([[float(k < j) - 0.5 for k in range(size - 1)] for j in range(size)]) * gaps
    diagonal, off, cross = row[size + 2 :], row[2 * size + 2 :], row[3 * size + 2 :]
    P = np.zeros((size + 1, size + 1))
    P[1:, 1:] = (
        np.diag(diagonal[:size]) + np.diag(off[: size - 1], 1) + np.diag(off[: size - 1], -1)
    )
    P[0, 1:] = P[1:, 0] = cross[:size]
    P[0, 0] = cross[size]
    J = np.zeros((size + 1, size))
    J[0, 0], J[1:, 1:] = 1.0, A
    slope = np.concatenate([[row[size + 1]], row[1 : size + 1]])
    return J.T @ slope, J.T @ P @ J


@case
def ordinal_likelihood() -> Pairs:
    """The log likelihood of each user with its derivatives; and of all, in log tau and log gaps."""
    pairs = []
    for levels, factor in ((2, 1.0), (3, 0.7), (LEVELS, 1.0), (11, 1.3)):
        w = make(levels)
        rows = measured(w, w["cuts"], factor)
        plain = naive_rows(w, w["cuts"], factor)
        pairs.append((without_ends(rows), plain))
        if levels > 2:
            apart, wide = np.random.default_rng(9).normal(size=w["theta"].shape), 2 * levels - 3
            slope, P = np.empty(wide), np.empty((wide, wide))
            value = kernels.add_up(rows, w["gaps"], apart, slope, P)
            total, curved = np.zeros(wide), np.zeros((wide, wide))
            for row, gaps, away in zip(plain, w["gaps"], apart, strict=True):
                own, bent = naive_moments(row, gaps)
                J = np.hstack(
                    [np.eye(levels - 1), np.vstack([np.zeros(levels - 2), np.diag(away)])]
                )
                total, curved = total + J.T @ own, curved + J.T @ bent @ J
            pairs.append((np.array([value]), np.array([rows[:, 0].sum()])))
            pairs += [(slope, total), (P, curved)]
    return pairs


@case
def ordinal_gaps_of_users() -> Pairs:
    """Proposals of users' gaps, and which are accepted."""
    w, counter = make(seed=3), Draws(2, sweep=9).counter()
    theta, size = w["theta"], w["theta"].shape[1]
    mean, precision = np.array([0.1, 0.0, -0.2]), np.array([9.0, 5.0, 7.0])
    rows = measured(w, w["cuts"])
    to, forward = np.empty_like(theta), np.empty(len(theta))
    kernels.propose(rows, theta, w["gaps"], mean, precision, counter, to, forward)
    gaps = STEP * np.exp(to)
    cuts = FIRST + STEP * (LEVELS - 1) / 2 - gaps.sum(axis=1, keepdims=True) / 2
    other = measured(w, np.hstack([cuts, cuts + np.cumsum(gaps, axis=1)]))
    new = theta.copy()
    kernels.accept(rows, new, other, gaps, to, mean, precision, counter, forward)
    naive_to, naive_new = np.empty_like(theta), theta.copy()
    for i in range(len(theta)):
        u = np.empty(2 * (size + 8) + 1)
        fill_uniform(counter, i, u)
        scale = np.sqrt(8 / (-2 * np.log(u[size : size + 4]).sum()))

        def proposal(row, gap, at):
            slope, P = naive_moments(row, gap)
            P = P[1:, 1:] + np.diag(precision)
            centre = at + np.linalg.solve(P, slope[1:] - precision * (at - mean))
            return centre, np.linalg.cholesky(P)

        centre, lower = proposal(without_ends(rows)[i], w["gaps"][i], theta[i])
        naive_to[i] = centre + scale * np.linalg.solve(lower.T, stats.norm.ppf(u[:size]))
        back, factor = proposal(without_ends(other)[i], gaps[i], to[i])
        t = stats.multivariate_t
        gain = other[i, 0] - rows[i, 0]
        gain += t(back, np.linalg.inv(factor @ factor.T), 8).logpdf(theta[i])
        gain -= t(centre, np.linalg.inv(lower @ lower.T), 8).logpdf(to[i])
        gain += 0.5 * precision @ ((theta[i] - mean) ** 2 - (to[i] - mean) ** 2)
        if np.log(u[-1]) < gain:
            naive_new[i] = to[i]
    return [(to, naive_to), (new, naive_new)]


@case
def ordinal_latent_numbers() -> Pairs:
    """z at the share u of its cell; chances of all cells."""
    w, counter = make(seed=5), Draws(4, sweep=3).counter()
    out, naive = np.empty(len(w["f"])), np.empty(len(w["f"]))
    kernels.draw_latent(cells_of(w), with_ends(w["cuts"]), counter, out)
    chances, plain = (np.empty((len(out), LEVELS)) for _ in range(2))
    row, sd = w["user"], 1 / w["root"]
    kernels.cell_chances(row, w["f"], sd, with_ends(w["cuts"]), chances)
    for p, i in enumerate(w["user"]):
        u = np.empty(2)
        fill_uniform(counter, p // 2, u)
        ends = np.concatenate([[-np.inf], w["cuts"][i], [np.inf]])
        a, b = (ends[w["cell"][p] : w["cell"][p] + 2] - w["f"][p]) * w["root"][p]
        u = u[p % 2] if a + b > 0 else 1 - u[p % 2]  # from the other side
        naive[p] = w["f"][p] + stats.truncnorm.ppf(u, a, b) / w["root"][p]
        plain[p] = np.diff(ndtr((ends - w["f"][p]) / sd[p]))
    return [(out, naive), (chances, plain)]
