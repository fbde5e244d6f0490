"""Settings of a peer, chosen on a tenth of the training ratings held out.

``python benchmarks/peers_tune.py cornac-mf learning_rate=0.01,0.02 lambda_reg=0.03,0.06`` runs all
combinations on the rest, over the options that peers_entries.py has, and prints their errors.
``cornac-mf@epinions`` does so on another data set than ml-1m.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from peers import ROOT, SHORT, run
from peers_entries import chosen
from peers_split import arrays


def held_out(folder: Path) -> Path:
    """The training ratings, a tenth of them as test; whoever is only there is left out."""
    part = folder.with_name(folder.name + "-tune")
    if (part / "facts.json").exists():
        return part
    part.mkdir(exist_ok=True)
    train = np.load(folder / "train.npz")
    user, item, value = (train[name] for name in ("user", "item", "value"))
    first = np.zeros(len(value), bool)  # the first rating of everybody stays
    for column in (user, item):
        first[np.unique(column, return_index=True)[1]] = True
    keep = first | (np.random.default_rng(1).random(len(value)) < 0.9)
    for name, mask in (("train", keep), ("test", ~keep)):
        np.savez(part / f"{name}.npz", user=user[mask], item=item[mask], value=value[mask])
    (part / "facts.json").write_text((folder / "facts.json").read_text())
    return part


def main() -> None:
    key, _, data_set = sys.argv[1].partition("@")
    (entry,) = chosen(key)
    grid = {name: json.loads(f"[{values}]")
            for name, values in (word.split("=") for word in sys.argv[2:])}  # fmt: skip
    args = argparse.Namespace(rank=20, threads=2, sweeps=SHORT, burn_in=5, quick=False, limit=580)
    data = held_out(arrays(data_set or "ml-1m", 0, ROOT))
    for values in itertools.product(*grid.values()):
        asked = dict(zip(grid, values, strict=True))
        options = {**entry.settings["options"], **asked}
        found = run(replace(entry, settings={**entry.settings, "options": options}), args, data, 0,
                    speed=False)  # fmt: skip
        curve = found.get("curve") or [{"rmse": float("nan")}]
        told = found.get("error") or f"{curve[-1]['rmse']:.4f} in {found['seconds']:.1f} s"
        print(" ".join(f"{name}={value}" for name, value in asked.items()), told, flush=True)


if __name__ == "__main__":
    main()
