"""The mean of all W of a design with values, against the linear system written out."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf.model.state import Shift, Side
from bayesmf.sweep.designs import move_to_mean
from oracle.twins import random_design, random_precisions, sparse_of


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_all_w_move_to_the_mean_of_their_gaussian(first, valued):
    n, m, size = 30, 7, 4
    rng = np.random.default_rng(first)
    v = random_design(n, m, valued)
    c, weight = rng.gamma(2.0, size=n), rng.gamma(2.0, size=n)
    grams = random_precisions(rng, n, size + 1)
    prior, mean = random_precisions(rng, 1, size)[0], rng.normal(size=size)
    W, x = rng.normal(size=(m, size)), rng.normal(size=(n, size))
    W[:, :first] = 0.0
    shift = Shift(W.copy(), mean, prior, np.zeros((n, size)))
    me = Side(x.copy(), np.zeros(size), np.eye(size), np.ones(n), np.ones(n), [shift])
    cov, logdet = np.zeros((m, size * (size + 1) // 2)), np.empty(m)
    rows, columns = sparse_of(v, valued), sparse_of(v.T, valued)
    # a call ends when the squared gradient has fallen by 1e-10, or after 20 steps
    for _ in range(6):
        move_to_mean((rows, columns), c, me, shift, first, grams, weight, cov, logdet)

    X, part = c[:, None] * v, slice(first, size)
    A, h = grams[:, :size, :size], grams[:, size, :size]
    own = x - X @ W
    slope = h - np.einsum("iab,ib->ia", A, own)  # of the likelihood, at W = 0
    P = prior[part, part]
    system = np.einsum("ik,il,i,iab->kalb", X, X, weight, A[:, part, part])
    system += np.einsum("kl,ab->kalb", np.eye(m), P)
    right = P @ mean[part] + np.einsum("ik,i,ia->ka", X, weight, slope[:, part])
    wide = m * (size - first)
    expected = np.linalg.solve(system.reshape(wide, wide), right.ravel()).reshape(m, -1)
    np.testing.assert_allclose(shift.W[:, part], expected, atol=1e-9)  # condition below 1e5
    np.testing.assert_allclose(me.x, own + X @ shift.W, atol=1e-12)
    blocks = np.array([system[k, :, k, :] for k in range(m)])
    np.testing.assert_allclose(logdet, -np.linalg.slogdet(blocks)[1], rtol=1e-9)
    padded = np.zeros((m, size, size))
    padded[:, part, part] = np.linalg.inv(blocks)
    np.testing.assert_allclose(cov, padded[:, *np.tril_indices(size)], atol=1e-9)
