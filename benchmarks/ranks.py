"""How low the test error goes, by model and rank, on splits of the paper's protocol.

``BAYESMF_DATA=... python benchmarks/ranks.py ml-1m 20 40`` prints a line for each model, rank and
number of sweeps: one chain on each split, the first 100 sweeps left out.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

import bayesmf
from bayesmf import Model

BURN_IN = 100
MODELS = {
    "default": Model.best(),
    "both": replace(Model.best(), precision="constant"),
    "both-truncated": replace(Model.best(), precision="truncated"),
    "no-side": Model(features="user-item"),
}


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("ranks", nargs="+", type=int)
    parser.add_argument("--models", default="default", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--splits", type=numbers, default=[0, 1, 2])
    parser.add_argument("--sweeps", type=numbers, default=[400, 800])
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    splits = " ".join(map(str, asked.splits))
    print(f"| model | rank | sweeps | test RMSE, splits {splits} | mean |\n"
          "| :-- | --: | --: | --: | --: |", flush=True)  # fmt: skip
    for name in asked.models.split(","):
        for rank in asked.ranks:
            curves = []
            for split in asked.splits:
                train, test = bayesmf.split(bayesmf.load(asked.data), "paper", seed=split)
                sampler = bayesmf.Gibbs(
                    replace(MODELS[name], rank=rank), sweeps=asked.sweeps[-1], burn_in=BURN_IN,
                    seed=split, keep=1, threads=asked.threads,
                )  # fmt: skip
                curves.append(sampler.fit(train, test).rmse_by_sweep)
            for sweeps in asked.sweeps:
                found = [curve[sweeps - 1] for curve in curves]
                told = " ".join(f"{error:.4f}" for error in found)
                print(f"| {name} | {rank} | {sweeps} | {told} | {np.mean(found):.4f} |", flush=True)


if __name__ == "__main__":
    main()
