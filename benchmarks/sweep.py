"""The cost of a sweep, as ratios measured in one run.

``python benchmarks/sweep.py [kernel|models|growth|large|start|forms ...]`` prints the tables asked
for, or all. Uses ml-1m and epinions if they are on this machine, else generated data of that size.
"""

from __future__ import annotations

import copy
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numba
import numpy as np
from threadpoolctl import threadpool_limits

import bayesmf
from bayesmf.data.io.load import find
from bayesmf.data.synthetic import World, generate
from bayesmf.evaluation.diagnostics import effective_draws
from bayesmf.kernels.reduce import predict
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data
from bayesmf.model.spec import Model
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.rows import row_prior
from bayesmf.sweep.sweep import gibbs_sweep

NO_SIDE, SIDE = Model.paper("no-side"), Model.paper("side")


def ratings(name: str) -> bayesmf.Ratings:
    if find(name):
        return bayesmf.split(bayesmf.load(name), "paper", seed=0).train
    size = {"ml-1m": (6040, 3500, 700_000), "epinions": (40_000, 140_000, 465_000)}[name]
    return generate(World(*size))[0]


def best(runs: int, *functions: Callable[[], object]) -> list[float]:
    """The shortest time of each, run in turn: A B A B ..."""
    times = [float("inf")] * len(functions)
    for _ in range(runs):
        for k, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[k] = min(times[k], time.perf_counter() - start)
    return times


def sweeper(model: Model, data: Data, form: str = "centred") -> Callable[[], None]:
    state = random_start(model, data, 0)

    def sweep() -> None:
        gibbs_sweep(model, data, state, Draws(0, 0, state.sweep + 1), form)

    for _ in range(3):
        sweep()
    return sweep


def kernel() -> None:
    """Rows of ml-1m's users: Gram, Cholesky, draw, against a large matrix product."""
    numba.set_num_threads(1)
    train = ratings("ml-1m")
    square = np.random.default_rng(0).normal(size=(1500, 1500))
    print("\n| rank | ms a side | GF/s, whole Gram counted | GF/s, half counted | of GEMM's GF/s "
          "| share, whole | share, half |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for rank in (16, 20, 32, 64):
        model = replace(NO_SIDE, rank=rank)
        data = Data.of(train, model)
        state = random_start(model, data, 0)
        prior = row_prior(model, data.user, state.user)
        rows, counter = len(train.by_user.counts), Draws(0).counter()
        ones, out, none = np.ones(rows), state.user.x.copy(), np.empty(0)
        known = OtherSide.of(state.item.x, np.ones(train.n_items), POINTS)

        run = partial(draw_rows, data.user.observed, known, ones, prior, counter, True, out, none,
                      POINTS, none, state.width())  # fmt: skip

        run()
        seconds, product = best(7, run, lambda: square @ square)
        gemm = 2 * 1500**3 / product / 1e9
        size = rank + 1
        solve = rows * (size**3 / 3 + 2 * size**2)
        whole = (2 * len(train) * size**2 + solve) / seconds / 1e9
        half = (len(train) * size * (size + 1) + solve) / seconds / 1e9
        print(f"| {rank} | {1000 * seconds:.1f} | {whole:.1f} | {half:.1f} | {gemm:.1f} "
              f"| {whole / gemm:.0%} | {half / gemm:.0%} |")  # fmt: skip


def models() -> None:
    """Sweeps of the variants on ml-1m and epinions against one without side features."""
    variants = {
        "no side": NO_SIDE,
        "no side, robust": replace(NO_SIDE, precision="robust"),
        "no side, truncated": replace(NO_SIDE, precision="truncated"),
        "no side, student-t": replace(NO_SIDE, prior="student-t"),
        "side": SIDE,
        "side, robust": replace(SIDE, precision="robust"),
        "both sides, robust, joint bias": Model(),
    }
    for name in ("ml-1m", "epinions"):
        train = ratings(name)
        print(f"\n| {name}, rank 20 | ms, 1 thread | of no side | ms, 2 threads | of no side "
              "| 1 thread / 2 |\n|---|---|---|---|---|---|")  # fmt: skip
        times = {}
        for threads in (1, 2):
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            sweeps = [sweeper(model, Data.of(train, model)) for model in variants.values()]
            times[threads] = best(7, *sweeps)
        for k, variant in enumerate(variants):
            one, two = times[1][k], times[2][k]
            print(f"| {variant} | {1000 * one:.1f} | {one / times[1][0]:.2f} | {1000 * two:.1f} "
                  f"| {two / times[2][0]:.2f} | {one / two:.2f} |")  # fmt: skip


def growth() -> None:
    """Generated data of growing size at rank 20, no side features."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    print("\n| ratings | s a sweep | bytes a rating | exponent from the row above |")
    print("|---|---|---|---|")
    before = None
    for size in (100_000, 1_000_000, 10_000_000, 30_000_000):
        data_set, _ = generate(World(size // 150, max(size // 1000, 700), size))
        data = Data.of(data_set, NO_SIDE)
        (seconds,) = best(3, sweeper(NO_SIDE, data))
        state = 8 * 24 * (data_set.n_users + data_set.n_items)
        bytes_each = (data_set.nbytes + state) / len(data_set)
        rate = ""
        if before is not None:
            rate = f"{np.log(seconds / before[1]) / np.log(len(data_set) / before[0]):.2f}"
        print(f"| {len(data_set):,} | {seconds:.3f} | {bytes_each:.1f} | {rate} |", flush=True)
        before = (len(data_set), seconds)


def large() -> None:
    """10^8 generated ratings in memory, and a sweep over them: must fit in 12 GiB."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    begin = time.perf_counter()
    data_set, _ = generate(World(600_000, 50_000, 100_000_000))
    made = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{len(data_set):,} ratings generated in {made:.0f} s, peak {peak:.1f} GiB", flush=True)
    for name, model in (("no side", NO_SIDE), ("both sides, robust", Model())):
        data = Data.of(data_set, model)
        state = random_start(model, data, 0)
        begin = time.perf_counter()
        gibbs_sweep(model, data, state, Draws(0, 0, 1), "centred")
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name}: a sweep in {seconds:.0f} s, peak so far {peak:.1f} GiB", flush=True)
        del data, state


def start() -> None:
    """What a fresh process waits for."""
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    lines = {
        "import bayesmf": "import bayesmf",
        "import numpy": "import numpy",
        "a first fit, compiled code cached": (
            "import bayesmf; r = bayesmf.load('demo'); bayesmf.Gibbs(sweeps=1, burn_in=0).fit(r)"
        ),
    }
    print("\n| in a fresh process | s, three times |\n|---|---|")
    for what, line in lines.items():
        runs = [subprocess.run([sys.executable, "-c", code.format(line)], capture_output=True,
                               text=True, check=True).stdout for _ in range(3)]  # fmt: skip
        print(f"| {what} | {' '.join(f'{float(run):.2f}' for run in runs)} |")


def forms() -> None:
    """Effective draws a second of the three ways to draw side features, after a common burn-in."""
    numba.set_num_threads(1)
    model = SIDE
    for name, burn_in, sweeps in (("ml-1m", 300, 150), ("epinions", 100, 50)):
        train = ratings(name)
        data = Data.of(train, model)
        begun = random_start(model, data, 0)
        for _ in range(burn_in):
            gibbs_sweep(model, data, begun, Draws(0, 0, begun.sweep + 1), "centred")
        print(
            f"\n| {name}, side, rank 20 | s a sweep | ESS of tau | of mean offset^2 "
            "| of log det Lambda_W | of 16 predictions, median | the last, a second "
            "| the smallest, a second |\n|---|---|---|---|---|---|---|---|"
        )
        pairs = slice(None, None, len(train) // 16)
        user, item = train.by_user.row_index[pairs], train.by_user.index[pairs]
        for form in ("centred", "non-centred", "interwoven"):
            state = copy.deepcopy(begun)
            trace, times = [], []
            for _ in range(sweeps):
                begin = time.perf_counter()
                gibbs_sweep(model, data, state, Draws(0, 0, state.sweep + 1), form)
                times.append(time.perf_counter() - begin)
                size = np.linalg.slogdet(state.user.shifts[0].Lambda[1:, 1:])[1]
                fitted = np.empty(len(user))
                predict(user, item, state.user.x, state.item.x, data.mean, fitted)
                trace.append([state.tau, np.mean(state.user.offset**2), size, *fitted])
            seconds = float(np.median(times))
            ess = effective_draws(np.array(trace)[None])
            shown = [*ess[:3], float(np.median(ess[3:]))]
            print(f"| {form} | {seconds:.3f} | " + " | ".join(f"{e:.1f}" for e in shown)
                  + f" | {shown[3] / (seconds * sweeps):.2f} "
                  f"| {min(shown) / (seconds * sweeps):.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    tables = {"kernel": kernel, "models": models, "growth": growth, "large": large, "start": start,
              "forms": forms}  # fmt: skip
    with threadpool_limits(1):
        for name in sys.argv[1:] or tables:
            tables[name]()
