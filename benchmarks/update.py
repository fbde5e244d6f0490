"""New ratings of known users without a refit, measured on MovieLens 1M: speed and error.

``python benchmarks/update.py [--fits FOLDER]`` prints the tables of docs/results/everyday.md. It
makes two fits of the default model, on all training ratings and without some ratings of some users;
with ``--fits`` it keeps them in a folder, and reads them from there if they are in it already.
Milliseconds are this machine's and this minute's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import bayesmf
from bayesmf.data.split import rank_within_user

USERS = 500  # who lose ratings
LOST = 10  # ratings that each of them loses
UPDATES = 200  # of one rating each
WARM_UP = 5


def find_fits(folder: Path | None) -> tuple[bayesmf.Ratings, bayesmf.Ratings, list]:
    """Return the lost ratings, the test ratings of those users, and the fits: all and fewer."""
    train, test = bayesmf.split(bayesmf.load("ml-1m"), "paper", seed=0)
    random = np.random.default_rng(0)
    able = np.flatnonzero(train.by_user.counts >= 2 * LOST)
    chosen = np.zeros(train.n_users, bool)
    chosen[random.choice(able, USERS, replace=False)] = True
    order = rank_within_user(train, random.integers(0, 1 << 62, len(train)).astype(np.uint64))
    lost = chosen[train.by_user.row_index] & (order < LOST)
    fits = []
    for name, part in (("fewer", train.select(~lost)), ("all", train)):
        path = None if folder is None else folder / name
        if path is not None and path.exists():
            fits.append(bayesmf.load_model(path))
            continue
        fits.append(bayesmf.Gibbs(bayesmf.Model(rank=20), sweeps=60, chains=4, seed=0).fit(part))
        if path is not None:
            fits[-1].save(path)
    return train.select(lost), test.select(chosen[test.by_user.row_index]), fits


def measure_speed(fit: bayesmf.SavedFit, lost: bayesmf.Ratings) -> None:
    """Print the milliseconds of updates with one rating each: of the clock, and of one core.

    The first of them measures the prior of the rows, and some more are a warm-up.
    """
    positions = np.random.default_rng(1).choice(len(lost), UPDATES + WARM_UP, replace=False)
    times = []
    for position in positions:
        one = lost.select(np.array([position])).drop_unused()
        clock, core = time.perf_counter(), time.process_time()
        fit.update(one)
        times.append((time.perf_counter() - clock, time.process_time() - core))
    print(f"\n{UPDATES} updates of one rating, {len(fit.posterior)} draws; the first took "
          f"{times[0][0]:.1f} s, {times[0][1]:.1f} s of one core\n")  # fmt: skip
    print("| time | p50 ms | p99 ms |\n| :-- | --: | --: |")
    for name, column in zip(("clock", "one core"), np.transpose(times[WARM_UP:]), strict=True):
        middle, last = 1000 * np.quantile(column, [0.5, 0.99])
        print(f"| {name} | {middle:.0f} | {last:.0f} |", flush=True)


def measure_error(fits: list, lost: bayesmf.Ratings, test: bayesmf.Ratings) -> None:
    """Print the errors on the test ratings of those who lost ratings and got them back."""
    fewer, everything = fits
    print(f"\n{USERS} users who lose {LOST} ratings each, {len(test):,} test ratings of theirs\n")
    print("| fit | RMSE | against all | coverage of 80 % |\n| :-- | --: | --: | --: |")
    best = everything.evaluate(test)["rmse"]
    for name, fit in {
        "all ratings": everything,
        "without the lost ratings": fewer,
        "updated, users": fewer.update(lost),
        "updated, both sides": fewer.update(lost, side="both"),
    }.items():
        facts = fit.evaluate(test)
        shown = f"{facts['rmse']:.4f} | {facts['rmse'] - best:+.4f} | {facts['coverage_80']:.1%}"
        print(f"| {name} | {shown} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=Path)
    lost, test, fits = find_fits(parser.parse_args().fits)
    measure_speed(fits[0], lost)
    measure_error(fits, lost, test)
