"""How low the error goes, by model, rank and prior, on splits of the paper's protocol.

``BAYESMF_DATA=... python benchmarks/ranks.py ml-1m 20 40`` prints a line for each model, rank and
number of sweeps: one chain on each split, the first 100 sweeps left out. ``--held-out`` judges on a
tenth of the training ratings, for choices that the test ratings may not make.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product

import numpy as np

import bayesmf
from bayesmf import Model
from bayesmf.data.split import carve
from bayesmf.evaluation.metrics import log_score

MODELS = {
    "default": Model(),
    "both": replace(Model(), precision="constant"),
    "both-truncated": replace(Model(), precision="truncated"),
    "no-side": Model.paper("no-side"),
    "no-side-robust": Model.paper("no-side", "robust"),
}


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("ranks", nargs="+", type=int)
    parser.add_argument("--models", default="default", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--shapes", type=numbers, default=[None],
                        help="of the precisions' prior Gamma(shape, shape)")  # fmt: skip
    parser.add_argument("--splits", type=numbers, default=[0, 1, 2])
    parser.add_argument("--sweeps", type=numbers, default=[400, 800])
    parser.add_argument("--burn-in", type=int, default=100)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def main() -> None:
    asked = options()
    told = "held-out" if asked.held_out else "test"
    splits = " ".join(map(str, asked.splits))
    print(f"| model | rank | shape | sweeps | {told} RMSE, splits {splits} | mean | log score |\n"
          "| :-- | --: | --: | --: | --: | --: | --: |", flush=True)  # fmt: skip
    for name, rank, shape in product(asked.models.split(","), asked.ranks, asked.shapes):
        model = replace(MODELS[name], rank=rank)
        if shape is not None:
            model = replace(model, precision_prior=(shape, shape))
        curves, scores = [], []
        for split in asked.splits:
            train, test = bayesmf.split(bayesmf.load(asked.data), "paper", seed=split)
            if asked.held_out:
                train, test = carve(train, 0.1, split)
            sampler = bayesmf.Gibbs(model, sweeps=asked.sweeps[-1], burn_in=asked.burn_in,
                                    seed=split, keep=1, threads=asked.threads,
                                    chains=1)  # fmt: skip
            fit = sampler.fit(train, test)
            curves.append(fit.rmse_by_sweep)
            known = fit.predictions
            scores.append(log_score(test.values, known.mean, known.rating_sd).mean())
        for sweeps in asked.sweeps:
            found = [curve[sweeps - 1] for curve in curves]
            errors = " ".join(f"{error:.4f}" for error in found)
            score = f"{np.mean(scores):.4f}" if sweeps == asked.sweeps[-1] else ""
            print(f"| {name} | {rank} | {model.precision_prior[0]:g} | {sweeps} | {errors} | "
                  f"{np.mean(found):.4f} | {score} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
