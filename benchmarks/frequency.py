"""Errors by user frequency: ``BAYESMF_DATA=... python benchmarks/frequency.py ml-1m``.

The default model and those that the study compares it with, on the paper's split: four chains each,
and test RMSE in each bin of users. At the end it says whether the default model has the lowest
error of a bin, or one that a paired bootstrap of the users cannot tell from the lowest.
"""

from __future__ import annotations

import argparse

import numpy as np

import bayesmf
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.study.specs import COLD, Lengths, cold_start_model
from cold_start import Squares, judge


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", choices=COLD, default=list(COLD))
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=150, help="of each of the four chains")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def main() -> None:
    asked = options()
    train, test = bayesmf.split(bayesmf.load(asked.data), "paper", seed=asked.seed)
    bins = FrequencyBins.of([train, test], test)
    everybody = FrequencyBins((), bins.totals)
    print(f"{asked.data}, paper's split {asked.seed}, rank {asked.rank}, "
          f"4 x {asked.sweeps} sweeps\n\n| model | " + " | ".join([*bins.labels, "all"])
          + " |\n| :-- |" + " --: |" * (len(bins.labels) + 1), flush=True)  # fmt: skip
    squares: Squares = {label: {} for label in [*bins.labels, "all"]}
    for name in asked.models:
        model = cold_start_model(name, Lengths(rank=asked.rank))
        sampler = bayesmf.Gibbs(model, chains=4, sweeps=asked.sweeps, until="sweeps",
                                seed=asked.seed, threads=asked.threads)  # fmt: skip
        found = sampler.fit(train).predict(test, quantiles=())["mean"].to_numpy()
        errors = found - np.asarray(test.by_user.values, float)
        for number, label in enumerate(squares):
            here = (bins.index == number) | (label == "all")
            squares[label][name] = np.bincount(
                test.by_user.row_index[here], errors[here] ** 2, minlength=test.n_users
            )
        every = [*bins.rmse(errors), *everybody.rmse(errors)]
        print(f"| {name} | " + " | ".join(f"{each:.4f}" for each in every) + " |", flush=True)
    if "default" in asked.models and len(asked.models) > 1:
        judge(squares, "ratings of the user")


if __name__ == "__main__":
    main()
