"""The sweep on Ray: blocks of rows, on any number of workers and machines.

A block's draws depend on (seed, chain, sweep, row) alone and its results are joined in the order of
the rows, so the bits are those of the threads, whoever did the work and however often.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from bayesmf.data.io.shards import BLOCKS, Counted, Shards, part, read_block, spans
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.engines.ray.crew import Crew, Placed
from bayesmf.engines.ray.resident import OnRay, placed
from bayesmf.errors import DataError
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Name, SideData, Values, Work, side_data

Array = NDArray[np.float64]
Settings = tuple[Name, float, float]  # of a side: its name, the mean rating, the power
Spans = list[tuple[int, int]]
NAMES: tuple[Name, Name] = ("user", "item")
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

    Ratings in memory are cut into ``blocks`` on each side, dealt to the workers; the result does
    not depend on them.

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
        if self.address is not None and self.address.startswith("ray://"):
            raise DataError(
                f"address={self.address!r}: run this on a machine of the cluster, and give the "
                "address that ray start told, without ray://"
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
            placed_sides: dict[Name, Placed] = {}
            counts: dict[Name, NDArray[np.int64]] = {}
            for name, other in (NAMES, NAMES[::-1]):
                whole = model.has_side(other)  # what other rows' side features are drawn from
                settings = (name, ratings.mean, model.side_power)
                if isinstance(ratings, Shards):
                    found = ratings.by_user if name == "user" else ratings.by_item
                    counts[name] = found.counts
                    placed_sides[name] = _from_shards(ray, ratings.folder, found, whole, settings)
                else:
                    rows = ratings.by_user if name == "user" else ratings.by_item
                    counts[name], cut = rows.counts, spans(rows.counts, model.rank, self.blocks)
                    placed_sides[name] = _from_memory(ray, rows, cut, whole, settings)
            crew = Crew(ray, placed_sides)
            user, item = (RemoteSide(name, None, counts[name], model.side_power, crew=crew)
                          for name in NAMES)  # fmt: skip
            threads = numba.get_num_threads()
            numba.set_num_threads(1)  # the cores are the workers', who wait for work without rest
            try:
                yield Data(user, item, ratings.mean, len(ratings))
            finally:
                numba.set_num_threads(threads)
                crew.dismiss()

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
    """A side whose ratings are with a crew of workers."""

    crew: Any = None

    def run(self, work: Work, shared: Values, by_row: Values) -> tuple[Array, ...]:
        """Each worker its rows; the results are joined in their order."""
        found: tuple[Array, ...] = self.crew.rows(self.name, work, shared, by_row)
        return found

    def run_strips(self, work: Work, shared: Values, by_strip: Values) -> tuple[Array, ...]:
        """Strips dealt to the workers."""
        found: tuple[Array, ...] = self.crew.strips(self.name, work, shared, by_strip)
        return found


def _from_memory(ray: Any, rows: Rows, cut: Spans, whole: bool, settings: Settings) -> Placed:
    """The blocks, and who rated whom in all of them if that is wanted."""
    blocks = [ray.put(side_data(part(rows, *span), *settings, span[0])) for span in cut]
    without = replace(rows, values=rows.values[:0])
    return Placed(blocks, cut, ray.put(side_data(without, *settings)) if whole else None)


def _from_shards(ray: Any, folder: Path, found: Counted, whole: bool, settings: Settings) -> Placed:
    """The same, read by the workers; what is lost with a machine is read again by another."""
    read = ray.remote(max_retries=-1)(_read)
    blocks = [read.remote(folder, number, found.counts[begin:end], begin, *settings)
              for number, (begin, end) in enumerate(found.spans)]  # fmt: skip
    joined = ray.remote(max_retries=-1)(_whole).remote(*blocks) if whole else None
    return Placed(blocks, found.spans, joined)


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


def _alone(work: Callable[[Any], Any], job: Any) -> Any:
    """One job of many, on one thread."""
    numba.set_num_threads(1)
    return work(job)
