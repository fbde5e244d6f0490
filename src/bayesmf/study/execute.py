"""One run, from its spec to the facts and arrays of its result. Nothing here touches a disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesmf.data.ratings import Ratings
from bayesmf.data.split import carve
from bayesmf.errors import AttributesWarning, DataError, OverfittingWarning
from bayesmf.evaluation.diagnostics import TAU, measure
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.metrics import scores
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.loop import Progress
from bayesmf.inference.map.fit import MAP, PENALTIES, fit_precisions
from bayesmf.inference.target import Target
from bayesmf.inference.variational.draws import noise_variance, prediction_variance
from bayesmf.inference.variational.fit import Variational
from bayesmf.machine import using
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import Data
from bayesmf.model.likelihood import Normal, Predictive
from bayesmf.model.ordinal import find_levels
from bayesmf.model.spec import Model
from bayesmf.model.state import State, to_arrays
from bayesmf.study.axes import independent_axes
from bayesmf.study.cold_start import ColdStart
from bayesmf.study.record import Array, Arrays, Recorder, Tell
from bayesmf.study.results import snake_case
from bayesmf.study.specs import Run

Outcome = tuple[dict[str, Any], Arrays]


@dataclass(frozen=True)
class Parts:
    """The ratings of one split, and the bins of its test ratings."""

    whole: Ratings  # rare items included
    train: Ratings
    test: Ratings
    bins: FrequencyBins
    seed: int

    def held(self, fraction: float) -> tuple[Ratings, Ratings]:
        """Hold out a part of the training ratings: what is left of them, and the part."""
        return carve(self.train, fraction, self.seed)


def execute(
    run: Run, parts: Parts, start: State | None, penalty: float | None, tell: Tell
) -> Outcome:
    """Do one run: return the facts of its result file, and its arrays.

    ``start`` and ``penalty`` come from the other runs that it needs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverfittingWarning)
        warnings.simplefilter("ignore", AttributesWarning)  # the study says it once
        if run.kind == "map":
            return _maximum(run, parts, start, penalty, tell)
        return EXECUTORS[run.kind](run, parts, start, tell)


def _score(
    test: Ratings, bins: FrequencyBins, found: Predictive, levels: Array | None = None
) -> Outcome:
    """Score predictions, and sum each user's squared errors."""
    rows = test.by_user
    values = np.asarray(rows.values, float)
    squares = np.bincount(rows.row_index, (found.mean - values) ** 2, minlength=test.n_users)
    arrays: Arrays = {"user_squares": squares, "user_count": rows.counts}
    return scores(values, bins, found, levels), arrays


def _sampler(run: Run, parts: Parts, **others: Any) -> Gibbs:
    """One chain of a fixed length, as in the paper."""
    settings = {"chains": 1, "until": "sweeps", "threads": 1, **others, **run.settings}
    return Gibbs(run.model, seed=parts.seed, **settings)


def _gibbs(run: Run, parts: Parts, start: State | None, tell: Tell) -> Outcome:
    data = Data.of(parts.train, run.model)
    recorder = Recorder(run, data, parts.train, parts.test, parts.bins, tell)
    fit = _sampler(run, parts, keep=0).fit(parts.train, callbacks=[recorder])
    moments = recorder.target.moments
    facts, arrays = _score(parts.test, parts.bins, Normal(moments.mean, moments.rating_sd))
    noise = fit.traces[TAU]
    found = measure(noise[:, fit.burn_in :])
    facts["noise_precision"] = {
        "mean": float(found.mean),
        "r_hat": float(found.r_hat),
        "ess": float(found.ess),
    }
    arrays.update(recorder.arrays(), noise_precision=noise[0])
    return facts, _with_precisions(run, fit.states[0], arrays)


def _curves(fit: Any) -> Arrays:
    """The traces of an algorithm under the names of the result file."""
    return {snake_case(name): np.array(values) for name, values in fit.trace.items()}


def _with_precisions(run: Run, state: State, arrays: Arrays) -> Arrays:
    if "precisions" in run.record:
        arrays.update(user_precision=state.user.alpha, item_precision=state.item.alpha)
    return arrays


def _variational(run: Run, parts: Parts, start: State | None, tell: Tell) -> Outcome:
    assert start is not None
    train, test, bins = parts.train, parts.test, parts.bins
    if run.validation:
        train, test = parts.held(run.validation)
        bins = FrequencyBins.of([parts.train], test)
    data = Data.of(train, run.model)
    if run.model.precision != "constant":  # the paper's third stage of MAP
        fit_precisions(run.model, data, start)
    recorder = Recorder(run, data, train, test, bins, tell)
    fit = Variational(run.model, seed=parts.seed, threads=1, **run.settings).fit(
        train, test, start=start, callbacks=[recorder]
    )
    target, q = recorder.target, fit.q
    covariances = q.covariances("user"), q.covariances("item")
    variance = prediction_variance(fit.state, *covariances, target.cells.user, target.cells.item)
    variance += noise_variance(fit.state, target.cells.user, target.cells.item)
    facts, arrays = _score(test, bins, Normal(target.predict(fit.state), np.sqrt(variance)))
    errors = fit.trace["test rmse"]
    facts.update(least=min(errors), least_at=errors.index(min(errors)) + 1, updates=fit.sweeps)
    facts["bound"] = fit.trace["bound"][-1]
    arrays.update(_curves(fit))
    arrays.update(recorder.arrays())
    if "variance" in run.record:
        own = [unpack(each.total)[:, 1:, 1:] for each in covariances]
        arrays["user_variance"] = _largest_variance(fit.state, own)
    if isinstance(scale := fit.model.hyper.feature_scale, tuple):
        facts["prior_scale"] = {"least": min(scale), "most": max(scale)}
    return facts, _with_precisions(run, fit.state, arrays)


def _largest_variance(state: State, own: list[Array]) -> Array:
    """The largest variance of each user's features, from the covariances of both sides' features.

    It is taken in the axes in which that of Gibbs sampling is.
    """
    features = [side.x[:, 1 : side.size] for side in (state.user, state.item)]
    moments = [(x.T @ x + C.sum(axis=0)) / len(x) for x, C in zip(features, own, strict=True)]
    T = independent_axes(*moments)
    return np.asarray(np.einsum("ab,iac,cb->ib", T, own[0], T, optimize=True).max(axis=1))


def _maximum(
    run: Run, parts: Parts, start: State | None, penalty: float | None, tell: Tell
) -> Outcome:
    train, test, bins = parts.train, parts.test, parts.bins
    facts: dict[str, Any] = {}
    arrays: Arrays = {}
    judge = None
    if run.validation:
        train, judge = parts.held(run.validation)
    data = Data.of(train, run.model)
    if start is not None:  # only the precisions are left to find
        state = start
        fit_precisions(run.model, data, state)
    else:
        fit = MAP(run.model, seed=parts.seed, threads=1, penalty=penalty, **run.settings).fit(
            train, test, validation=judge, callbacks=[_by_stage(tell)]
        )
        state = fit.state
        facts.update(penalty=fit.penalty, sweeps=fit.sweeps)
        arrays.update(_curves(fit))
    target = Target(test, data, run.model)
    variance = noise_variance(state, target.cells.user, target.cells.item)
    more, squares = _score(test, bins, Normal(target.predict(state), np.sqrt(variance)))
    arrays.update(squares)
    if "state" in run.record:
        arrays.update({f"state.{name}": values for name, values in to_arrays(state).items()})
    return {**more, **facts}, arrays


def _by_stage(tell: Tell) -> Callable[[Progress], None]:
    """A callback that tells how far MAP is: each penalty that it tries is a stage of its own."""
    stages: list[str] = []

    def show(progress: Progress) -> None:
        if progress.stage not in stages:
            stages.append(progress.stage)
        done = len(stages) - 1 + progress.sweep / progress.sweeps
        tell(done / len(PENALTIES))

    return show


def _predictive(run: Run, parts: Parts, start: State | None, tell: Tell) -> Outcome:
    """Measure the predictive distribution of the kept draws, as ``fit.evaluate`` does."""
    if reason := _reason_against(run.model, parts.train):
        return {"skipped": reason}, {}
    fit = _sampler(run, parts).fit(parts.train, callbacks=[lambda p: tell(p.sweep / p.sweeps)])
    posterior = fit.posterior
    with using(1):
        found = posterior.predictive(posterior.cells(parts.test))
    levels = find_levels(parts.train)  # the same for every model, whatever it knows of the scale
    return _score(parts.test, parts.bins, found, np.array(levels) if len(levels) > 1 else None)


def _reason_against(model: Model, ratings: Ratings) -> str:
    """What is wrong with ratings that cannot have a model, without the remedy; or nothing."""
    try:
        Data.of(ratings, model.settle(ratings))
    except DataError as error:
        return str(error).partition("; ")[0]
    return ""


def _cold_start(run: Run, parts: Parts, start: State | None, tell: Tell) -> Outcome:
    """Measure how newcomers are predicted, by how many of their ratings are known."""
    assert run.new is not None
    try:
        new = ColdStart.hold_out(parts.whole, parts.seed, run.new)
    except DataError as reason:
        return {"skipped": str(reason)}, {}
    fit = _sampler(run, parts).fit(new.train, callbacks=[lambda p: tell(p.sweep / p.sweeps)])
    by_given: dict[str, Any] = {}
    arrays: Arrays = {}
    for given in new.numbers:
        folded = new.fold_in(fit, given, parts.seed)
        by_given[str(given)], arrays[f"squares_{given}"] = new.measure(folded, given)
    return {"by_given": by_given}, arrays


EXECUTORS: dict[str, Callable[[Run, Parts, State | None, Tell], Outcome]] = {
    "gibbs": _gibbs,
    "vi": _variational,
    "predictive": _predictive,
    "cold-start": _cold_start,
}
