"""Gibbs sampling: from every conditional it takes a draw."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice, check_kind, check_whole
from bayesmf.choices import FORMS, Form
from bayesmf.data.io.atomic import whole_folder
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.fitted.base import Fitted, test_error
from bayesmf.fitted.kept import Kept
from bayesmf.fitted.posterior import Posterior, affordable, draws_of
from bayesmf.inference import loop
from bayesmf.inference.chains import Chains
from bayesmf.inference.checkpoint import Checkpoint, describe_run, open_checkpoint
from bayesmf.inference.engine import Engine, find_engine
from bayesmf.inference.loop import Callback, Clock, check_parts
from bayesmf.inference.map.fit import map_start
from bayesmf.inference.target import RunningMoments
from bayesmf.machine import check_threads, using
from bayesmf.model.spec import Model
from bayesmf.model.state import State, check_start

Array = NDArray[np.float64]
KEPT = 100
BURN_IN = 20  # sweeps, or half of a run that is shorter than twice as many


@dataclass(repr=False)
class GibbsFit(Fitted):
    """What sampling leaves: the last state of each chain, traces, and the test predictions."""

    model: Model
    states: list[State]  # the last of each chain
    traces: dict[str, Array]  # (chain, sweep)
    burn_in: int
    predictions: RunningMoments | None  # of the test ratings, over all sweeps after the burn-in
    test_rmse: float | None  # that of ``evaluate(test)``
    rmse_by_sweep: list[float]  # of the average over all sweeps so far
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

    ``burn_in`` sweeps are drawn before any prediction is averaged. ``form`` says how the weights of
    designs are drawn; all forms have the same posterior. ``keep`` draws of each chain, evenly
    spaced after the burn-in, are kept as float32 to predict from: 100 of all chains together unless
    given, fewer if they would take more than half a gigabyte. The same seed gives the same bits on
    any number of threads, and with ``engine="ray"`` on any number of workers; ``Ray`` says which.
    """

    model: Model = field(default_factory=Model)
    _: KW_ONLY
    sweeps: int = 400  # of each chain, burn-in included
    burn_in: int | None = None  # sweeps that are not averaged; None: 20, or half of a short run
    thin: int = 1  # average the test predictions of every so many sweeps
    chains: int = 1  # one after the other, each with random numbers of its own
    seed: int = 0
    form: Form = "centred"  # how the weights of designs are drawn
    threads: int | None = None  # None: all
    keep: int | None = None  # draws of each chain to predict from; 0: none
    engine: Literal["threads", "ray"] | Engine = "threads"  # where a sweep runs

    def __post_init__(self) -> None:
        check_kind("model", self.model, Model, "a Model, such as Gibbs(Model(), sweeps=400)")
        check_whole("sweeps", self.sweeps, 1)
        if self.burn_in is None:
            object.__setattr__(self, "burn_in", min(BURN_IN, self.sweeps // 2))
        burn_in = check_whole("burn_in", self.burn_in)
        for name in ("thin", "chains"):
            check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed)
        check_choice("form", self.form, FORMS)
        if burn_in >= self.sweeps:
            raise DataError(f"burn_in={burn_in} of sweeps={self.sweeps}: keep at least one sweep")
        if self.keep is not None and check_whole("keep", self.keep) > self.sweeps - burn_in:
            raise DataError(
                f"keep={self.keep}: choose 0 to {self.sweeps - burn_in}, the sweeps after the "
                "burn-in"
            )
        check_threads(self.threads)
        find_engine(self.engine).check(self.model, self.form)

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
        check_parts(train, shards=True, test=test, validation=validation)
        if resume and checkpoint is None:
            raise DataError(f"resume: say from which folder, with {Option('checkpoint', 'DIR')}")
        engine = find_engine(self.engine)
        with using(self.threads), contextlib.ExitStack() as stack:
            kept = stack.enter_context(self._keep_draws(train, keep_in))
            clock = Clock(callbacks, budget)
            data = stack.enter_context(engine.place(train, self.model))
            run = Chains(self, engine, data, train, test, validation, patience, kept)
            saved = None
            if checkpoint is not None:
                parts = {"training": train, "test": test, "validation": validation}
                facts = describe_run(run, start, parts)
                saved = stack.enter_context(
                    open_checkpoint(Path(checkpoint), run, facts, every, resume)
                )
                saved.load(clock)
            run.start, saved = self._find_start(start, run, train, validation, clock, saved)
            self._sample(run, clock, saved)
            fit = self._make_fit(run, clock)
        if self.keep != 0:
            fit.draws = kept if keep_in is None else Kept.open(Path(keep_in))
            arrays = fit.draws.arrays if len(fit.draws) else draws_of(fit.states[-1])
            fit.known = Posterior.of(self.model, train, arrays, held_out=(test, validation))
            fit.threads = self.threads
            fit.test_rmse = test_error(fit.posterior, test, self.threads)
        return fit

    @contextlib.contextmanager
    def _keep_draws(self, train: Ratings | Shards, keep_in: str | Path | None) -> Iterator[Kept]:
        """Where draws are kept: in memory, or in a folder that appears when all are there."""
        most = self.chains * self.draws_kept(train)
        if keep_in is None:
            yield Kept(most)
            return
        with whole_folder(Path(keep_in), remedy="choose another folder for keep_in") as folder:
            kept = Kept(most, folder)
            yield kept
            kept.close()

    @property
    def burnt(self) -> int:
        """The sweeps that are not averaged, as a number."""
        assert self.burn_in is not None
        return self.burn_in

    def draws_kept(self, train: Ratings | Shards) -> int:
        """Draws to keep of each chain."""
        if self.keep is not None:
            return self.keep
        share = affordable(self.model, train, KEPT) // self.chains
        return max(min(share, self.sweeps - self.burnt), 1)

    def _find_start(
        self,
        start: State | Literal["random", "map"],
        run: Chains,
        train: Ratings | Shards,
        validation: Ratings | None,
        clock: Clock,
        saved: Checkpoint | None,
    ) -> tuple[State | Literal["random"], Checkpoint | None]:
        """Where chains begin, and where to save the run that begins there."""
        if start == "random":
            return start, saved
        if start != "map":
            return check_start(start, self.model, run.data), saved
        if not isinstance(train, Ratings):
            raise DataError("start='map' needs all ratings in memory; begin at 'random'")
        if saved is not None and saved.start is not None:
            return check_start(saved.start, self.model, run.data), saved
        # A start cannot be saved halfway: cut short by the budget, no call would ever get past it.
        budget = clock.left if saved is None else None
        found = map_start(self.model, self.seed, self.threads, train, validation, clock, budget)
        if clock.reason:
            saved = None  # cut short, it is not where a run with more time would begin
        elif saved is not None:
            saved.start = found
        return check_start(found, self.model, run.data), saved

    def _sample(self, run: Chains, clock: Clock, saved: Checkpoint | None) -> None:
        """Sweep until the end, or until something asks to stop."""
        if run.finished:
            return
        if saved is not None:
            saved.save_if_due(clock)
        loop.run(run, clock, saved)
        if saved is not None and run.whole:
            saved.save(clock)

    def _make_fit(self, run: Chains, clock: Clock) -> GibbsFit:
        done, burn_in = run.done, self.burnt
        if not done:
            raise KeyboardInterrupt
        run.settle()
        # a chain that has only begun does not cut the others short
        enough = burn_in if max(done) > burn_in else 0
        shortest = min(n for n in done if n > enough)
        traces = [t for t in run.traces if t and len(t["noise precision"]) >= shortest]
        moments = None if run.target is None else run.target.moments
        return GibbsFit(
            model=self.model,
            states=run.states,
            traces={name: np.array([t[name][:shortest] for t in traces]) for name in traces[0]},
            burn_in=burn_in if shortest > burn_in else 0,
            predictions=moments if moments is not None and moments.count else None,
            test_rmse=run.curve[-1] if run.curve else None,
            rmse_by_sweep=run.curve,
            sweeps=sum(done),
            seconds=clock.seconds,
            stopped=clock.reason or run.ended,
            validation_by_sweep=run.judged,
        )
