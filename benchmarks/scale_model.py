"""The cost of a sweep on Ray as formulae, and the same for the parts that blocks really have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmf.data.io.shards import spans
from bayesmf.kernels.designs import COLUMNS
from bayesmf.kernels.gram import padded

SHAPES = {"even": (150, 500), "Netflix": (208, 5654)}  # ratings of a user, of an item
ACTIVITY, POPULARITY = 1.6, 1.4  # tails of users' and items' counts, as in bayesmf.World
MOST = 20_000  # ratings of one user


@dataclass(frozen=True)
class Cluster:
    """Machines of so many cores, a driver beside them, and one link of each, in bytes a second."""

    machines: int
    cores: int = 16
    link: float = 1.25e9  # 10 Gbit/s
    passed_on: bool = True  # an array of Ray's store, by machines that have it

    @property
    def workers(self) -> int:
        return self.machines * self.cores

    @property
    def copies(self) -> int:
        """That leave the driver one after the other until all machines have an array.

        If it is passed on, the holders double each round; if not, the driver sends every copy.
        """
        return math.ceil(math.log2(self.machines + 1)) if self.passed_on else self.machines


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

    @property
    def cut(self) -> int:
        return -(-self.size // COLUMNS) * COLUMNS  # columns of a W that is cut into strips


class Step(NamedTuple):
    """One call of run or run_strips: bytes, and seconds of compute by ratings and rows."""

    name: str
    parts: int  # workers that have something to do
    ratings: float
    rows: int
    shared: float  # put once, fetched by each machine, copied by each worker
    own: float  # of all workers' own arguments
    back: float  # of all results
    rating: float  # seconds
    row: float
    most: float  # ratings that cannot be cut: of the longest row, or of a worker's strips
    side: str

    @property
    def work(self) -> float:
        return self.rating * self.ratings + self.row * self.rows


def at(constants: dict, name: str, rows: float) -> float:
    """Seconds a rating when so many rows are gathered from; beyond the last measured, the last."""
    return float(np.interp(np.log(rows), np.log(constants["other_rows"]), constants[name]))


def dealt(strips: int, workers: int) -> np.ndarray:
    """How many strips each worker has."""
    each = np.array([len(some) for some in np.array_split(np.arange(strips), workers)])
    return each[each > 0]


def steps(job: Job, cluster: Cluster, constants: dict) -> list[Step]:
    """A sweep, as sweep/sweep.py has it: all that is sent is float64.

    Rows have more ratings than columns on average, so that the move of scales is not made.
    """
    found = []
    R = job.ratings
    for name, n, m, most in (("user", job.users, job.items, job.most[0]),
                             ("item", job.items, job.users, job.most[1])):  # fmt: skip
        parts, side = min(cluster.workers, n), name in job.sides
        if side:
            strips = dealt(job.strips, cluster.workers)
            own = job.strips * 8 * COLUMNS * (n + m + 2)  # residual and W, scales and means
            found.append(Step(f"{name} W", len(strips), job.strips * R, job.strips, 8 * n, own,
                              job.strips * 8 * COLUMNS * m, at(constants, "strip_rating", n), 0.0,
                              strips[0] * R, name))  # fmt: skip
            found.append(Step(f"{name} offsets", parts, R, n, 8 * job.cut * m, 8 * n,
                              8 * job.size * n, at(constants, "offset_rating", m), 0.0, most,
                              name))  # fmt: skip
        prior = 2 * job.size**2 + 2 * job.size
        own = 8 * n * (2 + (job.size if side else 0))  # weight, spread, offset
        found.append(Step(f"{name} rows", parts, R, n, 8 * (m * job.width + prior), own,
                          8 * n * (job.width + 1), at(constants, "gram_rating", m),
                          constants["row"], most, name))  # fmt: skip
    return found


class Seconds(NamedTuple):
    """Of a step, one after the other."""

    publish: float
    feed: float
    compute: float
    back: float
    join: float


def seconds(step: Step, cluster: Cluster, c: dict) -> Seconds:
    """The closed formula, if the work could be cut into equal parts.

    The driver puts what is shared once and the machines fetch it; its link sends every worker's
    own part. All workers copy what is shared, those with nothing to do too.
    """
    around = cluster.copies / cluster.link
    copies = step.own * c["copy_byte"] + step.back * c["return_byte"]
    even = max((step.work + copies) / step.parts, step.rating * step.most)
    return Seconds(
        step.shared * (c["put_byte"] + around),
        step.own * (c["put_byte"] + 1 / cluster.link) + cluster.workers * c["message"],
        step.shared * c["copy_byte"] + even,
        step.back / cluster.link,
        step.back * c["join_byte"] + c["round_trip"],
    )


def wire(found: list[Step], cluster: Cluster) -> float:
    """Bytes through the driver's link."""
    return sum(s.shared * cluster.copies + s.own + s.back for s in found)


def driver_seconds(job: Job, c: dict) -> float:
    """What the driver does itself, by rows: moments, precisions, changes of coordinates."""
    each = c["driver_row"] + (c["driver_row_both"] - c["driver_row"]) * len(job.sides) / 2
    return each * (job.users + job.items)


def on_threads(job: Job, cluster: Cluster, c: dict) -> float:
    """A sweep on the threads of one such machine: nothing is sent or copied."""
    found = steps(job, Cluster(1, cluster.cores), c)
    each = (max(step.work / step.parts, step.rating * step.most) for step in found)
    return driver_seconds(job, c) + sum(each)


def simulate(step: Step, ratings: np.ndarray, rows: np.ndarray, cluster: Cluster, c: dict) -> float:
    """Seconds of a step whose workers have these: results wait for the driver's link."""
    formula, share = seconds(step, cluster, c), rows / rows.sum()
    cost = (step.rating * ratings + step.row * rows
            + share * (step.own * c["copy_byte"] + step.back * c["return_byte"]))  # fmt: skip
    link = 0.0
    for b in np.argsort(cost):
        link = max(link, float(cost[b])) + step.back * float(share[b]) / cluster.link
    start = formula.publish + formula.feed + step.shared * c["copy_byte"]
    return start + link + formula.join


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
    """Ratings and rows of each worker; a multiple of so many blocks gives the same."""
    ends = np.array([end for _, end in spans(found, job.rank, cluster.workers)])
    sums = np.cumsum(found)[ends - 1]
    return np.diff(sums, prepend=0.0), np.diff(ends, prepend=0).astype(float)


def simulated(job: Job, cluster: Cluster, c: dict, cuts: dict) -> float:
    """Seconds of a sweep; ``cuts`` has the workers' parts of each side."""
    total = driver_seconds(job, c)
    for step in steps(job, cluster, c):
        if step.name.endswith(" W"):
            rows = dealt(job.strips, cluster.workers)
            ratings = rows * float(job.ratings)
        else:
            ratings, rows = cuts[step.side]
        total += simulate(step, ratings, rows, cluster, c)
    return total


class Memory(NamedTuple):
    """Bytes: of the driver, of a machine, and of one that draws strips of W."""

    driver: float
    machine: float
    first: float


def memory(job: Job, cluster: Cluster, c: dict) -> Memory:
    """Blocks both ways (int32 index, int8 value; starts, counts and order of rows), all indices
    where W is drawn, what is shared, the channels, which stay as large as their largest message,
    and workers' copies. Workers are on the machines in turn, and the first ones have the strips."""
    K, both = cluster.machines, job.users + job.items
    found = steps(job, cluster, c)
    shared, own, back = (max(getattr(s, name) for s in found) for name in ("shared", "own", "back"))
    state = 8 * both * (job.width + 3)  # rows, noise, spread, counts
    state += len(job.sides) * 8 * both * job.size  # W and offsets
    # what is shared is made, then sent; what comes back is joined
    driver = state + 2 * shared + own + 2 * back
    blocks = (10 * job.ratings + 24 * both) / K
    index = len(job.sides) * (4 * job.ratings + 24 * both / 2)
    everywhere = blocks + (1 + cluster.cores) * shared
    rows = max(2 * s.own + 3 * s.back for s in found if not s.name.endswith(" W")) / K
    strips = max((2 * s.own + 3 * s.back for s in found if s.name.endswith(" W")), default=0.0)
    strips *= dealt(job.strips, cluster.workers)[::K].sum() / job.strips  # of the first machine
    return Memory(driver, everywhere + rows, everywhere + index + max(rows, strips))


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
    network = (V * cluster.copies + up * sums + V) / cluster.link
    rest = c["driver_row"] * (job.users / K + job.items) + V * (c["put_byte"] + c["copy_byte"])
    rest += 2 * cluster.workers * c["task"]  # this engine has tasks
    blocks = (10 * job.ratings + 24 * (job.users + job.items)) / K
    machine = blocks + 8 * job.users / K * (job.width + 3) + (1 + cluster.cores) * V + 2 * sums
    return Resident(compute + network + rest, compute, network, sums, machine)
