"""The splits: each is a case, by the part of the page that it belongs to and a name of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bayesmf
from bayesmf import Ratings, Scale
from bayesmf.data.columns import Columns
from bayesmf.data.io.datasets import DATASETS
from bayesmf.data.io.load import fetch
from bayesmf.data.io.published import cut
from bayesmf.data.io.text import read_columns

FOLDS = 10
EARLY = 0.9  # of each user's ratings are training ratings when the rest is forecast
LIKED = 4  # stars, and more, are a thumb up
MONTI = ("douban", "flixster", "yahoo_music")
Parts = tuple[Ratings, Ratings]


@dataclass(frozen=True)
class Case:
    """One split of one data set."""

    part: str  # of the page
    name: str
    data: str  # the data set, for its attributes
    split: Callable[[], Parts]

    @property
    def key(self) -> str:
        return f"{self.part}-{self.name}".replace(" ", "-").replace("/", "-")


def read_rows(data: str) -> Columns:
    """The ratings of a data set in the order of its file."""
    path = fetch(data)
    member = DATASETS[data].member if path.suffix == ".zip" else None
    return read_columns(path, {}, member=member)


def fold_of_rows(size: int, folds: int = FOLDS) -> np.ndarray:
    """The fold of each row: rows shuffled as myFM does, then cut as scikit-learn's KFold does."""
    order = np.arange(size)
    np.random.RandomState(0).shuffle(order)
    sizes = size // folds + (np.arange(folds) < size % folds)
    fold = np.empty(size, np.int64)
    fold[order] = np.repeat(np.arange(folds), sizes)
    return fold


def are_late(user: Any, time: Any, early: float = EARLY) -> np.ndarray:
    """Whether each row is among its user's last; rows of one second are in the file's order."""
    code = np.unique(user, return_inverse=True)[1]
    order = np.lexsort((time, code))
    counts = np.bincount(code)
    place = np.empty(len(code), np.int64)
    place[order] = np.arange(len(code)) - (np.cumsum(counts) - counts)[code[order]]
    return place >= np.floor(counts[code] * early)


def cut_rows(data: str, test: Callable[[Columns], Any]) -> Parts:
    """Training and test ratings, given which rows of the file are test ratings."""
    table = read_rows(data)
    held_out = np.asarray(test(table)).astype(np.int64)
    train, tested = cut(table, held_out, 2, scale=DATASETS[data].scale, name=data)
    return train, tested


def fold(number: int) -> Case:
    def split() -> Parts:
        return cut_rows("ml-1m", lambda table: fold_of_rows(len(table.rating)) == number)

    return Case("fold", f"fold {number}", "ml-1m", split)


def forecast(data: str) -> Case:
    def late(table: Columns) -> np.ndarray:
        return are_late(table.user.to_numpy(), table.time.cast(pa.int64()).to_numpy())

    return Case("forecast", data, data, lambda: cut_rows(data, late))


def published(name: str) -> Case:
    return Case("ml-100k", name, "ml-100k", lambda: tuple(bayesmf.load_split(f"ml-100k/{name}")))


def paper() -> Case:
    def split() -> Parts:
        return tuple(bayesmf.split(bayesmf.load("ml-1m"), "paper", seed=0))

    return Case("paper", "split 0", "ml-1m", split)


def monti(path: Path) -> Case:
    """A file of Monti et al.; it is named by its folder, as all are called the same."""
    name = path.parent.name if path.stem == "training_test_dataset" else path.stem
    return Case("monti", name, "", lambda: tuple(bayesmf.load_split(path)))


def find_monti() -> Iterator[Path]:
    """The files that are on this machine, in the folders where the literature's code has them."""
    for name in MONTI:
        path = Path(os.environ.get("BAYESMF_DATA", ".")) / name / "training_test_dataset.mat"
        if path.is_file():
            yield path


def thumbs() -> Case:
    """Fold 0 with thumbs: up for four stars and five."""
    stars = fold(0)
    return Case("binary", "thumbs", "ml-1m", lambda: tuple(map(to_thumbs, stars.split())))


def to_thumbs(ratings: Ratings) -> Ratings:
    rows = ratings.by_user
    up = (rows.values >= LIKED).astype(np.int8)
    return Ratings.from_sorted(ratings.users, ratings.items, rows.row_index, rows.index, up,
                               rows.times, Scale(0, 1, 1), ratings.name)  # fmt: skip
