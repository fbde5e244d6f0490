"""Have the chains converged? R-hat, effective draws and simulation error of what a fit is used for.

The measures are ArviZ's. They are taken of what the ratings determine: the noise, the spread of the
linear predictor, and predictions. Parameters that can change without any prediction changing, such
as Lambda, mu and the scale of W, judge nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TAU, LOG_PRECISION, SPREAD = "noise precision", "mean log precision", "predictor variance"
SUMMARIES = (TAU, LOG_PRECISION, SPREAD)  # traces (chain, sweep)
PREDICTIONS = "predictions"  # a trace (chain, sweep, pair)
FEWEST = 8  # draws of a chain from which anything can be said
CUTS = 16  # places at which the warm-up may end, up to half of the sweeps


@dataclass(frozen=True)
class Targets:
    """What sampling goes on for; the numbers for parameters are those of Vehtari et al. (2021)."""

    r_hat: float = 1.01  # of the summaries, at most
    ess: float = 400.0  # of the summaries, at least
    prediction_r_hat: float = 1.05  # of a prediction, at most
    prediction_ess: float = 100.0  # of a prediction, at least
    share: float = 0.95  # of the predictions, which must reach theirs


class Measures(NamedTuple):
    """The measures of a trace, one number each or one for each pair; NaN if it never changes."""

    r_hat: Array  # the larger of rank-normalised split R-hat and folded R-hat
    ess: Array  # effective draws in the bulk
    ess_tail: Array  # effective draws of the 5 % and 95 % quantiles, the fewer
    mcse: Array  # simulation error of the mean
    mean: Array
    sd: Array


def measure(trace: NDArray[Any]) -> Measures:
    """All measures of a trace (chain, draw, ...)."""
    from arviz_stats.base import array_stats as stats  # takes a second to load

    x, moving = _prepare(trace)
    found = np.full((4, x.shape[2]), np.nan)
    if moving.any():
        axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
        found[0, moving] = stats.rhat(x[:, :, moving], method="rank", **axes)
        found[1, moving] = stats.ess(x[:, :, moving], method="bulk", **axes)
        found[2, moving] = stats.ess(x[:, :, moving], method="tail", prob=(0.05, 0.95), **axes)
        found[3, moving] = stats.mcse(x[:, :, moving], method="mean", **axes)
    flat = x.reshape(-1, x.shape[2])
    every = (*found, flat.mean(axis=0), flat.std(axis=0))
    return Measures(*(values.reshape(np.shape(trace)[2:]) for values in every))


def effective_draws(trace: NDArray[Any]) -> Array:
    """Effective draws in the bulk of a trace (chain, draw, ...), alone and so sooner."""
    from arviz_stats.base import array_stats as stats

    x, moving = _prepare(trace)
    found = np.full(x.shape[2], np.nan)
    if moving.any():
        found[moving] = stats.ess(x[:, :, moving], chain_axis=0, draw_axis=1, method="bulk")
    return found.reshape(np.shape(trace)[2:])


def _prepare(trace: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """A trace as (chain, draw, quantity), and which quantities can be measured."""
    x = np.asarray(trace, float)
    x = x.reshape(*x.shape[:2], -1)
    if x.shape[1] < FEWEST:
        return x, np.zeros(x.shape[2], bool)
    return x, np.ptp(x, axis=(0, 1)) > 0


def find_warm_up(traces: Mapping[str, NDArray[Any]]) -> int:
    """The number of sweeps to drop: those without which the most effective draws are left.

    Chodera (2016) does the same for one chain. Draws that are far from the rest make the chains
    look correlated and apart, so that dropping them gains more than it loses. What counts is the
    summary with the fewest effective draws; at most half of the sweeps are dropped.
    """
    some = [traces[name] for name in SUMMARIES if name in traces]
    length = min((trace.shape[1] for trace in some), default=0)
    together = np.stack([trace[:, :length] for trace in some], axis=2) if some else np.empty(0)
    best, warm_up = 0.0, 0
    for cut in dict.fromkeys(length * k // (2 * CUTS) for k in range(CUTS + 1)):
        found = effective_draws(together[:, cut:]) if length - cut >= FEWEST else np.empty(0)
        fewest = float(np.min(found[np.isfinite(found)], initial=np.inf))
        if np.isfinite(fewest) and fewest > best:
            best, warm_up = fewest, cut
    return warm_up


def endless_error(means: NDArray[Any], values: NDArray[Any]) -> tuple[float, float]:
    """The RMSE that endless draws would have, and its simulation error; NaN for one chain.

    ``means`` are the mean predictions of each chain. What the errors of two chains share is not
    simulation: MSE = mean over pairs of chains of mean((m_c - y)(m_c' - y)). The simulation error
    is the jackknife's over chains.
    """
    chains = len(means)
    if chains < 2:
        return float("nan"), float("nan")
    errors = np.asarray(means, float) - values
    products = errors @ errors.T / errors.shape[1]

    def endless(some: NDArray[np.intp]) -> float:
        part = products[np.ix_(some, some)]
        count = len(some)
        mse = (part.sum() - np.trace(part)) / (count * (count - 1))
        return float(np.sqrt(max(mse, 0.0)))

    every = np.arange(chains)
    whole = endless(every)
    if chains < 3:
        return whole, float("nan")
    left_out = np.array([endless(np.delete(every, chain)) for chain in every])
    return whole, float(np.sqrt((chains - 1) / chains * np.sum((left_out - left_out.mean()) ** 2)))
