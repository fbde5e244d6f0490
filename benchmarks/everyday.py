"""What a user meets every day, measured on MovieLens 1M: intervals, new users, memory, speed.

``python benchmarks/everyday.py [coverage] [fold-in] [visitors] [recommend] [memory]`` prints tables
for docs/results/everyday.md. Seconds are this machine's and this minute's.

``visitors --against FOLDER`` measures the package of another source folder in turn with this one,
``--fits FOLDER`` keeps the model that both fold into, and ``--threads`` says on how many threads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import bayesmf
from bayesmf.data.split import Split, cold_start, generator, rank_within_user
from bayesmf.data.synthetic import World, generate

SIDE = bayesmf.Model.paper("side", rank=20)
MODELS = {"side": SIDE, "default": bayesmf.Model(rank=20)}
LEVELS = (50, 80, 95)
GIVEN = (1, 2, 5, 10, 20)
HELD_OUT = 500
BIG = 20_000_000
TURNS = 3  # of measurements in turn
VISITORS, FEW = 200, 5  # who come one at a time, and their ratings
PATIENCE = 20.0  # seconds for all visitors
CHILD = """
import runpy, sys
try:
    runpy.run_module("bayesmf", run_name="__main__", alter_sys=True)
finally:  # getrusage would tell that of the process which started this one, if it was larger
    print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells: str) -> None:
    row(*cells)
    row(":--", *["--:"] * (len(cells) - 1))


def coverage() -> None:
    """Test ratings inside their intervals, overall and by how much the user rated."""
    train, test = bayesmf.split(bayesmf.load("ml-1m"), "paper", seed=0)
    for name, model in MODELS.items():
        fit = bayesmf.Gibbs(model, sweeps=400, chains=2, seed=0).fit(train)
        facts = fit.evaluate(test)
        print(f"\n{name}, 2 chains of 400 sweeps, seed 0\n")
        head("ratings of the user", "test ratings", "RMSE", *(f"{k}%" for k in LEVELS))
        everyone = {**facts, "user_ratings": "all", "test_ratings": len(test)}
        for part in (everyone, *facts["by_user_frequency"]):
            shares = (f"{part[f'coverage_{k}']:.1%}" for k in LEVELS)
            row(part["user_ratings"], f"{part['test_ratings']:,}", f"{part['rmse']:.4f}", *shares)


def without_some() -> tuple[bayesmf.Ratings, Split]:
    """All ratings, and the same without some users, of whom a few ratings are given."""
    kept = bayesmf.load("ml-1m").drop_unused()
    able = int((kept.by_user.counts > max(GIVEN)).sum())
    return kept, cold_start(kept, 0, HELD_OUT / able, max(GIVEN))


def fold_in() -> None:
    """The error on users held out entirely, folded in and in a refit with their few ratings."""
    kept, cut = without_some()
    # in the order of random keys, so that the few ratings are among the many
    order = rank_within_user(cut.given, generator(0, 2).random_raw(len(cut.given)))
    algorithm = bayesmf.Gibbs(MODELS["default"], sweeps=200, seed=0, chains=1)
    base = algorithm.fit(cut.train.drop_unused())
    print(f"\ndefault, 200 sweeps, seed 0, {HELD_OUT} users, {len(cut.test):,} test ratings\n")
    head("ratings given", "folded in", "refitted", "difference")
    for given in GIVEN:
        few = cut.given.select(order < given)
        both = kept.select(np.isin(_keys(kept), np.append(_keys(cut.train), _keys(few))))
        quick = base.fold_in(few.drop_unused()).evaluate(cut.test)["rmse"]
        slow = algorithm.fit(both).evaluate(cut.test)["rmse"]
        row(given, f"{quick:.4f}", f"{slow:.4f}", f"{quick - slow:+.4f}")


def visitors(fits: Path | None, against: str | None, numbers: list[int]) -> None:
    """New users at once and one at a time, folded in by this source and by another in turn."""
    with tempfile.TemporaryDirectory() as name:
        model = (fits or Path(name)) / "visitors"
        if not model.exists():
            train = without_some()[1].train.drop_unused()
            bayesmf.Gibbs(MODELS["default"], sweeps=200, seed=0, chains=1).fit(train).save(model)
        print(f"\n{HELD_OUT} users with {max(GIVEN)} ratings each at once; visitors with {FEW} "
              f"ratings one at a time, without and with predictions of ten items\n")  # fmt: skip
        head("source", "threads", "first s", "users a second", "of one core", "visitor p50 ms",
             "p99 ms", "of one core", "with predictions")  # fmt: skip
        here = str(Path(bayesmf.__file__).parents[1])
        for threads in numbers:
            for _ in range(TURNS):
                for source in (against, here) if against else (here,):
                    words = [sys.executable, __file__, "visit", "--fits", str(model)]
                    own = {"PYTHONPATH": source, "NUMBA_NUM_THREADS": str(threads)}
                    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True,
                                          env={**os.environ, **own})  # fmt: skip
                    row("this" if source == here else "other", threads, *done.stdout.split())


def visit(model: Path) -> None:
    """The figures of one process: what ``visitors`` prints after the source and the threads."""
    given = without_some()[1].given.drop_unused()
    fit = bayesmf.load_model(model)
    first, _ = _seconds(lambda: fit.fold_in(given))
    clock, core = np.median([_seconds(lambda: fit.fold_in(given)) for _ in range(5)], axis=0)
    times, items = [], given.items.values[:10]
    for number in range(VISITORS):
        one = given.select(np.arange(FEW) + number * max(GIVEN)).drop_unused()
        pairs = [(one.users.values[0], item) for item in items]
        alone = _seconds(lambda one=one: fit.fold_in(one))
        both = _seconds(lambda one=one, pairs=pairs: fit.fold_in(one).predict(pairs))
        times.append((*alone, both[0]))
        if np.sum(times) > PATIENCE:
            break
    middle, own, asked = 1000 * np.median(times[len(times) > 9 :], axis=0)
    print(f"{first:.1f} {len(given.users) / clock:,.0f} {len(given.users) / core:,.0f} "
          f"{middle:.1f} {1000 * np.quantile(np.array(times)[len(times) > 9 :, 0], 0.99):.1f} "
          f"{own:.1f} {asked:.1f}")  # fmt: skip


def _keys(ratings: bayesmf.Ratings) -> np.ndarray:
    """One number for each pair of a user and an item."""
    rows = ratings.by_user
    return rows.row_index.astype(np.int64) * ratings.n_items + rows.index


def recommend() -> None:
    """Ten items for each user of all that there are, and the matrix product alone."""
    train, _ = bayesmf.split(bayesmf.load("ml-1m"), "paper", seed=0)
    fit = bayesmf.Gibbs(SIDE, sweeps=200, seed=0, chains=1).fit(train)
    draws = fit.posterior.draws["user.x"]
    wide = len(draws) * (SIDE.size + 1)
    x, y = (np.ones((n, wide), np.float32) for n in (train.n_users, train.n_items))
    print(f"\n{train.n_users:,} users, {train.n_items:,} items, {len(draws)} draws, best of 5\n")
    head("rank_by", "seconds", "of the product of all draws")
    limit = min(_seconds(lambda: [x[k : k + 500] @ y.T for k in range(0, len(x), 500)])[0]
                for _ in range(5))  # fmt: skip
    for by in ("mean", "lower", "thompson"):
        fit.recommend(n=10, rank_by=by)
        best = min(_seconds(lambda by=by: fit.recommend(n=10, rank_by=by))[0] for _ in range(5))
        row(by, f"{best:.2f}", f"{best / limit:.1f}")


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """How long it takes by the clock, and the time of all cores together."""
    clock, core = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - core


def memory() -> None:
    """Peak memory of the commands, each a process of its own, file to file."""
    with tempfile.TemporaryDirectory() as name:
        for data in ("ml-1m", "2·10^7"):
            folder = Path(name) / data
            folder.mkdir()
            ratings = bayesmf.load("ml-1m") if data == "ml-1m" else generate(
                World(n_users=BIG // 150, n_items=BIG // 500, n_ratings=BIG))[0]  # fmt: skip
            _measure(data, ratings, folder)


def _measure(data: str, ratings: bayesmf.Ratings, folder: Path) -> None:
    import pyarrow.parquet

    path, pairs, model = folder / "ratings.parquet", folder / "pairs.parquet", folder / "fit"
    table = ratings.to_arrow()
    pyarrow.parquet.write_table(table, path)
    pyarrow.parquet.write_table(table.slice(0, 1_000_000).select([0, 1]), pairs)
    print(f"\n{data}: {len(ratings):,} ratings of {ratings.n_items:,} items by "
          f"{ratings.n_users:,} users, {ratings.nbytes / 1e6:,.0f} MB in memory\n")  # fmt: skip
    del table, ratings
    head("command", "peak MB", "seconds")
    for words in (
        f"data describe {path}",
        f"fit {path} --paper side --rank 20 --sweeps 30 --burn-in 20 --out {model}",
        f"predict {model} {pairs} --out {folder / 'predictions.parquet'}",
        f"recommend {model} --out {folder / 'best.parquet'}",
    ):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", CHILD, *words.split()], check=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True)  # fmt: skip
        peak = int(done.stderr.split()[-1]) / 1024
        row(words.split()[0], f"{peak:,.0f}", f"{time.perf_counter() - started:.0f}")


if __name__ == "__main__":
    parts = {"coverage": coverage, "fold-in": fold_in, "visitors": visitors,
             "recommend": recommend, "memory": memory}  # fmt: skip
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*parts, "visit"])
    parser.add_argument("--fits", type=Path)
    parser.add_argument("--against")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    for part in asked.parts or parts:
        if part == "visit":
            visit(asked.fits)
        elif part == "visitors":
            visitors(asked.fits, asked.against, asked.threads)
        else:
            parts[part]()
