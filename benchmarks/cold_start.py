"""How well newcomers are predicted: ``BAYESMF_DATA=... python benchmarks/cold_start.py ml-1m``.

A tenth of the users (``--side item``: of the items) with more than twenty ratings are held out of
training, as in the study's experiment "cold-start", and folded in from some of their ratings. For
each model and each number of ratings given it prints test RMSE, the share of test ratings inside
80 % intervals, log score and seconds of folding in. At the end it says whether the default model
has the lowest error, or one that a paired bootstrap of the newcomers cannot tell from the lowest.
With ``--attributes``, for ml-1m, the default model with attributes is measured too, and compared
with the default model alone.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np

import bayesmf
from attributes import item_attributes, user_attributes
from bayesmf.evaluation.bootstrap import lowest_of, paired_change
from bayesmf.fitted.base import Fitted
from bayesmf.study.cold_start import ColdStart
from bayesmf.study.specs import COLD, COLD_ATTRIBUTES, NEW, Lengths, Tables, cold_start

Squares = dict[Any, dict[str, np.ndarray]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--side", choices=NEW, default="user", help="who is new")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", choices=COLD, default=list(COLD))
    parser.add_argument("--attributes", nargs="+", choices=NEW, default=[],
                        help="of ml-1m: whose, for the default model with attributes")  # fmt: skip
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--sweeps", type=int, help="the study's if not given")
    parser.add_argument("--burn-in", type=int, help="the study's, at most half the sweeps")
    parser.add_argument("--keep", type=int, help="draws; the study's if not given")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    if asked.attributes and asked.data != "ml-1m":
        parser.error("--attributes is for ml-1m; leave it out")
    return asked


def tables_of(asked: argparse.Namespace) -> Tables:
    """The tables of attributes that are asked for."""
    read = {"user": user_attributes, "item": item_attributes}
    return {side: read[side](asked.data) for side in NEW if side in asked.attributes}


def lengths_of(asked: argparse.Namespace) -> Lengths:
    """The study's lengths for these data, or what is asked for instead."""
    found = Lengths.of(asked.data, quick=False, rank=asked.rank)
    sweeps = asked.sweeps or found.cold
    burn_in = min(found.burn_in, sweeps // 2) if asked.burn_in is None else asked.burn_in
    keep = min(asked.keep or found.keep, sweeps - burn_in)
    return replace(found, cold=sweeps, burn_in=burn_in, keep=keep)


def main() -> None:
    asked = options()
    lengths = lengths_of(asked)
    new = ColdStart.hold_out(bayesmf.load(asked.data), asked.seed, asked.side)
    print(f"{asked.data}, new {asked.side}s, seed {asked.seed}, rank {lengths.rank}, one chain of "
          f"{lengths.cold} sweeps, {lengths.burn_in} of them burn-in, {lengths.keep} draws\n\n"
          f"| model | given | new {asked.side}s | test ratings | RMSE | inside 80 % | log score | "
          "seconds |\n| :-- | --: | --: | --: | --: | --: | --: | --: |", flush=True)  # fmt: skip
    squares: Squares = {given: {} for given in new.numbers}
    tables = tables_of(asked)
    for name in [*asked.models, *([COLD_ATTRIBUTES] if tables else [])]:
        run = cold_start(name, lengths, asked.side, tables)
        sampler = bayesmf.Gibbs(run.model, chains=1, until="sweeps", seed=asked.seed,
                                threads=asked.threads, **run.settings)  # fmt: skip
        measure(name, sampler.fit(new.train), new, asked.seed, squares)
    for names in (asked.models, ["default", COLD_ATTRIBUTES] if tables else []):
        if "default" in asked.models and len(names) > 1:
            judge({g: {n: found[n] for n in names} for g, found in squares.items()}, "given")


def measure(name: str, fit: Fitted, new: ColdStart, seed: int, squares: Squares) -> None:
    """Print a line for each number of ratings given, and keep the squared errors."""
    for given in new.numbers:
        began = time.perf_counter()
        folded = new.fold_in(fit, given, seed)
        seconds = time.perf_counter() - began
        facts, squares[given][name] = new.measure(folded, given)
        print(f"| {name} | {given} | {facts['newcomers']:,} | {facts['test_ratings']:,} | "
              f"{facts['rmse']:.4f} | {facts['coverage_80']:.1%} | {facts['log_score']:.4f} | "
              f"{seconds:.2f} |", flush=True)  # fmt: skip


def judge(squares: Squares, each: str) -> None:
    """Compare the default model with the one that has the lowest error, for each group of tests."""
    print(f"\n| {each} | lowest | default above the lowest by, % | default |\n"
          "| --: | :-- | --: | :-- |")  # fmt: skip
    for given, found in squares.items():
        best, alike = lowest_of(found)
        if best == "default":
            others = ", ".join(alike) or "no other model"
            print(f"| {given} | default |  | lowest; within the interval: {others} |")
            continue
        more = paired_change(found[best], found["default"])
        above = f"{-more.value:.2f} [{-more.high:.2f}, {-more.low:.2f}]"
        word = "within the interval" if "default" in alike else "higher"
        print(f"| {given} | {best} | {above} | {word} |")


if __name__ == "__main__":
    main()
