"""How long one request of a loaded model takes, on MovieLens 1M.

``python benchmarks/latency.py [--models default time ordinal] [--fits FOLDER]`` prints the table of
docs/results/everyday.md: each kind of request many times, one at a time, in one process with one
thread; by the clock, and how much of a core that took. The models are fitted once and kept in
``--fits``. ``--against FOLDER`` measures the package of another source folder in turn with this
one. Milliseconds are this machine's and this hour's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import bayesmf

MODELS = {
    "default": bayesmf.Model(rank=20),
    "time": bayesmf.Model(rank=20, time="chain"),
    "ordinal": bayesmf.Model(rank=20, likelihood="ordinal"),
}
SWEEPS, DRAWS = 120, 100
TIMES = {"default": 60}  # of each request in a turn; fewer where one takes longer
FEW_TIMES = 10
WARM_UP = 3  # requests that compile, and measure what is kept from then on
TURNS = 2
GIVEN = 5  # ratings of a visitor
MANY = 100  # pairs predicted together
Request = Callable[[int], object]


def find_fit(name: str, folder: Path) -> Path:
    """Return the path of a fit; it is made if it is not there yet."""
    path = folder / name
    if not path.exists():
        gibbs = bayesmf.Gibbs(
            MODELS[name], sweeps=SWEEPS, burn_in=SWEEPS - DRAWS, chains=1, seed=0, threads=1
        )
        gibbs.fit(bayesmf.load("ml-1m")).save(path)
    return path


def requests(path: Path) -> Iterator[tuple[str, Request]]:
    """Yield the kinds of requests, each a function of the number of the request."""
    fit, random = bayesmf.load_model(path, threads=1), np.random.default_rng(0)
    users, items = fit.posterior.users.values, fit.posterior.items.values
    user, item = random.choice(users, 1000), random.choice(items, 1000)

    def visit(number: int) -> object:
        rated = random.choice(items, GIVEN, replace=False)
        visitor = int(users.max()) + 1 + number
        stars = random.integers(1, 6, GIVEN)
        rows = pa.table({"user": [visitor] * GIVEN, "item": rated, "rating": stars, **now(GIVEN)})
        return fit.fold_in(rows).recommend(visitor)

    def update(number: int) -> object:
        rows = {"user": user[[number]], "item": item[[number]], "rating": [4], **now(1)}
        return fit.update(pa.table(rows))

    def now(rows: int) -> dict[str, list[int]]:
        return {"time": [1_046_454_590] * rows} if "time" in path.name else {}

    def pairs(number: int, count: int) -> list[tuple[int, int]]:
        at = number + np.arange(count)
        return list(zip(user[at].tolist(), item[at].tolist(), strict=True))

    yield "predict one pair", lambda number: fit.predict(pairs(number, 1))
    yield f"predict {MANY} pairs", lambda number: fit.predict(pairs(number, MANY))
    yield "recommend to one user", lambda number: fit.recommend(int(user[number]))
    yield f"fold in a visitor with {GIVEN} ratings, recommend to them", visit
    yield "update with one rating", update


def measure(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Return the milliseconds of every request, by its kind: of the clock, and of one core."""
    found: dict[str, list[tuple[float, float]]] = {}
    times = TIMES.get(path.name, FEW_TIMES)
    for kind, ask in requests(path):
        found[kind] = []
        for number in range(times + WARM_UP):
            clock, core = time.perf_counter(), time.process_time()
            ask(number)
            spent = time.perf_counter() - clock, time.process_time() - core
            found[kind].append((1000 * spent[0], 1000 * spent[1]))
        found[kind] = found[kind][WARM_UP:]
    return found


def compare(path: Path, sources: list[str]) -> None:
    """Print a table of one model: the milliseconds of each source, measured in turn."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(TURNS):
        for source in sources:
            own = {"PYTHONPATH": source, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            words = [sys.executable, __file__, "--measure", str(path)]
            done = subprocess.run(
                words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **own}
            )
            for kind, times in json.loads(done.stdout).items():
                found.setdefault((kind, source), []).extend(times)
    figures = ("p50", "p99", "p50 of a core")
    columns = [f"{what}{of}" for of in ("", ", before")[: len(sources)] for what in figures]
    print(f"\n| {path.name}, ms | " + " | ".join(columns) + " |")
    print("| :-- |" + " --: |" * len(columns))
    for kind in dict.fromkeys(kind for kind, _ in found):
        row = []
        for source in sources:
            clock, core = np.transpose(found[kind, source])
            row += [*np.quantile(clock, [0.5, 0.99]), np.median(core)]
        print(f"| {kind} | " + " | ".join(f"{figure:.1f}" for figure in row) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["default"])
    parser.add_argument("--fits", type=Path, default=Path(".bench/latency"))
    parser.add_argument("--against")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure)))
    else:
        here = str(Path(bayesmf.__file__).parents[1])
        for name in asked.models:
            compare(find_fit(name, asked.fits), [here, *filter(None, [asked.against])])
