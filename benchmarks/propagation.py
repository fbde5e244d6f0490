"""What posterior propagation loses and takes, on MovieLens 1M beside the exact sampler.

``python benchmarks/propagation.py [sweeps] [row ...]`` prints the table of
docs/guides/propagation.md; a row is ``exact``, ``1x1``, ``gaussians`` (one block, its posterior
replaced by a Gaussian for each row), or a grid with its order, as ``2x2-dense``. One thread: it is
the blocks that would run side by side. Seconds are those of all blocks one after the other, on this
machine and in this minute.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import bayesmf
from bayesmf.fitted.base import SavedFit
from bayesmf.inference.loop import Clock
from bayesmf.inference.propagation.fit import Deal, phases
from bayesmf.machine import using

MODEL = bayesmf.Model.paper("no-side", rank=20)
ROWS = ("exact", "1x1", "gaussians", "2x2-dense", "4x4-dense", "2x2-even", "4x4-even")
LEVELS = (50, 80, 95)


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def path(train: bayesmf.Ratings, grid: tuple[int, int], order: str) -> float:
    """The share of the ratings in the largest blocks of the phases: what no machine can share."""
    users = Deal.of(train.by_user.counts, grid[0], order).group[train.by_user.row_index]
    items = Deal.of(train.by_item.counts, grid[1], order).group[train.by_user.index]
    sizes = np.bincount(users * grid[1] + items, minlength=grid[0] * grid[1]).reshape(grid)
    return sum(max(sizes[cell] for cell in phase) for phase in phases(grid)) / len(train)


def measure(name: str, train: bayesmf.Ratings, test: bayesmf.Ratings, sweeps: int) -> None:
    options = {"sweeps": sweeps, "burn_in": sweeps // 5, "seed": 0, "threads": 1}
    grid, order = (1, 1), "dense"
    if name[0].isdigit():
        cells, _, order = name.partition("-")
        grid = (int(cells.split("x")[0]), int(cells.split("x")[1]))
    sampler = bayesmf.Propagation(MODEL, grid=grid, order=order or "dense", **options)
    started = time.perf_counter()
    if name == "exact":
        fit = bayesmf.Gibbs(MODEL, chains=1, **options).fit(train)
    elif name == "gaussians":
        with using(1):
            fit = SavedFit(sampler.propagate(train, Clock((), None)), threads=1)
    else:
        fit = sampler.fit(train)
    seconds = time.perf_counter() - started
    facts = fit.evaluate(test)
    longest = path(train, grid, order) if max(grid) > 1 else 1.0
    row(name, f"{facts['rmse']:.4f}", *(f"{facts[f'coverage_{k}']:.1%}" for k in LEVELS),
        f"{facts['log_score']:.4f}", f"{longest:.0%}", f"{seconds:.0f}")  # fmt: skip


def main() -> None:
    words = sys.argv[1:]
    sweeps = int(words.pop(0)) if words and words[0].isdigit() else 100
    demo = bayesmf.load("demo")
    compiling = bayesmf.Propagation(MODEL, grid=(1, 1), sweeps=3, burn_in=1)
    compiling.propagate(demo, Clock((), None))
    train, test = bayesmf.split(bayesmf.load("ml-1m"), "paper", seed=0)
    row("fit", "RMSE", *(f"{k}%" for k in LEVELS), "log score", "longest path", "seconds")
    row(":--", *["--:"] * 7)
    for name in words or ROWS:
        measure(name, train, test, sweeps)


if __name__ == "__main__":
    main()
