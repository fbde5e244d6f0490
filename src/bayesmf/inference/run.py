"""The one loop: sweeps, callbacks, and the reasons to stop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numba
from threadpoolctl import threadpool_limits

from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.model.state import State

MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that this machine does not have."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise DataError(f"threads={threads}: choose 1 to {MOST_THREADS} on this machine")


@contextlib.contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Run kernels on so many threads, and BLAS on one: our threads are the only ones."""
    before = numba.get_num_threads()
    numba.set_num_threads(threads or MOST_THREADS)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)


@dataclass(frozen=True)
class Progress:
    """Where a run is; what a callback sees after every sweep."""

    chain: int
    chains: int
    sweep: int  # done in this chain
    sweeps: int
    seconds: float  # since the start
    rmse: float | None  # of the mean prediction so far, on the test ratings if there are any
    validation: float | None = None  # the same on the validation ratings
    stage: str = "sampling"
    state: State | None = None  # to look at, not to change


Callback = Callable[[Progress], bool | None]
"""Called after every sweep; returning True ends the run with what there is."""


def check_parts(train: Ratings, **parts: Ratings | None) -> None:
    """Refuse test or validation ratings that number users or items in another way."""
    for name, part in parts.items():
        if part is None:
            continue
        if part.users != train.users or part.items != train.items:
            raise DataError(
                f"the {name} ratings have other users or items than the training ratings; cut both "
                "from one table, as bayesmf.split does"
            )
        if name == "validation" and not len(part):
            raise DataError("there are no validation ratings; hold some out, or leave them out")


def record(trace: dict[str, list[float]], facts: dict[str, float]) -> None:
    """Add what is known after one sweep to the curves."""
    for name, value in facts.items():
        trace.setdefault(name, []).append(value)


class Clock:
    """Decides after every sweep whether to go on."""

    def __init__(self, callbacks: Sequence[Callback], budget: float | None) -> None:
        self.callbacks, self.budget = list(callbacks), budget
        self.start = time.perf_counter()
        self.reason = ""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float | None:
        """Of the budget."""
        return None if self.budget is None else max(self.budget - self.seconds, 0.0)

    def stops(self, progress: Progress) -> bool:
        """Tell the callbacks, and ask them and the budget."""
        asked = [callback(progress) for callback in self.callbacks]
        if any(asked):
            self.reason = "a callback ended it"
        elif self.budget is not None and progress.seconds >= self.budget:
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
