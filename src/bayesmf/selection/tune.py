"""Tuning: rank, likelihood, time and attributes chosen on ratings held out of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.checks import check_choice, check_seed
from bayesmf.choices import TUNED_BY, LikelihoodName, TunedBy
from bayesmf.data.pairs import frame_like
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import carve
from bayesmf.errors import DataError, Option
from bayesmf.fitted.base import Fitted, load_model
from bayesmf.fitted.store.files import INSIDE
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.loop import INTERRUPTED
from bayesmf.model.attributes import Attributes, with_attributes
from bayesmf.model.spec import Model
from bayesmf.model.time_chain import check_seconds
from bayesmf.selection.compare import (
    Comparison,
    Sums,
    format_difference,
    format_lines,
    summarise,
)
from bayesmf.selection.cross_validate import CHAINS, SWEEPS, cost_of, describe, read_ratings
from bayesmf.selection.trials import OutOfTime, Step, Trials, watching

RANKS = (5, 10, 20, 40)
MOST_STEPS = 20  # of a scale that is worth an ordinal likelihood
STEPS = ("rank", "likelihood", "time", "attributes")


@dataclass(repr=False)
class Tuning:
    """What ``tune`` found: printed, it is the table of all fits, the best one marked."""

    rows: list[dict[str, Any]]  # one for each fit, in the order in which they were made
    best: Model  # the model with the best score on the held-out ratings
    comparison: Comparison  # of all fits with the best one
    stopped: str = ""  # what ended the search early, if anything did
    fit: Fitted | None = field(default=None)  # of the best model to all ratings, if asked for

    @property
    def table(self) -> Any:
        """A pyarrow table of ``rows``."""
        return frame_like({name: [row[name] for row in self.rows] for name in self.rows[0]})

    @property
    def words(self) -> str:
        """What was chosen, and from which models it cannot be told."""
        chosen = next(row["name"] for row in self.rows if row["chosen"])
        told = f"chosen: {chosen}"
        if self.comparison.tied:
            told += f" ({' and '.join(self.comparison.tied)} cannot be told from it)"
        return told + (f"; the search was ended early: {self.stopped}" if self.stopped else "")

    def format_lines(self) -> list[list[str]]:
        """The table as text: headings, then a line for each fit."""
        log = "log_probability" if "log_probability" in self.rows[0] else "log_score"
        lines = [["model", "RMSE", "difference [95 %]", log.replace("ability", ""), "seconds"]]
        ends = {row["model"]: row for row in self.comparison.rows}
        for row in self.rows:
            told = "chosen" if row["chosen"] else format_difference(ends[row["name"]], "rmse")
            numbers = [f"{row['rmse']:.4f}", told, f"{row[log]:.4f}", f"{row['seconds']:.1f}"]
            lines.append([row["name"], *numbers])
        lines[0] = [heading.replace("_", " ") for heading in lines[0]]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the fit, ready for JSON."""
        best = repr(self.best)
        return {"words": self.words, "best": best, "rows": self.rows, "stopped": self.stopped}

    def __repr__(self) -> str:
        return f"{self.words}\n\n{format_lines(self.format_lines())}"


def tune(
    data: Any,
    *,
    ranks: Sequence[int] = RANKS,
    model: Model | None = None,
    user_attributes: Any = None,
    item_attributes: Any = None,
    validation: float = 0.1,
    by: TunedBy = "rmse",
    sweeps: int = SWEEPS,
    chains: int = CHAINS,
    budget: float | None = None,
    fits: int | None = None,
    refit: bool = True,
    seed: int = 0,
    threads: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | Callable[[Step], Any] = False,
    **reading: Any,
) -> Tuning:
    """Choose rank, likelihood, time and attributes by the error on held-out ratings.

    One after the other: the ranks from the lowest, until one is no better than the one before it;
    with the best rank an ordinal or binary likelihood, if the scale has steps; a time chain, if the
    ratings have times; and the attributes, if there are any. Each step begins with the best so far.

    - ``data``: as ``fit`` takes it, but for shards; ``reading`` are its options.
    - ``model``: where to begin; the default model if None.
    - ``validation``: the share of the ratings that is held out, at random by ``seed``.
    - ``by``: "rmse", or "log" for the log probability of the held-out ratings.
    - ``sweeps``, ``chains``: of each fit.
    - ``budget``, ``fits``: seconds, or fits, after which the search ends with what there is.
    - ``refit``: fit the best model to all ratings at the end, until the chains have converged.
    - ``out``, ``resume``: a folder in which every fit is kept when it is done, and the final model,
      and whether to go on with what is there.
    - ``progress``: True shows a bar; a function is called with a ``Step`` after every sweep.

    Returns a ``Tuning``. Ctrl-C ends the search with what there is. The errors of the held-out
    ratings chose the model, so that they are a little too low for the chosen one.
    """
    check_seed(seed)
    check_choice("by", by, TUNED_BY)
    ratings, begin = read_ratings(data, reading), model or Model()
    options: dict[str, Any] = {"sweeps": sweeps, "chains": chains, "seed": seed, "threads": threads}
    if ratings.by_user.times is not None:  # which a model may use after hours of others
        remedy = f"leave its row out, or ignore times with {Option('time', 'none')}"
        check_seconds(np.asarray(ratings.by_user.times, np.int64), remedy)
    parts = carve(ratings, validation, seed)
    with watching(progress) as told:
        trials = Trials(None if out is None else Path(out), budget, fits, told)
        search = _Search(trials, *parts, by, options, (user_attributes, item_attributes))
        with trials.holding():
            search.open(begin, ranks, validation, resume)
            found = search.run(begin, ranks)
            if refit and found.stopped != INTERRUPTED:
                found.fit = _refit(found.best, ratings, seed, threads, trials)
    return found


@dataclass
class _Search:
    """The search itself: what was tried, and the best so far."""

    trials: Trials
    train: Ratings
    held: Ratings
    by: TunedBy
    options: dict[str, Any]  # of Gibbs sampling
    attributes: tuple[Any, Any]  # of users and items
    rows: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, Sums] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)

    def open(self, begin: Model, ranks: Sequence[int], validation: float, resume: bool) -> None:
        """Check the folder of an earlier search, and add up what is to be done at most."""
        if not len(ranks):
            raise DataError("there are no ranks to choose from; give one or more")
        longest = replace(begin, rank=max(ranks))
        later = [name for step in STEPS[1:] for name, _ in self._variants(step, longest)]
        costs = [cost_of(Gibbs(replace(begin, rank=rank), **self.options)) for rank in ranks]
        self.trials.total = sum(costs) + len(later) * max(costs)
        facts = {
            "ratings": self.train.fingerprint(),
            "validation": validation,
            "steps": [f"rank {rank}" for rank in ranks] + later,
            "score": self.by,
            "fit": describe(Gibbs(with_attributes(begin, *self.attributes), **self.options)),
        }
        self.trials.open(facts, resume)

    def run(self, begin: Model, ranks: Sequence[int]) -> Tuning:
        """Step by step; what ends the search leaves what there is."""
        stopped = ""
        try:
            for rank in sorted(set(ranks)):
                if not self._try("rank", f"rank {rank}", replace(begin, rank=rank)):
                    break
            for step in STEPS[1:]:
                name = self.best
                for more, model in self._variants(step, self.models[name]):
                    self._try(step, f"{name}, {more}", model)
        except OutOfTime:
            stopped = "the budget was spent"
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        if not self.rows:
            if stopped == INTERRUPTED:
                raise KeyboardInterrupt("before a fit was done")
            raise DataError(f"not one fit was done before {stopped}; give more")
        for row in self.rows:
            row["chosen"] = row["name"] == self.best
        first = {self.best: self.sums[self.best], **self.sums}
        everybody = np.zeros(self.held.n_users, np.intp)
        found = summarise(first, everybody, ["all"])
        return Tuning(self.rows, self.models[self.best], found, stopped)

    @property
    def best(self) -> str:
        """The name of the best model so far; of equal ones the first."""
        return min(self.rows, key=self._score)["name"]  # type: ignore[no-any-return]

    def _score(self, row: dict[str, Any]) -> float:
        """Less is better."""
        if self.by == "rmse":
            return float(row["rmse"])
        return -float(row.get("log_probability", row.get("log_score", np.nan)))

    def _try(self, step: str, name: str, model: Model) -> bool:
        """Fit a model; returns whether it is the best so far."""
        algorithm = Gibbs(model, **self.options)
        sums, facts = self.trials.run(name, algorithm, self.train, self.held, cost_of(algorithm))
        attributes = any(isinstance(d, Attributes) for d in model.user_designs + model.item_designs)
        told = {"rank": model.rank, "likelihood": model.likelihood.name, "time": model.time}
        self.rows.append({"step": step, **facts, **told, "attributes": attributes})
        self.sums[name], self.models[name] = sums, model
        return self.best == name

    def _variants(self, step: str, best: Model) -> Iterator[tuple[str, Model]]:
        """What a step changes in the best model so far, if the ratings allow it."""
        scale = self.train.scale
        if step == "likelihood" and scale.step is not None and not best.likelihood.latent:
            levels = round((scale.high - scale.low) / scale.step) + 1
            if 2 <= levels <= MOST_STEPS:
                word: LikelihoodName = "binary" if levels == 2 else "ordinal"
                yield word, replace(best, likelihood=word)
        if step == "time" and self.train.by_user.times is not None and best.time == "none":
            yield "time chain", replace(best, time="chain")
        if step == "attributes" and any(table is not None for table in self.attributes):
            yield "attributes", with_attributes(best, *self.attributes)


def _refit(
    model: Model, ratings: Ratings, seed: int, threads: int | None, trials: Trials
) -> Fitted:
    """Fit the chosen model to all ratings, or read the fit that an earlier call has left.

    A search that has gone on may have chosen another model since.
    """
    place = None if trials.folder is None else trials.folder / INSIDE
    if place is not None and place.exists():
        kept = load_model(place, threads)
        if kept.posterior.model.to_dict() == model.settle(ratings).to_dict():
            return kept
    sampler = Gibbs(model, seed=seed, threads=threads)
    found = sampler.fit(ratings, callbacks=[trials.watch("the chosen model on all ratings")])
    if found.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    if place is not None:
        found.save(place, overwrite=True)
    return found
