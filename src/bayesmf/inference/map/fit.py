"""MAP estimation in the paper's three stages: biases, features, precisions.

Stages one and two minimise one energy, by batch gradient descent with momentum or coordinate by
coordinate from the shared conditionals (alternating least squares):

E = 1/2 sum e_ij^2 + penalty_b / 2 (|gamma|^2 + |eta|^2) + penalty / 2 (|U|^2 + |V|^2 + |W|^2)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice, check_kind, check_length, check_number, check_seed
from bayesmf.choices import METHODS, Method
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import carve
from bayesmf.errors import DataError
from bayesmf.fitted.base import Fitted
from bayesmf.fitted.explore.judge import test_error
from bayesmf.fitted.posterior import Posterior, draws_of
from bayesmf.inference import loop
from bayesmf.inference.loop import (
    INTERRUPTED,
    Callback,
    Clock,
    Patience,
    Progress,
    check_parts,
    record,
)
from bayesmf.inference.map.descent import Momentum, energy, residuals
from bayesmf.inference.target import Target
from bayesmf.machine import check_threads, using
from bayesmf.model.data import Data
from bayesmf.model.spec import Model, check_gaussian
from bayesmf.model.state import State, random_start
from bayesmf.sweep.algorithm import Modes
from bayesmf.sweep.designs import update_design
from bayesmf.sweep.rows import update_rows

Array = NDArray[np.float64]
PENALTIES = (5.0, 10.0, 20.0, 40.0)
MIDDLE, ENOUGH = 20.0, 20  # the penalty when there are fewer ratings than this to choose it by


@dataclass(repr=False)
class MapFit(Fitted):
    """A MAP estimate, and how it was reached."""

    model: Model
    state: State
    penalty: float  # of the features
    trace: dict[str, list[float]]  # by sweep of the features' stage: energy and errors
    test_rmse: float | None
    sweeps: int  # of the features' stage, all penalties together
    seconds: float
    stopped: str  # why it ended before its time, or nothing
    centred: float  # the mean of the ratings it was made from
    predictions: Array | None = None  # of the test ratings
    known: Posterior | None = None

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The one point that is known."""
        assert self.known is not None
        return self.known

    def _facts(self) -> Mapping[str, Any]:
        return {"inference": "map", "penalty": self.penalty, "stopped": self.stopped}


@dataclass(frozen=True)
class MAP:
    """A MAP estimate: ``MAP(model).fit(train, test)``.

    ``method="momentum"`` is the paper's: biases first, then features with the biases held, until
    the validation error rises. ``"coordinate"`` solves for one row at a time and needs fewer
    sweeps. Without a ``penalty``, one is chosen by the validation error; the validation ratings
    are a tenth of the training ratings unless they are given.
    """

    model: Model = field(default_factory=Model)
    _: KW_ONLY
    method: Method = "coordinate"
    penalty: float | None = None  # of the features; None: the best of 5, 10, 20 and 40
    bias_penalty: float = 3.0
    hold_biases: bool | None = None  # None: as the method has it
    sweeps: int | None = None  # at most; None: 60 by coordinates, 1000 by momentum
    seed: int = 0
    threads: int | None = None  # None: all

    def __post_init__(self) -> None:
        check_kind("model", self.model, Model, "a Model, such as MAP(Model())")
        object.__setattr__(self, "model", check_gaussian(self.model, "MAP estimation"))
        check_threads(self.threads)
        check_choice("method", self.method, METHODS)
        for name in ("penalty", "bias_penalty"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0.0)
        if self.sweeps is not None:
            check_length(self.sweeps)
        check_seed(self.seed)
        if self.hold_biases and self.method == "coordinate":
            raise DataError("coordinates solve for biases and features together; use momentum")

    def fit(
        self,
        train: Ratings,
        test: Ratings | None = None,
        *,
        validation: Ratings | None = None,
        patience: int | None = None,
        callbacks: Sequence[Callback] = (),
        budget: float | None = None,
    ) -> MapFit:
        """Estimate, and return the point.

        - ``test``: its error is recorded at every sweep.
        - ``validation``: the ratings to choose the penalty and the number of sweeps by. By
          coordinates and without it, a tenth of ``train`` is held out for that, and then the
          estimate is made again on all of ``train``.
        - ``patience``: sweeps without a lower validation error before the end: 3 by coordinates,
          20 by momentum.
        - ``callbacks``, ``budget``: as for ``Gibbs.fit``.
        """
        check_parts(train, self.model, test=test, validation=validation)
        settled = replace(self, model=self.model.settle(train))
        with using(self.threads):
            clock = Clock(callbacks, budget, patience)
            part, judge = train, validation
            if validation is None and len(train) >= ENOUGH:
                part, judge = carve(train, 0.1, self.seed)
            fit = settled._choose(train, part, judge, test, patience, clock)
        fit.known = _make_posterior(settled.model, train, fit, (test, validation))
        fit.test_rmse = test_error(fit.posterior, test, self.threads)
        return fit

    def _choose(
        self,
        train: Ratings,
        part: Ratings,
        judge: Ratings | None,
        test: Ratings | None,
        patience: int | None,
        clock: Clock,
    ) -> MapFit:
        penalties = PENALTIES if judge is not None else (MIDDLE,)
        if self.penalty is not None:
            penalties = (self.penalty,)
        patience = patience or (3 if self.method == "coordinate" else 20)
        unit = float(self.model.units[0])
        done, best = 0, None
        try:
            for penalty in penalties:
                waiting = Patience(patience, least=1e-5 * unit)
                run = self._stages(penalty, part, judge, test, waiting, clock)
                done += run.sweeps
                if best is None or waiting.best < best[0]:
                    best = (waiting.best, waiting.at, run)
                if clock.reason or not self.model.rank:
                    break
            assert best is not None
            if part is not train and self.method == "coordinate" and not clock.reason:
                again = replace(self, sweeps=max(best[1], 1))
                run = again._stages(best[2].penalty, train, None, test, None, clock)
                done += run.sweeps
                best = (best[0], best[1], run)
        except KeyboardInterrupt:
            if best is None:
                raise
            clock.reason = INTERRUPTED
        run = best[2]
        run.sweeps, run.seconds, run.stopped = done, clock.seconds, clock.reason
        run.threads = self.threads
        return run

    def _stages(
        self,
        penalty: float,
        train: Ratings,
        judge: Ratings | None,
        test: Ratings | None,
        waiting: Patience | None,
        clock: Clock,
    ) -> MapFit:
        """All three stages with one penalty."""
        data = Data.of(train, self.model)
        state = random_start(self.model, data, self.seed)
        state.tau = 1.0  # every rating weighs 1 in the energy
        self._penalise(state, penalty)
        targets = {
            name: Target(r, data, self.model)
            for name, r in (("test", test), ("validation", judge))
            if r is not None and len(r)
        }
        fit_biases(self.model, data, state)
        most = self.sweeps or (60 if self.method == "coordinate" else 1000)
        if not self.model.rank:
            most = 0
            if waiting is not None and "validation" in targets:
                waiting.ends(targets["validation"].error(state))
        step = self._stepper(data, state)
        stage = _Features(step, state, targets, waiting, most, f"MAP, penalty {penalty:g}")
        loop.run(stage, clock)
        if clock.reason == INTERRUPTED and not stage.done:
            raise KeyboardInterrupt
        state = stage.best
        state.tau = float(self.model.units[0] ** -2)
        fit_precisions(self.model, data, state)
        rmse = targets["test"].error(state) if "test" in targets else None
        shown = targets["test"].predict(state) if "test" in targets else None
        return MapFit(
            self.model,
            state,
            penalty,
            stage.trace,
            rmse,
            stage.done,
            clock.seconds,
            clock.reason,
            data.mean,
            shown,
        )

    def _penalise(self, state: State, penalty: float) -> None:
        units = self.model.units
        share = (units[0] / units) ** 2  # squared errors are in squares of the unit
        for side in (state.user, state.item):
            diagonal = penalty * share
            for shift in side.shifts:
                shift.Lambda[:] = np.diag(diagonal)
            diagonal[0] = self.bias_penalty
            side.Lambda[:] = np.diag(diagonal)

    def _stepper(self, data: Data, state: State) -> Callable[[], float]:
        """What takes one step down and returns the energy."""
        if self.method == "momentum":
            hold = True if self.hold_biases is None else self.hold_biases
            return Momentum(self.model, data, state, hold_biases=hold).step

        def step() -> float:
            coordinate_sweep(self.model, data, state)
            return energy(data, state)

        return step


class _Features:
    """Stage two: features, until the validation error rises or the energy is flat."""

    def __init__(
        self,
        step: Callable[[], float],
        state: State,
        targets: Mapping[str, Target],
        waiting: Patience | None,
        most: int,
        name: str,
    ) -> None:
        self._step, self.state, self.targets = step, state, targets
        self.waiting, self.most, self.name = waiting, most, name
        self.trace: dict[str, list[float]] = {}
        self.done, self._ended = 0, False
        self._best: State | None = None

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or more would not help."""
        return self._ended or self.done >= self.most

    @property
    def best(self) -> State:
        """The state with the least validation error, or the last."""
        return self._best or self.state

    def step(self) -> None:
        """One step, and what it says."""
        record(self.trace, {"energy": self._step()})
        self.done += 1
        errors = {f"{name} rmse": t.error(self.state) for name, t in self.targets.items()}
        record(self.trace, errors)
        judged = self.trace.get("validation rmse")
        if self.waiting is not None and judged:
            self._ended = self.waiting.ends(judged[-1])
            if self.waiting.at == self.waiting.seen:
                self._best = copy.deepcopy(self.state)
        else:
            self._ended = _flat(self.trace["energy"])

    def progress(self, seconds: float) -> Progress:
        """For the callbacks."""
        last = {name: values[-1] for name, values in self.trace.items()}
        return Progress(
            0,
            1,
            self.done,
            self.most,
            seconds,
            last.get("test rmse"),
            last.get("validation rmse"),
            self.name,
            self.state,
        )


def _make_posterior(
    model: Model, train: Ratings, fit: MapFit, held_out: Sequence[Ratings | None]
) -> Posterior:
    """The estimate as the one draw of a posterior.

    The energy has penalties where a posterior has precisions: those are tau times these.
    """
    state = copy.deepcopy(fit.state)
    for side in (state.user, state.item):
        side.Lambda *= state.tau
        for shift in side.shifts:
            shift.Lambda *= state.tau
    whole = Posterior.of(model, train, draws_of(state), state, held_out)
    return replace(whole, mean=fit.centred)


def coordinate_sweep(model: Model, data: Data, state: State) -> None:
    """Every row, and every side feature, to the minimum of the energy given the others."""
    modes = Modes()
    for mine in (data.user, data.item):
        me, others = state.sides(mine.name)
        for number in range(len(me.shifts)):
            update_design(model, mine, me, others, number, state, modes)
        update_rows(model, mine, me, others, state, modes)


def fit_biases(model: Model, data: Data, state: State, tolerance: float = 1e-9) -> None:
    """Stage one: the biases alone, with every feature at zero; the features are put back."""
    sides = (state.user, state.item)
    rows = [side.x.copy() for side in sides]
    offsets = [[shift.offset.copy() for shift in side.shifts] for side in sides]
    for side in sides:
        side.x[:, 1:] = 0.0
        for shift in side.shifts:
            shift.offset[:] = 0.0
    Momentum(model, data, state, only_biases=True).run(tolerance)
    for side, x, before in zip(sides, rows, offsets, strict=True):
        side.x[:, 1:] = x[:, 1:]
        for shift, offset in zip(side.shifts, before, strict=True):
            shift.offset[:] = offset


def fit_precisions(model: Model, data: Data, state: State, tolerance: float = 1e-4) -> None:
    """Stage three: 1/alpha_i = mean_j tau beta_j e_ij^2, and so on round, to convergence.

    A row without error, or without ratings, would have an infinite precision: a mean is not
    allowed below a thousandth.
    """
    for _ in range(200):
        before = _precisions(state)
        for mine in (data.user, data.item):
            me, others = state.sides(mine.name)
            errors = residuals(mine, me, others, others.alpha)[1]
            if model.precision != "constant":
                mean = state.tau * errors / np.maximum(mine.counts, 1)
                me.alpha = np.where(mine.counts > 0, 1 / np.maximum(mean, 1e-3), 1.0)
                if model.precision == "truncated":
                    me.alpha = np.clip(me.alpha, *model.bounds)
        least = 1e-3 * float(model.units[0] ** 2)
        state.tau = data.size / max(float(state.item.alpha @ errors), least)
        after = _precisions(state)  # tau alone stands still while the others move
        if np.max(np.abs(after - before) / after) <= tolerance:
            break


def _precisions(state: State) -> Array:
    return np.concatenate([[state.tau], state.user.alpha, state.item.alpha])


def _flat(energies: list[float]) -> bool:
    return len(energies) > 1 and abs(energies[-2] - energies[-1]) <= 1e-6 * energies[-1]


def map_start(
    model: Model,
    seed: int,
    threads: int | None,
    train: Ratings,
    validation: Ratings | None,
    clock: Clock,
    budget: float | None,
) -> State:
    """Where another algorithm begins; what ends this ends that, too."""
    fit = MAP(model, seed=seed, threads=threads).fit(
        train, validation=validation, callbacks=clock.callbacks, budget=budget
    )
    if fit.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    clock.reason = fit.stopped
    return fit.state
