"""When chains are looked at, what is found, and which draws are kept meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    reaches,
)

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


def check(traces: Mapping[str, NDArray[Any]], to: Targets) -> Check:
    """Find the warm-up, and measure what is left of the traces.

    Predictions take long to measure, so they are looked at only if the summaries have arrived.
    """
    warm_up, sweep = find_warm_up(traces), traces[PREDICTIONS].shape[1]
    left = {name: trace[:, warm_up:] for name, trace in traces.items()}
    found = measure(np.stack([left[name] for name in SUMMARIES], axis=2))
    moving = np.isfinite(found.ess)
    if not moving.any():  # or there are too few sweeps
        return Check(sweep, warm_up, float("nan"), 0.0, None, False)
    r_hat, ess = float(found.r_hat[moving].max()), float(found.ess[moving].min())
    if not reaches(found, to)[moving].all():
        return Check(sweep, warm_up, r_hat, ess, None, False)
    verdict = judge(left, to)
    return Check(sweep, warm_up, r_hat, ess, verdict.share, bool(verdict.converged))


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
