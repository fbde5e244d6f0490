"""The chains of one Gibbs run: everything that changes as it goes along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.io.shards import WATCHED, Shards
from bayesmf.data.ratings import Ratings
from bayesmf.engines.ray.resident import ResidentData
from bayesmf.engines.ray.resident_sweep import resident_start, resident_sweep
from bayesmf.fit.kept import Kept
from bayesmf.inference.loop import Patience, Progress
from bayesmf.inference.target import Target
from bayesmf.model.state import Data, State, checked_start, random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep

if TYPE_CHECKING:
    from bayesmf.inference.gibbs import Gibbs

Array = NDArray[np.float64]


class Chains:
    """One chain after the other, a sweep at a time; the last of ``states`` is the running chain's.

    ``each`` draws of a chain go to ``kept``. Between two steps all parts belong to the same whole
    number of sweeps; ``whole`` is False if a step was broken off.
    """

    def __init__(
        self, sampler: Gibbs, data: Data, train: Ratings | Shards, test: Ratings | None,
        validation: Ratings | None, patience: int, kept: Kept, each: int,
    ) -> None:  # fmt: skip
        self.sampler, self.patience, self.kept, self.each = sampler, patience, kept, each
        self.data = data
        self.target = Target(test, self.data) if test is not None and len(test) else None
        self.judge = Target(validation, self.data) if validation is not None else None
        some = train if isinstance(train, Ratings) else train.sample
        self.watched = Target(some, self.data, WATCHED)
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
            len(self.states) - 1, self.sampler.chains, self.done[-1], self.sampler.sweeps, seconds,
            self.curve[-1] if self.curve else None, self.judged[-1] if self.judged else None,
            state=self.states[-1],
        )  # fmt: skip

    def step(self, start: State | Literal["random"]) -> None:
        """One sweep of the running chain, or of the next if that has ended, and all it leads to."""
        self.whole = False
        if self.resting:
            self._begin(start)
        sampler, state, chain = self.sampler, self.states[-1], len(self.states) - 1
        draws = Draws(sampler.seed, chain, state.sweep + 1)
        if isinstance(self.data, ResidentData):
            resident_sweep(sampler.model, self.data, state, draws)
        else:
            gibbs_sweep(sampler.model, self.data, state, draws, sampler.form)
        _record(self.traces[-1], state, self.watched.predict(state))
        after = self.done[-1] - 1 - sampler.burn_in
        averaged = after >= 0 and after % sampler.thin == 0
        if self.target is not None:
            self.curve.append(self.target.take(state, averaged))
        if self.judge is not None:
            self.judged.append(self.judge.take(state, averaged))
        span = sampler.sweeps - sampler.burn_in  # of which every so many is kept, the last for sure
        if after >= 0 and (after + 1) * self.each // span > after * self.each // span:
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

    def _begin(self, start: State | Literal["random"]) -> None:
        model, seed = self.sampler.model, self.sampler.seed
        chain = len(self.states)
        if start != "random":
            state = checked_start(start, model, self.data)
        elif isinstance(self.data, ResidentData):
            state = resident_start(model, self.data, seed, chain)
        else:
            state = random_start(model, self.data, seed, chain)
        self.states.append(state)
        self.traces.append({})
        self.waiting = Patience(self.patience)
        self.resting = False


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
