"""Axes in which features of different draws can be compared."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf.study.axes import FeatureVariance, independent_axes


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


def test_the_variance_is_what_users_vary_by():
    """Items have unit second moments nearly as they are, so the variance stays what it is."""
    expected = (0.3 * np.linspace(1, 2, 40)) ** 2
    assert np.median(largest(some_draws()) / expected) == pytest.approx(1.15, abs=0.15)


def test_items_have_unit_moments_and_users_independent_ones():
    users, items = some_draws()[0]
    mixed = users @ np.triu(np.ones((5, 5)))
    moments = mixed.T @ mixed / 40, items.T @ items / 300
    T = independent_axes(*moments)
    turned = T.T @ moments[0] @ T
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-9)
    back = np.linalg.inv(T)
    np.testing.assert_allclose(back @ moments[1] @ back.T, np.eye(5), atol=1e-9)
