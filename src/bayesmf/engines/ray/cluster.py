"""The sweep on Ray: blocks of rows, on any number of workers and machines.

A block's draws depend on (seed, chain, sweep, row) alone and its results are joined in the order of
the rows, so the bits are those of the threads, whoever did the work and however often.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_whole
from bayesmf.choices import Form
from bayesmf.data.io.shards import BLOCKS, Counted, Shards, part, read_block, spans
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.engines.ray.crew import Crew, PlacedSide
from bayesmf.engines.ray.resident import OnRay, ResidentData, place_residents
from bayesmf.engines.ray.resident_sweep import resident_start, resident_sweep
from bayesmf.errors import DataError, Option
from bayesmf.kernels.designs import NO_VALUES, Sparse
from bayesmf.machine import arithmetic, compare_arithmetic
from bayesmf.model.data import (
    Data,
    Response,
    SideData,
    Values,
    Work,
    column_counts,
    design_matrices,
    side_data,
)
from bayesmf.model.designs import Matrix, Name, SideFacts
from bayesmf.model.spec import Model
from bayesmf.model.state import State, random_start, start_sd
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep

Array = NDArray[np.float64]
Spans = list[tuple[int, int]]
NAMES: tuple[Name, Name] = ("user", "item")
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}


def _ray() -> Any:
    """The library, which is an extra."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ImportError(
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
    last, or since the start, are done again. For models without designs.
    """

    address: str | None = None
    workers: int | None = None
    blocks: int = BLOCKS
    resident: bool = False  # whether users' rows stay with the workers

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_whole("workers", self.workers, 1)
            if self.address is not None:
                raise DataError(
                    f"workers={self.workers}: a cluster that is running has its own; leave it out"
                )
        if self.address is not None and self.address.startswith("ray://"):
            raise DataError(
                f"address={self.address!r}: run this on a machine of the cluster, and give the "
                "address that ray start told, without ray://"
            )
        if self.blocks < 1:
            raise DataError(f"blocks={self.blocks}: choose 1 or more")

    def check(self, model: Model, form: Form) -> None:
        """Refuse what a worker cannot do by itself."""
        latent = model.responds or model.likelihood.name != "gaussian"
        if latent and self.resident:
            raise DataError(
                "effects and latent likelihoods are drawn by one process, which has to know all "
                "users; choose Ray(resident=False)"
            )
        if form != "centred" or not model.own_features:
            raise DataError(
                "weights of designs that are not centred are drawn by one process alone; choose "
                f"{Option('engine', 'threads')}"
            )
        if self.resident and (model.user_designs or model.item_designs):
            raise DataError(
                "designs need all users in one place; choose Ray(resident=False), or a model "
                "without designs"
            )

    def start(self, model: Model, data: Data, seed: int, chain: int) -> State:
        """The random start of a chain."""
        if isinstance(data, ResidentData):
            return resident_start(model, data, seed, chain)
        return random_start(model, data, seed, chain, start_sd(chain))

    def sweep(self, model: Model, data: Data, state: State, draws: Draws, form: Form) -> None:
        """Draw everything once."""
        if isinstance(data, ResidentData):
            resident_sweep(model, data, state, draws)
        else:
            gibbs_sweep(model, data, state, draws, form)

    def describe(self, data: Data) -> dict[str, Any]:
        """The blocks of users, if their sums are added block by block."""
        return {"spans": data.spans} if isinstance(data, ResidentData) else {}

    def shared(self) -> contextlib.AbstractContextManager[Any]:
        """The cluster, started once for several calls of ``map``."""
        return self.cluster()

    @contextlib.contextmanager
    def place(self, ratings: Ratings | Shards, model: Model) -> Iterator[Data]:
        """The ratings in blocks where the workers find them."""
        with self.cluster() as ray:
            _compare_machines(ray)
            if self.resident:
                yield place_residents(OnRay(ray), ratings, model, self.blocks)
                return
            mean, response = model.likelihood.centre(ratings.mean), None
            if model.responds:
                response = _response_of(ratings, model, mean)
            crew = Crew(ray, _place_sides(ray, ratings, model, self.blocks))
            user, item = (_remote_side(ratings, model, name, crew, response) for name in NAMES)
            threads = numba.get_num_threads()
            numba.set_num_threads(1)  # the cores are the workers', who wait for work without rest
            try:
                yield Data(user, item, mean, len(ratings), response)
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
            try:
                with keep_sigterm(ray):
                    ray.init(address=self.address or "local", **options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                where = f"the cluster at {self.address}" if self.address else "a local cluster"
                raise DataError(f"no way to reach {where}: {str(error).splitlines()[0]}") from error
            yield ray
        finally:
            with keep_sigterm(ray):
                ray.shutdown()


@contextlib.contextmanager
def keep_sigterm(ray: Any) -> Iterator[None]:
    """A block in which Ray begins or ends, and that leaves SIGTERM to whoever listened before.

    Ray puts a handler in Python and one below it in place of others when it begins, and takes away
    all when it ends. If SIGTERM comes inside the block, it is heard at its end, so that Ray can be
    stopped in order and leaves no processes; a second one ends this process at once.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # nobody could put it back, and Ray does not set it in Python either
        return
    heard: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        signal.alarm(0)  # Ray's handler below Python would abort this process in 3 seconds
        if heard:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        heard.append(number)

    signal.signal(signal.SIGTERM, wait)
    theirs, set_theirs = ray._private.utils, ray._private.utils.set_sigterm_handler
    theirs.set_sigterm_handler = lambda handler: None  # or sys.exit(15) would come in its midst
    try:
        yield
    finally:
        theirs.set_sigterm_handler = set_theirs
        signal.signal(signal.SIGTERM, before)
        if heard:
            signal.raise_signal(signal.SIGTERM)


def _compare_machines(ray: Any) -> None:
    """Warn if machines of the cluster, those that are there now, have other arithmetic than this.

    One alone is this one, or whatever it is, it does all of the work.
    """
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if len(nodes) < 2:
        return
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for node in nodes:
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        asked = ray.remote(num_cpus=0, scheduling_strategy=where)(_arithmetic)
        compare_arithmetic(ray.get(asked.remote()), f"the machine {node['NodeManagerHostname']}")


def _arithmetic() -> str:
    """``arithmetic``, as a function that Ray can send."""
    return arithmetic()


@dataclass(frozen=True)
class RemoteSide(SideData):
    """A side whose ratings are with a crew of workers."""

    crew: Any = None
    response: Array | None = None  # by the rows of this side; it changes in every sweep

    def run(
        self, work: Work, shared: Values, by_row: Values, *, reads: bool = False
    ) -> tuple[Array, ...]:
        """Each worker its rows, with the working response of their ratings if the work reads it."""
        response = self.response if reads else None
        found: tuple[Array, ...] = self.crew.run_rows(self.name, work, shared, by_row, response)
        return found

    def run_strips(
        self, number: int, work: Work, shared: Values, by_strip: Values
    ) -> tuple[Array, ...]:
        """Strips dealt to the workers."""
        found: tuple[Array, ...] = self.crew.run_strips(self.name, number, work, shared, by_strip)
        return found


def _rows_of(ratings: Ratings | Shards, name: Name) -> Rows | Counted:
    return ratings.by_user if name == "user" else ratings.by_item


def _matrices(ratings: Ratings | Shards, model: Model, name: Name) -> tuple[Matrix, ...]:
    ids = ratings.users if name == "user" else ratings.items
    return design_matrices(model, SideFacts(name, ids, _rows_of(ratings, name).counts))


def _remote_side(
    ratings: Ratings | Shards, model: Model, name: Name, crew: Crew, response: Response | None
) -> RemoteSide:
    """What the driver knows of a side."""
    other: Name = "item" if name == "user" else "user"
    matrices = _matrices(ratings, model, name)
    counts = column_counts(matrices, _rows_of(ratings, other).counts)
    mine = None
    if response is not None:
        mine = response.by_user if name == "user" else response.by_item
    return RemoteSide(
        name, None, _rows_of(ratings, name).counts, matrices, counts, crew=crew, response=mine
    )


def _response_of(ratings: Ratings | Shards, model: Model, mean: float) -> Response:
    """The working response, with the driver."""
    if not isinstance(ratings, Ratings):
        raise DataError(
            f"{ratings.folder} holds shards, and effects and latent likelihoods need all ratings "
            "in memory; fit the ratings themselves, or choose a Gaussian likelihood without effects"
        )
    model.likelihood.check(ratings)
    return Response.of(ratings, model, mean)


def _place_sides(
    ray: Any, ratings: Ratings | Shards, model: Model, blocks: int
) -> dict[Name, PlacedSide]:
    """Both sides in the object store: blocks of rows, and the designs by column."""
    mean = 0.0 if model.responds else model.likelihood.centre(ratings.mean)
    placed: dict[Name, PlacedSide] = {}
    for name in NAMES:
        matrices, rows = _matrices(ratings, model, name), _rows_of(ratings, name)
        if isinstance(rows, Rows):
            cut = spans(rows.counts, model.rank, blocks)
            found = [
                ray.put(
                    side_data(
                        part(rows, *span),
                        name,
                        mean,
                        tuple(one.cut(*span) for one in matrices),
                        span[0],
                    )
                )
                for span in cut
            ]
        else:
            assert isinstance(ratings, Shards)
            cut, read = rows.spans, ray.remote(max_retries=-1)(_read)
            found = [
                read.remote(
                    ratings.folder,
                    number,
                    rows.counts[begin:end],
                    name,
                    mean,
                    tuple(one.cut(begin, end) for one in matrices),
                    begin,
                )
                for number, (begin, end) in enumerate(cut)
            ]
        starts = np.concatenate([[0], np.cumsum(rows.counts)])
        placed[name] = PlacedSide(found, cut, [], starts)
    for name, other in (NAMES, NAMES[::-1]):
        for one in _matrices(ratings, model, name):
            rows = _rows_of(ratings, other)
            if one.columns is not None:
                columns = ray.put(one.columns)
            elif isinstance(rows, Rows):
                columns = ray.put(Sparse(rows.starts, rows.index, NO_VALUES))
            else:
                columns = ray.remote(max_retries=-1)(_join).remote(*placed[other].blocks)
            placed[name].columns.append(columns)
    return placed


def _read(
    folder: Path,
    number: int,
    counts: NDArray[np.int64],
    name: Name,
    mean: float,
    matrices: tuple[Matrix, ...],
    first: int,
) -> SideData:
    """A block from its shard; what is lost with a machine is read again by another."""
    return side_data(read_block(folder, name, number, counts), name, mean, matrices, first)


def _join(*blocks: SideData) -> Sparse:
    """Who rated whom in all blocks of a side."""
    counts = np.concatenate([block.counts for block in blocks])
    index = np.concatenate([block.observed.index for block in blocks])
    return Sparse(np.concatenate([[0], np.cumsum(counts)]), index, NO_VALUES)


def _alone(work: Callable[[Any], Any], job: Any) -> Any:
    """One job of many, on one thread."""
    numba.set_num_threads(1)
    return work(job)
