"""What is written down of a run while it goes on: a value of each curve after every sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.inference.loop import Progress
from bayesmf.inference.target import Target
from bayesmf.model.data import Data
from bayesmf.model.state import State
from bayesmf.study.axes import FeatureVariance
from bayesmf.study.specs import Run

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
Tell = Callable[[float], None]
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # of the precisions, by sweep
TRACED = 6  # users and items whose precisions are traced
SCATTER_AT = 3  # the update after which the paper plots precisions against errors


class Recorder:
    """A callback that records the state after every sweep, and tells how far the run is."""

    def __init__(
        self, run: Run, data: Data, train: Ratings, test: Ratings, bins: FrequencyBins, tell: Tell
    ) -> None:
        self.run, self.bins, self.tell = run, bins, tell
        self.target = Target(test, data, run.model)
        self.parts = {"train": Target(train, data, run.model), "test": self.target}
        self.averages = run.kind == "gibbs"
        self.curves: dict[str, list[Any]] = {}
        self.scatter: Arrays = {}
        self.variance = FeatureVariance()
        counts = {"user": data.user.counts, "item": data.item.counts}
        self.traced = {side: _spaced(values) for side, values in counts.items()}

    def __call__(self, progress: Progress) -> None:
        """Record what is known after a sweep."""
        self.tell(progress.sweep / progress.sweeps)
        state = progress.state
        if state is None or progress.stage.startswith("MAP"):
            return
        kept = self.averages and progress.sweep > self.run.settings["burn_in"]
        rmse = self.target.take(state, kept)
        mean = self.target.moments.mean if kept else self.target.predict(state)
        self._add("test_rmse", rmse)
        self._add("by_bin", self.bins.rmse(mean - self.target.values))
        if self.run.model.precision != "constant":
            for side in ("user", "item"):
                alpha = getattr(state, side).alpha
                self._add(f"{side}_precision_quantiles", np.quantile(alpha, QUANTILES))
                self._add(f"{side}_precision_traces", alpha[self.traced[side]])
        if "correlation" in self.run.record:
            self._correlate(state, progress.sweep)
        if "variance" in self.run.record and kept:
            sides = (side.x[:, 1 : side.size] for side in (state.user, state.item))
            self.variance.add(*sides)

    def _add(self, name: str, value: Any) -> None:
        self.curves.setdefault(name, []).append(np.array(value))

    def _correlate(self, state: State, sweep: int) -> None:
        """Correlate -log precision with the log of the mean weighted squared error of each row."""
        for part, target in self.parts.items():
            squares = (target.predict(state) - target.values) ** 2
            weight = {
                "user": state.tau * state.item.alpha[target.cells.item],
                "item": state.tau * state.user.alpha[target.cells.user],
            }
            for side, index in (("user", target.cells.user), ("item", target.cells.item)):
                alpha = getattr(state, side).alpha
                count = np.bincount(index, minlength=len(alpha))
                total = np.bincount(index, squares * weight[side], minlength=len(alpha))
                seen = (count > 0) & (total > 0)
                error = total[seen] / count[seen]
                self._add(f"correlation_{side}_{part}", log_correlation(alpha[seen], error))
                if sweep == SCATTER_AT:
                    self.scatter[f"scatter_{side}_{part}"] = np.array([alpha[seen], error])

    def arrays(self) -> Arrays:
        """Return every curve; the first axis is the sweep."""
        out: Arrays = {name: np.array(values) for name, values in self.curves.items()}
        if self.variance.count > 1:
            out["user_variance"] = self.variance.largest()
        return {**out, **self.scatter}


def log_correlation(precision: Array, error: Array) -> float:
    """Correlate minus log precision and log error; NaN where one of them does not vary."""
    x, y = -np.log(precision), np.log(error)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _spaced(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A few rows, evenly spaced from the rarest to the most frequent."""
    order = np.argsort(counts, kind="stable")
    return np.asarray(order[np.linspace(0, len(order) - 1, min(TRACED, len(order))).astype(int)])
