"""Whether intervals hold what they promise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.95)


def inside(values: Array, mean: Array, sd: Array, level: float) -> NDArray[np.bool_]:
    """Whether each value is in the central interval of its Gaussian that should hold ``level``."""
    return np.asarray(np.abs(values - mean) <= stats.norm.ppf(0.5 + level / 2) * sd)


def log_score(values: Array, mean: Array, sd: Array) -> Array:
    """log N(value | mean, sd), value by value; more is better."""
    return np.asarray(stats.norm.logpdf(values, mean, sd), float)


def crps(values: Array, mean: Array, sd: Array) -> Array:
    """The continuous ranked probability score of a Gaussian, value by value; less is better.

    sd [ z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi) ],  z = (value - mean) / sd
    """
    z = (values - mean) / sd
    score = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    return np.asarray(sd * score, float)
