"""Gibbs sampling: from every conditional it takes a draw."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.io.atomic import whole_folder
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.engines.ray.cluster import Engine, engine_of
from bayesmf.errors import DataError
from bayesmf.fit.fitted import Fitted
from bayesmf.fit.kept import Kept
from bayesmf.fit.posterior import Posterior, affordable, draws_of
from bayesmf.inference.chains import Chains
from bayesmf.inference.checkpoint import Checkpoint, describe, opened
from bayesmf.inference.loop import Callback, Clock, check_parts, sweep_first
from bayesmf.inference.map.fit import map_start
from bayesmf.inference.target import Moments
from bayesmf.machine import check_threads, using
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, State, checked_start
from bayesmf.sweep.algorithm import Form

Array = NDArray[np.float64]
KEPT = 100


@dataclass
class GibbsFit(Fitted):
    """What sampling leaves: the last state of each chain, traces, and the test predictions."""

    model: Model
    states: list[State]  # the last of each chain
    traces: dict[str, Array]  # (chain, sweep)
    burn_in: int
    predictions: Moments | None  # of the test ratings: ``mean``, ``sd`` of it, ``rating_sd``
    test_rmse: float | None  # of the average over all sweeps after the burn-in
    rmse_by_sweep: list[float]  # of the average so far
    sweeps: int  # done, over all chains
    seconds: float
    stopped: str  # why it ended before its time, or nothing
    validation_by_sweep: list[float] = field(default_factory=list)
    draws: Kept | None = None  # a list of states; ``draws.arrays`` by parameter, (draw, ...)
    known: Posterior | None = None

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The draws that were kept, for predictions."""
        if self.known is None:
            raise DataError("no draws were kept to predict from; sample with keep=100")
        return self.known

    def _traces(self) -> Mapping[str, Array]:
        return {name: trace[:, self.burn_in :] for name, trace in self.traces.items()}

    def _facts(self) -> Mapping[str, Any]:
        return {"inference": "gibbs", "sweeps": self.sweeps, "stopped": self.stopped}


@dataclass(frozen=True)
class Gibbs:
    """A Gibbs sampler for a model: ``Gibbs(model, sweeps=400).fit(train, test)``.

    ``burn_in`` sweeps are drawn before any prediction is averaged. ``form`` says how side features
    are drawn; all forms have the same posterior. ``keep`` draws of each chain, evenly spaced after
    the burn-in, are kept as float32 to predict from: 100 of all chains together unless given, fewer
    if they would take more than half a gigabyte. The same seed gives the same bits on any number of
    threads, and with ``engine="ray"`` on any number of workers and machines; ``Ray`` says which.
    """

    model: Model = field(default_factory=Model.best)
    sweeps: int = 400  # of each chain, burn-in included
    burn_in: int = None  # type: ignore[assignment]  # sweeps that are not averaged
    thin: int = 1  # average the test predictions of every so many sweeps
    chains: int = 1  # one after the other, each with random numbers of its own
    seed: int = 0
    form: Form = "centred"  # how side features are drawn
    threads: int | None = None  # None: all
    keep: int | None = None  # draws of each chain to predict from; 0: none
    engine: Engine = "threads"  # where a sweep runs

    def __post_init__(self) -> None:
        if self.burn_in is None:
            object.__setattr__(self, "burn_in", min(20, self.sweeps // 2))
        if not 0 <= self.burn_in < self.sweeps:
            raise DataError(
                f"burn_in={self.burn_in} of sweeps={self.sweeps}: keep at least one sweep"
            )
        if self.thin < 1 or self.chains < 1:
            raise DataError("thin and chains are 1 or more")
        if not 0 <= (self.keep or 0) <= self.sweeps - self.burn_in:
            raise DataError(
                f"keep={self.keep}: choose 0 to {self.sweeps - self.burn_in}, the sweeps after the "
                "burn-in"
            )
        check_threads(self.threads)
        self._check_engine()

    def _check_engine(self) -> None:
        engine = engine_of(self.engine)
        if engine is None:
            return
        if self.form != "centred" or self.model.features == "side-only":
            raise DataError(
                "side features that are not centred are drawn by one process alone; choose "
                "engine='threads'"
            )
        if engine.resident and self.model.features not in ("none", "user-item"):
            raise DataError(
                f"features={self.model.features!r}: side features need all users in one place; "
                "choose Ray(resident=False), or features='user-item'"
            )

    def fit(
        self,
        train: Ratings | Shards,
        test: Ratings | None = None,
        *,
        start: State | Literal["random", "map"] = "random",
        validation: Ratings | None = None,
        patience: int = 50,
        callbacks: Sequence[Callback] = (),
        budget: float | None = None,
        keep_in: str | Path | None = None,
        checkpoint: str | Path | None = None,
        every: float = 60.0,
        resume: bool = False,
    ) -> GibbsFit:
        """Sample, and return what was sampled; Ctrl-C ends the run with what there is.

        - ``test``: predicted along the way, averaged over the sweeps after the burn-in.
        - ``start``: all chains begin at this state, or at "map", a MAP estimate made for it.
        - ``validation``, ``patience``: a chain ends early when the error on these ratings has not
          fallen for so many sweeps.
        - ``callbacks``: called with a ``Progress`` after every sweep; one that returns True ends
          the run.
        - ``budget``: seconds after which the run ends with what there is.
        - ``keep_in``: a new folder for the kept draws, which else stay in memory.
        - ``checkpoint``, ``every``: a folder in which the run is saved after every so many seconds,
          and when it ends or is ended.
        - ``resume``: go on from there, on any number of threads; the result has the same bits as
          if nothing had happened. ``budget`` counts anew; a MAP start that is to be saved is
          finished first, whatever the budget.
        """
        check_parts(train, test=test, validation=validation)
        with using(self.threads), contextlib.ExitStack() as stack:
            folder = saved = None
            if keep_in is not None:
                made = whole_folder(Path(keep_in), remedy="choose another folder for keep_in")
                folder = stack.enter_context(made)
            each = self.kept(train)
            kept = Kept(self.chains * each, folder)
            clock = Clock(callbacks, budget)
            data = stack.enter_context(self._placed(train))
            run = Chains(self, data, train, test, validation, patience, kept, each)
            if checkpoint is not None:
                parts = {"training": train, "test": test, "validation": validation}
                told = describe(run, start, parts)
                saved = stack.enter_context(opened(Path(checkpoint), told, every, resume))
                saved.load(run, clock)
            elif resume:
                raise DataError("resume: say from which folder, with checkpoint= (--checkpoint)")
            if start == "map":
                if not isinstance(train, Ratings):
                    raise DataError("start='map' needs all ratings in memory; begin at 'random'")
                start, saved = self._estimate(train, validation, clock, saved)
            if start != "random":
                start = checked_start(start, self.model, run.data)
            self._sample(run, start, clock, saved)
            fit = self._result(run, clock)
            kept.close()
        if each:
            fit.draws = kept if keep_in is None else Kept.open(Path(keep_in))
            arrays = fit.draws.arrays if len(fit.draws) else draws_of(fit.states[-1])
            fit.known = Posterior.of(self.model, train, arrays)
            fit.threads = self.threads
        return fit

    def _placed(self, train: Ratings | Shards) -> contextlib.AbstractContextManager[Data]:
        """The ratings where the engine wants them."""
        engine = engine_of(self.engine)
        if engine is None:
            if not isinstance(train, Ratings):
                raise DataError(f"{train.folder} holds shards; fit them with engine='ray'")
            return contextlib.nullcontext(Data.of(train, self.model))
        return engine.place(train, self.model)

    def kept(self, train: Ratings | Shards) -> int:
        """Draws to keep of each chain."""
        if self.keep is not None:
            return self.keep
        wanted = affordable(self.model, train, KEPT) // self.chains
        return max(min(wanted, self.sweeps - self.burn_in), 1)

    def _estimate(
        self, train: Ratings, validation: Ratings | None, clock: Clock, saved: Checkpoint | None
    ) -> tuple[State, Checkpoint | None]:
        """The MAP start, and where to save the run that begins at it."""
        if saved is not None and saved.start is not None:
            return saved.start, saved
        # A start cannot be saved halfway: cut short by the budget, no call would ever get past it.
        budget = clock.left if saved is None else None
        start = map_start(self.model, self.seed, self.threads, train, validation, clock, budget)
        if clock.reason:
            return start, None  # cut short, it is not where a run with more time would begin
        if saved is not None:
            saved.start = start
        return start, saved

    def _sample(
        self, run: Chains, start: State | Literal["random"], clock: Clock, saved: Checkpoint | None
    ) -> None:
        """Sweep until the end, or until something asks to stop."""
        if run.finished:
            return
        if saved is not None:
            saved.save_if_due(run, clock)
        try:
            while not run.finished:
                with sweep_first():
                    run.step(start)
                if clock.stops(run.progress(clock.seconds)):
                    break
                if saved is not None:
                    saved.save_if_due(run, clock)
        except KeyboardInterrupt:
            clock.reason = "interrupted"
        if saved is not None and run.whole:
            saved.save(run, clock)

    def _result(self, run: Chains, clock: Clock) -> GibbsFit:
        done = run.done
        if not done:
            raise KeyboardInterrupt
        run.settle()
        # a chain that has only begun does not cut the others short
        enough = self.burn_in if max(done) > self.burn_in else 0
        shortest = min(n for n in done if n > enough)
        traces = [t for t in run.traces if t and len(t["noise precision"]) >= shortest]
        moments = None if run.target is None else run.target.moments
        return GibbsFit(
            model=self.model,
            states=run.states,
            traces={name: np.array([t[name][:shortest] for t in traces]) for name in traces[0]},
            burn_in=self.burn_in if shortest > self.burn_in else 0,
            predictions=moments if moments is not None and moments.count else None,
            test_rmse=run.curve[-1] if run.curve else None,
            rmse_by_sweep=run.curve,
            sweeps=sum(done),
            seconds=clock.seconds,
            stopped=clock.reason or run.ended,
            validation_by_sweep=run.judged,
        )
