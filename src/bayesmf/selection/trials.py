"""Fits that are made to be judged on held-out ratings, each kept as soon as it is done."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.checks import check_number, check_whole
from bayesmf.data.io.atomic import is_ours, locked, to_json, whole_file, whole_folder
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.inference.loop import INTERRUPTED, Progress
from bayesmf.plots.progress import ProgressBar
from bayesmf.selection.compare import Sums, measure

SETTINGS, FITS, RESULT, SUMS = "settings.json", "fits", "result.json", "sums.npz"


@dataclass(frozen=True)
class Step:
    """How far a search is; what ``progress`` sees."""

    name: str  # of the fit that is under way, or that has ended
    done: float  # of the work, in units of its own
    total: float  # of the work, if no step is left out
    seconds: float  # since the start
    ended: bool = False  # whether the fit has ended
    rmse: float | None = None  # on the held-out ratings, when it has ended


@contextlib.contextmanager
def watching(
    progress: bool | Callable[[Step], Any],
) -> Iterator[Callable[[Step], Any] | None]:
    """What a search tells its steps to: a bar, a function, or nothing."""
    if isinstance(progress, bool):
        with ProgressBar() if progress else contextlib.nullcontext() as bar:
            yield bar
    else:
        yield progress


class OutOfTime(Exception):
    """The budget ended a fit, or left none for it."""


@dataclass
class Trials:
    """Runs fits and keeps what they found, in ``folder`` if there is one.

    A fit that was cut short is not kept: it could not be compared with the others. A search that
    is resumed takes what is kept in place of the fit.
    """

    folder: Path | None
    budget: float | None = None  # seconds
    most: int | None = None  # fits that are made, at most
    progress: Callable[[Step], Any] | None = None
    total: float = 0.0
    done: float = 0.0
    made: int = 0
    start: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_number("budget", self.budget, 0.0)
        if self.most is not None:
            check_whole("fits", self.most, 1)

    def holding(self) -> contextlib.AbstractContextManager[None]:
        """Make the folder if need be, and keep other searches out of it."""
        if self.folder is None:
            return contextlib.nullcontext()
        return locked(self.folder, "another search")

    def open(self, settings: dict[str, Any], resume: bool) -> None:
        """Begin in a folder, or go on with what is kept there if that is of the same search."""
        if self.folder is None:
            return
        place, told = self.folder / SETTINGS, json.loads(to_json(settings))
        if place.is_file():
            if not resume:
                raise DataError(
                    f"{self.folder} holds an earlier search; go on with it by "
                    f"{Option('resume', True)}, or choose another folder"
                )
            before = _read(place)
            for name, value in told.items():
                if before.get(name) != value:
                    raise DataError(
                        f"{self.folder} holds a search with another {name.replace('_', ' ')}; "
                        "choose another folder"
                    )
            return
        if not all(is_ours(entry.name) for entry in self.folder.iterdir()):
            raise DataError(f"{self.folder} holds other files; choose another folder")
        with whole_file(place) as made:
            made.write_text(to_json(told, indent=2) + "\n", encoding="utf-8")

    def run(
        self, name: str, algorithm: Any, train: Ratings, held: Ratings, cost: float
    ) -> tuple[Sums, dict[str, Any]]:
        """Fit, measure on ``held``, keep and return what was found; ``cost`` moves the bar."""
        place = None if self.folder is None else self.folder / FITS / _folder_of(name)
        if place is None or not (place / RESULT).is_file():
            sums, facts = self._fit(name, algorithm, train, held, cost)
            if place is not None:
                with whole_folder(place) as made:
                    np.savez(made / SUMS, counts=sums.counts, squares=sums.squares, logs=sums.logs)
                    text = to_json({**facts, "levels": sums.levels}, indent=2)
                    (made / RESULT).write_text(text + "\n", encoding="utf-8")
        else:
            sums, facts = _load(place)
        self.done += cost
        self._tell(Step(name, self.done, self.total, self.seconds, True, facts["rmse"]))
        return sums, facts

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.start

    def watch(self, name: str, cost: float = 0.0) -> Callable[[Progress], None]:
        """A callback of a fit that tells how far the search is."""

        def show(seen: Progress) -> None:
            share = (seen.sweep - 1 + (seen.chain + 1) / seen.chains) / max(seen.sweeps, 1)
            label = name if cost else f"{name}, sweep {seen.sweep}"
            self._tell(Step(label, self.done + share * cost, self.total, self.seconds))

        return show

    def _tell(self, step: Step) -> None:
        if self.progress is not None:
            self.progress(step)

    def _fit(
        self, name: str, algorithm: Any, train: Ratings, held: Ratings, cost: float
    ) -> tuple[Sums, dict[str, Any]]:
        left = None if self.budget is None else self.budget - self.seconds
        if (left is not None and left <= 0) or (self.most is not None and self.made >= self.most):
            raise OutOfTime

        begun = self.seconds
        fit = algorithm.fit(train, callbacks=[self.watch(name, cost)], budget=left)
        if fit.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        if fit.stopped == "the time was up":
            raise OutOfTime
        self.made += 1
        sums = measure(fit, held, fit.posterior.cells(held))
        log = "log_probability" if sums.levels else "log_score"
        total = sums.counts.sum()
        facts = {
            "name": name,
            "rmse": float(np.sqrt(sums.squares.sum() / total)),
            log: float(sums.logs.sum() / total),
            "sweeps": fit.sweeps,
            "seconds": round(self.seconds - begun, 3),
        }
        return sums, facts


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    return found


def _folder_of(name: str) -> str:
    """What the folder of a fit is called: names that differ in signs alone get a number each."""
    found = re.sub(r"\W+", "-", name)
    if re.fullmatch(r"\w+(,? \w+)*", name):
        return found
    return f"{found}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _load(place: Path) -> tuple[Sums, dict[str, Any]]:
    """Read what a fit left."""
    facts = _read(place / RESULT)
    try:
        with (place / SUMS).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            sums = Sums(arrays["counts"], arrays["squares"], arrays["logs"], facts.pop("levels"))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise _damaged(place, error) from error
    return sums, facts


def _damaged(place: Path, error: Exception) -> DataError:
    return DataError(
        f"{place}: cannot be read ({error}); delete it and go on with {Option('resume', True)}"
    )
