"""Have the chains converged? R-hat, effective draws and simulation error of what a fit is used for.

The measures are ArviZ's. They are taken of what the ratings determine: the noise, the spread of the
linear predictor, and predictions. Parameters that can change without any prediction changing, such
as Lambda, mu and the scale of W, judge nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_number
from bayesmf.errors import DataError, Option, render

Array = NDArray[np.float64]
TAU, LOG_PRECISION, SPREAD = "noise precision", "mean log precision", "predictor variance"
SUMMARIES = (TAU, LOG_PRECISION, SPREAD)  # traces (chain, sweep)
PREDICTIONS = "predictions"  # a trace (chain, sweep, pair)
FEWEST = 8  # draws of a chain from which anything can be said
FURTHEST = 10  # times as many sweeps: a longer forecast from a few effective draws is a guess
CUTS = 16  # places at which the warm-up may end, up to half of the sweeps


@dataclass(frozen=True)
class Targets:
    """What sampling goes on for: R-hat and effective draws of all summaries and most predictions.

    With 100 effective draws the simulation error of a mean is a tenth of the standard deviation,
    and four chains that have arrived have R-hat of about 1.04. For numbers that are to be published
    Vehtari et al. (2021) advise ``Targets(r_hat=1.01, ess=400)``, which takes four times as long.
    """

    r_hat: float = 1.05  # at most
    ess: float = 100.0  # effective draws in the bulk, at least
    share: float = 0.95  # of the predictions that must reach both

    def __post_init__(self) -> None:
        check_number("r_hat", self.r_hat, 1.0)
        for name in ("ess", "share"):
            check_number(name, getattr(self, name), 0.0)
        if self.share > 1:
            raise DataError(f"share={self.share}: choose a number above 0, up to 1")


TARGETS = Targets()


class Measures(NamedTuple):
    """The measures of a trace, one number each or one for each pair; NaN if there is none."""

    r_hat: Array  # the larger of rank-normalised split R-hat and folded R-hat
    ess: Array  # effective draws in the bulk
    ess_tail: Array  # effective draws of the 5 % and 95 % quantiles, the fewer
    mcse: Array  # simulation error of the mean
    mean: Array
    sd: Array


def measure(trace: NDArray[Any]) -> Measures:
    """All measures of a trace (chain, draw, ...)."""
    stats = load_stats()
    x, moving = _prepare(trace)
    found = np.full((4, x.shape[2]), np.nan)
    if moving.any():
        axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
        found[0, moving] = stats.rhat(x[:, :, moving], method="rank", **axes)
        found[1, moving] = stats.ess(x[:, :, moving], method="bulk", **axes)
        found[2, moving] = stats.ess(x[:, :, moving], method="tail", prob=(0.05, 0.95), **axes)
        found[3, moving] = stats.mcse(x[:, :, moving], method="mean", **axes)
    flat = x.reshape(-1, x.shape[2])
    with np.errstate(invalid="ignore"):  # of values that are not finite
        every = (*found, flat.mean(axis=0), flat.std(axis=0))
    return Measures(*(values.reshape(np.shape(trace)[2:]) for values in every))


def effective_draws(trace: NDArray[Any]) -> Array:
    """Effective draws in the bulk of a trace (chain, draw, ...), alone and so sooner."""
    stats = load_stats()
    x, moving = _prepare(trace)
    found = np.full(x.shape[2], np.nan)
    if moving.any():
        found[moving] = stats.ess(x[:, :, moving], chain_axis=0, draw_axis=1, method="bulk")
    return found.reshape(np.shape(trace)[2:])


def load_stats() -> Any:
    """ArviZ's statistics of arrays, which take a second to load."""
    import arviz_stats.base

    return arviz_stats.base.array_stats  # type: ignore[attr-defined]


def _prepare(trace: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """A trace as (chain, draw, quantity), and which quantities can be measured."""
    x = np.asarray(trace, float)
    x = x.reshape(*x.shape[:2], -1)
    if x.shape[1] < FEWEST:
        return x, np.zeros(x.shape[2], bool)
    width = np.ptp(x, axis=(0, 1))
    return x, (width > 0) & np.isfinite(width)


def find_warm_up(traces: Mapping[str, NDArray[Any]]) -> int:
    """The number of sweeps to drop: those without which the most effective draws are left.

    Chodera (2016) does the same for one chain. Draws that are far from the rest make the chains
    look correlated and apart, so that dropping them gains more than it loses. The summary that asks
    for the longest warm-up has it; at most half of the sweeps are dropped.
    """
    some = [traces[name] for name in SUMMARIES if name in traces]
    length = min((trace.shape[1] for trace in some), default=0)
    together = np.stack([trace[:, :length] for trace in some], axis=2) if some else np.empty(0)
    cuts = [length * k // (2 * CUTS) for k in range(CUTS + 1)]
    if length - cuts[-1] < FEWEST:
        return 0
    left = np.nan_to_num([effective_draws(together[:, cut:]) for cut in cuts])
    return max(cuts[int(place)] for place in np.argmax(left, axis=0))


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


@dataclass(frozen=True)
class Verdict:
    """Whether chains have converged, the numbers that say so, and both in ``words``."""

    converged: bool | None  # None: it cannot be judged
    message: str  # the words, in which options are still tokens of ``bayesmf.errors``
    chains: int = 0
    draws: int = 0  # of each chain, after the warm-up
    predictions: int = 0  # how many were judged
    share: float = math.nan  # of these predictions, those that reach their targets
    median_ess: float = math.nan  # effective draws of the predictions
    low_ess: float = math.nan  # effective draws of the worst 1 % of the predictions
    r_hat: Mapping[str, float] = field(default_factory=dict)  # of each summary, by its name
    ess: Mapping[str, float] = field(default_factory=dict)  # of each summary, by its name

    @property
    def words(self) -> str:
        """One to three sentences, with the arguments of Python: what holds, and what to do."""
        return render(self.message, Option.in_python)

    @property
    def short(self) -> str:
        """The verdict in a word or two."""
        if self.converged is None:
            return "convergence cannot be judged"
        return "converged" if self.converged else "not converged"

    @property
    def worst_r_hat(self) -> tuple[str, float] | None:
        """The summary with the largest R-hat, and its R-hat; None if there are none."""
        return max(self.r_hat.items(), key=lambda each: each[1], default=None)

    @property
    def fewest_draws(self) -> tuple[str, float] | None:
        """The summary with the fewest effective draws, and their number; None if there are none."""
        return min(self.ess.items(), key=lambda each: each[1], default=None)

    def __str__(self) -> str:
        return self.words


def measure_judged(traces: Mapping[str, NDArray[Any]]) -> dict[str, Measures]:
    """The measures of the traces that are judged; those that never change are left out.

    Of the predictions, only those that change are in the arrays of their ``Measures``.
    """
    found = {}
    for name in (*SUMMARIES, PREDICTIONS):
        if name in traces:
            trace = np.asarray(traces[name], float)
            changes = np.ptp(trace, axis=(0, 1)) != 0 if trace.size else np.array(False)
            if changes.any():
                found[name] = measure(trace[..., changes] if trace.ndim == 3 else trace)
    return found


def reaches(found: Measures, targets: Targets) -> NDArray[np.bool_]:
    """Whether the targets are reached, for each quantity that was measured."""
    return (found.r_hat <= targets.r_hat) & (found.ess >= targets.ess)


class Run(NamedTuple):
    """What advice is reckoned from: how the chains were sampled."""

    sweeps: int = 0  # of each chain, with the warm-up
    until: str = "sweeps"
    cut_short: str = ""  # what ended the run early, if anything did


UNKNOWN = Run()


def judge(
    traces: Mapping[str, NDArray[Any]],
    targets: Targets = TARGETS,
    *,
    run: Run = UNKNOWN,
    measured: Mapping[str, Measures] | None = None,
) -> Verdict:
    """Judge by the traces after the warm-up whether the chains have converged.

    They have if ``targets.share`` of the predictions and all summaries that ever change reach their
    targets. ``measured`` is what ``measure_judged`` found, if that is known already.
    """
    if not traces:
        return Verdict(
            None,
            "There are no chains to judge: only Gibbs sampling leaves some. Fit with "
            f"{Option('inference', 'gibbs')}.",
        )
    chains, draws = next(iter(traces.values())).shape[:2]
    if PREDICTIONS not in traces:
        why = "the model was saved by an earlier version, without the predictions that are judged."
        return Verdict(None, f"Cannot be judged: {why} Fit it again.", chains, draws)
    some = measure_judged(traces) if measured is None else measured
    verdict = _count(some, targets, chains, draws)
    run = run._replace(sweeps=max(run.sweeps, draws))
    infinite = [name for name in (*SUMMARIES, PREDICTIONS) if not _finite(traces.get(name, ()))]
    if infinite:
        why = f"the trace of {' and '.join(infinite)} holds values that are not finite"
        return replace(verdict, converged=False, message=f"Not converged: {why}.")
    if run.cut_short and (chains < 2 or draws < FEWEST):
        why = f"the run was ended early ({run.cut_short}), with too few draws to compare chains."
        remedy = "Give it more time."
    elif chains < 2:
        why = "one chain says nothing about what another start would have found."
        remedy = f"Fit with {Option('chains', 4)}."
    elif draws < FEWEST:
        why = f"too few draws of each chain ({draws}) are left after the warm-up."
        remedy = f"Fit with {Option('sweeps', max(400, _round(2 * run.sweeps)))}."
    elif not verdict.predictions:
        why, remedy = "no prediction ever changes.", "Check the ratings."
    else:
        return _decide(verdict, targets, some, run)
    return replace(verdict, message=f"Cannot be judged: {why} {remedy}")


def _finite(trace: Any) -> bool:
    return bool(np.isfinite(trace).all())


def _count(some: Mapping[str, Measures], targets: Targets, chains: int, draws: int) -> Verdict:
    """The numbers of a verdict, without a judgement."""
    known = [name for name in SUMMARIES if name in some]
    r_hat = {name: float(some[name].r_hat) for name in known}
    ess = {name: float(some[name].ess) for name in known}
    if PREDICTIONS not in some:
        return Verdict(None, "", chains, draws, r_hat=r_hat, ess=ess)
    found = some[PREDICTIONS]
    good = reaches(found, targets)
    low, median = np.quantile(found.ess, [0.01, 0.5])
    share, count = float(np.mean(good)), good.size
    return Verdict(None, "", chains, draws, count, share, float(median), float(low), r_hat, ess)


def _decide(verdict: Verdict, targets: Targets, some: Mapping[str, Measures], run: Run) -> Verdict:
    """The judgement on numbers that allow one, and its words: predictions come first."""
    r_hat, ess, share = verdict.r_hat, verdict.ess, verdict.share
    apart = [name for name in ess if not reaches(some[name], targets)]
    enough = share >= targets.share
    whole = "all" if share == 1 else f"{math.floor(100 * share + 1e-9)} % of"
    told = (
        f"{whole} {verdict.predictions} predictions have R-hat of at most {targets.r_hat:g} "
        f"and {targets.ess:g} effective draws or more (median {verdict.median_ess:,.0f})"
    )
    if not enough:
        told += f", and {100 * targets.share:g} % should"
    if apart:
        each = (
            f"the {n} has R-hat {r_hat[n]:.4g} and {ess[n]:,.0f} effective draws" for n in apart
        )
        wanted = f"at most {targets.r_hat:g} and at least {targets.ess:g} are wanted"
        told += f"{'; but' if enough else ';'} {', '.join(each)}, where {wanted}"
    elif (least := verdict.fewest_draws) is not None:
        fewest = f"{least[1]:,.0f} effective draws and R-hat {r_hat[least[0]]:.4g}"
        told += f"; all summaries do, the {least[0]} with the fewest: {fewest}"
    if enough and not apart:
        return replace(verdict, converged=True, message=f"Converged: {told}.")
    more = Option("sweeps", _more_sweeps(verdict, targets, some[PREDICTIONS], run.sweeps))
    remedy = f"Fit with {more}."
    if run.cut_short:
        remedy = f"The run was ended early ({run.cut_short}): give it more time."
    elif run.until == "converged":
        remedy = f"Fit with {Option('until', 'converged')} and {more}."
    return replace(verdict, converged=False, message=f"Not converged: {told}. {remedy}")


def _more_sweeps(verdict: Verdict, targets: Targets, predictions: Measures, sweeps: int) -> int:
    """How many sweeps would do, if effective draws grow with the sweeps; at least twice as many."""
    low = float(np.quantile(predictions.ess, 1 - targets.share))
    lacks = [targets.ess / low, *(targets.ess / each for each in verdict.ess.values())]
    return _round(sweeps * min(float(np.nanmax([2.0, *lacks])), FURTHEST))


def _round(count: float) -> int:
    """Round up to two digits and zeros."""
    unit = int(10 ** max(len(str(math.ceil(count))) - 2, 0))
    return math.ceil(count / unit) * unit
