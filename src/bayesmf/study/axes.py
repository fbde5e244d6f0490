"""Axes in which features can be compared between draws, and between algorithms.

Nothing but the inner products of users' and items' features can be known, and every sweep draws the
axes anew. Here items have unit second moments, and those of users are independent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def independent_axes(users: Array, items: Array) -> Array:
    """T with which users' features u become u T, from the second moments of both sides."""
    root, _ = _roots(items)
    _, turn = np.linalg.eigh(root @ users @ root)
    return np.asarray(root @ turn)


class FeatureVariance:
    """The largest variance of each user's features over draws, as these come."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, users: Array, items: Array) -> None:
        """Take the features of one more draw."""
        moments = items.T @ items / len(items)
        root, inverse = _roots(moments)
        if not self.count:
            axes = independent_axes(users.T @ users / len(users), moments)
            self.items = items @ np.linalg.inv(axes).T
            self.mean, self.squares = np.zeros(users.shape), np.zeros(users.shape)
        left, _, right = np.linalg.svd((items @ inverse).T @ self.items)
        x = users @ root @ left @ right  # turned so that the items are nearest to the first draw's
        self.count += 1
        step = x - self.mean
        self.mean += step / self.count
        self.squares += step * (x - self.mean)

    def largest(self) -> Array:
        """The largest of the variances of each user, of two draws or more."""
        return np.asarray((self.squares / (self.count - 1)).max(axis=1))


def _roots(moments: Array) -> tuple[Array, Array]:
    """The symmetric root of second moments, and its inverse; what is not used counts as little."""
    values, axes = np.linalg.eigh(moments)
    root = np.sqrt(np.maximum(values, 1e-12 * max(values[-1], np.finfo(float).tiny)))
    return (axes * root) @ axes.T, (axes / root) @ axes.T
