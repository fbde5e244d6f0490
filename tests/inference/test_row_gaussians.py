"""Rows with priors of their own, and products of their posteriors, against plain loops."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bayesmf.inference.propagation.row_gaussians import RowGaussians, RowMoments, pack, product
from bayesmf.model.conditionals import unpack
from bayesmf.random.draws import Draws
from bayesmf.sweep import sweep
from oracle.row_priors import (
    MODEL,
    PLAIN,
    ROUNDING,
    against_loops,
    gaussians,
    regressions,
    with_priors,
    world,
)
from oracle.variants import random_state


@pytest.mark.parametrize("name", PLAIN)
def test_rows_with_priors_of_their_own_against_loops(name):
    against_loops(name)


@pytest.mark.slow
def test_rows_with_priors_of_their_own_on_2_threads():
    """The same in a process that has two, with the same bits on one and on both."""
    code = (
        "import oracle.row_priors as t, numba; one = t.against_loops('no side'); "
        "numba.set_num_threads(1); assert t.against_loops('no side') == one; print('same')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "2"}, check=False,
    )  # fmt: skip
    assert done.stdout == "same\n", done.stderr


def test_a_side_with_priors_has_nothing_to_learn():
    data, _ = with_priors(MODEL)
    state = random_state(MODEL, data)
    before = copy.deepcopy(state)
    sweep.gibbs_sweep(MODEL, data, state, Draws(0), "centred")
    np.testing.assert_array_equal(state.user.mu, before.user.mu)
    np.testing.assert_array_equal(state.user.Lambda, before.user.Lambda)
    assert not np.array_equal(state.item.Lambda, before.item.Lambda)


def exact_case():
    """Blocks' posteriors of the users, given the items, and that of all ratings together."""
    ratings, items = world(20, 12), np.random.default_rng(1).normal(size=(12, 3))
    prior = gaussians(20, 3, seed=2)
    first = np.arange(12) % 3
    index = ratings.by_user.index
    parts = [ratings.select(first[index] == k) for k in range(3)]
    begun = regressions(parts[0], items, prior, 2.0)
    later = [regressions(part, items, begun, 2.0) for part in parts[1:]]
    return begun, later, regressions(ratings, items, prior, 2.0)


def test_the_product_is_the_posterior_of_all_ratings():
    """With one side known the posteriors are Gaussian, and nothing is lost by cutting."""
    begun, later, whole = exact_case()
    found = product(begun, later)
    np.testing.assert_allclose(found.mean, whole.mean, atol=ROUNDING)
    np.testing.assert_allclose(found.cov, whole.cov, atol=ROUNDING)
    assert product(begun, []) is begun
    # the formula as it is written, and the mistakes it is there to avoid
    P = [np.linalg.inv(unpack(each.cov)) for each in (begun, *later)]
    h = [np.einsum("iab,ib->ia", p, each.mean) for p, each in zip(P, (begun, *later), strict=True)]
    for times, right in ((1, True), (0, False), (2, False)):
        precision, linear = P[1] + P[2] - times * P[0], h[1] + h[2] - times * h[0]
        mean = np.linalg.solve(precision, linear[..., None])[..., 0]
        assert np.allclose(mean, whole.mean, atol=ROUNDING) == right


def test_a_direction_that_lost_information_keeps_the_priors():
    """One posterior is wider than the prior along the first axis, and narrower along the second."""
    prior = RowGaussians(np.zeros((1, 2)), pack(np.eye(2)[None]))
    odd = RowGaussians(np.array([[3.0, 1.0]]), pack(np.diag([4.0, 0.5])[None]))
    found = product(prior, [odd, odd])  # P = diag(1/4 + 1/4 - 1, 2 + 2 - 1)
    np.testing.assert_allclose(unpack(found.cov)[0], np.diag([1.0, 1 / 3]))
    np.testing.assert_allclose(found.mean[0], [(3 + 3) / 4, 4 / 3])


def test_moments_are_those_of_a_mixture():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(4, 3)), gaussians(4, 3, seed=k).cov) for k in range(5)]
    moments = RowMoments(4, 3)
    for mean, cov in parts:
        moments.add(mean, cov)
    found = moments.result()
    means = np.array([mean for mean, _ in parts])
    np.testing.assert_allclose(found.mean, means.mean(axis=0))
    for i in range(4):
        expected = np.cov(means[:, i].T) + unpack(np.mean([cov[i] for _, cov in parts], axis=0))
        np.testing.assert_allclose(unpack(found.cov[i]), expected)
    one = RowMoments(4, 3)
    one.add(*parts[0])  # fewer draws than features: still a covariance
    assert (np.linalg.eigvalsh(unpack(one.result().cov)) > 0).all()
