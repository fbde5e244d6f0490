"""What chains of moods are worth on validation ratings: of users, of items, and of both.

``BAYESMF_DATA=... python benchmarks/time_chain.py`` takes the training part of the paper's split
of MovieLens 1M, that of u1 of MovieLens 100K, and the demo data with times that say nothing. A
tenth of these ratings is held out: at random, or the last of each user.
"""

from __future__ import annotations

import argparse
from typing import ClassVar

import numpy as np

import bayesmf
from bayesmf.data.pairs import Cells
from bayesmf.data.split import carve
from bayesmf.evaluation.bootstrap import paired_change
from bayesmf.model.time_chain import Neighbours, Sequence, TimeChain


class ItemChain(TimeChain):
    """What an item's ratings share: an item is a user of the transposed data."""

    name: ClassVar[str] = "item chain"

    def prepare(self, cells: Cells) -> Sequence:
        return super().prepare(_transpose(cells))

    def locate(self, train: Sequence | None, cells: Cells) -> Neighbours:
        return super().locate(train, _transpose(cells))


def _transpose(cells: Cells) -> Cells:
    return Cells(cells.item, cells.user, cells.time)


def load(name: str) -> bayesmf.Ratings:
    if name == "ml-1m":
        return bayesmf.split(bayesmf.load(name), "paper", seed=0).train
    if name == "ml-100k":
        return bayesmf.load_split("ml-100k/u1").train
    demo = bayesmf.split(bayesmf.load("demo"), "paper", seed=0).train.to_arrow()
    times = np.random.default_rng(0).integers(0, 10**8, len(demo))
    return bayesmf.Ratings.from_frame(demo.append_column("time", [times]))


def make(name: str, rank: int, sd: float) -> bayesmf.Model:
    effects = (ItemChain(sd),) if name in ("items", "both") else ()
    return bayesmf.Model(rank, time="chain" if name in ("users", "both") else "none",
                         effects=effects)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=["ml-1m", "ml-100k", "demo"])
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    print("| data | held out | chains | RMSE | falls by, 95 % interval |")
    print("| :-- | :-- | :-- | --: | --: |")
    for data in asked.data:
        ratings = load(data)
        parts = {"at random": carve(ratings, 0.1, asked.seed)}
        late = bayesmf.split(ratings, "time", test_fraction=0.1, per_user=True)
        parts["the last"] = late.train, late.test
        for held_out, (train, test) in parts.items():
            squares = {}
            for name in ("none", "users", "items", "both"):
                model = make(name, asked.rank, float(np.std(train.values)))
                fit = bayesmf.Gibbs(model, sweeps=asked.sweeps, chains=1, seed=asked.seed,
                                    threads=asked.threads).fit(train)  # fmt: skip
                found = fit.predict(test, quantiles=())["mean"].to_numpy()
                errors = found - np.asarray(test.by_user.values, float)
                squares[name] = np.bincount(test.by_user.row_index, errors**2)
                change = "" if name == "none" else paired_change(squares["none"], squares[name])
                rmse = np.sqrt(np.mean(errors**2))
                print(f"| {data} | {held_out} | {name} | {rmse:.4f} | {change} |", flush=True)


if __name__ == "__main__":
    main()
