"""The chains of one Gibbs run: everything that changes as it goes along."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES, find_warm_up
from bayesmf.fitted.store.kept import Kept
from bayesmf.inference.convergence import Check, check, choose_evenly, is_check, step_between
from bayesmf.inference.engine import Engine
from bayesmf.inference.loop import Patience, Progress
from bayesmf.inference.target import Target, Watched, watch_pairs
from bayesmf.model.data import Data
from bayesmf.model.state import State, check_start
from bayesmf.random.draws import Draws

if TYPE_CHECKING:
    from bayesmf.inference.gibbs import Gibbs

Array = NDArray[np.float64]
FELL = "the validation error has stopped falling"
REACHED = "the targets were reached"
NOT_REACHED = "the targets were not reached"


class Chains:
    """All chains in turn, one sweep of one chain at a time, so that their lengths differ by one.

    A round is a sweep of every chain. What ends a run is decided after a round, from the traces and
    the validation error alone. Between two steps all parts belong to the same whole number of
    sweeps; ``whole`` is False if a step was broken off.
    """

    def __init__(
        self,
        sampler: Gibbs,
        engine: Engine,
        data: Data,
        test: Ratings | None,
        validation: Ratings | None,
        patience: int,
        keep: int,
        kept: Kept,
    ) -> None:
        self.sampler, self.engine, self.data = sampler, engine, data
        self.patience, self.keep, self.kept = patience, keep, kept
        self.start: State | Literal["random"] = "random"  # where every chain begins
        model, apart = sampler.model, sampler.chains if sampler.chains > 1 else 0
        self.target = Target(test, data, model, apart) if test is not None and len(test) else None
        self.judge = Target(validation, data, model) if validation is not None else None
        self.watched = Watched(watch_pairs(data.user.counts, data.item.counts), data, model)
        self.states: list[State] = []  # the last of each chain
        self.summaries: list[list[list[float]]] = []  # by chain and sweep, in their order
        self.predictions: list[list[NDArray[np.float32]]] = []  # the same, of the watched pairs
        self.curve: list[float] = []  # by sweep
        self.judged: list[float] = []  # by round
        self.waiting = self._be_patient()
        self.averaged_from = sampler.burn_in or 0  # sweeps of each chain before the averages
        self.check: Check | None = None  # the last
        self.ended = ""  # what has ended the run, or nothing
        self.whole = True

    def _be_patient(self) -> Patience:
        return Patience(self.patience, 1e-5 * float(self.sampler.model.units[0]))

    @property
    def done(self) -> list[int]:
        """Sweeps of each chain so far, of those that have begun."""
        return [len(trace) for trace in self.predictions if trace]

    @property
    def turn(self) -> int:
        """The chain whose sweep is next, or under way."""
        return sum(self.done) % self.sampler.chains

    @property
    def last_whole(self) -> State:
        """A state at the end of a sweep: not that of a chain that was broken off in mid-sweep."""
        return self.states[len(self.done) - 1 if self.whole or self.turn == 0 else 0]

    @property
    def rounds(self) -> int:
        """Sweeps that every chain has done."""
        return min(self.done) if len(self.done) == self.sampler.chains else 0

    @property
    def worth_having(self) -> bool:
        """Whether every chain has draws after the burn-in, or after a warm-up that was found."""
        if self.sampler.until == "converged":
            return self.check is not None
        return self.rounds > self.averaged_from

    @property
    def finished(self) -> bool:
        """Whether the run is over; that is decided after a whole round."""
        return bool(self.ended) or self.rounds >= self.sampler.most_sweeps

    def progress(self, seconds: float) -> Progress:
        """For the callbacks."""
        chain = (sum(self.done) - 1) % self.sampler.chains
        return Progress(
            chain,
            self.sampler.chains,
            self.done[chain],
            self.sampler.most_sweeps,
            seconds,
            self.curve[-1] if self.curve else None,
            self.judged[-1] if self.judged else None,
            state=self.states[chain],
            targets=self.sampler.targets if self.sampler.until == "converged" else None,
            check=self.check,
        )

    def step(self) -> None:
        """One sweep of the chain whose turn it is, and all it leads to."""
        self.whole = False
        sampler, chain = self.sampler, self.turn
        if chain == len(self.states):
            self._begin(chain)
        state = self.states[chain]
        draws = Draws(sampler.seed, chain, state.sweep + 1)
        self.engine.sweep(sampler.model, self.data, state, draws, sampler.form)
        self._record(chain, state)
        self._keep_draw(chain, state)
        if chain == sampler.chains - 1:
            self._end_round()
        self.whole = True

    def _begin(self, chain: int) -> None:
        model, seed = self.sampler.model, self.sampler.seed
        if isinstance(self.start, State):
            state = check_start(self.start, model, self.data)
        else:
            state = self.engine.start(model, self.data, seed, chain)
        self.states.append(state)
        self.summaries.append([])
        self.predictions.append([])

    def _record(self, chain: int, state: State) -> None:
        """Trace a state, and average what it predicts."""
        variance, predictions = self.watched.observe(state)
        self.summaries[chain].append([state.tau, self._log_precision(state), variance])
        self.predictions[chain].append(predictions.astype(np.float32))
        after = self.done[chain] - 1 - self.averaged_from
        averaged = after >= 0 and after % self.sampler.thin == 0
        if self.target is not None:
            self.curve.append(self.target.take(state, averaged, chain))
        if self.judge is not None:
            error = self.judge.take(state, averaged)
            if chain == self.sampler.chains - 1:
                self.judged.append(error)

    def _log_precision(self, state: State) -> float:
        """log tau + (sum_i n_i log alpha_i + sum_j n_j log beta_j) / ratings."""
        total = 0.0
        if self.sampler.model.precision != "constant":
            total += state.user.log_precision(self.data.user.counts)
            total += state.item.log_precision(self.data.item.counts)
        return math.log(state.tau) + total / self.data.size

    def _keep_draw(self, chain: int, state: State) -> None:
        sampler, keep, sweep = self.sampler, self.keep, self.done[chain]
        if sampler.until == "converged":
            step = step_between(sweep, keep) if keep else sweep + 1
            keys = (key for key in self.kept.keys if key[0] == chain and key[1] % step)
            self.kept.drop(list(keys))
            kept = sweep % step == 0
        else:  # of so many every so many, the last for sure
            span, after = sampler.most_sweeps - self.averaged_from, sweep - 1 - self.averaged_from
            kept = after >= 0 and (after + 1) * keep // span > after * keep // span
        if kept:
            self.kept.add(state, (chain, sweep))

    def _end_round(self) -> None:
        sweep, last = self.rounds, self.rounds == self.sampler.most_sweeps
        converging = self.sampler.until == "converged"
        begun = sweep > self.averaged_from and (self.check is not None or not converging)
        if self.judged and begun and self.waiting.ends(self.judged[-1]):
            self.ended = FELL
        if converging and (last or is_check(sweep)):
            self._look(last)

    def _look(self, last: bool) -> None:
        """Decide whether to go on.

        Averages that began before the end of the warm-up begin again, unless no sweep is left to
        average. A run goes on, even if its targets are reached, until half of the sweeps after the
        warm-up are averaged.
        """
        rounds = self.rounds
        self.check = check(self.traces(), self.sampler.targets)
        late = self.check.warm_up > self.averaged_from
        averaged, judged = rounds - self.averaged_from, rounds - self.check.warm_up
        if self.check.reached and (last or (not late and 2 * averaged >= judged)):
            self.ended = REACHED
        elif last:
            self.ended = self.ended or NOT_REACHED
        elif late and not self.ended:
            self.averaged_from, self.waiting = rounds, self._be_patient()
            for target in (self.target, self.judge):
                if target is not None:
                    target.begin()

    def traces(self) -> dict[str, NDArray[Any]]:
        """Every trace, as long as the shortest chain: (chain, sweep), predictions also by pair."""
        length = min(self.done)
        values = np.array([trace[:length] for trace in self.summaries[: len(self.done)]], float)
        found: dict[str, NDArray[Any]] = {
            name: values[:, :, k].copy() for k, name in enumerate(SUMMARIES)
        }
        predictions = [trace[:length] for trace in self.predictions if trace]
        return {**found, PREDICTIONS: np.array(predictions, np.float32)}

    def conclude(self) -> int:
        """Bring everything here that an engine keeps elsewhere, and settle which draws are kept.

        Returns the number of sweeps of each chain that are not looked at: the burn-in, or the
        warm-up, which is found once more if the run went on after the last check.
        """
        for state in self.states:
            state.user, state.item = state.user.plain(), state.item.plain()
        if self.sampler.until == "sweeps":
            self.kept.arrange()
            return self.averaged_from if min(self.done) > self.averaged_from else 0
        known = self.check is not None and self.check.sweep == min(self.done)
        warm_up = self.check.warm_up if self.check and known else find_warm_up(self.traces())
        for chain, (state, sweep) in enumerate(zip(self.states, self.done, strict=False)):
            if self.keep and self.whole and (chain, sweep) not in self.kept.keys:
                self.kept.add(state, (chain, sweep))
            mine = [key[1] for key in self.kept.keys if key[0] == chain]
            chosen = choose_evenly([number for number in mine if number > warm_up], self.keep)
            self.kept.drop([(chain, number) for number in mine if number not in chosen])
        self.kept.arrange()
        return warm_up
