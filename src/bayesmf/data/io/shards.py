"""Ratings in a folder, cut into blocks of users and of items, so that nobody holds all of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from bayesmf.data.ids import Ids
from bayesmf.data.io.atomic import whole_folder
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.data.scale import Scale
from bayesmf.errors import DataError, Option

BLOCKS = 16  # of each side
RANK = 20  # for which blocks are balanced if none is known


def spans(
    counts: NDArray[np.int64], rank: int = RANK, blocks: int = BLOCKS
) -> list[tuple[int, int]]:
    """Return where each block of neighbouring rows begins and ends.

    A row costs a d^3 + b n d^2: a factorisation, and the Gram matrix of its n ratings. With
    a = b / 3, by their operations, that is in proportion to n + d / 3. All blocks cost about the
    same.
    """
    cost = np.cumsum(counts + rank / 3)
    cuts = np.searchsorted(cost, cost[-1] * np.arange(1, blocks) / blocks) + 1
    ends = np.unique(np.concatenate([cuts, [len(counts)]])).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def part(rows: Rows, begin: int, end: int) -> Rows:
    """Copy the rows from ``begin`` up to ``end``, with all that is known of their ratings."""
    starts = rows.starts[begin : end + 1]
    span = slice(int(starts[0]), int(starts[-1]))
    times = None if rows.times is None else rows.times[span].copy()
    weights = None if rows.weights is None else rows.weights[span].copy()
    index, values = rows.index[span].copy(), rows.values[span].copy()
    return Rows(starts - starts[0], index, values, times, weights)


FORMAT, FACTS = 2, "shards.json"
Side = Literal["user", "item"]
SIDES: tuple[Side, Side] = ("user", "item")


@dataclass(frozen=True)
class Counted:
    """How many ratings each row of one side has, and where each block begins and ends."""

    counts: NDArray[np.int64]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Shards:
    """What is known of ratings whose blocks are files: ids, counts, scale, mean and sd.

    ``user-0003.parquet`` holds the ratings by the users of block 3, user after user: the item's
    index, the value and, if there are any, the time and the weight. ``item-0003.parquet`` holds
    those of the items of block 3 in the same way. users.parquet and items.parquet hold ids and
    numbers of ratings.
    """

    folder: Path
    users: Ids
    items: Ids
    by_user: Counted
    by_item: Counted
    scale: Scale
    mean: float
    sd: float
    size: int
    digest: str

    def __len__(self) -> int:
        return self.size

    @property
    def n_users(self) -> int:
        """The number of users."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.items)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the observations hold in memory: none, they are in files."""
        return 0

    def __repr__(self) -> str:
        return (
            f"Shards({len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users in "
            f"{self.folder})"
        )

    def fingerprint(self) -> str:
        """Return the fingerprint of the ratings that were cut."""
        return self.digest

    @classmethod
    def open(cls, folder: str | Path) -> Shards:
        """Open a folder that ``shard`` wrote."""
        folder = Path(folder).resolve()
        try:
            facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            if facts["format"] != FORMAT:
                raise DataError(
                    f"{folder}: shards of format {facts['format']}, not {FORMAT}; cut the ratings "
                    "again with this version"
                )
            ids, counted = {}, {}
            for side in SIDES:
                table = parquet.read_table(folder / f"{side}s.parquet")
                values = table["id"].to_numpy()
                ids[side] = Ids(values.astype(np.int64 if values.dtype.kind == "i" else object))
                blocks = [(int(begin), int(end)) for begin, end in facts["blocks"][side]]
                counted[side] = Counted(table["ratings"].to_numpy().astype(np.int64), blocks)
            scale = Scale(**facts["scale"])
            return cls(
                folder,
                ids["user"],
                ids["item"],
                counted["user"],
                counted["item"],
                scale,
                mean=float(facts["mean"]),
                sd=float(facts["sd"]),
                size=int(facts["ratings"]),
                digest=str(facts["sha256"]),
            )
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(
                f"{folder}: no folder of shards that can be read ({error}); write one with "
                "`bayesmf shard`"
            ) from error

    def rows(self, side: Side, number: int) -> Rows:
        """Read one block."""
        counted = self.by_user if side == "user" else self.by_item
        begin, end = counted.spans[number]
        return read_block(self.folder, side, number, counted.counts[begin:end])


def is_shards(folder: Path) -> bool:
    """Whether a folder holds shards."""
    return (folder / FACTS).is_file()


def read_block(folder: Path, side: Side, number: int, counts: NDArray[np.int64]) -> Rows:
    """Read a block whose rows have ``counts`` ratings each."""
    path = _path(folder, side, number)
    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: a shard that cannot be read ({error}); write it anew") from error
    if table.num_rows != counts.sum():
        raise DataError(f"{path}: {table.num_rows} ratings, not {counts.sum()}; write it anew")
    starts = np.concatenate([[0], np.cumsum(counts)])
    given = (table[k].to_numpy() if k in table.column_names else None for k in ("time", "weight"))
    return Rows(starts, table["index"].to_numpy(), table["value"].to_numpy(), *given)


def _path(folder: Path, side: Side, number: int) -> Path:
    return folder / f"{side}-{number:04}.parquet"


def shard(
    ratings: Ratings, folder: str | Path, *, blocks: int = BLOCKS, rank: int = RANK
) -> Shards:
    """Write ratings as shards, so that each worker of an engine can read its own.

    ``blocks`` is the number of blocks of users, and of items. All blocks of a side are about the
    same work for a model of this ``rank``. The folder must be new or empty.
    """
    if blocks < 1:
        raise DataError(f"{Option('blocks', blocks)}: choose 1 or more")
    facts: dict[str, Any] = {
        "format": FORMAT,
        "ratings": len(ratings),
        "mean": ratings.mean,
        "sd": ratings.sd,
        "scale": asdict(ratings.scale),
        "sha256": ratings.fingerprint(),
        "blocks": {},
    }
    with whole_folder(Path(folder), None, "choose another folder") as temporary:
        for side, data in zip(SIDES, (ratings, ratings.T), strict=True):
            rows = data.by_user
            facts["blocks"][side] = spans(rows.counts, rank, blocks)
            table = {"id": pa.array(data.users.values), "ratings": pa.array(rows.counts)}
            parquet.write_table(pa.table(table), temporary / f"{side}s.parquet")
            for number, span in enumerate(facts["blocks"][side]):
                block = part(rows, *span)
                table = {"index": pa.array(block.index), "value": pa.array(block.values)}
                if block.times is not None:
                    table["time"] = pa.array(block.times)
                if block.weights is not None:
                    table["weight"] = pa.array(block.weights)
                parquet.write_table(pa.table(table), _path(temporary, side, number))
        (temporary / FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return Shards.open(folder)
