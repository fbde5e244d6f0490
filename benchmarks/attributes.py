"""What attributes of users and items add: ``BAYESMF_DATA=... python benchmarks/attributes.py``.

The default model with and without attributes on a split that comes with ml-100k (u1) or on the
paper's split of ml-1m, or with a tenth of the users or items held out entirely (``--hold-out``):
four chains each, and the error on the test ratings. Age, gender and
occupation are the users', year and genres the items'; nothing is chosen by the test ratings.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import bayesmf
from bayesmf import Attributes, Model, Ratings
from bayesmf.data.io.text import read_table
from bayesmf.model.attributes import with_attributes

GENRES = [
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]
YEAR = r"\((?P<year>\d{4})\)\s*$"  # at the end of a title


def folder(name: str) -> Path:
    return Path(os.environ["BAYESMF_DATA"]) / name


def user_attributes(data: str) -> Attributes:
    """Age as a number, gender and occupation; the zip codes are left out."""
    kinds = {"occupation": "category", "zip": "none"}
    if data == "ml-100k":
        path, names = folder(data) / "u.user", "user age gender occupation zip"
    else:
        path, names = folder(data) / "users.dat", "user gender age occupation zip"
    return Attributes.load(path, names=names.split(), kinds=kinds)


def item_attributes(data: str) -> Attributes:
    """The year of a film, from its title, and its genres."""
    if data == "ml-100k":
        names = ["item", "title", "released", "video", "imdb", *GENRES]
        table, _, _ = read_table(folder(data) / "u.item", names)
        flags = zip(*(table[genre].to_pylist() for genre in GENRES), strict=True)
        genres = [[g for g, flag in zip(GENRES, row, strict=True) if flag == "1"] for row in flags]
    else:
        table, _, _ = read_table(folder(data) / "movies.dat", ["item", "title", "genres"])
        genres = [text.split("|") for text in table["genres"].to_pylist()]
    year = pc.struct_field(pc.extract_regex(table["title"], YEAR), "year").cast(pa.int64())
    item = table["item"].cast(pa.int64())
    return Attributes.from_frame(pa.table({"item": item, "year": year, "genres": genres}))


def read_split(data: str, fold: str) -> tuple[Ratings, Ratings]:
    """Training and test ratings: a split that comes with the data, or the paper's."""
    if data != "ml-100k":
        return tuple(bayesmf.split(bayesmf.load(data), "paper", seed=0))
    whole = bayesmf.load(folder(data) / "u.data")
    parts = (bayesmf.load(folder(data) / f"{fold}.{part}") for part in ("base", "test"))
    train, test = (part.onto(whole.users, whole.items) for part in parts)
    return train, test


def hold_out(data: str, side: str, seed: int) -> tuple[Ratings, Ratings]:
    """A tenth of the users, or items, with all their ratings: strangers to the fit."""
    whole = bayesmf.load(folder(data) / "u.data" if data == "ml-100k" else data)
    rows = whole.by_user.row_index if side == "user" else whole.by_user.index
    count = whole.n_users if side == "user" else whole.n_items
    new = np.random.default_rng(seed).permutation(count)[: count // 10]
    held = np.isin(rows, new)
    return whole.select(~held), whole.select(held)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="ml-100k", choices=("ml-100k", "ml-1m"))
    parser.add_argument("--fold", default="u1", help="of ml-100k: u1 or u2")
    parser.add_argument("--hold-out", choices=("user", "item"), help="a tenth of them entirely")
    parser.add_argument("--sides", default="none,both", help="of none, user, item, both")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def main() -> None:
    asked = options()
    if asked.hold_out:
        train, test = hold_out(asked.data, asked.hold_out, asked.seed)
    else:
        train, test = read_split(asked.data, asked.fold)
    users, items = user_attributes(asked.data), item_attributes(asked.data)
    what = f"a tenth of the {asked.hold_out}s held out, " if asked.hold_out else ""
    print(f"{asked.data}, {what}rank {asked.rank}, seed {asked.seed}, 4 x {asked.sweeps} sweeps")
    print(f"users: {users}\nitems: {items}")
    for sides in asked.sides.split(","):
        model = with_attributes(
            Model(asked.rank),
            users if sides in ("user", "both") else None,
            items if sides in ("item", "both") else None,
        )
        sampler = bayesmf.Gibbs(model, sweeps=asked.sweeps, chains=4, until="sweeps",
                                seed=asked.seed, threads=asked.threads)  # fmt: skip
        fit = sampler.fit(train, test)
        print(f"attributes of {sides}: RMSE {fit.test_rmse:.4f}, "
              f"{fit.endless_rmse:.4f} ± {fit.endless_rmse_error:.4f} of endless draws, "
              f"{fit.evaluate(test)['coverage_80']:.1%} inside 80 % intervals, "
              f"{fit.seconds / fit.sweeps:.3f} s a round of sweeps", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
