"""Rows with priors of their own: worlds for them, and what they should be, by plain loops."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import Model
from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.inference.propagation.block import conditional_moments
from bayesmf.inference.propagation.row_gaussians import RowGaussians, pack
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import Data
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_normal
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Sampling
from bayesmf.sweep.rows import update_rows
from oracle import conditionals as readable
from oracle.variants import VARIANTS, random_state, small_ratings

ROUNDING = 1e-9  # of well-conditioned matrices of size 3, entries of about 1
PLAIN = ["biases", "biases, fixed prior", "no side", "no side, fixed bias prior",
         "no side, joint bias"]  # fmt: skip
MODEL = Model.paper("no-side", rank=2)


def world(n_users=60, n_items=40, seed=0, noise=0.5) -> Ratings:
    """Ratings with two features and some noise, about half of all pairs."""
    rng = np.random.default_rng(seed)
    tastes, traits = rng.normal(size=(n_users, 2)), rng.normal(size=(n_items, 2))
    user, item = np.nonzero(rng.random((n_users, n_items)) < 0.5)
    values = 3 + (tastes[user] * traits[item]).sum(axis=1) + noise * rng.normal(size=len(user))
    return Ratings.from_sorted(
        Ids(np.arange(n_users)), Ids(np.arange(n_items)), user.astype(np.int32),
        item.astype(np.int32), values, None, Scale(-9, 15),
    )  # fmt: skip


def gaussians(rows: int, size: int, seed: int = 0) -> RowGaussians:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rows, size, size))
    return RowGaussians(rng.normal(size=(rows, size)),
                        pack(root @ root.transpose(0, 2, 1) + np.eye(size)))  # fmt: skip


def with_priors(model, ratings=None):
    """A state, and data in which users have priors of their own."""
    ratings = small_ratings(30, 9) if ratings is None else ratings
    data = Data.of(ratings, model)
    known = gaussians(ratings.n_users, model.size)
    return replace(data, user=replace(data.user, priors=known.priors())), known


def against_loops(name: str) -> bytes:
    """The kernel's draws, means and covariances, row by row, from the conditional's loop."""
    model = VARIANTS[name]
    data, known = with_priors(model, small_ratings(150, 9))  # batches for several threads
    state = random_state(model, data)
    before = copy.deepcopy(state)
    mean, cov = conditional_moments(model, data.user, state)
    update_rows(model, data.user, state.user, state.item, state, Sampling(Draws(3)))
    counter = stream(Draws(3), "user", "rows").counter()
    for i in range(len(mean)):
        precision = np.linalg.inv(unpack(known.cov[i]))
        linear = precision @ known.mean[i]
        for j, r in readable.rated(data.user, i):
            z = np.concatenate([[1.0], before.item.x[j, 1 : model.size]])
            precision = precision + before.tau * np.outer(z, z)
            linear = linear + before.tau * z * (r - before.item.x[j, 0])
        assert mean[i] == pytest.approx(np.linalg.solve(precision, linear), abs=ROUNDING)
        assert cov[i] == pytest.approx(pack(np.linalg.inv(precision)[None])[0], abs=ROUNDING)
        gaussian = readable.row(before, data.user, i, model)
        assert gaussian.precision == pytest.approx(precision, abs=ROUNDING)
        assert gaussian.linear == pytest.approx(linear, abs=ROUNDING)
        noise = np.empty(model.size)
        fill_normal(counter, i, noise)
        drawn = state.user.x[i, : model.size]
        assert drawn == pytest.approx(gaussian.sample(noise), abs=ROUNDING)
    return mean.tobytes() + cov.tobytes() + state.user.x.tobytes()


def regressions(ratings: Ratings, items: np.ndarray, prior: RowGaussians, tau: float):
    """The users' posteriors when items and tau are known: exact, by plain linear regressions."""
    mean, cov = np.empty_like(prior.mean), np.empty_like(prior.cov)
    rows = ratings.by_user
    for i in range(len(mean)):
        span = slice(rows.starts[i], rows.starts[i + 1])
        z = items[rows.index[span]].copy()
        target = rows.values[span] - z[:, 0]
        z[:, 0] = 1.0
        P = np.linalg.inv(unpack(prior.cov[i]))
        precision = P + tau * z.T @ z
        mean[i] = np.linalg.solve(precision, P @ prior.mean[i] + tau * z.T @ target)
        cov[i] = pack(np.linalg.inv(precision)[None])[0]
    return RowGaussians(mean, cov)
