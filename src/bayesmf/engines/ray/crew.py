"""Workers that stay for a fit: each holds its blocks and answers one message a step.

Ray's compiled graphs join them to the driver by channels that are made once. A step takes a
millisecond there and back, where ordinary tasks take ten.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numba
import numpy as np

from bayesmf.errors import DataError
from bayesmf.kernels.designs import Sparse
from bayesmf.machine import aligned
from bayesmf.model.data import Array, SideData, Values, Work
from bayesmf.model.designs import Name

logging.getLogger("ray.dag.compiled_dag_node").setLevel(logging.CRITICAL)  # tracebacks of the dead
TRIES = 5  # of a step whose workers die
ASLEEP = 0.9  # of the time that a step took lately
Own = list[Values]
"""What a worker gets for itself in a step: one for its rows and perhaps one for their ratings, or
one for each strip."""


class Order(NamedTuple):
    """A step, as every worker gets it."""

    side: Name
    work: Work
    shared: Any  # Values, or one reference to them
    design: int | None = None  # whose strips are dealt; None: rows are


class PlacedSide(NamedTuple):
    """A side in the object store."""

    blocks: list[Any]
    spans: list[tuple[int, int]]  # rows of each block
    columns: list[Any]  # the designs of the side by column
    starts: Any  # the number of the first rating of each row, and of all ratings


class Crew:
    """A worker for each core of the cluster; if one dies, all are replaced and the step redone."""

    def __init__(self, ray: Any, sides: dict[Name, PlacedSide]) -> None:
        self.ray, self.sides = ray, sides
        self._graph: Any = None
        self._workers: list[Any] = []
        self._far = False  # whether there is more than one machine
        self._took: dict[Any, deque[float]] = defaultdict(lambda: deque(maxlen=3))  # by each step
        self._spans: dict[Name, list[tuple[int, int]]] = {}  # rows of each worker

    def run_rows(
        self,
        side: Name,
        work: Work,
        shared: Values,
        by_row: Values,
        response: Array | None = None,
    ) -> tuple[Array, ...]:
        """work(block, *shared, *by_row), joined in the order of the rows.

        With a ``response`` of the ratings, blocks have it in place of their ratings.
        """

        def owns() -> list[Own]:
            out: list[Own] = []
            for begin, end in self._spans[side]:
                rows = tuple(v[begin:end] for v in by_row)
                ratings = slice(*self.sides[side].starts[[begin, end]])
                out.append([rows] if response is None else [rows, (response[ratings],)])
            return out

        return self._step(Order(side, work, shared), owns)

    def run_strips(
        self, side: Name, design: int, work: Work, shared: Values, by_strip: Values
    ) -> tuple[Array, ...]:
        """work(design by column, number of the strip, *shared, *by_strip), strip by strip."""

        def owns() -> list[Own]:
            dealt = np.array_split(np.arange(len(by_strip[0])), len(self._spans[side]))
            return [[(int(k), *(v[k : k + 1] for v in by_strip)) for k in some] for some in dealt]

        return self._step(Order(side, work, shared, design), owns)

    def _step(self, order: Order, owns: Callable[[], list[Own]]) -> tuple[Array, ...]:
        errors = self.ray.exceptions
        for _ in range(TRIES):
            try:
                return self._once(order, owns)
            except (errors.RayChannelError, errors.RayActorError, errors.ObjectLostError) as error:
                reason = str(error).splitlines()[0]
                self.dismiss()
        raise DataError(
            f"workers died {TRIES} times in the same step, perhaps for want of memory: {reason}"
        )

    def _once(self, order: Order, owns: Callable[[], list[Own]]) -> tuple[Array, ...]:
        """A function of its own: while anything holds on to what came back, an error's traceback
        included, the channels are blocked.
        """
        if self._graph is None:
            self._hire()
        if self._far:  # a machine gets it from whoever has it; a channel only from the driver
            order = order._replace(shared=[self.ray.put(order.shared)])
        answers = self._graph.execute(order, *owns())
        took = self._took[order.side, order.work]
        if len(took) > 1:  # the first may have been compiling
            time.sleep(ASLEEP * min(took))  # to wait for a channel takes a whole core
        seconds, found = zip(*self.ray.get(answers, timeout=-1), strict=True)
        took.append(max(seconds))
        return concatenate([part for part in found if part])

    def _hire(self) -> None:
        """Workers where there are cores, each with neighbouring blocks of both sides."""
        from ray.dag import InputNode, MultiOutputNode
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        places = alternate(
            [
                [node["NodeID"]] * int(node["Resources"].get("CPU", 0))
                for node in self.ray.nodes()
                if node["Alive"]
            ]
        )
        self._far = len(set(places)) > 1
        if not places:
            raise DataError("no machine of the cluster has a core for a worker; start one that has")
        most = max(len(side.blocks) for side in self.sides.values())
        hired = self.ray.remote(num_cpus=0)(Worker)
        self._workers = workers = [
            hired.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(place, soft=True)
            ).remote()
            for place in places[:most]
        ]
        answers = []
        for name, (blocks, spans, columns, _) in self.sides.items():
            rows = self._spans[name] = []
            dealt = np.array_split(np.arange(len(blocks)), len(workers))
            for worker, some in zip(workers, dealt, strict=True):
                begin = rows[-1][1] if rows else 0
                rows.append((begin, spans[some[-1]][1] if len(some) else begin))
                answers.append(worker.hold.remote(name, columns, *(blocks[k] for k in some)))
        self.ray.get(answers)
        with InputNode() as given:
            steps = [worker.step.bind(given[0], given[k]) for k, worker in enumerate(workers, 1)]
            graph = MultiOutputNode(steps)
        self._graph = graph.experimental_compile(_submit_timeout=-1, _max_inflight_executions=1)
        # an idle step: were a worker to die before its channel was read once, Ray would end us too
        self.ray.get(self._graph.execute(None, *[[]] * len(workers)), timeout=-1)

    def dismiss(self) -> None:
        """Let the workers go."""
        if self._graph is not None:
            self._graph.teardown()
        for worker in self._workers:
            self.ray.kill(worker)
        self._graph, self._workers = None, []


class Worker:
    """A process of a cluster, with one thread and its blocks."""

    def __init__(self) -> None:
        numba.set_num_threads(1)
        self.blocks: dict[Name, tuple[SideData, ...]] = {}
        self.columns: dict[Name, list[Any]] = {}

    def hold(self, side: Name, columns: list[Any], *blocks: SideData) -> None:
        """Hold these from now on; designs by column are fetched by whoever gets a strip."""
        self.blocks[side], self.columns[side] = blocks, columns

    def step(self, order: Order | None, own: Own) -> tuple[float, Values]:
        """Its seconds and its part of a step; nothing if it has no part."""
        if order is None:
            return 0.0, ()
        start = time.perf_counter()
        numba.set_num_threads(1)  # of the thread that serves the channels
        shared = order.shared if isinstance(order.shared, tuple) else fetch(*order.shared)
        shared, own = make_writable(shared), [make_writable(values) for values in own]
        if order.design is not None:
            held = self.columns[order.side]
            if own and not isinstance(held[order.design], Sparse):
                held[order.design] = fetch(held[order.design])
            columns = held[order.design]
            parts = [order.work(columns, number, *shared, *strip) for number, *strip in own]
        else:
            parts, begin, done = [], 0, 0
            for block in self.blocks[order.side]:
                end, size = begin + len(block.counts), int(block.counts.sum())
                rows = (values[begin:end] for values in own[0])
                if len(own) > 1:
                    (response,) = own[1]
                    observed = block.observed._replace(values=response[done : done + size])
                    block = replace(block, observed=observed)
                parts.append(order.work(block, *shared, *rows))
                begin, done = end, done + size
        return time.perf_counter() - start, concatenate(parts) if parts else ()


def fetch(reference: Any) -> Any:
    """A value of the object store, in a worker."""
    import ray

    return ray.get(reference)


def alternate(groups: list[list[Any]]) -> list[Any]:
    """The first of every group, then the second of every group, and so on."""
    return [value for row in itertools.zip_longest(*groups) for value in row if value is not None]


def concatenate(parts: list[Values]) -> tuple[Array, ...]:
    """Arrays of one part after those of another."""
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def make_writable(values: Any) -> Any:
    """Copies of arrays, for those in shared memory are read-only and kernels not made for it."""
    if isinstance(values, np.ndarray):
        copy = aligned(values.shape) if values.dtype == float else np.empty_like(values, order="C")
        copy[...] = values
        return copy
    if isinstance(values, tuple):
        copies = [make_writable(value) for value in values]
        return type(values)(*copies) if hasattr(values, "_fields") else tuple(copies)
    return values
