"""When chains are looked at, what is found, and which draws are kept meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.evaluation.diagnostics import (
    PREDICTIONS,
    SUMMARIES,
    Targets,
    find_warm_up,
    judge,
    measure,
)

Array = NDArray[np.float64]
FIRST = 40  # sweeps of each chain before the first check


class Check(NamedTuple):
    """What a look at the traces of all chains has found; it depends on nothing else."""

    sweep: int  # of each chain, after which the traces were looked at
    warm_up: int  # sweeps of each chain that are dropped
    r_hat: float  # the largest of the summaries; NaN if none can be measured
    ess: float  # the fewest effective draws of the summaries
    share: float | None  # of the predictions that reach their targets; None: not looked at
    reached: bool  # whether all targets are


def is_check(sweep: int) -> bool:
    """Whether chains are looked at after so many sweeps: 40, and a sixth more each time."""
    at = FIRST
    while at < sweep:
        at += at // 6
    return at == sweep


def check(summaries: Array, predictions: Callable[[], NDArray[np.float32]], to: Targets) -> Check:
    """Find the warm-up, and measure what is left of the traces, the cheaper first.

    ``summaries`` are (chain, sweep, summary). ``predictions`` makes the trace (chain, sweep, pair),
    which takes long to measure and is looked at only if the summaries reach their targets.
    """
    sweep = summaries.shape[1]
    warm_up = find_warm_up({name: summaries[..., k] for k, name in enumerate(SUMMARIES)})
    left = summaries[:, warm_up:]
    found = measure(left)
    ess = float(np.min(_numbers(found.ess), initial=np.inf))
    r_hat = float(np.max(_numbers(found.r_hat), initial=-np.inf))
    if not np.isfinite(ess):  # nothing moves, or there are too few sweeps
        return Check(sweep, warm_up, float("nan"), 0.0, None, False)
    if ess < to.ess or r_hat > to.r_hat:
        return Check(sweep, warm_up, r_hat, ess, None, False)
    traces: dict[str, NDArray[Any]] = {name: left[..., k] for k, name in enumerate(SUMMARIES)}
    verdict = judge({**traces, PREDICTIONS: predictions()[:, warm_up:]}, to)
    return Check(sweep, warm_up, r_hat, ess, verdict.share, bool(verdict.converged))


def _numbers(values: Array) -> Array:
    return values[np.isfinite(values)]


def step_between(sweep: int, keep: int) -> int:
    """Which sweeps are kept while nobody knows how many there will be: multiples of this number.

    It is the least power of two that leaves at most twice ``keep`` of the first ``sweep`` sweeps.
    """
    step = 1
    while sweep // step > 2 * keep:
        step *= 2
    return step


def choose_evenly(sweeps: Sequence[int], keep: int) -> list[int]:
    """At most ``keep`` of some sweeps, evenly spaced, the last for sure."""
    if len(sweeps) <= keep:
        return list(sweeps)
    return [sweeps[(k + 1) * len(sweeps) // keep - 1] for k in range(keep)]
