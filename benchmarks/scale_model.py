"""The cost of a sweep on Ray as formulae, and the same by a simulation of its schedule."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmf.data.cut import spans
from bayesmf.kernels.gram import padded
from bayesmf.kernels.side import COLUMNS

SHAPES = {"even": (150, 500), "Netflix": (208, 5654)}  # ratings of a user, of an item
ACTIVITY, POPULARITY = 1.6, 1.4  # tails of users' and items' counts, as in bayesmf.World
MOST = 20_000  # ratings of one user


@dataclass(frozen=True)
class Cluster:
    """Machines of so many cores, a driver beside them, and one link of each, in bytes a second."""

    machines: int
    cores: int = 16
    link: float = 1.25e9  # 10 Gbit/s
    a_core: float = 1  # blocks for each core

    @property
    def blocks(self) -> int:
        return round(self.machines * self.cores * self.a_core)


@dataclass(frozen=True)
class Job:
    """Ratings by users of items, and a model with robust precisions."""

    ratings: int
    users: int
    items: int
    sides: tuple[str, ...] = ()  # whose rows have side features
    rank: int = 20
    joint: bool = True  # side features shift the bias too
    most: tuple[int, int] = (0, 0)  # ratings of the busiest user and item

    @property
    def size(self) -> int:
        return self.rank + 1

    @property
    def width(self) -> int:
        return padded(self.size + 1)

    @property
    def strips(self) -> int:
        return -(-(self.rank + self.joint) // COLUMNS)


class Step(NamedTuple):
    """One call of run or run_strips: bytes, and seconds of compute by ratings, rows and tasks."""

    name: str
    tasks: int
    machines: int
    ratings: float
    rows: int
    shared: float  # put once, fetched by each machine, copied by each worker
    own: float  # of all tasks' own arguments
    back: float  # of all results
    rating: float  # seconds
    row: float
    task: float
    most: float  # ratings of the row that has most
    side: str

    @property
    def work(self) -> float:
        return self.rating * self.ratings + self.row * self.rows + self.task * self.tasks


def at(constants: dict, name: str, rows: float) -> float:
    """Seconds a rating when so many rows are gathered from; beyond the last measured, the last."""
    return float(np.interp(np.log(rows), np.log(constants["other_rows"]), constants[name]))


def steps(job: Job, cluster: Cluster, constants: dict) -> list[Step]:
    """A sweep, as inference/sweep.py has it: all that is sent is float64."""
    found = []
    R = job.ratings
    for name, n, m, most in (("user", job.users, job.items, job.most[0]),
                             ("item", job.items, job.users, job.most[1])):  # fmt: skip
        blocks, side = min(cluster.blocks, n), name in job.sides
        if side:
            own = job.strips * 8 * COLUMNS * (n + m + 2)  # residual and W, scales and means
            found.append(Step(f"{name} W", job.strips, 1, job.strips * R, job.strips, 8 * n, own,
                              job.strips * 8 * COLUMNS * m, at(constants, "strip_rating", n), 0.0,
                              0.0, R, name))  # fmt: skip
            found.append(Step(f"{name} offsets", blocks, cluster.machines, R, n, 8 * job.size * m,
                              8 * n, 8 * job.size * n, at(constants, "offset_rating", m), 0.0,
                              constants["cut_row"] * m, most, name))  # fmt: skip
        prior = 2 * job.size**2 + 2 * job.size
        own = 8 * n * (2 + (job.size if side else 0))  # weight, spread, offset
        found.append(Step(f"{name} rows", blocks, cluster.machines, R, n,
                          8 * (m * (job.width + 1) + prior), own, 8 * n * (job.width + 1),
                          at(constants, "gram_rating", m), constants["row"], 0.0, most,
                          name))  # fmt: skip
    return found


def rounds(machines: int) -> int:
    """Who has the shared arrays passes them on: the number that have them doubles each round."""
    return math.ceil(math.log2(machines + 1))


class Seconds(NamedTuple):
    """Of a step."""

    publish: float
    feed: float
    compute: float
    back: float
    join: float
    total: float


def seconds(step: Step, cluster: Cluster, c: dict) -> Seconds:
    """The closed formula: tasks are fed, computed and sent back, each stage behind the one before.

    The longest stage counts in full, of the others one task. The driver makes up tasks while the
    shared arrays go round, but its link sends the tasks' own arguments after them.
    """
    put, around = step.shared * c["put_byte"], rounds(step.machines) * step.shared / cluster.link
    made, sent = step.tasks * c["task"] + step.own * c["put_byte"], step.own / cluster.link
    cores = min(step.tasks, step.machines * cluster.cores)
    copies = step.own * c["copy_byte"] + step.back * c["return_byte"]
    even = (step.work + copies) / step.tasks
    copy = step.shared * c["copy_byte"]
    compute = copy + max(even * step.tasks / cores, step.rating * step.most + step.task)
    back = step.back / cluster.link
    one, last = max(made, sent) / step.tasks, back / step.tasks
    flow = max(
        made + even + last,
        around + sent + even + last,
        around + one + compute + last,
        around + one + copy + even + back,
    )
    join = step.back * c["join_byte"] + c["round_trip"]
    return Seconds(put + around, max(made, sent), compute, back, join, put + flow + join)


def driver_seconds(job: Job, c: dict) -> float:
    """What the driver does itself, by rows: moments, precisions, changes of coordinates."""
    each = c["driver_row"] + (c["driver_row_both"] - c["driver_row"]) * len(job.sides) / 2
    return each * (job.users + job.items)


def simulate(step: Step, ratings: np.ndarray, rows: np.ndarray, cluster: Cluster, c: dict) -> float:
    """Seconds of a step, event by event.

    Machines that have the shared arrays pass them on. Task b is of machine b modulo machines,
    where its block is; a core that is free takes the machine's next. Tasks' arguments go through
    the driver's link one after the other, and so do the results.
    """
    holders, arrived = [(step.shared * c["put_byte"], -1)], []  # -1 is the driver
    sent = holders[0][0]
    for machine in range(step.machines):
        start, holder = heapq.heappop(holders)
        end = start + step.shared / cluster.link
        sent = end if holder == -1 else sent
        arrived.append(end)
        heapq.heappush(holders, (end, holder))
        heapq.heappush(holders, (end, machine))
    share = rows / rows.sum()
    ready, submitted, link = np.empty(len(rows)), step.shared * c["put_byte"], sent
    for b, part in enumerate(share.tolist()):
        submitted += c["task"] + step.own * part * c["put_byte"]
        link = max(link, submitted) + step.own * part / cluster.link
        ready[b] = link
    cost = (step.rating * ratings + step.row * rows + step.task
            + share * (step.own * c["copy_byte"] + step.back * c["return_byte"]))  # fmt: skip
    copy = step.shared * c["copy_byte"]
    done = []
    for machine in range(step.machines):
        cores = [(arrived[machine], True)] * cluster.cores
        for b in range(machine, len(rows), step.machines):
            free, fresh = heapq.heappop(cores)
            end = max(free, float(ready[b])) + float(cost[b]) + (copy if fresh else 0.0)
            heapq.heappush(cores, (end, False))
            done.append((end, float(share[b])))
    link = 0.0
    for end, part in sorted(done):
        link = max(link, end) + step.back * part / cluster.link
    return link + step.back * c["join_byte"] + c["round_trip"]


def law(tail: float, mean: float, most: float) -> float:
    """The scale of a Lomax law, cut at ``most``, with this mean."""
    low, high = 0.0, 1e3 * mean
    for _ in range(100):
        middle = (low + high) / 2
        short = middle / (tail - 1) * (1 - (1 + most / middle) ** (1 - tail)) < mean
        low, high = (middle, high) if short else (low, middle)
    return high


def quantile(job: Job, name: str, u: np.ndarray) -> np.ndarray:
    """Ratings of rows whose share ``u`` of the side has more."""
    n, m, tail = ((job.users, job.items, ACTIVITY) if name == "user"
                  else (job.items, job.users, POPULARITY))  # fmt: skip
    most = min(m / 2, MOST) if name == "user" else m / 2
    scale = law(tail, job.ratings / n, most)
    return np.maximum(np.round(np.minimum(scale * (u ** (-1 / tail) - 1), most)), 1)


def counts(job: Job, name: str) -> np.ndarray:
    """Of every row: the law's quantiles, long and short rows mixed by a stride."""
    n = job.users if name == "user" else job.items
    stride = next(s for s in range(int(n * 0.618), 2 * n) if math.gcd(s, n) == 1)
    order = np.arange(n) * stride % n
    return quantile(job, name, (order + 0.5) / n)


def job_of(ratings: int, shape: str, sides: tuple[str, ...]) -> Job:
    user, item = SHAPES[shape]
    job = Job(ratings, ratings // user, ratings // item, sides)
    most = [int(quantile(job, name, np.array([0.5 / n]))[0])
            for name, n in (("user", job.users), ("item", job.items))]  # fmt: skip
    return Job(ratings, job.users, job.items, sides, most=(most[0], most[1]))


def cut(found: np.ndarray, job: Job, cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    """Ratings and rows of each block."""
    ends = np.array([end for _, end in spans(found, job.rank, cluster.blocks)])
    sums = np.cumsum(found)[ends - 1]
    return np.diff(sums, prepend=0.0), np.diff(ends, prepend=0).astype(float)


def simulated(job: Job, cluster: Cluster, c: dict, cuts: dict) -> float:
    """Seconds of a sweep; ``cuts`` has the blocks of each side."""
    total = driver_seconds(job, c)
    for step in steps(job, cluster, c):
        if step.name.endswith(" W"):
            ratings, rows = np.full(step.tasks, job.ratings, float), np.ones(step.tasks)
        else:
            ratings, rows = cuts[step.side]
        total += simulate(step._replace(tasks=len(rows)), ratings, rows, cluster, c)
    return total


class Memory(NamedTuple):
    """Bytes: of the driver, of a machine, and of the one that has all indices for W."""

    driver: float
    machine: float
    with_index: float


def memory(job: Job, cluster: Cluster, c: dict) -> Memory:
    """Blocks both ways (int32 index, int8 value; starts, counts and order of rows), what is in the
    object store, and the copy of the shared arrays in every worker."""
    K, both = cluster.machines, job.users + job.items
    found = steps(job, cluster, c)
    state = 8 * both * (job.width + 3)  # rows, noise, spread, counts
    state += len(job.sides) * 8 * both * job.size  # W and offsets
    driver = state + max(s.shared + 2 * (s.own + s.back) for s in found)
    blocks = (10 * job.ratings + 24 * both) / K
    machine = max((1 + cluster.cores) * s.shared + 2 * (s.own + s.back) / K
                  for s in found if s.machines == K)  # fmt: skip
    index = len(job.sides) * (4 * job.ratings + 24 * both / 2)
    strips = max((s.shared * (1 + s.tasks) + 2 * (s.own + s.back)
                  for s in found if s.name.endswith(" W")), default=0.0)  # fmt: skip
    return Memory(driver, blocks + machine, blocks + index + max(machine, strips))


class Resident(NamedTuple):
    """Users who stay with their blocks: seconds, their parts, and bytes; a formula."""

    total: float
    compute: float
    network: float
    statistics: float  # bytes of all items' sums: triangle, linear term, sum of squares
    machine: float


def resident(job: Job, cluster: Cluster, c: dict) -> Resident:
    """Users stay in their blocks. Items are broadcast; sums for each item come up a tree."""
    K, cores = cluster.machines, cluster.machines * cluster.cores
    V = 8 * job.items * (job.width + 1)
    sums = 8 * job.items * (job.rank + 2) * (job.rank + 3) / 2
    up = math.ceil(math.log2(K + 1))
    gram = at(c, "gram_rating", job.items) + at(c, "gram_rating", job.users / K)
    compute = (job.ratings * gram + c["row"] * (job.users + job.items)) / cores
    compute += up * sums * c["join_byte"] / cluster.cores  # adding, by all cores of a machine
    network = (V * rounds(K) + up * sums + V) / cluster.link
    rest = c["driver_row"] * (job.users / K + job.items) + V * (c["put_byte"] + c["copy_byte"])
    rest += 2 * cluster.blocks * c["task"]
    blocks = (10 * job.ratings + 24 * (job.users + job.items)) / K
    machine = blocks + 8 * job.users / K * (job.width + 3) + (1 + cluster.cores) * V + 2 * sums
    return Resident(compute + network + rest, compute, network, sums, machine)
