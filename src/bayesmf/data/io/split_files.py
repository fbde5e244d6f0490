"""Splits as folders of tables that any tool can read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayesmf.choices import IdKind
from bayesmf.data.columns import Columns
from bayesmf.data.ids import Ids, strip
from bayesmf.data.io.atomic import whole_folder
from bayesmf.data.io.text import read_columns
from bayesmf.data.io.write import FORMATS, write
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.data.split import DROPPED, Split
from bayesmf.errors import DataError

PARTS = ("train", "given", "test")


def save_split(
    split: Split | Sequence[Split],
    folder: str | Path,
    ending: str = ".csv",
    overwrite: bool = False,
) -> None:
    """Write train, test and, after a cold start, given as tables, and split.json beside them.

    Several splits go into the subfolders fold-1, fold-2, ... ``ending`` is ".csv", ".tsv",
    ".parquet", ".csv.gz" or ".tsv.gz". With ``overwrite`` an earlier split in the folder is
    replaced.
    """
    if isinstance(split, Split):
        splits, folders = [split], ["."]
    else:
        splits, folders = list(split), [f"fold-{k + 1}" for k in range(len(split))]
    with whole_folder(Path(folder), is_split if overwrite else None) as temporary:
        for one, where in zip(splits, folders, strict=True):
            _write_parts(one, temporary / where, ending)


def _write_parts(split: Split, folder: Path, ending: str) -> None:
    for part in PARTS:
        ratings = getattr(split, part)
        if ratings is not None:
            write(ratings, folder / f"{part}{ending}")
    scale = split.train.scale
    facts = {
        "format": 1,
        **split.describe(),
        "ending": ending,
        "name": split.train.name,
        "scale": [scale.low, scale.high, scale.step],
        "user_ids": split.train.users.kind,
        "item_ids": split.train.items.kind,
    }
    (folder / "split.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def is_split(folder: Path) -> bool:
    """Whether a folder holds a split, or folds, and nothing else."""
    names = [entry.name for entry in folder.iterdir()]
    fold = re.compile(r"fold-\d+")
    if names and all(fold.fullmatch(name) for name in names):
        return all(is_split(folder / name) for name in names)
    part = re.compile(rf"({'|'.join(PARTS)})({'|'.join(map(re.escape, FORMATS))})|split\.json")
    return "split.json" in names and all(part.fullmatch(name) for name in names)


def load_split(folder: str | Path) -> Split:
    """Read a split that ``save_split`` or ``bayesmf split`` wrote; it equals what was saved."""
    folder = Path(folder)
    path = folder / "split.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        ending, options, name = facts["ending"], facts["options"], facts["name"]
        hashes = {part: facts[f"{part}_sha256"] for part in PARTS if f"{part}_sha256" in facts}
        scale = Scale(*facts["scale"])
        kinds: list[IdKind] = [
            "text" if facts[side] == "text" else "auto" for side in ("user_ids", "item_ids")
        ]
    except OSError:
        raise DataError(f"{path}: no such file; give a folder written by `bayesmf split`") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a split's description ({error}); split again") from None
    parts = {part: folder / f"{part}{ending}" for part in hashes}
    present = list(parts)
    tables = [read_columns(parts[part], {}) for part in present]
    both = _stack(tables)
    owner = np.repeat(np.arange(len(present)), [len(table.rating) for table in tables])
    whole = Ratings.from_columns(both, scale=scale, name=name, user_ids=kinds[0], item_ids=kinds[1])
    # The observations are sorted now: find each part's among them by their pairs.
    user = whole.users.index(_typed(both.user, whole.users, both.untyped)).astype(np.int64)
    item = whole.items.index(_typed(both.item, whole.items, both.untyped))
    order = np.argsort(user * whole.n_items + item)
    cut = {part: whole.select(owner[order] == k) for k, part in enumerate(present)}
    dropped = {name: int(facts.get(name, 0)) for name in DROPPED}
    split = Split(
        cut["train"],
        cut["test"],
        facts["protocol"],
        facts["seed"],
        options,
        cut.get("given"),
        **dropped,
    )
    for part in present:
        if getattr(split, part).fingerprint() != hashes[part]:
            raise DataError(
                f"{parts[part]}: its ratings are not those that were saved; split again"
            )
    return split


def _stack(tables: list[Columns]) -> Columns:
    def column(role: str) -> Any:
        chunks = [getattr(table, role) for table in tables]
        if any(chunk is None for chunk in chunks):
            return None
        return pa.chunked_array([c for chunk in chunks for c in chunk.chunks])

    def locate(row: int) -> str:
        for table in tables:
            if row < len(table.rating):
                return table.locate(row)
            row -= len(table.rating)
        return "the split"

    user, item, rating = column("user"), column("item"), column("rating")
    untyped, weight = tables[0].untyped, column("weight")
    return Columns(user, item, rating, column("time"), locate, untyped, weight=weight)


def _typed(column: pa.ChunkedArray, ids: Ids, untyped: bool) -> pa.ChunkedArray:
    """Read the column as the ids were read."""
    if untyped:
        column = strip(column)
    return column.cast(pa.int64()) if ids.kind == "integer" else column
