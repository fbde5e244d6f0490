"""Users who stay where their ratings are: blocks of them, and the driver's view of their rows.

Workers run work on blocks: ``Here``, one after the other, or ``OnRay``. What they hand out stands
for a value that may be on another machine, and goes into more work without passing the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from bayesmf.data.io.shards import Shards, part, read_block, spans
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.engines.ray.crew import make_writable
from bayesmf.kernels.designs import NO_VALUES
from bayesmf.kernels.rows import Observed
from bayesmf.model.data import Array, Data, SideData, side_data
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State

Handle = Any
Sums = tuple[Any, ...]  # arrays or numbers that are added block by block


class Workers(Protocol):
    """Whoever has the blocks."""

    lost: tuple[type[Exception], ...]  # what is raised when work or a value died with its machine

    def put(self, value: Any) -> Handle:
        """A value of the driver's."""

    def call(self, work: Callable[..., Any], *values: Any) -> Handle:
        """work(*values); any of the values may be a handle. Done again if its worker dies."""

    def step(self, work: Callable[..., Any], *values: Any) -> tuple[Handle, Handle]:
        """The same for work that returns two values, to be done again by the driver."""

    def get(self, handles: list[Handle]) -> list[Any]:
        """The values, here."""


class Here:
    """This process."""

    lost: tuple[type[Exception], ...] = ()

    def put(self, value: Any) -> Handle:
        """Itself."""
        return value

    def call(self, work: Callable[..., Any], *values: Any) -> Handle:
        """At once."""
        return work(*values)

    def step(self, work: Callable[..., Any], *values: Any) -> tuple[Handle, Handle]:
        """At once."""
        one, other = work(*values)
        return one, other

    def get(self, handles: list[Handle]) -> list[Any]:
        """Themselves."""
        return handles


class OnRay:
    """Ray's object store; a task goes where its block is.

    Of a task that Ray would do again it holds on to all that went into it as long as its results
    are needed: with rows that are made from the last sweep's, to the items of every sweep. So the
    driver does steps again.
    """

    def __init__(self, ray: Any) -> None:
        self.ray, error = ray, ray.exceptions
        self.lost: tuple[type[Exception], ...] = (
            error.ObjectLostError,
            error.WorkerCrashedError,
            error.OutOfMemoryError,
            error.NodeDiedError,
        )
        self._call = ray.remote(max_retries=-1)(_call)
        self._step = ray.remote(max_retries=0, num_returns=2)(_call).options(name="resident step")

    def put(self, value: Any) -> Handle:
        """In the object store."""
        return self.ray.put(value)

    def call(self, work: Callable[..., Any], *values: Any) -> Handle:
        """A task."""
        return self._call.remote(work, *values)

    def step(self, work: Callable[..., Any], *values: Any) -> tuple[Handle, Handle]:
        """A task with two results."""
        one, other = self._step.remote(work, *values)
        return one, other

    def get(self, handles: list[Handle]) -> list[Any]:
        """Fetched."""
        values: list[Any] = self.ray.get(handles)
        return values


def _call(work: Callable[..., Any], *values: Any) -> Any:
    """One task; one thread, for each worker has one core."""
    numba.set_num_threads(1)
    return work(*map(make_writable, values))


@dataclass(frozen=True)
class Block:
    """The ratings of some users, both ways."""

    users: SideData
    items: Observed  # all items; index has the users' numbers within the block


@dataclass(frozen=True)
class ResidentData(Data):
    """Ratings in blocks of users; ``user`` and ``item`` know their counts only."""

    workers: Workers = field(kw_only=True)
    spans: list[tuple[int, int]] = field(kw_only=True)
    blocks: list[Handle] = field(kw_only=True)

    def summed(self, parts: list[Handle]) -> Sums:
        """The sum over blocks, added in pairs of neighbours, and pairs of those: a fixed order."""
        while len(parts) > 1:
            pairs = [
                self.workers.call(_add, *parts[k : k + 2]) for k in range(0, len(parts) - 1, 2)
            ]
            parts = pairs + parts[2 * len(pairs) :]
        (total,) = self.workers.get(parts)
        return tuple(total)


def _add(one: Sums, other: Sums) -> Sums:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def place_residents(
    workers: Workers, ratings: Ratings | Shards, model: Model, blocks: int
) -> ResidentData:
    """The ratings in blocks of users; a shard is read by whoever needs it, and again if lost."""
    mean = model.likelihood.centre(ratings.mean)
    items, by_user = ratings.n_items, ratings.by_user
    counts: NDArray[np.int64] = by_user.counts
    if isinstance(by_user, Rows):
        cut = spans(counts, model.rank, blocks)
        handles = [workers.put(_block(part(by_user, *span), span[0], items, mean)) for span in cut]
    else:
        assert isinstance(ratings, Shards)
        cut = by_user.spans
        handles = [
            workers.call(_read, ratings.folder, number, counts[slice(*span)], span[0], items, mean)
            for number, span in enumerate(cut)
        ]
    user = SideData("user", None, counts)
    item = SideData("item", None, ratings.by_item.counts)
    return ResidentData(user, item, mean, len(ratings), workers=workers, spans=cut, blocks=handles)


def _read(
    folder: Path, number: int, counts: NDArray[np.int64], first: int, items: int, mean: float
) -> Block:
    return _block(read_block(folder, "user", number, counts), first, items, mean)


def _block(rows: Rows, first: int, items: int, mean: float) -> Block:
    order = np.argsort(rows.index, kind="stable")
    ends = np.cumsum(np.bincount(rows.index, minlength=items))
    by_item = Rows(np.concatenate([[0], ends]), rows.row_index[order], rows.values[order])
    none = np.empty((0, 0), np.int64)
    weights = NO_VALUES if rows.weights is None else rows.weights[order]
    for array in (none, weights):
        array.flags.writeable = False
    observed = Observed(by_item.starts, by_item.index, by_item.values, mean, none, weights=weights)
    return Block(side_data(rows, "user", mean, (), first), observed)


class Held(NamedTuple):
    """What a block keeps of its users."""

    x: Array
    alpha: Array
    scale: Array


class ResidentSide(Side):
    """The users' parameters: mu and Lambda are the driver's, each block holds its rows.

    Asked for ``x``, ``alpha``, ``scale`` or for ``plain``, the driver fetches all rows, and has
    them until the next sweep. ``redo`` makes the rows again after they were lost with a machine,
    from ``since``, the last state that was here whole, or from the random start if that is None.
    """

    def __init__(self, data: ResidentData, mu: Array, Lambda: Array, rows: list[Handle]) -> None:
        self.mu, self.Lambda, self.shifts = mu, Lambda, []
        self.data = data
        self.since: State | None = None
        self.redo: Callable[[], None] | None = None
        self.map = np.eye(len(mu)), np.zeros(len(mu))  # turns that the blocks are still to make
        self.put(rows, None)

    def put(self, rows: list[Handle], moments: Sums | None) -> None:
        """Rows of a new sweep, and their moments for the next sweep's moves if known."""
        self.rows, self.moments = rows, moments
        for name in Held._fields:
            vars(self).pop(name, None)

    @property
    def here(self) -> bool:
        """Whether the driver holds all rows."""
        return "x" in vars(self)

    def __getattr__(self, name: str) -> Array:
        if name not in Held._fields:
            raise AttributeError(name)
        blocks = self._fetch(lambda: self.rows)
        whole = Held(*(np.concatenate(each) for each in zip(*blocks, strict=True)))
        vars(self).update(whole._asdict())
        values: Array = vars(self)[name]
        return values

    def at(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """x and alpha of some rows, fetched from their blocks."""
        if self.here:
            return super().at(rows)
        cuts = [np.searchsorted(rows, span) for span in self.data.spans]
        call = self.data.workers.call
        parts = self._fetch(
            lambda: [
                call(_pick, handle, rows[low:high] - begin)
                for handle, (begin, _), (low, high) in zip(
                    self.rows, self.data.spans, cuts, strict=True
                )
                if low < high
            ]
        )
        x, alpha = (np.concatenate(found) for found in zip(*parts, strict=True))
        return x, alpha

    def log_precision(self, counts: NDArray[np.int64]) -> float:
        """The sum of log alpha over all ratings, from those of the blocks, which have counts."""
        call = self.data.workers.call
        parts = self._fetch(
            lambda: [
                call(_log_precision, block, rows)
                for block, rows in zip(self.data.blocks, self.rows, strict=True)
            ]
        )
        return float(sum(parts))

    def moved(self) -> ResidentSide:
        """The same rows, to be turned without a change to these."""
        out = ResidentSide(self.data, self.mu.copy(), self.Lambda.copy(), self.rows)
        out.moments = self.moments
        return out

    def sums(self) -> tuple[Array, Array]:
        """sum x and sum x x' over the rows, as they are after the turns."""
        assert self.moments is not None
        _, total, scatter = self.moments[-3:]
        return total, scatter

    def turn(self, A: Array, a: Array) -> None:
        """Every row x becomes x A + a: the sums at once, the rows when their blocks draw next."""
        self.map = self.map[0] @ A, self.map[1] @ A + a
        self.moments = turn_moments(self.moments, A, a)

    def plain(self) -> Side:
        """All of it."""
        return Side(self.x, self.mu, self.Lambda, self.alpha, self.scale)

    def _fetch(self, handles: Callable[[], list[Handle]]) -> list[Any]:
        try:
            return self.data.workers.get(handles())
        except self.data.workers.lost:
            if self.redo is None:
                raise
            self.redo()
            return self.data.workers.get(handles())


def turn_moments(moments: Sums | None, A: Array, a: Array) -> Sums:
    """Moments of x A + a: in threes, (sum w, sum w x, sum w x x')."""
    assert moments is not None
    found: list[Any] = []
    for k in range(0, len(moments), 3):
        weight, total, scatter = moments[k : k + 3]
        total, cross = total @ A, np.outer(total @ A, a)
        scatter = A.T @ scatter @ A + cross + cross.T + weight * np.outer(a, a)
        found += [weight, total + weight * a, scatter]
    return tuple(found)


def _pick(rows: Held, numbers: NDArray[np.int64]) -> tuple[Array, Array]:
    return rows.x[numbers], rows.alpha[numbers]


def _log_precision(block: Block, rows: Held) -> float:
    return float(np.sum(block.users.counts * np.log(rows.alpha)))
