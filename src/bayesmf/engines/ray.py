"""The sweep on Ray: blocks of rows are tasks, on any number of workers and machines.

A block's draws depend on (seed, chain, sweep, row) alone and its results are joined in the order of
the rows, so the bits are those of the threads, whoever did the work and however often.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from bayesmf.data.cut import BLOCKS, part, spans
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.data.shards import Counted, Shards, read_block
from bayesmf.engines.resident import OnRay, placed, writable
from bayesmf.errors import DataError
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Name, SideData, Values, Work, side_data

Array = NDArray[np.float64]
Settings = tuple[Name, float, float]  # of a side: its name, the mean rating, the power
Spans = list[tuple[int, int]]
NAMES: tuple[Name, Name] = ("user", "item")
LEAST = 500_000  # ratings for which a task more is worth its milliseconds
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
         "RAY_DEDUP_LOGS": "0", "RAY_IGNORE_UNHANDLED_ERRORS": "1"}  # fmt: skip


def _ray() -> Any:
    """The library, which is an extra."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise DataError(
            "Ray is not installed; run pip install 'bayesmf[ray]', or use engine='threads'"
        ) from error
    return ray


@dataclass(frozen=True)
class Ray:
    """A cluster to sample on: the one at ``address``, or one of ``workers`` on this machine.

    Ratings in memory are cut into ``blocks`` on each side, dealt to whoever is free; the result
    does not depend on them.

    ``resident`` is for very many users: their rows stay in the object store, block by block, and
    what the driver sends and fetches in a sweep grows with the items alone. The result is the same
    on any number of workers, and after any of them or a whole machine was lost; but sums over
    users go by blocks, so other ``blocks`` give other digits, and so does ``resident=False``. All
    users' rows travel only when they are asked for: for every kept draw (``keep=0`` for none),
    every checkpoint, and at the end; with test or validation ratings the rows of their users do,
    after every sweep. When a machine is lost with its rows, the sweeps since all rows travelled
    last, or since the start, are done again. For models without side features.
    """

    address: str | None = None
    workers: int | None = None
    blocks: int = BLOCKS
    resident: bool = False  # whether users' rows stay with the workers

    def __post_init__(self) -> None:
        if self.workers is not None and (self.workers < 1 or self.address is not None):
            raise DataError(
                f"workers={self.workers}: choose 1 or more, and none for a cluster that is running "
                "already"
            )
        if self.blocks < 1:
            raise DataError(f"blocks={self.blocks}: choose 1 or more")

    @contextlib.contextmanager
    def place(self, ratings: Ratings | Shards, model: Model) -> Iterator[Data]:
        """The ratings in blocks where the workers find them."""
        with self.cluster() as ray:
            if self.resident:
                yield placed(OnRay(ray), ratings, model, self.blocks)
                return
            cores = max(int(ray.cluster_resources().get("CPU", 1)), 1)
            tasks = max(cores, len(ratings) // LEAST)
            sides = []
            for name, other in (NAMES, NAMES[::-1]):
                whole = model.has_side(other)  # what other rows' side features are drawn from
                settings = (name, ratings.mean, model.side_power)
                counts: NDArray[np.int64]
                if isinstance(ratings, Shards):
                    found = ratings.by_user if name == "user" else ratings.by_item
                    counts, cut = found.counts, found.spans
                    refs = _from_shards(ray, ratings.folder, found, whole, settings)
                else:
                    rows = ratings.by_user if name == "user" else ratings.by_item
                    counts, cut = rows.counts, spans(rows.counts, model.rank, self.blocks)
                    refs = _from_memory(ray, rows, cut, whole, settings)
                work = ray.remote(max_retries=-1)(_work)
                sides.append(RemoteSide(name, None, counts, model.side_power, ray=ray, remote=work,
                                        spans=cut, blocks=refs[0], whole=refs[1],
                                        tasks=tasks))  # fmt: skip
            yield Data(sides[0], sides[1], ratings.mean, len(ratings))

    def map(self, work: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
        """work(job) of independent jobs, in their order; each a task of its own."""
        with self.cluster() as ray:
            alone = ray.remote(max_retries=-1)(_alone)
            found: list[Any] = ray.get([alone.remote(work, job) for job in jobs])
            return found

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Any]:
        """Ray, connected; what was started here is stopped here."""
        ray = _ray()
        if ray.is_initialized():  # by whoever called us
            yield ray
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            options.update(num_cpus=self.workers or os.cpu_count(), include_dashboard=False)
        try:
            ray.init(address=self.address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"the cluster at {self.address}" if self.address else "a local cluster"
            raise DataError(f"no way to reach {where}: {str(error).splitlines()[0]}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


Engine = Literal["threads", "ray"] | Ray


def engine_of(asked: Engine) -> Ray | None:
    """The cluster that is asked for, or none for the threads of this process."""
    if asked == "threads" or isinstance(asked, Ray):
        return None if asked == "threads" else asked
    if asked == "ray":
        return Ray()
    raise DataError(f"engine={asked!r}: choose 'threads', 'ray' or bayesmf.Ray(...)")


@dataclass(frozen=True)
class RemoteSide(SideData):
    """A side whose ratings are elsewhere: some blocks of rows are one task, a strip another.

    There are as many tasks as the cluster has cores, or more if each has enough to do. One whose
    worker dies is done again by another.
    """

    ray: Any = None
    remote: Any = None  # _work
    spans: Spans = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    whole: Any = None  # who rated whom, for what goes by columns
    tasks: int = 1  # that the blocks are dealt to

    def run(self, work: Work, shared: Values, by_row: Values) -> tuple[Array, ...]:
        """Block by block; the results are joined in the order of the rows."""
        common = self.ray.put(shared)
        key = common.binary()
        tasks = []
        for group in np.array_split(np.arange(len(self.blocks)), min(self.tasks, len(self.blocks))):
            begin, end = self.spans[group[0]][0], self.spans[group[-1]][1]
            own = tuple(v[begin:end] for v in by_row)
            blocks = (self.blocks[k] for k in group)
            tasks.append(self.remote.remote(work, (), key, common, own, *blocks))
        return self._joined(tasks)

    def run_strips(self, work: Work, shared: Values, by_strip: Values) -> tuple[Array, ...]:
        """Strip by strip."""
        common = self.ray.put(shared)
        key = common.binary()
        return self._joined([
            self.remote.remote(work, (k,), key, common, tuple(v[k:][:1] for v in by_strip),
                               self.whole)
            for k in range(len(by_strip[0]))
        ])  # fmt: skip

    def _joined(self, tasks: list[Any]) -> tuple[Array, ...]:
        return _end_to_end(self.ray.get(tasks))


def _from_memory(
    ray: Any, rows: Rows, cut: Spans, whole: bool, settings: Settings
) -> tuple[list[Any], Any]:
    """The blocks, and who rated whom in all of them if that is wanted."""
    blocks = [ray.put(side_data(part(rows, *span), *settings, span[0])) for span in cut]
    if not whole:
        return blocks, None
    return blocks, ray.put(side_data(replace(rows, values=rows.values[:0]), *settings))


def _from_shards(
    ray: Any, folder: Path, found: Counted, whole: bool, settings: Settings
) -> tuple[list[Any], Any]:
    """The same, read by the workers; what is lost with a machine is read again by another."""
    read = ray.remote(max_retries=-1)(_read)
    blocks = [read.remote(folder, number, found.counts[begin:end], begin, *settings)
              for number, (begin, end) in enumerate(found.spans)]  # fmt: skip
    return blocks, ray.remote(max_retries=-1)(_whole).remote(*blocks) if whole else None


def _read(
    folder: Path, number: int, counts: NDArray[np.int64], first: int, name: Name, mean: float,
    power: float,
) -> SideData:  # fmt: skip
    """A block from its shard."""
    return side_data(read_block(folder, name, number, counts), name, mean, power, first)


def _whole(*blocks: SideData) -> SideData:
    """Who rated whom in all blocks; the values are not needed."""
    counts = np.concatenate([block.counts for block in blocks])
    index = np.concatenate([block.observed.index for block in blocks])
    rows = Rows(np.concatenate([[0], np.cumsum(counts)]), index, blocks[0].observed.values[:0])
    return side_data(rows, blocks[0].name, blocks[0].observed.mean, blocks[0].power)


_latest: dict[bytes, Values] = {}  # what the tasks of one step share, in this worker


def _work(
    work: Work, first: Values, key: bytes, shared: Values, own: Values, *sides: SideData
) -> Values:
    """One task: a strip, or some blocks one after the other; on one thread."""
    numba.set_num_threads(1)
    if key not in _latest:
        _latest.clear()
        _latest[key] = writable(shared)
    own, begin, parts = writable(own), 0, []
    for side in sides:
        rows = slice(begin, begin + len(side.counts)) if len(sides) > 1 else slice(None)
        parts.append(work(side, *first, *_latest[key], *(values[rows] for values in own)))
        begin += len(side.counts)
    return parts[0] if len(parts) == 1 else _end_to_end(parts)


def _end_to_end(parts: list[Values]) -> tuple[Array, ...]:
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def _alone(work: Callable[[Any], Any], job: Any) -> Any:
    """One job of many, on one thread."""
    numba.set_num_threads(1)
    return work(job)
