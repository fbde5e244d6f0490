"""Gibbs sampling: from every conditional it takes a draw."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.atomic import whole_folder
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.inference.fitted import Fitted
from bayesmf.inference.kept import Kept
from bayesmf.inference.map import map_start
from bayesmf.inference.posterior import Posterior, draws_of
from bayesmf.inference.run import (
    Callback,
    Clock,
    Patience,
    Progress,
    check_parts,
    check_threads,
    using,
)
from bayesmf.inference.sweep import Form, gibbs_sweep
from bayesmf.inference.target import Moments, Target
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, State, checked_start, random_start
from bayesmf.prob.draws import Draws

Array = NDArray[np.float64]
KEPT, KEPT_BYTES = 100, 1 << 29
WATCHED = 16  # predictions whose traces are kept for the diagnostics


@dataclass
class GibbsFit(Fitted):
    """What sampling leaves: the last state of each chain, traces, and the test predictions."""

    model: Model
    states: list[State]
    traces: dict[str, Array]  # (chain, sweep)
    burn_in: int
    predictions: Moments | None
    test_rmse: float | None
    rmse_by_sweep: list[float]
    sweeps: int  # done, over all chains
    seconds: float
    stopped: str  # why it ended before its time, or nothing
    validation_by_sweep: list[float] = field(default_factory=list)
    draws: Kept | None = None
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

    def to_arviz(self) -> Any:
        """The traces after the burn-in as ArviZ's InferenceData."""
        try:
            import arviz
        except ImportError as error:
            raise DataError("ArviZ is not installed; run pip install 'bayesmf[arviz]'") from error
        return arviz.from_dict(posterior=dict(self._traces()))


@dataclass(frozen=True)
class Gibbs:
    """A Gibbs sampler for a model: ``Gibbs(model, sweeps=400).fit(train, test)``.

    ``burn_in`` sweeps are drawn before any prediction is averaged. ``form`` says how side features
    are drawn; all forms have the same posterior. ``keep`` draws of each chain, evenly spaced after
    the burn-in, are kept as float32 to predict from: 100 of all chains together unless given, fewer
    if they would take more than half a gigabyte. The same seed gives the same bits on any number of
    threads.
    """

    model: Model = field(default_factory=Model.best)
    sweeps: int = 400
    burn_in: int = 20
    thin: int = 1
    chains: int = 1
    seed: int = 0
    form: Form = "centred"
    threads: int | None = None
    keep: int | None = None

    def __post_init__(self) -> None:
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

    def fit(
        self,
        train: Ratings,
        test: Ratings | None = None,
        *,
        start: State | Literal["random", "map"] = "random",
        validation: Ratings | None = None,
        patience: int = 50,
        callbacks: Sequence[Callback] = (),
        budget: float | None = None,
        keep_in: str | Path | None = None,
    ) -> GibbsFit:
        """Sample; ``test`` is predicted along the way, ``budget`` is in seconds.

        All chains begin at ``start`` if it is a state or "map", a MAP estimate made for it.
        A chain ends early when the error on ``validation`` has not fallen for ``patience`` sweeps.
        Kept draws go to the new folder ``keep_in``, or stay in memory. Ctrl-C ends the run with
        what has been sampled.
        """
        check_parts(train, test=test, validation=validation)
        with using(self.threads), contextlib.ExitStack() as stack:
            folder = None
            if keep_in is not None:
                folder = stack.enter_context(whole_folder(Path(keep_in)))
            each = self._kept(train)
            kept = Kept(self.chains * each, folder)
            clock = Clock(callbacks, budget)
            if start == "map":
                start = map_start(self.model, self.seed, self.threads, train, validation, clock)
            fit = self._run(train, test, start, validation, patience, clock, kept, each)
            kept.close()
        if each:
            fit.draws = kept if keep_in is None else Kept.open(Path(keep_in))
            arrays = fit.draws.arrays if len(fit.draws) else draws_of(fit.states[-1])
            fit.known = Posterior.of(self.model, train, arrays)
            fit.threads = self.threads
        return fit

    def _kept(self, train: Ratings) -> int:
        """Draws to keep of each chain."""
        if self.keep is not None:
            return self.keep
        sides = self.model.has_side("user") * train.n_items
        sides += self.model.has_side("item") * train.n_users
        size = 4 * (self.model.size + 2) * (train.n_users + train.n_items + sides)
        wanted = min(KEPT, max(KEPT_BYTES // size, KEPT // 10)) // self.chains
        return max(min(wanted, self.sweeps - self.burn_in), 1)

    def _run(
        self, train: Ratings, test: Ratings | None, start: State | Literal["random"],
        validation: Ratings | None, patience: int, clock: Clock, kept: Kept, keep: int,
    ) -> GibbsFit:  # fmt: skip
        data = Data.of(train, self.model)
        target = Target(test, data) if test is not None and len(test) else None
        judge = Target(validation, data) if validation is not None else None
        watched = Target(train, data, WATCHED)
        states: list[State] = []
        traces: list[dict[str, list[float]]] = []
        ended = ""
        curve: list[float] = []
        judged: list[float] = []
        every = (self.sweeps - self.burn_in) // keep if keep else 0
        for chain in range(self.chains):
            state = (
                random_start(self.model, data, self.seed, chain)
                if start == "random"
                else checked_start(start, self.model, data)
            )
            states.append(state)
            traces.append({})
            waiting = Patience(patience)
            try:
                for sweep in range(self.sweeps):
                    draws = Draws(self.seed, chain, state.sweep + 1)
                    gibbs_sweep(self.model, data, state, draws, self.form)
                    _record(traces[-1], state, watched.predict(state))
                    after = sweep - self.burn_in
                    averaged = after >= 0 and after % self.thin == 0
                    if target is not None:
                        curve.append(target.take(state, averaged))
                    if judge is not None:
                        judged.append(judge.take(state, averaged))
                    if every and after >= 0 and after % every == 0 and after // every < keep:
                        kept.add(state, chain)
                    progress = Progress(
                        chain, self.chains, sweep + 1, self.sweeps, clock.seconds,
                        curve[-1] if curve else None, judged[-1] if judged else None, state=state,
                    )  # fmt: skip
                    if clock.stops(progress):
                        break
                    if after >= 0 and judged and waiting.ends(judged[-1]):
                        ended = "the validation error has stopped falling"
                        break
            except KeyboardInterrupt:
                clock.reason = "interrupted"
            if clock.reason:
                break
        done = [len(trace["noise precision"]) for trace in traces if trace]
        if not done:
            raise KeyboardInterrupt
        # a chain that has only begun does not cut the others short
        enough = self.burn_in if max(done) > self.burn_in else 0
        shortest = min(n for n in done if n > enough)
        arrays = {
            name: np.array([t[name][:shortest] for t in traces if t and len(t[name]) >= shortest])
            for name in traces[0]
        }
        moments = None if target is None else target.moments
        return GibbsFit(
            model=self.model,
            states=states,
            traces=arrays,
            burn_in=self.burn_in if shortest > self.burn_in else 0,
            predictions=moments if moments is not None and moments.count else None,
            test_rmse=curve[-1] if curve else None,
            rmse_by_sweep=curve,
            sweeps=sum(done),
            seconds=clock.seconds,
            stopped=clock.reason or ended,
            validation_by_sweep=judged,
        )


def _record(trace: dict[str, list[float]], state: State, predictions: Array) -> None:
    values: dict[str, Any] = {"noise precision": state.tau}
    for name, side in (("user", state.user), ("item", state.item)):
        values[f"{name} prior, log det"] = np.linalg.slogdet(side.precision)[1]
        if len(side.W):
            size = float(np.mean(side.offset[:, 1:] ** 2)) if side.size > 1 else 0.0
            values[f"{name} offset, mean square"] = size
    for number, value in enumerate(predictions):
        values[f"prediction {number + 1}"] = value
    for key, value in values.items():
        trace.setdefault(key, []).append(float(value))
