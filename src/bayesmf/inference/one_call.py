"""The whole job in one call: read, hold out, fit."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayesmf.checks import check_choice, check_kind
from bayesmf.choices import HOLDOUTS, INFERENCES, Holdout, Inference, Until
from bayesmf.data.io.load import load, refuse_reading_options
from bayesmf.data.io.shards import Shards, is_shards
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import carve, describe_dropped, split
from bayesmf.errors import DataError, Option
from bayesmf.fitted.base import Fitted
from bayesmf.fitted.explore.names import Labels
from bayesmf.inference.engine import Engine
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.map.fit import MAP
from bayesmf.inference.variational.fit import Variational
from bayesmf.model.attributes import with_attributes
from bayesmf.model.spec import Model
from bayesmf.plots.progress import ProgressBar

ALGORITHMS: dict[Inference, Any] = {"gibbs": Gibbs, "vi": Variational, "map": MAP}


@dataclass(frozen=True)
class Parts:
    """The ratings of a fit: what it is trained on, and what is held out of training."""

    train: Ratings | Shards
    test: Ratings | None
    validation: Ratings | None
    facts: dict[str, Any]  # how they were cut, and how many were dropped

    def __str__(self) -> str:
        counts = {name: f"{count:,}" for name, count in self.facts["trained_on"].items()}
        weighted = isinstance(self.train, Ratings) and self.train.by_user.weights is not None
        what = "ratings with weights" if weighted else "ratings"
        trained = f"trained on {{ratings}} {what} of {{items}} items by {{users}} users"
        trained = trained.format(**counts)
        return "; ".join([trained, self._held_out(), *describe_dropped(self.facts)])

    def _held_out(self) -> str:
        protocol, seed = self.facts["protocol"], self.facts.get("seed")
        held = []
        if self.test is not None:
            how = f"{protocol} protocol" + ("" if seed is None else f", seed {seed}")
            held.append(f"{len(self.test):,} ratings ({how})")
        if self.validation is not None:
            held.append(f"{len(self.validation):,} ratings for validation")
        return f"held out {' and '.join(held) or 'nothing'}"


def read_parts(
    data: Any,
    reading: dict[str, Any],
    holdout: Holdout = "none",
    test_fraction: float | None = None,
    validation: float | None = None,
    seed: int = 0,
) -> Parts:
    """Read ratings from whatever holds them, and hold out what is asked for."""
    check_choice("holdout", holdout, HOLDOUTS)
    if test_fraction is not None and holdout == "none":
        raise DataError(
            f"{Option('test_fraction')} says how much to hold out; say which ratings, as in "
            f"{Option('holdout', 'random')}"
        )
    facts: dict[str, Any] = {"protocol": "none"}
    ratings = _read(data, reading)
    if isinstance(ratings, Shards):
        if holdout != "none" or validation is not None:
            raise DataError(
                f"{data} holds shards, which are fitted as they are; leave {Option('holdout')} and "
                f"{Option('validation')} out"
            )
        return Parts(ratings, None, None, {**facts, "trained_on": _counts(ratings)})
    test = judge = None
    if holdout == "none":
        train = ratings.drop_unused()
    else:
        options = {} if test_fraction is None else {"test_fraction": test_fraction}
        cut = split(ratings, holdout, seed, **options)
        (train, test), facts = cut, cut.describe()
    if validation is not None:
        train, judge = carve(train, validation, seed)
        facts["validation"] = len(judge)
    return Parts(train, test, judge, {**facts, "train": len(train), "trained_on": _counts(train)})


def _read(data: Any, reading: dict[str, Any]) -> Ratings | Shards:
    if isinstance(data, Ratings | Shards):
        refuse_reading_options("these ratings have been read already", reading)
        return data
    if isinstance(data, str | os.PathLike):
        if is_shards(Path(data)):
            refuse_reading_options(f"{data} holds shards, which are read as they are", reading)
            return Shards.open(Path(data))
        return load(data, **reading)
    return Ratings.from_frame(data, **reading)


def read_titles(train: Ratings | Shards, users: Any = None, items: Any = None) -> dict[str, Any]:
    """Read titles of users and items, as ``Fitted.with_titles`` takes them, before the work."""
    columns = train.columns if isinstance(train, Ratings) else {}
    labels = Labels(columns=columns).put_all(train.users, train.items, users, items)
    return {f"{side}s": titles for side, titles in labels.titles.items()}


def _counts(train: Ratings | Shards) -> dict[str, int]:
    """Count the ratings, and the users and items that have any."""
    users, items = (int(np.count_nonzero(side.counts)) for side in (train.by_user, train.by_item))
    return {"ratings": len(train), "users": users, "items": items}


def _settings(inference: Inference, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are given; all but ``sweeps`` are for sampling alone."""
    given = {name: value for name, value in given.items() if value not in (None, "threads")}
    for name in given:
        if inference != "gibbs" and name != "sweeps":
            raise DataError(f"{name} is for inference='gibbs', not {inference!r}; leave it out")
    return given


def fit(
    data: Any,
    model: Model | None = None,
    *,
    rank: int | None = None,
    user_attributes: Any = None,
    item_attributes: Any = None,
    users: Any = None,
    items: Any = None,
    inference: Inference = "gibbs",
    sweeps: int | None = None,
    chains: int | None = None,
    until: Until | None = None,
    holdout: Holdout = "none",
    test_fraction: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    engine: Literal["threads", "ray"] | Engine = "threads",
    progress: bool = False,
    **reading: Any,
) -> Fitted:
    """Fit a model to ratings in one call, and return the fit.

    - ``data``: ``Ratings``, a frame with user, item and rating, the path of a file, the name of a
      data set, or a folder of shards.
    - ``model``: the default is ``Model()``, the best member known; ``rank`` sets its rank.
    - ``user_attributes``, ``item_attributes``: what is known about users and items beforehand, such
      as age and genre: ``Attributes``, a frame, or the path of a file.
    - ``users``, ``items``: their titles, which answers show: a mapping from ids to titles, a frame,
      or the path of a file, as ``Fitted.with_titles`` takes them.
    - ``inference``: "gibbs" samples, "vi" is variational inference, "map" a MAP estimate.
    - ``sweeps``: how long; the algorithm's own default if None.
    - ``chains``, ``until``: of Gibbs sampling. It has 4 chains if None, and goes on until they have
      converged, or for so many ``sweeps`` of each if they are given. With ``until="converged"``,
      ``sweeps`` is the most that each may do.
    - ``holdout``: which ratings to hold out and test on: "none", or a protocol of ``split``
      ("paper", "random" or "time") with its ``test_fraction``. The fit's ``test_rmse`` is the
      error on them.
    - ``seed``, ``threads``: of the draws and of the split; the result does not depend on threads.
    - ``engine``: where Gibbs sampling runs; a folder of shards needs "ray".
    - ``progress``: show a bar, in a terminal or a notebook.
    - ``reading``: the options of ``load`` for files, of ``Ratings.from_frame`` for frames.
    """
    check_choice("inference", inference, INFERENCES)
    if model is not None and rank is not None:
        raise TypeError("rank is for the default model; set it in the model that is given")
    if model is not None:
        check_kind("model", model, Model, "a Model, such as Model(rank=10)")
    chosen = model or (Model() if rank is None else Model(rank=rank))
    chosen = with_attributes(chosen, user_attributes, item_attributes)
    given = {"sweeps": sweeps, "chains": chains, "until": until, "engine": engine}
    settings = _settings(inference, given)
    algorithm = ALGORITHMS[inference](chosen, seed=seed, threads=threads, **settings)
    parts = read_parts(data, reading, holdout, test_fraction, None, seed)
    titles = read_titles(parts.train, users, items)
    with ProgressBar() if progress else contextlib.nullcontext() as bar:
        shown = [] if bar is None else [bar]
        found: Fitted = algorithm.fit(parts.train, parts.test, callbacks=shown)
    return found.with_titles(**titles) if titles else found
