"""Gibbs sampling: from every conditional it takes a draw."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import (
    MOST_CHAINS,
    MOST_SWEEPS,
    check_choice,
    check_kind,
    check_length,
    check_seed,
    check_whole,
)
from bayesmf.choices import FORMS, UNTIL, Form, Until
from bayesmf.data.io.atomic import whole_folder
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.evaluation.diagnostics import Targets, endless_error
from bayesmf.fitted.base import Fitted
from bayesmf.fitted.explore.judge import test_error
from bayesmf.fitted.posterior import Posterior, affordable, draws_of
from bayesmf.fitted.store.kept import Kept
from bayesmf.fitted.update import redraw_users
from bayesmf.inference import loop
from bayesmf.inference.chains import Chains
from bayesmf.inference.checkpoint import (
    Checkpoint,
    check_saving,
    describe_run,
    open_checkpoint,
)
from bayesmf.inference.engine import Engine, find_engine
from bayesmf.inference.loop import INTERRUPTED, Callback, Clock, check_parts
from bayesmf.inference.map.fit import map_start
from bayesmf.inference.target import RunningMoments
from bayesmf.machine import check_threads, using
from bayesmf.model.spec import Model
from bayesmf.model.state import State, check_start

Array = NDArray[np.float64]
KEPT = 100
BURN_IN = 20  # sweeps, or half of a run that is shorter than twice as many
SWEEPS: dict[Until, int] = {"sweeps": 400, "converged": 2000}  # of each chain, if none are given


@dataclass(repr=False)
class GibbsFit(Fitted):
    """What sampling leaves: the last state of each chain, traces, and the test predictions.

    ``traces`` are what convergence is judged by. "noise precision" is tau; "mean log precision" is
    log tau and the mean log alpha and log beta of all ratings; "predictor variance" is the variance
    of the linear predictor over the watched pairs; each is (chain, sweep). "predictions" are the
    expected ratings of the watched pairs, (chain, sweep, pair): up to 256 pairs whose users have
    few ratings, many and all numbers between.
    """

    model: Model
    states: list[State]  # the last of each chain
    traces: dict[str, NDArray[Any]]
    burn_in: int  # sweeps of each chain that are not looked at: as given, or the warm-up found
    predictions: RunningMoments | None  # of the test ratings: since the averages last began
    test_rmse: float | None  # that of ``evaluate(test)``
    rmse_by_sweep: list[float]  # of the average over all sweeps so far
    sweeps: int  # done, over all chains
    seconds: float
    stopped: str  # what ended it, or nothing if it did all sweeps that were asked for
    validation_by_sweep: list[float] = field(default_factory=list)  # after a sweep of every chain
    until: str = "sweeps"  # or "converged"
    targets: Targets = field(default_factory=Targets)  # what "converged" means
    endless_rmse: float | None = None  # an estimate of the test RMSE that endless draws would have
    endless_rmse_error: float | None = None  # the standard error of that estimate
    draws: Kept | None = None  # a list of states; ``draws.arrays`` by parameter, (draw, ...),
    # where the users' rows are means if there is a ``user.noise``, to be added to them
    known: Posterior | None = None

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The draws that were kept, for predictions."""
        if self.known is None:
            raise DataError("no draws were kept to predict from; sample with keep=100")
        return self.known

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return {name: trace[:, self.burn_in :] for name, trace in self.traces.items()}

    def _facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {
            "inference": "gibbs",
            "sweeps": self.sweeps,
            "chains": len(self.states),
            "burn_in": self.burn_in,
            "stopped": self.stopped,
            "until": self.until,
            "targets": asdict(self.targets),
        }
        for name in ("endless_rmse", "endless_rmse_error"):
            if getattr(self, name) is not None:
                facts[name] = getattr(self, name)
        return facts


@dataclass(frozen=True)
class Gibbs:
    """A Gibbs sampler for a model: ``Gibbs(model).fit(train, test)``.

    The chains take turns, a sweep each, until they have converged; if ``sweeps`` or ``burn_in`` is
    given, or there is only one chain, they do so many sweeps and no more. ``until`` says so in a
    word. Until "converged", ``sweeps`` is the most that each chain may do, and the warm-up is found
    from the traces, after 40 sweeps and whenever there are a sixth more. If it then ends later than
    the averages of the test predictions began, they begin again. Until "sweeps", the first
    ``burn_in`` sweeps are not averaged.

    ``form`` says how the weights of designs are drawn; all forms have the same posterior. ``keep``
    draws of each chain, evenly spaced after the burn-in or warm-up, are kept as float32 to predict
    from: 100 of all chains together unless given, fewer if they would take more than half a
    gigabyte. The same seed gives the same bits on any number of threads, and with ``engine="ray"``
    on any number of workers; ``Ray`` says which.
    """

    model: Model = field(default_factory=Model)
    _: KW_ONLY
    sweeps: int | None = None  # of each chain; None: 400, or at most 2000 until "converged"
    burn_in: int | None = None  # sweeps that are not averaged; until "sweeps" 20 or half if None
    thin: int = 1  # average the test predictions of every so many sweeps
    chains: int = 4  # in turn, each with random numbers of its own
    until: Until | None = None  # None: "sweeps" if sweeps or burn_in is given, or chains=1
    targets: Targets = field(default_factory=Targets)  # what "converged" means
    seed: int = 0
    form: Form = "centred"  # how the weights of designs are drawn
    threads: int | None = None  # None: all
    keep: int | None = None  # draws of each chain to predict from; 0: none
    engine: Literal["threads", "ray"] | Engine = "threads"  # where a sweep runs

    def __post_init__(self) -> None:
        check_kind("model", self.model, Model, "a Model, such as Gibbs(Model(), sweeps=400)")
        check_whole("thin", self.thin, 1, MOST_SWEEPS)
        check_whole("chains", self.chains, 1, MOST_CHAINS)
        self._settle_length()
        check_seed(self.seed)
        check_choice("form", self.form, FORMS)
        left = self.most_sweeps - (self.burn_in or 0)
        if self.keep is not None and check_whole("keep", self.keep) > left:
            raise DataError(f"keep={self.keep}: choose 0 to {left}, the sweeps after the burn-in")
        check_threads(self.threads)
        find_engine(self.engine).check(self.model, self.form)

    def _settle_length(self) -> None:
        """Decide how long to sample, from what is given of until, sweeps and burn_in."""
        until = self.until
        if until is None:
            fixed = self.chains == 1 or self.sweeps is not None or self.burn_in is not None
            until = "sweeps" if fixed else "converged"
        check_choice("until", until, UNTIL)
        sweeps = SWEEPS[until] if self.sweeps is None else check_length(self.sweeps)
        burn_in = self.burn_in
        check_kind("targets", self.targets, Targets, "Targets, such as Targets(r_hat=1.02)")
        if until == "converged":
            if self.chains == 1:
                raise DataError(
                    "one chain cannot show that it has converged; choose "
                    f"{Option('chains', 2)} or more, or {Option('until', 'sweeps')}"
                )
            if burn_in is not None:
                raise DataError(
                    f"{Option('burn_in', burn_in)} is for {Option('until', 'sweeps')}; until "
                    "converged, the warm-up is found from the chains, so leave it out"
                )
        else:
            burn_in = min(BURN_IN, sweeps // 2) if burn_in is None else burn_in
            if check_whole("burn_in", burn_in) >= sweeps:
                raise DataError(f"burn_in={burn_in} of sweeps={sweeps}: keep at least one sweep")
        for name, value in (("until", until), ("sweeps", sweeps), ("burn_in", burn_in)):
            object.__setattr__(self, name, value)

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
        """Sample, and return what there is at the end, or at Ctrl-C after burn-in or warm-up.

        - ``test``: predicted along the way, averaged over the sweeps after the burn-in.
        - ``start``: all chains begin at this state, or at "map", a MAP estimate made for it. That
          they agree then says less than if they had begun in different places.
        - ``validation``, ``patience``: the run ends early when the error on these ratings, of the
          average over all chains, has not fallen for so many sweeps of every chain.
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
        check_parts(train, self.model, shards=True, test=test, validation=validation)
        check_saving(checkpoint, every, resume)
        self = self._settle(train)
        engine = find_engine(self.engine)
        with using(self.threads), contextlib.ExitStack() as stack:
            keep, clock = self.draws_kept(train), Clock(callbacks, budget, patience)
            kept = stack.enter_context(self._keep_draws(keep, keep_in))
            data = stack.enter_context(engine.place(train, self.model))
            run = Chains(self, engine, data, test, validation, patience, keep, kept)
            saved = None
            if checkpoint is not None:
                parts = {"training": train, "test": test, "validation": validation}
                facts = describe_run(run, start, parts)
                place = open_checkpoint(Path(checkpoint), run, facts, every, resume)
                saved = stack.enter_context(place)
                saved.load(clock)
            run.start, saved = self._find_start(start, run, train, validation, clock, saved)
            self._sample(run, clock, saved)
            fit = self._make_fit(run, clock)
            if isinstance(train, Ratings) and self._redraws and len(kept):
                with loop.computable():
                    redraw_users(self.model, train, kept, self.seed)
        if self.keep != 0:
            fit.draws = kept if keep_in is None else Kept.open(Path(keep_in))
            arrays = fit.draws.arrays if len(fit.draws) else draws_of(run.last_whole)
            fit.known = Posterior.of(fit.model, train, arrays, held_out=(test, validation))
            self._add_errors(fit, train, test)
        return fit

    def _add_errors(self, fit: GibbsFit, train: Ratings | Shards, test: Ratings | None) -> None:
        """The test error is that of the kept draws; so is that of endless ones, if they changed."""
        fit.threads = self.threads
        fit.test_rmse = test_error(fit.posterior, test, self.threads)
        if self._redraws and isinstance(train, Ratings):
            fit.endless_rmse, fit.endless_rmse_error = _endless_of_draws(fit, test)

    def _settle(self, train: Ratings | Shards) -> Gibbs:
        """The same sampler with a model whose unit is settled."""
        model = self.model.settle(train)
        return self if model is self.model else replace(self, model=model)

    @property
    def _redraws(self) -> bool:
        """Whether the users of kept draws are drawn again, if all ratings are here."""
        return self.model.redraw

    @contextlib.contextmanager
    def _keep_draws(self, keep: int, keep_in: str | Path | None) -> Iterator[Kept]:
        """Where draws are kept: in memory, or in a folder that appears when all are there."""
        most = self.chains * self.room_for(keep)
        if keep_in is None:
            yield Kept(most)
            return
        with whole_folder(Path(keep_in), remedy="choose another folder for keep_in") as folder:
            kept = Kept(most, folder)
            yield kept
            kept.close()

    @property
    def most_sweeps(self) -> int:
        """The sweeps of each chain, or the most of them, as a number."""
        assert self.sweeps is not None
        return self.sweeps

    def room_for(self, keep: int) -> int:
        """Draws of each chain that are held for a while, to end with ``keep``.

        Nobody knows how long a run until convergence will be. Every sweep is kept; when there are
        twice as many as wanted, every other one is dropped, and only every other one is kept from
        then on; and so forth. The last sweep is kept besides.
        """
        return 2 * keep + 1 if self.until == "converged" and keep else keep

    def draws_kept(self, train: Ratings | Shards) -> int:
        """Draws to keep of each chain."""
        if self.keep is not None:
            return self.keep
        if self.until == "converged":
            share = affordable(self.model, train, 2 * KEPT) // (2 * self.chains)
        else:
            share = affordable(self.model, train, KEPT) // self.chains
        return max(min(share, self.most_sweeps - (self.burn_in or 0)), 1)

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
        if not run.done or (clock.reason == INTERRUPTED and not run.worth_having):
            raise KeyboardInterrupt("before there was a draw to keep; there is no model")
        burn_in = run.conclude()
        moments = None if run.target is None else run.target.moments
        endless, error = _endless(run)
        return GibbsFit(
            model=self.model,
            states=run.states[: len(run.done)],  # not one that was broken off in its first sweep
            traces=run.traces(),
            burn_in=burn_in,
            predictions=moments if moments is not None and moments.count else None,
            test_rmse=run.curve[-1] if run.curve else None,
            rmse_by_sweep=run.curve,
            sweeps=sum(run.done),
            seconds=clock.seconds,
            stopped=clock.reason or run.ended,
            until=str(self.until),
            targets=self.targets,
            validation_by_sweep=run.judged,
            endless_rmse=endless,
            endless_rmse_error=error,
        )


def _endless(run: Chains) -> tuple[float | None, float | None]:
    """The test error of endless draws and its simulation error, if there are enough chains."""
    if run.target is None:
        return None, None
    moments = run.target.moments
    return _without_nan(endless_error(moments.means[moments.counts > 0], run.target.values))


def _endless_of_draws(fit: GibbsFit, test: Ratings | None) -> tuple[float | None, float | None]:
    """The same from the draws that were kept, whose users were drawn again."""
    if test is None or not len(test):
        return None, None
    posterior, chains = fit.posterior, np.array(fit._draw_chains())
    cells, means = posterior.cells(test), []
    with using(fit.threads):
        for chain in np.unique(chains):
            mine = {name: values[chains == chain] for name, values in posterior.draws.items()}
            means.append(replace(posterior, draws=mine).predictive(cells).mean)
    return _without_nan(endless_error(np.array(means), np.asarray(test.values, float)))


def _without_nan(values: tuple[float, float]) -> tuple[float | None, float | None]:
    whole, error = (None if math.isnan(value) else value for value in values)
    return whole, error
