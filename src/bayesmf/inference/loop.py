"""The one loop: sweeps, callbacks, and the reasons to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

import numpy as np

from bayesmf.checks import check_kind, check_number, check_whole
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.evaluation.diagnostics import Targets
from bayesmf.fitted.posterior import check_on_scale
from bayesmf.inference.convergence import Check
from bayesmf.model.attributes import Attributes
from bayesmf.model.designs import SideFacts
from bayesmf.model.spec import Model
from bayesmf.model.state import State

INTERRUPTED = "interrupted"  # the reason of a run that Ctrl-C ended


@contextlib.contextmanager
def computable() -> Iterator[None]:
    """A block in which a matrix of precisions that rounding has spoilt is told in a sentence."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise DataError(
            "this model cannot be computed, because its numbers differ too much in size; choose "
            "numbers nearer to 1 for its hyper-parameters (Hyper)"
        ) from error


@contextlib.contextmanager
def sweep_first() -> Iterator[None]:
    """Ctrl-C is heard after the sweep that is under way, a second one at once.

    A sweep that was broken off is neither a draw nor a place to go on from.
    """
    usual = signal.default_int_handler
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not usual:
        yield  # whoever listens instead knows what to do
        return
    heard: list[int] = []

    def listen(number: int, frame: FrameType | None) -> None:
        if heard:
            usual(number, frame)
        heard.append(number)

    signal.signal(signal.SIGINT, listen)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if heard:
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Progress:
    """Where a run is; what a callback sees after every sweep."""

    chain: int  # the one that was swept, from 0; chains take turns
    chains: int
    sweep: int  # done in this chain: the number of the round
    sweeps: int  # of each chain, at most
    seconds: float  # since the start
    rmse: float | None  # of the mean prediction so far, on the test ratings if there are any
    validation: float | None = None  # the same on the validation ratings
    stage: str = "sampling"  # or what else is being done, such as "MAP, penalty 10"
    state: State | None = None  # to look at, not to change
    targets: Targets | None = None  # what the run goes on for; None: for its sweeps
    check: Check | None = None  # how far they were when the chains were looked at last


Callback = Callable[[Progress], bool | None]
"""Called after every sweep; returning True ends the run with what there is."""


GIVE_RATINGS = "Ratings, such as Ratings.from_frame(table), or fit a table with bayesmf.fit(table)"


def check_parts(
    train: Ratings | Shards, model: Model, *, shards: bool = False, **parts: Ratings | None
) -> None:
    """Refuse test or validation ratings that number users or items in another way.

    With ``shards`` the training ratings may be on disk. Attributes of the model have to be those of
    users and items that are in training.
    """
    check_kind("train", train, (Ratings, Shards), GIVE_RATINGS)
    if isinstance(train, Shards) and not shards:
        raise DataError(f"{train.folder} holds shards; fit them with Gibbs(engine='ray')")
    for name, part in parts.items():
        if part is None:
            continue
        check_kind(name, part, Ratings, GIVE_RATINGS)
        if part.users != train.users or part.items != train.items:
            raise DataError(
                f"the {name} ratings have other users or items than the training ratings; cut both "
                "from one table, as bayesmf.split does"
            )
        if part.scale != train.scale:
            check_on_scale(part, train.scale)
        if name == "validation" and not len(part):
            raise DataError("there are no validation ratings; hold some out, or leave them out")
    for design in model.user_designs:
        if isinstance(design, Attributes):
            design.check_rows(SideFacts("user", train.users, train.by_user.counts))
    for design in model.item_designs:
        if isinstance(design, Attributes):
            design.check_rows(SideFacts("item", train.items, train.by_item.counts))


def record(trace: dict[str, list[float]], facts: dict[str, float]) -> None:
    """Add what is known after one sweep to the curves."""
    for name, value in facts.items():
        trace.setdefault(name, []).append(value)


class Job(Protocol):
    """What the loop runs: chains of draws, variational updates, steps of MAP."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""

    def step(self) -> None:
        """One sweep, and all it leads to."""

    def progress(self, seconds: float) -> Progress:
        """Where it is, for the callbacks."""


class Saver(Protocol):
    """Keeps a job so that it survives a kill."""

    def save_if_due(self, clock: Clock) -> None:
        """Save if it is time."""


def run(job: Job, clock: Clock, saver: Saver | None = None) -> None:
    """Sweep until the job is finished or something asks to stop; ``clock.reason`` says what did."""
    try:
        while not job.finished:
            with sweep_first(), computable():
                job.step()
            if clock.stops(job.progress(clock.seconds)):
                return
            if saver is not None:
                saver.save_if_due(clock)
    except KeyboardInterrupt:
        clock.reason = INTERRUPTED


class Clock:
    """Decides after every sweep whether to go on."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        budget: float | None,
        patience: int | None = None,
    ) -> None:
        if not (np.iterable(callbacks) and all(map(callable, callbacks))):
            raise TypeError("callbacks: give a list of functions of one argument, a Progress")
        if budget is not None:
            check_number("budget", budget, least=0.0)
        if patience is not None:
            check_whole("patience", patience, 1)
        self.callbacks, self.budget = list(callbacks), budget
        self.start = time.perf_counter()
        self.earlier = 0.0  # spent by the calls that this one goes on from
        self.reason = ""

    @property
    def seconds(self) -> float:
        """Spent on the run."""
        return self.earlier + self._since

    @property
    def left(self) -> float | None:
        """Of the budget, which is that of this call."""
        return None if self.budget is None else max(self.budget - self._since, 0.0)

    @property
    def _since(self) -> float:
        return time.perf_counter() - self.start

    def stops(self, progress: Progress) -> bool:
        """Tell the callbacks, and ask them and the budget."""
        asked = [callback(progress) for callback in self.callbacks]
        if any(asked):
            self.reason = "a callback ended it"
        elif self.left == 0.0:
            self.reason = "the time was up"
        return bool(self.reason)


class Patience:
    """Notices that the validation error has not fallen by ``least`` for ``sweeps`` sweeps."""

    def __init__(self, sweeps: int = 50, least: float = 1e-5) -> None:
        self.sweeps, self.least = sweeps, least
        self.best, self.at, self.seen = float("inf"), 0, 0

    def ends(self, error: float) -> bool:
        """Whether it has run out, after one more sweep."""
        self.seen += 1
        if error < self.best - self.least:
            self.best, self.at = error, self.seen
        return self.seen - self.at >= self.sweeps
