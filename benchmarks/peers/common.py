"""What every runner shares: the arrays, the clock, the curve, the records. Needs numpy alone.

A runner is started with one argument, its settings as JSON, and prints JSON lines: points of the
curve and a final record. Whatever else a library prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # a library that prints does not break the lines
WATCHED = 256  # test ratings whose predictions are traced
BURN_INS = (5, 10, 20, 50, 100)
Z90 = 1.6448536269514722  # of the central 90 % of a Gaussian


def rmse(predicted: Any, values: Any) -> float:
    return float(np.sqrt(np.mean((predicted - values) ** 2)))


def peak_mb(pid: str = "self") -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


class Bench:
    """Settings and arrays of a run, its clock and what it found."""

    def __init__(self) -> None:
        self.set: dict[str, Any] = json.loads(sys.argv[1])
        folder = Path(self.set["data"])
        parts = {name: np.load(folder / f"{name}.npz") for name in ("train", "test")}
        self.user, self.item, self.value = (parts["train"][k] for k in ("user", "item", "value"))
        self.test_user, self.test_item, self.test_value = (
            parts["test"][k] for k in ("user", "item", "value")
        )
        facts = json.loads((folder / "facts.json").read_text())
        self.n_users, self.n_items = facts["users"], facts["items"]
        self.low, self.high = facts["low"], facts["high"]
        self.rank, self.threads, self.seed = (self.set[k] for k in ("rank", "threads", "seed"))
        self.sweeps: int = self.set["sweeps"]
        self.judged: bool = not self.set.get("speed", False)  # a speed run predicts no test ratings
        self._sums: dict[int, Any] = {}
        self._squares = np.zeros(len(self.test_value))
        self._noise = np.zeros(len(self.test_value))
        self._drawn = 0
        counts = np.bincount(self.user, minlength=self.n_users)[self.test_user]
        every = np.linspace(0, len(counts) - 1, WATCHED).astype(int)
        self._watched = np.argsort(counts, kind="stable")[every]  # of users of every frequency
        self._traces: dict[str, list[Any]] = {"predictions": [], "precision": []}
        self._spent = 0.0  # on pauses
        self._begun: float | None = None
        self.last: Any = None
        self._final: dict[str, Any] = {}
        self._marks: list[tuple[int, float]] = []

    # the clock

    def ready(self) -> None:
        """Everything imported and compiled: the clock starts."""
        self._final["start"] = time.time() - self.set["begun"]
        self._final["mb before"] = peak_mb()
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        assert self._begun is not None
        return time.perf_counter() - self._begun - self._spent

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - begin

    def deduct(self, seconds: float) -> None:
        """Take out a time that the library itself spent on the test ratings."""
        self._spent += seconds

    # the curve

    def mark(self, sweep: int) -> None:
        """A sweep is done; nothing is predicted."""
        self._marks.append((sweep, self.seconds))

    def point(self, sweep: int, predicted: Any, **more: Any) -> None:
        """The current prediction of the test ratings."""
        self.mark(sweep)
        if not self.judged:
            return
        with self.pause():
            self.last = np.asarray(predicted() if callable(predicted) else predicted, float)
            clipped = rmse(np.clip(self.last, self.low, self.high), self.test_value)
            self._say(sweep, rmse(self.last, self.test_value), clipped=clipped, **more)

    def draw(self, sweep: int, predicted: Any, noise: Any = None, precision: float = 1.0) -> None:
        """One draw of a sampler; its error is that of the best burn-in, as suits the tool.

        ``noise`` is the variance of ratings about the draw; ``precision`` that of the noise as the
        tool has it, whose trace is kept beside those of some predictions.
        """
        self.mark(sweep)
        if not self.judged:
            return
        with self.pause():
            draw = np.asarray(predicted() if callable(predicted) else predicted, float)
            self._traces["predictions"].append(draw[self._watched].round(5).tolist())
            self._traces["precision"].append(precision)
            errors = {}
            for burn_in in BURN_INS:
                if sweep > burn_in:
                    total = self._sums.setdefault(burn_in, np.zeros(len(draw)))
                    total += draw
                    errors[burn_in] = rmse(total / (sweep - burn_in), self.test_value)
            if sweep > self.set["burn_in"]:
                self._squares += draw**2
                self._drawn += 1
                if noise is not None:
                    self._noise += noise() if callable(noise) else noise
            single = rmse(draw, self.test_value)
            best = min(errors, key=errors.__getitem__, default=None)
            mean = draw if best is None else self._sums[best] / (sweep - best)
            clipped = rmse(np.clip(mean, self.low, self.high), self.test_value)
            found = min([single, *errors.values()])
            self._say(sweep, found, clipped=clipped, draw=single, by_burn_in=errors)

    def _say(self, sweep: int, error: float, **more: Any) -> None:
        _say({"sweep": sweep, "seconds": self.seconds_at(sweep), "rmse": error, **more})

    def seconds_at(self, sweep: int) -> float:
        return dict(self._marks[-1:])[sweep]

    # the end

    def coverage(self, mean: Any, sd: Any) -> None:
        """Of the 90 % interval of a Gaussian."""
        inside = np.abs(self.test_value - mean) <= Z90 * np.asarray(sd)
        self._final["coverage"] = float(np.mean(inside))

    def coverage_of_draws(self, noise: float | None = None) -> None:
        """The same from the draws, with the mean noise variance given or gathered."""
        burn_in = self.set["burn_in"]
        if self._drawn < 2 or burn_in not in self._sums:
            return
        mean = self._sums[burn_in] / self._drawn
        variance = np.maximum(self._squares / self._drawn - mean**2, 0.0)
        added = self._noise / self._drawn if noise is None else noise
        self.coverage(mean, np.sqrt(variance))
        self._final["coverage, draws alone"] = self._final["coverage"]
        self.coverage(mean, np.sqrt(variance + added))

    def end(self, sweeps: int | None = None, **more: Any) -> None:
        """The final record; `seconds` as of the last sweep or epoch that was marked."""
        steps = np.diff([at for _, at in self._marks])
        counts = np.diff([sweep for sweep, _ in self._marks])
        if len(steps) >= 3:
            each = float(np.median(steps[1:] / counts[1:]))
        else:
            each = self._marks[-1][1] / max(self._marks[-1][0], 1)
        _say({"final": True, "seconds": self._marks[-1][1], "sweep_seconds": each,
              "sweeps": sweeps or self._marks[-1][0], "peak mb": peak_mb(), **self._final,
              **({"traces": self._traces} if self._drawn else {}),
              **more})  # fmt: skip


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), file=_out, flush=True)
