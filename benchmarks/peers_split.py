"""One split as plain arrays in a folder that every runner reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import bayesmf
from bayesmf import Ratings


def arrays(name: str, seed: int, root: Path) -> Path:
    """The folder of the paper's split; written once. Training ratings are in random order."""
    folder = root / "data" / f"{name}-{seed}"
    if (folder / "facts.json").exists():
        return folder
    train, test = bayesmf.split(bayesmf.load(name), "paper", seed=seed)
    write_arrays(train, test, folder, seed)
    return folder


def write_arrays(train: Ratings, test: Ratings, folder: Path, seed: int | None) -> None:
    """Write both parts, in a random order, or in their own if ``seed`` is None."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, ratings in (("train", train), ("test", test)):
        rows, order = ratings.by_user, np.arange(len(ratings))
        if seed is not None:
            order = np.random.default_rng(seed).permutation(len(ratings))
        np.savez(folder / f"{part}.npz", user=rows.row_index[order], item=rows.index[order],
                 value=rows.values[order].astype(np.float32))  # fmt: skip
    facts = {"users": train.n_users, "items": train.n_items, "train": len(train),
             "test": len(test), "low": float(train.scale.low),
             "high": float(train.scale.high)}  # fmt: skip
    (folder / "facts.json").write_text(json.dumps(facts))
