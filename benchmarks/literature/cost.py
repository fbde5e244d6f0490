"""What a sweep costs: the models in turn, and ratios to the default within each round."""

from __future__ import annotations

import json
import time
from statistics import median

import numpy as np

import bayesmf
from bayesmf.inference.loop import Progress
from literature import variants
from literature.runs import ROOT, describe_run
from literature.tables import NOTHING, markdown, notes

MODELS = ("default", "chain", "global", "ordinal")
FIRST, MORE = 15, 15  # sweeps of a turn that are not timed, and that are
ROUNDS = 5


def time_sweeps(model: bayesmf.Model, train: bayesmf.Ratings, threads: int, seed: int) -> float:
    """The median of the seconds of a sweep, after some that compile, start and settle."""
    ends: list[float] = []

    def watch(progress: Progress) -> None:
        ends.append(time.perf_counter())

    bayesmf.Gibbs(model, sweeps=FIRST + MORE, chains=1, keep=0, seed=seed,
                  threads=threads).fit(train, callbacks=[watch])  # fmt: skip
    return float(np.median(np.diff(ends[FIRST - 1 :])))


def run(names: list[str], rank: int, threads: int, rounds: int) -> None:
    """Time every model in every round, A B A B, and store it."""
    train = bayesmf.split(bayesmf.load("ml-1m"), "paper", seed=0).train
    models = {name: variants.make(name, rank, "ml-1m") for name in ["default", *names]}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds):
        for name, model in models.items():
            seconds[name].append(time_sweeps(model, train, threads, turn))
            print(f"round {turn}, {name}: {1000 * seconds[name][-1]:.1f} ms", flush=True)
    ROOT.mkdir(parents=True, exist_ok=True)
    record = {"seconds": seconds, "rank": rank, "threads": threads, "seed": 0, **describe_run()}
    (ROOT / "sweep-cost.json").write_text(json.dumps(record, indent=1))


def ratios(seconds: list[float], of: list[float]) -> list[float]:
    """Round by round, so that what slows the machine for a while cancels."""
    return sorted(mine / theirs for mine, theirs in zip(seconds, of, strict=True))


def report() -> str:
    path = ROOT / "sweep-cost.json"
    if not path.exists():
        return NOTHING
    record = json.loads(path.read_text())
    rows = []
    for name, seconds in record["seconds"].items():
        each = ratios(seconds, record["seconds"]["default"])
        spread = f"{each[0]:.2f} to {each[-1]:.2f}"
        rows.append([variants.words(name), f"{1000 * median(seconds):.1f}", f"{median(each):.2f}",
                     spread])  # fmt: skip
    head = ["model", "ms a sweep, median", "of the default's, median of paired ratios", "range"]
    told = (f"MovieLens 1M, the paper's split, rank {record['rank']}, {record['threads']} threads, "
            f"{len(record['seconds']['default'])} rounds.")  # fmt: skip
    return "\n\n".join([markdown(head, rows), told, notes([record])])
