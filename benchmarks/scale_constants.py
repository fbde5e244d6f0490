"""The constants of the cost model in scale.py, measured on this machine.

Every number is the least of several repeats on one thread, of processor time where it is this
process that works, so that other work on the machine counts as little as it can.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numba
import numpy as np

import bayesmf
from bayesmf.data.ratings import Rows
from bayesmf.data.synthetic import World, generate
from bayesmf.engines.ray import RemoteSide, _writable
from bayesmf.inference.sweep import gibbs_sweep, prior_of
from bayesmf.kernels.gram import padded
from bayesmf.kernels.rows import Known, draw_rows
from bayesmf.kernels.side import COLUMNS, draw_centred, offsets
from bayesmf.model.conditionals import POINTS
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, SideData, random_start, side_data
from bayesmf.prob.draws import Draws

RANK = 20
PLAIN = Model(rank=RANK, features="user-item", precision="robust")
SIDE = Model(rank=RANK, features="side", side_of="both", precision="robust")
OTHERS = (
    4_000,
    40_000,
    400_000,
    2_000_000,
)  # rows of the other side: from in cache to far out of it
MEGABYTE = 2**20
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
    return side_data("user", Rows(np.arange(rows + 1) * each, index, values), 3.0, 1.0)


def rows_kernel(others: int) -> tuple[float, ...]:
    """Seconds of a side whose rows have many ratings, and of one whose rows have few."""
    width = padded(RANK + 2)
    x = np.random.default_rng(1).normal(size=(others, width))
    known = Known(x, np.ones(others), POINTS)
    times = []
    for rows, each in SHAPES:
        data = some_rows(rows, each, others)
        small = random_start(PLAIN, Data(data, data, 3.0, rows * each), 0)
        prior = prior_of(PLAIN, data, small.user)
        out, ones, errors = np.zeros((rows, width)), np.ones(rows), np.empty(rows)
        run = partial(draw_rows, data.observed, known, ones, prior, Draws(0).place(), True, out,
                      errors, POINTS, NONE, small.width())  # fmt: skip
        run()
        times.append(cpu(15, run))
    return tuple(times)


def solved(found: dict) -> dict:
    """With the seconds of a rating and of a row, from those of the two kinds of sides."""
    system = [[rows * each, rows] for rows, each in SHAPES]
    gram, row = np.linalg.solve(system, [found["many_ratings"], found["few_ratings"]])
    return {**found, "gram_rating": gram.tolist(), "row": float(np.median(row))}


def side_kernels(others: int) -> tuple[float, float, float]:
    """Seconds: the offsets of a rating, cutting a row of W into strips, a rating in one strip."""
    data, none = some_rows(2_000, 600, others), some_rows(8, 0, others)
    W, c, out = np.ones((others, RANK + 1)), np.ones(2_000), np.empty((2_000, RANK + 1))
    residual, w = np.zeros((1, others, COLUMNS)), np.zeros((1, 2_000, COLUMNS))
    weight, one = np.ones(others), np.ones((1, COLUMNS))

    def gather() -> None:
        offsets(data.observed, W, c, out)

    def cut() -> None:
        offsets(none.observed, W, c[:8], out)

    def strip() -> None:
        draw_centred(data.observed, weight, one, one, Draws(0).place(), True, residual, w, 0)

    for warm in (gather, cut, strip):
        warm()
    each = len(data.observed.index)
    cutting = cpu(7, cut)
    return max(cpu(7, gather) - cutting, 0.0) / each, cutting / others, cpu(7, strip) / each


@dataclass(frozen=True)
class Idle(SideData):
    """A side whose blocks cost nothing: what is left of a sweep is the driver's."""

    made: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def run(self, work: object, shared: object, by_row: tuple) -> tuple:
        x, errors, offset = self.made
        return (x, errors) if len(by_row) == 3 else (offset,)

    def run_strips(self, work: object, shared: object, by_strip: tuple) -> tuple:
        return (by_strip[3],)


def driver(model: Model, rows: int = 100_000) -> float:
    """Seconds for a row of either side in a sweep, whatever the number of ratings."""
    rng = np.random.default_rng(0)
    sides = []
    for name in ("user", "item"):
        made = (rng.normal(size=(rows, padded(RANK + 2))), rng.random(rows) + 50.0,
                np.zeros((rows, RANK + 1)))  # fmt: skip
        sides.append(Idle(name, None, np.full(rows, 100), 1.0, made))
    data = Data(sides[0], sides[1], 3.0, 100 * rows)
    state = random_start(model, data, 0)

    def sweep() -> None:
        gibbs_sweep(model, data, state, Draws(0, 0, state.sweep + 1), "centred")

    sweep()
    return cpu(7, sweep) / (2 * rows)


def idle(side: SideData, *given: object) -> tuple[np.ndarray]:
    """A task that gets what all get and does nothing."""
    return (np.zeros(len(side.counts)),)


def on_ray() -> dict[str, float]:
    """A local cluster of two workers: tasks that do nothing, and arrays that are moved."""
    import ray

    size = 8 * MEGABYTE  # numbers: 64 MB

    @ray.remote
    def copied(value: np.ndarray) -> float:
        return least(7, lambda: _writable(value))

    @ray.remote
    def returned() -> np.ndarray:
        return np.zeros(size)

    ratings = generate(World(n_users=1600, n_items=400, n_ratings=32_000))[0]
    large = np.zeros(size)
    with bayesmf.Ray(workers=2).place(ratings, PLAIN) as data:

        def stream() -> None:
            data.user.run(idle, (np.zeros(8),), (np.zeros(1600),))

        def one() -> None:
            side = data.user
            some = RemoteSide(side.name, None, side.counts, 1.0, ray, side.remote, side.spans[:1],
                              side.blocks[:1])  # fmt: skip
            some.run(idle, (np.zeros(8),), (np.zeros(1600),))

        for _ in range(10):
            stream()
        task = least(60, stream) / len(data.user.blocks)
        trip = least(60, one)
        put = least(7, lambda: ray.put(large)) / large.nbytes
        copy = ray.get(copied.remote(ray.put(large))) / large.nbytes
        made = least(7, lambda: np.zeros(size)) + trip
        back = (least(7, lambda: ray.get(returned.remote())) - made) / large.nbytes
    return {"task": task, "round_trip": trip, "put_byte": put, "copy_byte": copy,
            "return_byte": back}  # fmt: skip


def measure() -> dict[str, object]:
    numba.set_num_threads(1)
    many, few = zip(*(rows_kernel(others) for others in OTHERS), strict=True)
    offset, cut, strip = zip(*(side_kernels(others) for others in OTHERS), strict=True)
    plain, side = driver(PLAIN), driver(SIDE)
    parts = [np.ones(MEGABYTE) for _ in range(8)]
    join = cpu(7, lambda: np.concatenate(parts)) / (8 * parts[0].nbytes)
    return {
        "rank": RANK, "other_rows": list(OTHERS), "many_ratings": many, "few_ratings": few,
        "offset_rating": offset, "cut_row": max(cut), "strip_rating": strip, "driver_row": plain,
        "driver_row_both": side, "join_byte": join, **on_ray(),
    }  # fmt: skip


class Watch:
    """A task that also tells its seconds on the processor, which other programs do not lengthen."""

    def __init__(self, work: Callable[..., tuple]) -> None:
        self.work = work

    def __call__(self, *given: object) -> tuple:
        start = time.process_time()
        return (*self.work(*given), np.array([time.process_time() - start]))


@dataclass(frozen=True)
class Watched(RemoteSide):
    """A side that notes what its tasks spend."""

    spent: ClassVar[list[float]] = []

    def _note(self, found: tuple) -> tuple:
        self.spent.append(float(found[-1].sum()))
        return found[:-1]

    def run(self, work: Callable, shared: tuple, by_row: tuple) -> tuple:
        return self._note(super().run(Watch(work), shared, by_row))

    def run_strips(self, work: Callable, shared: tuple, by_strip: tuple) -> tuple:
        return self._note(super().run_strips(Watch(work), shared, by_strip))


def real(ratings: bayesmf.Ratings, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of sweeps on a local cluster of two workers, and processor seconds of their tasks."""
    times, spent = [], []
    with bayesmf.Ray(workers=2).place(ratings, model) as data:
        data = Data(Watched(**vars(data.user)), Watched(**vars(data.item)), data.mean, data.size)
        state = random_start(model, data, 0)
        for number in range(28):
            Watched.spent.clear()
            start = time.perf_counter()
            gibbs_sweep(model, data, state, Draws(0, 0, number + 1), "centred")
            times.append(time.perf_counter() - start)
            spent.append(sum(Watched.spent))
    return np.array(times[3:]), np.array(spent[3:])
