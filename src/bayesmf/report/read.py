"""What the tables, figures and sentences have in common: reading results, naming models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.evaluation.bootstrap import Change, paired_change
from bayesmf.study.results import Result, Results

Array = NDArray[np.float64]
FEATURES = {"none": "no features", "no-side": "no side", "side": "side", "side-only": "side only"}
INFERENCES = {"gibbs": "Gibbs", "vi": "VI", "map": "MAP"}
NONE = "\N{EN DASH}"
PRECISIONS = ("constant", "robust", "truncated")


class Reader:
    """The results of a study, by run."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.study = results.study
        self._read: dict[tuple[int, str], Result] = {}

    @property
    def data(self) -> str:
        """The name of the data."""
        return str(self.study["data"])

    @property
    def labels(self) -> list[str]:
        """Of the bins of user frequency."""
        return [str(label) for label in self.study["bin_labels"]]

    def has(self, *names: str) -> bool:
        """Whether all these runs are done, on the first split."""
        return all(self.results.has(0, name) for name in names)

    def __call__(self, name: str, split: int = 0) -> Result:
        """What a run left."""
        if (split, name) not in self._read:
            self._read[split, name] = self.results[split, name]
        return self._read[split, name]

    @cached_property
    def common(self) -> list[int]:
        """The splits that every run has which has more than the first: others would compare
        different things.
        """
        names = [f"{i}-{f}-{p}" for i in INFERENCES for f in FEATURES for p in PRECISIONS]
        names += [f"gibbs-both-sides-{p}" for p in PRECISIONS]
        return self.shared(*(name for name in names if self.has(name)))

    def over_splits(self, name: str, key: str = "rmse") -> Array:
        """A number of a run, on every split that all have."""
        return np.array([self(name, split)[key] for split in self.common], float)

    def mean(self, name: str, key: str = "rmse") -> float:
        """The same, averaged."""
        return float(self.over_splits(name, key).mean())

    @cached_property
    def bin_of_user(self) -> NDArray[np.int64]:
        """By their ratings in all."""
        totals = self("users").array("user ratings")
        return np.searchsorted(np.array(self.study["bins"], np.int64), totals, side="left")

    def squares(self, name: str, splits: Sequence[int]) -> Array:
        """Each user's squared errors, summed over splits."""
        each = [self(name, split).array("user squares") for split in splits]
        return np.asarray(np.sum(each, axis=0), float)

    def change(self, before: str, after: str, bin_: int | None = None) -> Change:
        """By how much the error falls from one run to another, for all users or those of a bin."""
        splits = self.shared(before, after)
        chosen = slice(None) if bin_ is None else self.bin_of_user == bin_
        return paired_change(
            self.squares(before, splits)[chosen], self.squares(after, splits)[chosen]
        )

    def shared(self, *names: str) -> list[int]:
        """The splits on which all these runs are done."""
        found = [set(self.results.splits(name)) for name in names]
        return sorted(set.intersection(*found)) if found else []

    def by_bin(self, name: str, splits: Sequence[int]) -> Array:
        """RMSE by user frequency, of the ratings of all these splits together."""
        count = np.sum([self(name, split).array("user count") for split in splits], axis=0)
        bins = len(self.labels)
        total = np.bincount(self.bin_of_user, self.squares(name, splits), minlength=bins)
        with np.errstate(invalid="ignore"):
            return np.sqrt(total / np.bincount(self.bin_of_user, count, minlength=bins))

    def test_counts(self, splits: Sequence[int], name: str) -> NDArray[np.int64]:
        """Test ratings by bin, over these splits."""
        count = np.sum([self(name, split).array("user count") for split in splits], axis=0)
        return np.bincount(self.bin_of_user, count, minlength=len(self.labels)).astype(np.int64)


def title_of(name: str) -> str:
    """A run in words: gibbs-side-only-robust is "Gibbs, side only, robust"."""
    inference, _, rest = name.partition("-")
    features, _, precision = rest.rpartition("-")
    features = FEATURES.get(features, features.replace("-", " "))
    return f"{INFERENCES.get(inference, inference)}, {features}, {precision}"


def number(value: Any, digits: int = 4) -> str:
    """A number, or a dash for none."""
    if value is None or not np.isfinite(value):
        return NONE
    return f"{value:.{digits}f}"
