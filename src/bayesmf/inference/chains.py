"""The chains of one Gibbs run: everything that changes as it goes along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.io.shards import WATCHED, Shards
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.kept import Kept
from bayesmf.inference.engine import Engine
from bayesmf.inference.loop import Patience, Progress
from bayesmf.inference.target import Target
from bayesmf.model.data import Data
from bayesmf.model.state import State, check_start
from bayesmf.random.draws import Draws

if TYPE_CHECKING:
    from bayesmf.inference.gibbs import Gibbs

Array = NDArray[np.float64]


class Chains:
    """One chain after the other, a sweep at a time; the last of ``states`` is the running chain's.

    ``draws_each`` draws of a chain go to ``kept``. Between two steps all parts belong to the same
    whole number of sweeps; ``whole`` is False if a step was broken off.
    """

    def __init__(
        self,
        sampler: Gibbs,
        engine: Engine,
        data: Data,
        train: Ratings | Shards,
        test: Ratings | None,
        validation: Ratings | None,
        patience: int,
        kept: Kept,
    ) -> None:
        self.sampler, self.engine, self.data = sampler, engine, data
        self.patience, self.kept, self.draws_each = patience, kept, sampler.draws_kept(train)
        self.start: State | Literal["random"] = "random"  # where every chain begins
        model = sampler.model
        self.target = Target(test, data, model) if test is not None and len(test) else None
        self.judge = Target(validation, data, model) if validation is not None else None
        some = train if isinstance(train, Ratings) else train.sample
        self.watched = Target(some, data, model, WATCHED)
        self.states: list[State] = []
        self.traces: list[dict[str, list[float]]] = []  # by chain
        self.curve: list[float] = []
        self.judged: list[float] = []
        self.waiting = Patience(patience)
        self.ended = ""  # why a chain ended before its time, or nothing
        self.resting = True  # no chain is under way
        self.whole = True

    @property
    def finished(self) -> bool:
        """Whether all chains have ended."""
        return self.resting and len(self.states) == self.sampler.chains

    @property
    def done(self) -> list[int]:
        """Sweeps of each chain so far."""
        return [len(trace["noise precision"]) for trace in self.traces if trace]

    def progress(self, seconds: float) -> Progress:
        """For the callbacks."""
        return Progress(
            len(self.states) - 1,
            self.sampler.chains,
            self.done[-1],
            self.sampler.sweeps,
            seconds,
            self.curve[-1] if self.curve else None,
            self.judged[-1] if self.judged else None,
            state=self.states[-1],
        )

    def step(self) -> None:
        """One sweep of the running chain, or of the next if that has ended, and all it leads to."""
        self.whole = False
        if self.resting:
            self._begin()
        sampler, state, chain = self.sampler, self.states[-1], len(self.states) - 1
        draws = Draws(sampler.seed, chain, state.sweep + 1)
        self.engine.sweep(sampler.model, self.data, state, draws, sampler.form)
        _record(self.traces[-1], state, self.watched.predict(state))
        after = self.done[-1] - 1 - sampler.burnt
        averaged = after >= 0 and after % sampler.thin == 0
        if self.target is not None:
            self.curve.append(self.target.take(state, averaged))
        if self.judge is not None:
            self.judged.append(self.judge.take(state, averaged))
        span = sampler.sweeps - sampler.burnt  # of which every so many is kept, the last for sure
        if after >= 0 and (after + 1) * self.draws_each // span > after * self.draws_each // span:
            self.kept.add(state, chain)
        if after >= 0 and self.judged and self.waiting.ends(self.judged[-1]):
            self.ended = "the validation error has stopped falling"
            self.resting = True
        if self.done[-1] == sampler.sweeps:
            self.resting = True
        if self.resting:
            self.settle()
        self.whole = True

    def settle(self) -> None:
        """Bring all of the last state here, wherever an engine keeps it."""
        state = self.states[-1]
        state.user, state.item = state.user.plain(), state.item.plain()

    def _begin(self) -> None:
        model, seed, chain = self.sampler.model, self.sampler.seed, len(self.states)
        if isinstance(self.start, State):
            state = check_start(self.start, model, self.data)
        else:
            state = self.engine.start(model, self.data, seed, chain)
        self.states.append(state)
        self.traces.append({})
        self.waiting = Patience(self.patience)
        self.resting = False


def _record(trace: dict[str, list[float]], state: State, predictions: Array) -> None:
    values: dict[str, Any] = {"noise precision": state.tau}
    for name, side in (("user", state.user), ("item", state.item)):
        values[f"{name} prior, log det"] = np.linalg.slogdet(side.Lambda)[1]
        if side.shifts:
            size = float(np.mean(side.offset[:, 1:] ** 2)) if side.size > 1 else 0.0
            values[f"{name} offset, mean square"] = size
    for number, value in enumerate(predictions):
        values[f"prediction {number + 1}"] = value
    for key, value in values.items():
        trace.setdefault(key, []).append(float(value))
