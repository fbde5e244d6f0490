"""The prior of a row with g ratings, from its definition, in plain loops."""

from __future__ import annotations

import numpy as np


class PlainNewRows:
    """``pairs`` are (row, other) of the training ratings; ``rows`` the S_i of one draw."""

    def __init__(self, rows, pairs, n_others: int, prior_cov, power: float = 1.0, cov=None):
        rows = np.asarray(rows, float)
        size, count = rows.shape[1], 5.0
        rated = [[k for i, k in pairs if i == row] for row in range(len(rows))]
        raters = [[i for i, k in pairs if k == other] for other in range(n_others)]
        n = np.array([len(each) for each in rated])
        weight = np.array([float(each) ** power if each else 0.0 for each in n])
        weight /= weight.sum()
        self.mean = sum(w * row for w, row in zip(weight, rows, strict=True))
        self.Q = np.zeros((n_others, size))
        for k, who in enumerate(raters):
            total = sum((rows[i] for i in who), np.zeros(size))
            self.Q[k] = (total + count * self.mean) / (len(who) + count) - self.mean
        q, means = np.zeros_like(rows), np.zeros_like(rows)
        for i, what in enumerate(rated):
            for k in what:
                m = len(raters[k])
                own = (rows[i] - self.mean - self.Q[k]) / (m + count - 1)
                q[i] += (self.Q[k] - own) / len(what)
                means[i] += self.Q[k] / len(what)
        self.q, self.qbar = q, weight @ q
        self.C_S, self.C_sq, C_q, self.C_w = np.zeros((4, size, size))
        again = np.where(n >= 2, weight, 0.0)
        again = again / again.sum()
        for i, what in enumerate(rated):
            s, t = rows[i] - self.mean, q[i] - self.qbar
            self.C_S += weight[i] * np.outer(s, s)
            self.C_sq += weight[i] * np.outer(s, t)
            C_q += weight[i] * np.outer(t, t)
            for k in what if len(what) > 1 else ():
                e = self.Q[k] - means[i]  # the sample covariance of what one row rated
                self.C_w += again[i] / (len(what) - 1) * np.outer(e, e)
        C_q -= sum(w / each for w, each in zip(weight, n, strict=True) if each) * self.C_w
        share = size * sum(weight**2)
        self.C_S = (self.C_S + share * prior_cov) / (1 + share) if cov is None else cov
        values, vectors = np.linalg.eigh(self.C_S)
        root = vectors * np.sqrt(values) @ vectors.T  # in these coordinates C_S is the identity
        C, S, W = (
            np.linalg.inv(root) @ m @ np.linalg.inv(root) for m in (self.C_sq, C_q, self.C_w)
        )
        found = 1.05 * C.T @ C
        found = found + positive(positive(S) - found)
        found += 1e-9 * (np.trace(found) + np.trace(W)) * np.eye(size)
        self.C_q = root @ found @ root

    def H(self, g: int):
        if g == 0:
            return np.zeros_like(self.C_S)
        return self.C_sq @ np.linalg.inv(self.C_q + self.C_w / g)

    def a(self, g: int, s):
        return self.mean if g == 0 else self.mean + self.H(g) @ (s / g - self.qbar)

    def R(self, g: int):
        return self.C_S - self.H(g) @ self.C_sq.T

    def b(self, others):
        return np.array([z @ self.H(1) @ q for z, q in zip(ones(others), self.Q, strict=True)])

    def newness(self, g: int, cov, others, counts) -> float:
        """tr(G H_{g+1} M) / ((g + 1) tr(H_1 M)), G = cov R_g^-1."""
        share = np.asarray(counts) / np.sum(counts)
        M = sum(p * np.outer(q, z) for p, q, z in zip(share, self.Q, ones(others), strict=True))
        whole = np.trace(self.H(1) @ M)
        if whole <= 0:
            return 0.0
        G = cov @ np.linalg.inv(self.R(g))
        return float(np.trace(G @ self.H(g + 1) @ M) / ((g + 1) * whole))


def positive(matrix):
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return sum(max(v, 0.0) * np.outer(u, u) for v, u in zip(values, vectors.T, strict=True))


def ones(others):
    z = np.array(others, float)
    z[:, 0] = 1.0
    return z


def plain_new_rows(posterior, draws, number: int, name: str, cov=None, power=1.0) -> PlainNewRows:
    """That of one draw of a posterior with its training ratings."""
    train = posterior.train
    pairs = list(zip(train.by_user.row_index.tolist(), train.by_user.index.tolist(), strict=True))
    if name == "item":
        pairs = [(k, i) for i, k in pairs]
    n_others = train.n_items if name == "user" else train.n_users
    prior_cov = np.linalg.inv(np.asarray(draws[f"{name}.Lambda"][number], float))
    return PlainNewRows(draws[f"{name}.x"][number], pairs, n_others, prior_cov, power, cov)


def regress(rows, X, counts):
    """Rows on X and a constant, weighted by counts; a ridge of as many rows as X has columns."""
    weight = np.sqrt(counts / counts.sum() * (counts > 0).sum())[:, None]
    columns = X.shape[1]
    ridge = np.c_[np.zeros(columns), np.sqrt(columns) * np.eye(columns)]
    left = np.r_[weight * np.c_[np.ones(len(X)), X], ridge]
    right = np.r_[weight * rows, np.zeros((columns, rows.shape[1]))]
    return np.linalg.lstsq(left, right, rcond=None)[0][1:]
