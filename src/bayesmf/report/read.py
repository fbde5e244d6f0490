"""What tables, figures and findings have in common: they read results and name models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import PRECISIONS
from bayesmf.evaluation.bootstrap import Change, lowest_of, paired_change
from bayesmf.study.results import Result, Results
from bayesmf.study.specs import COLD, COLD_ATTRIBUTES, NEW, TIME_AND_SCALE

Array = NDArray[np.float64]
FEATURES: dict[str, str] = {
    "none": "no features",
    "no-side": "no side",
    "side": "side",
    "side-only": "side only",
}
NEWCOMERS: dict[str, str] = {  # the models that newcomers are folded into
    "default": "default model",
    "default-attributes": "default with attributes",
    "none": "biases only",
    "no-side": "no side",
    "side": "side",
    "both-sides": "both sides, robust",
}
COMPARED: dict[str, str] = {  # the default model, and what is compared with it
    "default": "default",
    "default-chain": "with a time chain",
    "default-ordinal": "with an ordinal scale",
    "default-chain-ordinal": "with a time chain and an ordinal scale",
}
INFERENCES: dict[str, str] = {"gibbs": "Gibbs", "vi": "VI", "map": "MAP"}
NONE = "\N{EN DASH}"
GIBBS, GIBBS_ROBUST, SIDE, SIDE_ROBUST = (
    f"gibbs-{model}"
    for model in ("no-side-constant", "no-side-robust", "side-constant", "side-robust")
)
CONSTANT, ROBUST, TRUNCATED = (f"vi-no-side-{p}" for p in ("constant", "robust", "truncated"))
DEFAULT, PRINTED = "vi-default-no-side-constant", "vi-printed-no-side-robust"
MAXIMUM = "map-no-side-constant"


class Reader:
    """The results of a study, by run."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.study = results.study
        self._read: dict[tuple[int, str], Result] = {}
        self._lowest: dict[tuple[str, int, tuple[str, ...]], tuple[str, list[str]]] = {}

    @property
    def data(self) -> str:
        """The name of the data set."""
        return str(self.study["data"])

    @property
    def labels(self) -> list[str]:
        """The labels of the bins of user frequency."""
        return [str(label) for label in self.study["bin_labels"]]

    def has(self, *names: str) -> bool:
        """Whether all these runs are done on the first split."""
        return all(self.results.has(0, name) for name in names)

    def was_run(self, name: str) -> bool:
        """Whether a run is done on the first split, and was not left out for a reason."""
        return self.has(name) and "skipped" not in self(name).facts

    def __call__(self, name: str, split: int = 0) -> Result:
        """The result of a run."""
        if (split, name) not in self._read:
            self._read[split, name] = self.results[split, name]
        return self._read[split, name]

    @cached_property
    def common(self) -> list[int]:
        """The splits that all runs of the tables have, so that the same things are compared."""
        names = [f"{i}-{f}-{p}" for i in INFERENCES for f in FEATURES for p in PRECISIONS]
        names += [f"gibbs-both-sides-{p}" for p in PRECISIONS]
        return self.shared(*(name for name in names if self.has(name)))

    def over_splits(self, name: str, key: str = "rmse") -> Array:
        """A fact of a run on each of the splits in ``common``."""
        return np.array([self(name, split)[key] for split in self.common], float)

    def mean(self, name: str, key: str = "rmse") -> float:
        """A fact of a run, averaged over the splits in ``common``."""
        return float(self.over_splits(name, key).mean())

    @cached_property
    def bin_of_user(self) -> NDArray[np.int64]:
        """The bin of every user, by the number of their ratings."""
        totals = self("users").array("user_ratings")
        return np.searchsorted(np.array(self.study["bins"], np.int64), totals, side="left")

    def squares(self, name: str, splits: Sequence[int]) -> Array:
        """The sum of each user's squared errors over some splits."""
        each = [self(name, split).array("user_squares") for split in splits]
        return np.asarray(np.sum(each, axis=0), float)

    def change(
        self,
        before: str,
        after: str,
        bin_: int | None = None,
        splits: Sequence[int] | None = None,
    ) -> Change:
        """By how much the error falls from one run to another, for all users or for one bin.

        The splits are those that both have if None.
        """
        splits = self.shared(before, after) if splits is None else splits
        chosen = slice(None) if bin_ is None else self.bin_of_user == bin_
        return paired_change(
            self.squares(before, splits)[chosen], self.squares(after, splits)[chosen]
        )

    def shared(self, *names: str) -> list[int]:
        """The splits on which all these runs are done."""
        found = [set(self.results.splits(name)) for name in names]
        return sorted(set.intersection(*found)) if found else []

    def by_bin(self, name: str, splits: Sequence[int]) -> Array:
        """The RMSE by user frequency, over the ratings of all these splits together."""
        count = np.sum([self(name, split).array("user_count") for split in splits], axis=0)
        bins = len(self.labels)
        total = np.bincount(self.bin_of_user, self.squares(name, splits), minlength=bins)
        with np.errstate(invalid="ignore"):
            return np.sqrt(total / np.bincount(self.bin_of_user, count, minlength=bins))

    def error(self, name: str, splits: Sequence[int], bin_: int | None = None) -> float:
        """The RMSE of all users or of one bin, over the ratings of all these splits together."""
        if bin_ is not None:
            return float(self.by_bin(name, splits)[bin_])
        squares, counts = self.squares(name, splits), self.test_counts(splits, name)
        return float(np.sqrt(squares.sum() / counts.sum()))

    def test_counts(self, splits: Sequence[int], name: str) -> NDArray[np.int64]:
        """The number of test ratings in each bin, over these splits."""
        count = np.sum([self(name, split).array("user_count") for split in splits], axis=0)
        return np.bincount(self.bin_of_user, count, minlength=len(self.labels)).astype(np.int64)

    @cached_property
    def left_out(self) -> list[tuple[str, str]]:
        """The models that these ratings cannot have beside the default one, and why not."""
        reasons = {name: self(name).facts.get("skipped") for name in TIME_AND_SCALE}
        return [(name, str(reason)) for name, reason in reasons.items() if reason]

    @property
    def compared(self) -> list[str]:
        """The default model, and those that these ratings can have beside it."""
        return [name for name in TIME_AND_SCALE if name not in dict(self.left_out)]

    @property
    def log_key(self) -> str:
        """What measures their predictive distributions: a probability if the scale has steps."""
        return "log_probability" if "log_probability" in self("default").facts else "log_score"

    @cached_property
    def not_held_out(self) -> dict[str, str]:
        """Why there are no new users or no new items, by side."""
        reasons = {new: self.newcomers(new, "side").facts.get("skipped") for new in NEW}
        return {new: str(reason) for new, reason in reasons.items() if reason}

    @property
    def new_sides(self) -> list[str]:
        """The sides of which newcomers were held out."""
        return [new for new in NEW if new not in self.not_held_out]

    @cached_property
    def has_attributes(self) -> bool:
        """Whether newcomers were also folded into the default model with attributes."""
        return self.has(*(f"cold-start-{new}-{COLD_ATTRIBUTES}" for new in NEW))

    @property
    def cold(self) -> tuple[str, ...]:
        """The models that newcomers were folded into."""
        return (COLD[0], COLD_ATTRIBUTES, *COLD[1:]) if self.has_attributes else COLD

    def newcomers(self, new: str, variant: str) -> Result:
        """The result of folding new users (or items) into one of the models."""
        return self(f"cold-start-{new}-{variant}")

    def by_given(self, new: str, variant: str, key: str) -> dict[int, float]:
        """A measure of the predictions for newcomers, by how many of their ratings are given."""
        found = self.newcomers(new, variant)["by_given"]
        return {given: float(found[str(given)][key]) for given in sorted(map(int, found))}

    def new_squares(self, new: str, variant: str, given: int) -> Array:
        """The sum of each newcomer's squared errors."""
        return self.newcomers(new, variant).array(f"squares_{given}")

    def lowest(self, new: str, given: int, among: tuple[str, ...]) -> tuple[str, list[str]]:
        """The model with the lowest error on newcomers, and those it cannot be told from."""
        key = new, given, among
        if key not in self._lowest:
            squares = {variant: self.new_squares(new, variant, given) for variant in among}
            self._lowest[key] = lowest_of(squares)
        return self._lowest[key]


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
