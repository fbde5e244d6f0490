"""What a sweep on Ray costs on clusters that nobody here has: bytes, memory, seconds.

``python benchmarks/scale.py measure`` writes the constants to docs/results/scale-constants.json.
``constants``, ``model``, ``parts``, ``simulate``, ``machines``, ``resident`` and ``check`` print
the tables of docs/scale.md from them. ``measure`` and ``check`` need Ray, and are of this machine.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import product
from pathlib import Path

import numpy as np

from scale_model import (
    SHAPES,
    Cluster,
    Job,
    counts,
    cut,
    driver_seconds,
    job_of,
    memory,
    on_threads,
    resident,
    seconds,
    simulated,
    steps,
    wire,
)

FILE = Path(__file__).parent.parent / "docs" / "results" / "scale-constants.json"
SIZES = (10**8, 10**9, 10**10)
MACHINES = (10, 100)
SLOW = 0.3e9  # bytes a second: one trial of several that disagree, see docs/scale.md
SIDES = {"none": (), "both": ("user", "item")}
CASES = list(product(SIZES, MACHINES))


def head(*cells: str) -> None:
    print()
    row(*cells)
    row(":--", *["--:"] * (len(cells) - 1))


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def gb(value: float) -> str:
    return short(value / 1e9)


def power(size: int) -> str:
    return f"10^{len(str(size)) - 1}"


def load() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))


def formula(job: Job, cluster: Cluster, c: dict) -> float:
    each = (sum(seconds(step, cluster, c)) for step in steps(job, cluster, c))
    return driver_seconds(job, c) + sum(each)


def measure() -> None:
    """Keeps the lesser of what is found and what the file has: run it more than once."""
    from scale_constants import measure as measured
    from scale_constants import solved

    told = {"command": "python benchmarks/scale.py measure", "unit": "seconds on one core"}
    kept = load() if FILE.exists() else told
    for found in measured():
        for name, value in found.items():
            kept[name] = np.minimum(value, kept.get(name, value)).tolist()
        FILE.write_text(json.dumps(solved(kept), indent=1) + "\n", encoding="utf-8")


def constants() -> None:
    """As measured."""
    c = load()
    head("nanoseconds on one core", *(f"from {n:,} rows" for n in c["other_rows"]))
    names = {
        "gram_rating": "a rating in the Gram matrix",
        "offset_rating": "a rating in the offsets",
        "strip_rating": "a rating in one strip of W",
    }
    for name, told in names.items():
        row(told, *(f"{1e9 * value:.1f}" for value in c[name]))
    head("what", "measured")
    for name, told in {
        "row": "factorisation and draw of a row",
        "driver_row": "the driver, a row in a sweep", "driver_row_both": "with side features",
        "round_trip": "a step of one idle worker, there and back",
        "message": "the driver, a worker more in a step", "task": "Ray, a task in a stream of them",
    }.items():  # fmt: skip
        row(told, f"{1e6 * c[name]:.2f} µs")
    for name, told in {
        "put_byte": "into a channel", "copy_byte": "a worker's own copy",
        "return_byte": "a result into a channel", "join_byte": "joining results",
    }.items():  # fmt: skip
        row(told, f"{1e-9 / c[name]:.1f} GB/s")


def model() -> None:
    """Bytes, memory and seconds of a sweep."""
    c = load()
    for shape, (user, item) in SHAPES.items():
        print(f"\n{shape}: {user} ratings a user, {item:,} an item.")
        for told, sides in SIDES.items():
            head(f"side features: {told}", "machines", "GB written by the driver",
                 "GB through its link", "GB, driver", "GB, a machine", "GB, one that draws W",
                 "s a sweep", "of it network", "s if nobody passes it on",
                 "s at 0.3 GB/s")  # fmt: skip
            for size, K in CASES:
                job, cluster = job_of(size, shape, sides), Cluster(K)
                found = steps(job, cluster, c)
                held, total = memory(job, cluster, c), formula(job, cluster, c)
                sent, slow = wire(found, cluster), Cluster(K, link=SLOW)
                alone = formula(job, Cluster(K, passed_on=False), c)
                row(power(size), K, gb(sum(s.shared + s.own for s in found)), gb(sent),
                    gb(held.driver), gb(held.machine), gb(held.first) if sides else "-",
                    short(total), f"{sent / cluster.link / total:.0%}", short(alone),
                    short(formula(job, slow, c)))  # fmt: skip


def parts() -> None:
    """Where the seconds go."""
    c = load()
    for size, K in CASES[1:]:
        job, cluster = job_of(size, "even", SIDES["both"]), Cluster(K)
        head(f"{power(size)}, {K} machines", "publish", "feed", "compute", "longest row", "back",
             "join", "s of the step")  # fmt: skip
        for step in steps(job, cluster, c):
            found = seconds(step, cluster, c)
            longest = "-" if step.name.endswith(" W") else short(step.rating * step.most)
            row(step.name, *map(short, found[:3]), longest, *map(short, (*found[3:], sum(found))))
        row("the driver itself", *["-"] * 6, short(driver_seconds(job, c)))


def simulate() -> None:
    """The formula, which cuts evenly, against the blocks that the code cuts."""
    c = load()
    head("ratings", "machines", "side features", "formula, s", "simulated, s",
         "formula / simulated")  # fmt: skip
    for size in SIZES:
        jobs = {told: job_of(size, "even", sides) for told, sides in SIDES.items()}
        cuts: dict[int, dict] = {K: {} for K in MACHINES}
        for name in ("user", "item"):
            found = counts(jobs["none"], name)
            for K in MACHINES:
                cuts[K][name] = cut(found, jobs["none"], Cluster(K))
            del found
        for K in MACHINES:
            for told, job in jobs.items():
                closed = formula(job, Cluster(K), c)
                played = simulated(job, Cluster(K), c, cuts[K])
                row(power(size), K, told, short(closed), short(played),
                    f"{closed / played:.2f}")  # fmt: skip


def machines() -> None:
    """How many to use."""
    c, several = load(), (1, 2, 3, 4, 7, 10, 15, 20, 50, 100)
    for passed_on in (True, False):
        told = "passed on" if passed_on else "the driver sends every copy"
        head(f"s a sweep, even, {told}; machines:", "side features", "threads of one",
             *map(str, several))  # fmt: skip
        for size, name in product(SIZES, SIDES):
            job = job_of(size, "even", SIDES[name])
            clusters = [Cluster(K, passed_on=passed_on) for K in several]
            row(power(size), name, short(on_threads(job, clusters[0], c)),
                *(short(formula(job, cluster, c)) for cluster in clusters))  # fmt: skip


def user_resident() -> None:
    """Users who stay: a formula, not a measurement."""
    c = load()
    for shape in SHAPES:
        head(f"{shape}, no side features", "machines", "s now", "of it network",
             "s user-resident", "of it network", "GB of items' sums", "GB, a machine now",
             "GB, a machine resident", "resident / now",
             "the same if nobody passes it on")  # fmt: skip
        for size, K in CASES:
            job, cluster = job_of(size, shape, ()), Cluster(K)
            now, then = formula(job, cluster, c), resident(job, cluster, c)
            alone = Cluster(K, passed_on=False)
            without = resident(job, alone, c).total / formula(job, alone, c)
            sent = wire(steps(job, cluster, c), cluster) / cluster.link
            row(power(size), K, short(now), short(sent), short(then.total),
                short(then.network), gb(then.statistics), gb(memory(job, cluster, c).machine),
                gb(then.machine), f"{then.total / now:.2f}", f"{without:.2f}")  # fmt: skip


def check() -> None:
    """Real sweeps here: two workers, nothing on a wire."""
    from scale_constants import PLAIN, SIDE, World, generate, real

    c, cluster = load(), Cluster(1, 2, float("inf"))
    head("data", "side features", "kernels, CPU s: formula", "measured", "formula / measured",
         "sweep, s: simulated", "measured, least", "median", "simulated / least")  # fmt: skip
    shapes = {"like ml-1m": (6040, 3500, 10**6), "2·10^6": (13_333, 4_000, 2 * 10**6)}
    for told, shape in shapes.items():
        ratings = generate(World(*shape))[0]
        by = {"user": ratings.by_user.counts, "item": ratings.by_item.counts}
        for name, fitted in (("none", PLAIN), ("both", SIDE)):
            times, spent = real(ratings, fitted)
            job = Job(len(ratings), ratings.n_users, ratings.n_items, SIDES[name], joint=False,
                      most=(by["user"].max(), by["item"].max()))  # fmt: skip
            cuts = {side: cut(by[side].astype(float), job, cluster) for side in by}
            played = simulated(job, cluster, c, cuts)
            work = sum(step.work for step in steps(job, cluster, c))
            row(told, name, f"{work:.3f}", f"{spent.min():.3f}", f"{work / spent.min():.2f}",
                f"{played:.3f}", f"{times.min():.3f}", f"{np.median(times):.3f}",
                f"{played / times.min():.2f}")  # fmt: skip
    print(f"\nLoad while this ran: {os.getloadavg()[1]:.1f} processes on {os.cpu_count()} cores.")


if __name__ == "__main__":
    tables = {"measure": measure, "constants": constants, "model": model, "parts": parts,
              "simulate": simulate, "machines": machines, "resident": user_resident,
              "check": check}  # fmt: skip
    for name in sys.argv[1:] or tables:
        tables[name]()
