"""Errors of MAP and variational inference, and what a MAP start does for sampling.

``python benchmarks/deterministic.py DATA SEED [map|vi|printed|gibbs|cost ...]`` prints a line of
JSON for every run: paper's protocol, rank 20, one thread. On other data than ml-1m, variational
inference is run with constant precisions and fewer updates.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import bayesmf
from bayesmf import MAP, Gibbs, Model, Variational
from bayesmf.inference.variational.fit import MeanField
from bayesmf.model.data import Data
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep, sweep

NONE, NO_SIDE, SIDE = (Model.paper(features) for features in ("none", "no-side", "side"))
PRECISIONS = ("constant", "robust", "truncated")
UPDATES = 60 if sys.argv[1] == "ml-1m" else 25
ONLY: list[str] = []  # of the models: `vi:side` or `vi:no features+no side`


def show(what: str, **facts: object) -> None:
    rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in facts.items()}
    print(json.dumps({"run": what, **rounded}), flush=True)


def maximum(train: bayesmf.Ratings, test: bayesmf.Ratings, seed: int) -> None:
    for name, model in (("no features", NONE), ("no side", NO_SIDE), ("side", SIDE)):
        for method in ("momentum", "coordinate"):
            fit = MAP(model, method=method, seed=seed, threads=1).fit(train, test)
            show(f"MAP by {method}, {name}", rmse=fit.test_rmse, penalty=fit.penalty,
                 sweeps=fit.sweeps, seconds=fit.seconds)  # fmt: skip


def report(what: str, algorithm: Variational, train, test, start) -> None:
    fit = algorithm.fit(train, test, start=start)
    errors, bounds = fit.trace["test rmse"], fit.trace["bound"]
    least = min(errors)
    span = [i for i in range(1, len(bounds)) if abs(bounds[i] - bounds[i - 1]) < 1e-5 * -bounds[i]]
    ranges = {name: round(values[-1], 3) for name, values in fit.trace.items()
              if "precision," in name}  # fmt: skip
    show(what, least=least, at=errors.index(least) + 1, end=errors[-1], updates=fit.sweeps,
         bound=bounds[-1], bound_within_1e_5_at=span[0] + 1 if span else None,
         seconds=fit.seconds, **ranges)  # fmt: skip


def variational(train: bayesmf.Ratings, test: bayesmf.Ratings, seed: int) -> None:
    both = ("map-driven", "default")
    for name, model, priors, precisions in (
        ("no features", NONE, ("default",), ("constant",)),
        ("no side", NO_SIDE, both, PRECISIONS),
        ("side", SIDE, both, PRECISIONS),
        ("no side, joint bias", replace(NO_SIDE, bias="joint"), ("default",), PRECISIONS[1:]),
        ("both sides, joint bias, p 1/2", Model(), ("default",), ("robust",)),
    ):
        if ONLY and name not in ONLY:
            continue
        start = MAP(model, seed=seed, threads=1).fit(train).state
        for prior in priors:
            for precision in precisions if sys.argv[1] == "ml-1m" else precisions[:1]:
                variant = replace(model, precision=precision)
                algorithm = Variational(variant, sweeps=UPDATES, prior=prior, seed=seed,
                                        threads=1)  # fmt: skip
                report(f"VI, {name}, {precision}, {prior} prior", algorithm, train, test, start)


def printed(train: bayesmf.Ratings, test: bayesmf.Ratings, seed: int) -> None:
    """The updates as the paper prints them, and its clamped precisions, from the same start."""
    start = MAP(NO_SIDE, seed=seed, threads=1).fit(train).state
    for precision in PRECISIONS:
        algorithm = Variational(replace(NO_SIDE, precision=precision), sweeps=UPDATES,
                                prior="map-driven", moments="first", seed=seed,
                                threads=1)  # fmt: skip
        report(f"VI as printed, no side, {precision}", algorithm, train, test, start)
    clamped = Variational(replace(NO_SIDE, precision="truncated"), sweeps=UPDATES,
                          prior="map-driven", clamp=True, seed=seed, threads=1)  # fmt: skip
    report("VI, truncated by clamping, no side", clamped, train, test, start)


def starts(train: bayesmf.Ratings, test: bayesmf.Ratings, seed: int) -> None:
    """Sweeps and seconds to an error of the mean prediction, from both starts, in turn."""
    for start in ("random", "map"):
        reached: dict[float, tuple[int, float]] = {}

        def watch(progress, reached=reached) -> None:
            for level in (0.850, 0.845, 0.843):
                if progress.stage == "sampling" and progress.rmse <= level:
                    reached.setdefault(level, (progress.sweep, round(progress.seconds, 1)))

        fit = Gibbs(NO_SIDE, sweeps=200, burn_in=5, seed=seed, threads=1, chains=1).fit(
            train, test, start=start, callbacks=[watch]
        )
        show(f"Gibbs, no side, from a {start} start", reached=reached,
             rmse=fit.rmse_by_sweep[-1], seconds=fit.seconds)  # fmt: skip


def cost(train: bayesmf.Ratings, test: bayesmf.Ratings, seed: int) -> None:
    """Seconds of an update and of a sweep, in turn."""
    for name, model in (("no side", NO_SIDE), ("side", SIDE)):
        data = Data.of(train, model)
        state, drawn, q = random_start(model, data, 0), random_start(model, data, 0), None
        q = MeanField(model, data)
        times: list[list[float]] = [[], []]
        for k in range(6):
            begin = time.perf_counter()
            sweep(model, data, state, q)
            middle = time.perf_counter()
            gibbs_sweep(model, data, drawn, Draws(0, 0, k), "centred")
            times[0].append(middle - begin)
            times[1].append(time.perf_counter() - middle)
        update, draw = (min(t) for t in times)
        show(f"cost, {name}", update=update, sweep=draw, ratio=update / draw)


if __name__ == "__main__":
    parts = {"map": maximum, "vi": variational, "printed": printed, "gibbs": starts, "cost": cost}
    cut = bayesmf.split(bayesmf.load(sys.argv[1]), "paper", seed=int(sys.argv[2]))
    for part in sys.argv[3:] or parts:
        part, _, only = part.partition(":")
        ONLY.extend(only.split("+") if only else [])
        parts[part](cut.train, cut.test, int(sys.argv[2]))
