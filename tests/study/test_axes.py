"""Axes in which features of different draws can be compared."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from bayesmf.study.axes import FeatureVariance, independent_axes
from bayesmf.study.execute import _largest_variance


def some_draws(noise=0.3, draws=400):
    """Users around known means, items that stay; two features of five are hardly there."""
    rng = np.random.default_rng(0)
    sizes = np.array([3.0, 2.0, 1.0, 0.01, 0.01])
    users, items = rng.normal(size=(40, 5)) * sizes, rng.normal(size=(300, 5))
    doubt = noise * np.linspace(1, 2, 40)[:, None]
    return [(users + doubt * rng.normal(size=users.shape), items) for _ in range(draws)]


def largest(draws):
    found = FeatureVariance()
    for users, items in draws:
        found.add(users, items)
    return found.largest()


def test_axes_that_are_drawn_anew_change_nothing():
    rng, draws = np.random.default_rng(1), some_draws()
    turned = []
    for users, items in draws:
        A = rng.normal(size=(5, 5))
        turned.append((users @ A, items @ np.linalg.inv(A).T))
    np.testing.assert_allclose(largest(turned), largest(draws), rtol=1e-6)


def known_doubt(count, rng):
    """Means and covariances of features, whose directions are unequally sure."""
    sizes = np.array([1.0, 0.7, 0.4, 0.01])
    A = rng.normal(size=(count, 4, 4)) * [0.3, 0.2, 0.1, 0.1]
    return rng.normal(size=(count, 4)) * sizes, A @ A.mT / 4 + 0.01 * np.eye(4)


def test_the_variance_over_draws_is_that_of_what_they_are_drawn_from():
    """Of both halves of the study's finding: draws in axes of their own, and their covariances.

    Draws have axes by items that are not quite sure, which adds a little to the variance.
    """
    rng = np.random.default_rng(0)
    (users, doubt), (items, their_doubt) = known_doubt(60, rng), known_doubt(80, rng)
    their_doubt *= 0.2
    roots = np.linalg.cholesky(doubt), np.linalg.cholesky(their_doubt)
    draws = []
    for _ in range(800):
        u, v = (
            mean + np.einsum("iab,ib->ia", root, rng.normal(size=mean.shape))
            for mean, root in zip((users, items), roots, strict=True)
        )
        turn = rng.normal(size=(4, 4))
        draws.append((u @ turn, v @ np.linalg.inv(turn).T))
    sides = [SimpleNamespace(x=np.c_[np.zeros(len(x)), x], size=5) for x in (users, items)]
    known = _largest_variance(SimpleNamespace(user=sides[0], item=sides[1]), [doubt, their_doubt])
    ratio = largest(draws) / known
    assert np.median(ratio) == pytest.approx(1.0, abs=0.02)
    # 800 draws tell a variance to 5 %, and the largest of four has more to scatter by
    assert np.quantile(ratio, [0.1, 0.9]) == pytest.approx([0.92, 1.08], abs=0.03)


def test_items_have_unit_moments_and_users_independent_ones():
    users, items = some_draws()[0]
    mixed = users @ np.triu(np.ones((5, 5)))
    moments = mixed.T @ mixed / 40, items.T @ items / 300
    T = independent_axes(*moments)
    turned = T.T @ moments[0] @ T
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-9)
    back = np.linalg.inv(T)
    np.testing.assert_allclose(back @ moments[1] @ back.T, np.eye(5), atol=1e-9)
