"""How good predictions and their intervals are, overall and by user frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bayesmf.evaluation.frequency import FrequencyBins

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


def scores(values: Array, bins: FrequencyBins, mean: Array, variance: Array) -> dict[str, Any]:
    """Return RMSE, MAE, log score, CRPS and coverage of Gaussian predictions.

    The keys are ``rmse``, ``mae``, ``log_score``, ``crps``, ``coverage_50``, ``coverage_80`` and
    ``coverage_95``; ``by_bin`` has the same keys, with a list of one number for each bin.
    """
    sd = np.sqrt(variance)
    error = mean - values
    measured = {
        "mae": np.abs(error),
        "log_score": log_score(values, mean, sd),
        "crps": crps(values, mean, sd),
    }
    for level in LEVELS:
        measured[f"coverage_{100 * level:.0f}"] = inside(values, mean, sd, level).astype(float)
    facts: dict[str, Any] = {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "by_bin": {"rmse": bins.rmse(error).tolist()},
    }
    for name, each in measured.items():
        facts[name] = float(each.mean())
        facts["by_bin"][name] = bins.mean(each).tolist()
    return facts
