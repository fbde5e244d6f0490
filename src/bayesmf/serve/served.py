"""One model that is served, and the shelf on which it is replaced by another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayesmf.choices import SIDES, Side
from bayesmf.data.ids import read_id
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.fitted.base import SavedFit, load_model
from bayesmf.fitted.explore.judge import unseen

PARTS = ("", "model.json", "model/model.json")  # whose change says that a model has changed


class NotFound(DataError):
    """A user or an item that the model does not know."""


class Directory:
    """The users, or the items, of a model: looked up by parts of their ids and titles."""

    def __init__(self, fit: SavedFit, side: Side) -> None:
        self.side, self.ids = side, fit.posterior.ids(side)
        self.counts = fit.posterior.counts(side)
        labels = fit.posterior.labels
        self.titles = labels.of(side, self.ids.values.tolist()) if labels.titles.get(side) else None
        self.texts = pa.array([str(one) for one in self.ids.values.tolist()], pa.string())

    def read(self, given: Any) -> Any:
        """Return an id of a request as the model has it: a number or text."""
        found = read_id(str(given), self.ids.kind)
        if found is None:
            raise DataError(
                f"the {self.side} {str(given)!r}: the {self.side} ids of this model are whole "
                f"numbers of 64 bits, such as {self.ids[0]}; give one of them"
            )
        return found

    def row(self, one: Any) -> int:
        """Return the row of an id, or refuse one that the model does not know."""
        row = int(self.ids.index([one])[0])
        if row < 0 or not self.counts[row]:
            raise NotFound(f"the {self.side} {one!r} was not in training; look for another one")
        return row

    def search(self, text: str, n: int) -> tuple[list[dict[str, Any]], int]:
        """Find ids and titles that hold ``text``; also return how many there are.

        An id that is the text comes first, then those that begin with it, then by their number of
        ratings.
        """
        text = text.strip()
        columns = [self.texts, *([] if self.titles is None else [pa.array(self.titles)])]
        held, starts = np.zeros((2, len(self.texts)), bool)
        for column in columns:
            held |= _true(pc.match_substring(column, text, ignore_case=True))
            starts |= _true(pc.starts_with(column, text, ignore_case=True))
        held &= self.counts > 0
        rows = np.flatnonzero(held)
        exact = _true(pc.equal(self.texts, text))
        begins = starts[rows] if text else np.zeros(len(rows), bool)
        order = np.lexsort((-self.counts[rows], ~begins, ~exact[rows]))[:n]
        return [self.tell(int(row)) for row in rows[order]], len(rows)

    def tell(self, row: int) -> dict[str, Any]:
        """What is shown of one of them."""
        told = {"id": self.ids.values.item(row), "ratings": int(self.counts[row])}
        return {**told, **self.title(row)}

    def title(self, row: int) -> dict[str, str | None]:
        """The title of one of them; nothing if they have no titles."""
        return {} if self.titles is None else {"title": self.titles[row]}


def _true(column: Any) -> Any:
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)


class Served:
    """A fit and what was found out about it; it never changes."""

    def __init__(self, fit: SavedFit, number: int = 0, test: Ratings | None = None) -> None:
        self.fit, self.number = fit, number
        self.given_test = test
        self.directory: dict[Side, Directory] = {side: Directory(fit, side) for side in SIDES}
        self._locks: dict[str, threading.Lock] = {}
        self._found: dict[str, Any] = {}

    def once(self, name: str, find: Callable[[Served], Any]) -> Any:
        """Return what ``find`` says of this model, which is asked only once."""
        with self._locks.setdefault(name, threading.Lock()):
            if name not in self._found:
                self._found[name] = find(self)
            return self._found[name]

    @property
    def test(self) -> Ratings | None:
        """The ratings to test on: those of a file, or those that were held out from training."""
        found = self.given_test if self.given_test is not None else unseen(self.fit.posterior)
        return found if found is not None and len(found) else None

    @cached_property
    def visitor(self) -> Any:
        """An id that no user has."""
        users = self.fit.posterior.users
        taken = set(users.values.tolist())
        tries = range(len(taken) + 1)  # one more than can be taken
        if users.kind == "integer":
            return next(2**63 - 1 - k for k in tries if 2**63 - 1 - k not in taken)
        return next(name for k in tries if (name := f"visitor {k}") not in taken)

    @property
    def timed(self) -> bool:
        """Whether the model learns from when ratings were given, so that new ones need times."""
        return bool(self.fit.posterior.model.every_effect)

    def prepare(self, updates: bool) -> Served:
        """Measure what the first requests would otherwise wait for; compile what they run."""
        posterior = self.fit.posterior
        warm = {side: np.flatnonzero(posterior.counts(side) > 0)[:1] for side in SIDES}
        if not all(map(len, warm.values())):
            return self
        user, item = (posterior.ids(side).values.item(int(warm[side][0])) for side in SIDES)
        self.fit.predict([(user, item)])
        self.fit.recommend([user], 1, exclude_seen=False)
        ratings = {"item": [item], "rating": [posterior.scale.high]}
        if self.timed:
            ratings["time"] = [0]
        self.fit.fold_in(pa.table({"user": [self.visitor], **ratings}))
        if updates:
            self.fit.update(pa.table({"user": [user], **ratings}))
        return self


class Options(NamedTuple):
    """How a shelf keeps its model."""

    updates: bool = False  # whether ratings can be added
    save: Path | None = None  # where the model is written after each update
    complete: Callable[[SavedFit], SavedFit] | None = None  # adds titles to what was loaded
    read_test: Callable[[SavedFit], Ratings] | None = None  # for such a fit


class Shelf:
    """The model that is served now: a request takes it once, and keeps it until its end."""

    def __init__(self, path: str | Path, options: Options | None = None) -> None:
        self.path, self.options = Path(path), options or Options()
        self._changing = threading.Lock()  # one change at a time
        self._seen = identity(self.path)
        self._trouble = ""
        self.current = self._load()

    def _load(self) -> Served:
        fit = load_model(self.path, threads=1)  # small requests: others wait while one uses more
        options = self.options
        if options.complete is not None:
            fit = options.complete(fit)
        test = options.read_test(fit) if options.read_test else None
        return Served(fit, 0, test).prepare(options.updates)

    def refresh(self) -> str:
        """Load the model again if its files have changed.

        Returns a sentence if something happened that should be told. A model that cannot be read
        leaves the one before it in its place, and is tried again at the next call.
        """
        seen = identity(self.path)
        if seen == self._seen:
            return ""
        try:
            fresh = self._load()
        except (DataError, OSError) as error:
            again, self._trouble = str(error) == self._trouble, str(error)
            return "" if again else f"The model was not loaded again: {error}"
        with self._changing:
            fresh.number = self.current.number + 1
            self.current, self._seen, self._trouble = fresh, seen, ""
        return f"{self.path} has changed and was loaded again."

    def update(self, change: Callable[[SavedFit], SavedFit]) -> tuple[Served, Served]:
        """Put a changed fit in the place of the one that is served; return both."""
        with self._changing:
            old = self.current
            new = Served(change(old.fit), old.number + 1, old.given_test)
            if self.options.save is not None:
                new.fit.save(self.options.save, overwrite=True)
                if self.options.save.resolve() == self.path.resolve():
                    self._seen = identity(self.path)  # our own change is no news
            self.current = new
        return old, new


def identity(path: Path) -> tuple[Any, ...]:
    """Tell one state of the files of a model from another."""
    found: list[Any] = []
    for part in PARTS:
        try:
            facts = (path / part if part else path).stat()
            found.append((facts.st_dev, facts.st_ino, facts.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)
