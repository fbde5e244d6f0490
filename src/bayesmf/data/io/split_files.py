"""Splits as folders of tables that any tool can read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bayesmf.choices import IdKind
from bayesmf.data.io.atomic import whole_folder
from bayesmf.data.io.published import PUBLISHED, cut, load_ml_100k, load_monti, stack
from bayesmf.data.io.text import read_columns
from bayesmf.data.io.write import FORMATS, write
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


def load_split(data: str | Path) -> Split:
    """Read a split that ``save_split`` wrote, or one that others have published.

    ``data`` is

    - a folder that ``save_split`` or ``bayesmf split`` wrote; the split equals what was saved.
    - "ml-100k/u1" to "ml-100k/u5", "ml-100k/ua" or "ml-100k/ub": the splits that come with that
      data set, which is downloaded if it is not on this machine.
    - a ``.mat`` file of Monti et al. (2017), of Douban, Flixster or YahooMusic. Files of version
      7.3, as theirs are, need the extra ``bayesmf[matlab]``. Ids are positions from 1.
    """
    folder = Path(data)
    if folder.suffix == ".mat":
        return load_monti(folder)
    if str(data) in PUBLISHED and not folder.exists():
        return load_ml_100k(str(data))
    return _load_saved(folder)


def _load_saved(folder: Path) -> Split:
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
        raise DataError(
            f"{path}: no such file; give a folder written by `bayesmf split`, a .mat file, or one "
            f"of {', '.join(PUBLISHED)}"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a split's description ({error}); split again") from None
    parts = {part: folder / f"{part}{ending}" for part in hashes}
    present = list(parts)
    tables = [read_columns(parts[part], {}) for part in present]
    part_of = np.repeat(np.arange(len(present)), [len(table.rating) for table in tables])
    made = cut(stack(tables), part_of, len(present), scale=scale, name=name,
               user_ids=kinds[0], item_ids=kinds[1])  # fmt: skip
    found = dict(zip(present, made, strict=True))
    dropped = {name: int(facts.get(name, 0)) for name in DROPPED}
    split = Split(
        found["train"],
        found["test"],
        facts["protocol"],
        facts["seed"],
        options,
        found.get("given"),
        **dropped,
    )
    for part in present:
        if getattr(split, part).fingerprint() != hashes[part]:
            raise DataError(
                f"{parts[part]}: its ratings are not those that were saved; split again"
            )
    return split
