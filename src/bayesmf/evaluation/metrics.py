"""How good predictions and their intervals are, overall and by user frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.model.likelihood import Discrete, Normal, Predictive, round_to

Array = NDArray[np.float64]
LEVELS = (0.5, 0.8, 0.95)


def inside(values: Array, found: Predictive, level: float) -> Array:
    """Whether each value is in the central interval that should hold ``level``: 1, or 0.

    A rating with a probability is a step of the distribution function. It counts by the part of
    the step that lies between the ends of the interval, so that on average the share is ``level``
    if the probabilities are right.
    """
    below, upto = found.below(values)
    low, high = 0.5 - level / 2, 0.5 + level / 2
    part = np.clip(upto, low, high) - np.clip(below, low, high)
    whole = ((below >= low) & (below <= high)).astype(float)
    return np.where(upto > below, part / np.maximum(upto - below, np.finfo(float).tiny), whole)


def log_score(values: Array, mean: Array, sd: Array) -> Array:
    """log N(value | mean, sd), value by value; more is better."""
    return Normal(mean, sd).log_density(values)


def scores(
    values: Array, bins: FrequencyBins, found: Predictive, levels: Array | None = None
) -> dict[str, Any]:
    """Return RMSE, MAE, log score, CRPS and coverage of predictions.

    The keys are ``rmse``, ``mae``, ``log_score``, ``crps``, ``coverage_50``, ``coverage_80`` and
    ``coverage_95``; ``by_bin`` has the same keys, with a list of one number for each bin. If there
    are ``levels``, ``log_probability`` is the mean log probability of the ratings; a Gaussian is
    rounded to the levels for it.
    """
    error = found.mean - values
    measured = {
        "mae": np.abs(error),
        "log_score": found.log_density(values),
        "crps": found.crps(values),
    }
    if levels is not None:
        measured["log_probability"] = log_scores(values, found, levels)
    for level in LEVELS:
        measured[f"coverage_{100 * level:.0f}"] = inside(values, found, level)
    facts: dict[str, Any] = {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "by_bin": {"rmse": bins.rmse(error).tolist()},
    }
    for name, each in measured.items():
        facts[name] = float(each.mean())
        facts["by_bin"][name] = bins.mean(each).tolist()
    return facts


def log_scores(values: Array, found: Predictive, levels: Array | None = None) -> Array:
    """The log probability of each rating if there are ``levels``, and else its log density.

    A Gaussian is rounded to the levels, so that it can be compared with a distribution on them.
    """
    if levels is not None and not isinstance(found, Discrete):
        found = Discrete(levels, round_to(levels, found.mean, found.sd))
    return found.log_density(values)
