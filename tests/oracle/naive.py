"""Slow twins, written straight from the definitions."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from oracle.conditionals import weighed


def index(triplets: list[tuple[Any, Any, float]]) -> dict[str, Any]:
    """Users, items and ratings by user and by item, by dictionaries and loops."""
    by_user: dict[Any, dict[Any, float]] = defaultdict(dict)
    by_item: dict[Any, dict[Any, float]] = defaultdict(dict)
    for user, item, value in triplets:
        by_user[user][item] = value
        by_item[item][user] = value
    return {
        "users": sorted(by_user),
        "items": sorted(by_item),
        "by_user": {u: sorted(row.items()) for u, row in by_user.items()},
        "by_item": {i: sorted(row.items()) for i, row in by_item.items()},
    }


def rows(side: Any, own: Any, other: Any) -> dict[Any, list[tuple[Any, float]]]:
    """Unpack a Rows object into the form of ``index``."""
    out = {}
    for r, name in enumerate(own):
        span = range(side.starts[r], side.starts[r + 1])
        out[name] = [(other[side.index[k]], float(side.values[k])) for k in span]
    return out


def expected_gram(data: Any, i: int, other: Any, cov: Any) -> np.ndarray:
    """sum_j w_j <v v'>, v = (1, T_j, r_ij - eta_j), with Cov[(eta_j, T_j)] = cov[j]."""
    size = other.size
    out = np.zeros((size + 1, size + 1))
    for j, r, given in weighed(data, i):
        v = np.array([1.0, *other.x[j, 1:size], r - other.x[j, 0]])
        C = np.zeros((size + 1, size + 1))
        for a in range(1, size):
            for b in range(1, size):
                C[a, b] = cov[j][a, b]
            C[a, size] = C[size, a] = -cov[j][a, 0]
        C[size, size] = cov[j][0, 0]
        out += other.alpha[j] * given * (np.outer(v, v) + C)
    return out


def expected_error(r: float, x: Any, C: Any, y: Any, D: Any) -> float:
    """E_ij, where (gamma, S) has mean x and covariance C, and (eta, T) mean y and covariance D.

    (r - gamma - eta - S'T)^2 + Var gamma + Var eta + tr(C_S D_T) + T'C_S T + S'D_T S, and twice
    the covariances of a bias with the features of its own row, T'C_S,gamma and S'D_T,eta.
    """
    e = r - x[0] - y[0] - x[1:] @ y[1:]
    S, T, CS, DT = x[1:], y[1:], C[1:, 1:], D[1:, 1:]
    both = np.trace(CS @ DT) + T @ CS @ T + S @ DT @ S
    return float(e**2 + C[0, 0] + D[0, 0] + both + 2 * (T @ C[1:, 0] + S @ D[1:, 0]))
