"""The constants of the cost model in scale.py, measured on this machine.

Every number is the least of several repeats on one thread, of processor time where it is this
process that works, so that other work on the machine counts as little as it can.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numba
import numpy as np

import bayesmf
from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Rows
from bayesmf.data.synthetic import World, generate
from bayesmf.engines.ray.cluster import RemoteSide
from bayesmf.engines.ray.crew import Order, make_writable
from bayesmf.kernels.designs import COLUMNS, draw_centred, offsets_of_strips, pattern, strips
from bayesmf.kernels.gram import padded
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.machine import using
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data, SideData, design_matrices, side_data
from bayesmf.model.designs import RatedSet, SideFacts
from bayesmf.model.spec import Model
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.rows import row_prior
from bayesmf.sweep.sweep import gibbs_sweep

RANK = 20
PLAIN = Model.paper("no-side", "robust", RANK)
SIDE = Model.paper("side", "robust", RANK, item_designs=(RatedSet(1.0),))
OTHERS = (
    4_000,
    40_000,
    400_000,
    2_000_000,
)  # rows of the other side: from in cache to far out of it
MEGABYTE = 2**20
MANY = 8  # workers
NONE = np.empty(0)
SHAPES = ((1_000, 400), (16_000, 8))  # rows, and ratings of each


def least(
    runs: int, function: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(runs):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


cpu = partial(least, clock=time.process_time)  # other programs do not lengthen it


def some_rows(rows: int, each: int, others: int) -> SideData:
    """Rows with ``each`` ratings of a random choice of others."""
    rng = np.random.default_rng(0)
    index = rng.integers(others, size=rows * each).astype(np.int32)
    values = rng.integers(1, 6, size=rows * each).astype(np.int8)
    index.flags.writeable = values.flags.writeable = False
    return side_data(Rows(np.arange(rows + 1) * each, index, values), "user", 3.0)


def rows_kernel(others: int) -> tuple[float, ...]:
    """Seconds of a side whose rows have many ratings, and of one whose rows have few."""
    width = padded(RANK + 2)
    x = np.random.default_rng(1).normal(size=(others, width))
    known = OtherSide.of(x, np.ones(others), POINTS)
    times = []
    for rows, each in SHAPES:
        data = some_rows(rows, each, others)
        small = random_start(PLAIN, Data(data, data, 3.0, rows * each), 0)
        prior = row_prior(PLAIN, data, small.user)
        out, ones, errors = np.zeros((rows, width)), np.ones(rows), np.empty(rows)
        run = partial(draw_rows, data.observed, known, ones, prior, Draws(0).counter(), True, out,
                      errors, POINTS, NONE, small.width())  # fmt: skip
        run()
        times.append(cpu(15, run))
    return tuple(times)


def solved(found: dict) -> dict:
    """With the seconds of a rating and of a row, from those of the two kinds of sides."""
    system = [[rows * each, rows] for rows, each in SHAPES]
    gram, row = np.linalg.solve(system, [found["many_ratings"], found["few_ratings"]])
    return {**found, "gram_rating": gram.tolist(), "row": float(np.median(row))}


def side_kernels(others: int) -> tuple[float, float]:
    """Seconds of a rating in the offsets, and in one strip of W."""
    data = some_rows(2_000, 600, others)
    cut, c, out = strips(np.ones((others, RANK + 1))), np.ones(2_000), np.empty((2_000, RANK + 1))
    residual, w = np.zeros((1, others, COLUMNS)), np.zeros((1, 2_000, COLUMNS))
    weight, one = np.ones(others), np.ones((1, COLUMNS))

    def gather() -> None:
        offsets_of_strips(pattern(data.observed), cut, c, out)

    def strip() -> None:
        draw_centred(
            pattern(data.observed), weight, one, one, Draws(0).counter(), True, residual, w, 0
        )

    for warm in (gather, strip):
        warm()
    each = len(data.observed.index)
    return cpu(7, gather) / each, cpu(7, strip) / each


@dataclass(frozen=True)
class Idle(SideData):
    """A side whose blocks cost nothing: what is left of a sweep is the driver's."""

    made: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def run(self, work: object, shared: object, by_row: tuple) -> tuple:
        x, errors, offset = self.made
        return (x, errors) if len(by_row) == 3 else (offset,)

    def run_strips(self, number: int, work: object, shared: object, by_strip: tuple) -> tuple:
        return (by_strip[3],)


def driver(model: Model, rows: int = 100_000) -> float:
    """Seconds for a row of either side in a sweep, whatever the number of ratings."""
    rng = np.random.default_rng(0)
    sides = []
    for name in ("user", "item"):
        made = (rng.normal(size=(rows, padded(RANK + 2))), rng.random(rows) + 50.0,
                np.zeros((rows, RANK + 1)))  # fmt: skip
        counts = np.full(rows, 100)
        matrices = design_matrices(model, SideFacts(name, Ids(np.arange(rows)), counts))
        sides.append(Idle(name, None, counts, matrices, (counts,) * len(matrices), made=made))
    data = Data(sides[0], sides[1], 3.0, 100 * rows)
    state = random_start(model, data, 0)

    def sweep() -> None:
        gibbs_sweep(model, data, state, Draws(0, 0, state.sweep + 1), "centred")

    with using(1):
        sweep()
        return cpu(7, sweep) / (2 * rows)


def idle(side: SideData, *given: object) -> tuple[np.ndarray]:
    """A step that gets what all get and does nothing."""
    return (np.zeros(1),)


def copied(side: SideData, value: np.ndarray, *given: object) -> tuple[np.ndarray]:
    """The seconds of a copy."""
    return (np.array([least(7, lambda: make_writable(value))]),)


@cache
def large() -> np.ndarray:
    return np.ones(8 * MEGABYTE)  # 64 MB


def returned(side: SideData, *given: object) -> tuple[np.ndarray]:
    return (large(),)


def driver_step(data: Data) -> float:
    """Processor seconds of the driver for a step of idle workers."""
    import ray

    crew, order = data.user.crew, Order("user", idle, (np.zeros(8),))
    own, times = [[(np.zeros(8),)] for _ in crew._workers], []
    for _ in range(30):
        start = time.process_time()
        to_come = crew._graph.execute(order, *own)
        middle = time.process_time()
        time.sleep(0.05)  # to wait for a channel would count
        again = time.process_time()
        ray.get(to_come)
        times.append(time.process_time() - again + middle - start)
        del to_come
    return min(times)


def on_ray(join: float) -> dict[str, float]:
    """Local clusters: steps that do nothing, and arrays that are moved."""
    ratings = generate(World(n_users=1600, n_items=400, n_ratings=32_000))[0]
    size, found = large().nbytes, {}
    for workers in (1, MANY):
        with bayesmf.Ray(workers=workers, blocks=workers).place(ratings, PLAIN) as data:

            def step(work: Callable, shared: np.ndarray, data: Data = data) -> np.ndarray:
                return data.user.run(work, (shared,), (np.zeros(1600),))[0]

            step(idle, np.zeros(8))
            found[workers] = driver_step(data)
            if workers == 1:
                trip = least(60, lambda: step(idle, np.zeros(8)))
                copy = float(step(copied, large()).min()) / size
                there = (least(15, lambda: step(idle, large())) - trip) / size
                back = (least(15, lambda: step(returned, np.zeros(8))) - trip) / size
    message = (found[MANY] - found[1]) / (MANY - 1)
    return {"round_trip": trip, "message": message, "copy_byte": copy, "put_byte": there - copy,
            "return_byte": back - join}  # fmt: skip


def tasks() -> float:
    """Seconds of a task that does nothing, in a stream of them."""
    with bayesmf.Ray(workers=2).cluster() as ray:
        alone = ray.remote(idle)
        return least(60, lambda: ray.get([alone.remote(None) for _ in range(32)])) / 32


def measure() -> Iterator[dict[str, object]]:
    """Part by part, for on a busy machine Ray may not start."""
    numba.set_num_threads(1)
    many, few = zip(*(rows_kernel(others) for others in OTHERS), strict=True)
    offset, strip = zip(*(side_kernels(others) for others in OTHERS), strict=True)
    yield {"rank": RANK, "other_rows": list(OTHERS), "many_ratings": many, "few_ratings": few,
           "offset_rating": offset, "strip_rating": strip}  # fmt: skip
    parts = [np.ones(MEGABYTE) for _ in range(8)]
    join = cpu(7, lambda: np.concatenate(parts)) / (8 * parts[0].nbytes)
    yield {"driver_row": driver(PLAIN), "driver_row_both": driver(SIDE), "join_byte": join}
    yield on_ray(join)
    yield {"task": tasks()}


@dataclass(frozen=True)  # equal if its work is: the driver knows steps by that
class Watch:
    """Work that also tells its seconds on the processor, which other programs do not lengthen."""

    work: Callable[..., tuple]

    def __call__(self, *given: object) -> tuple:
        start = time.process_time()
        return (*self.work(*given), np.array([time.process_time() - start]))


@dataclass(frozen=True)
class Watched(RemoteSide):
    """A side that notes what its workers spend."""

    spent: ClassVar[list[float]] = []

    def _note(self, found: tuple) -> tuple:
        self.spent.append(float(found[-1].sum()))
        return found[:-1]

    def run(self, work: Callable, shared: tuple, by_row: tuple) -> tuple:
        return self._note(super().run(Watch(work), shared, by_row))

    def run_strips(self, number: int, work: Callable, shared: tuple, by_strip: tuple) -> tuple:
        return self._note(super().run_strips(number, Watch(work), shared, by_strip))


def real(ratings: bayesmf.Ratings, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of sweeps on a local cluster of two workers, and processor seconds of their work."""
    times, spent = [], []
    with using(1), bayesmf.Ray(workers=2).place(ratings, model) as data:  # as a fit does
        data = Data(Watched(**vars(data.user)), Watched(**vars(data.item)), data.mean, data.size)
        state = random_start(model, data, 0)
        for number in range(28):
            Watched.spent.clear()
            start = time.perf_counter()
            gibbs_sweep(model, data, state, Draws(0, 0, number + 1), "centred")
            times.append(time.perf_counter() - start)
            spent.append(sum(Watched.spent))
    return np.array(times[3:]), np.array(spent[3:])
