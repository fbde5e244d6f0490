"""Ratings in a folder, cut into blocks of users and of items: nobody has to hold all of them."""

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
from bayesmf.errors import DataError

BLOCKS = 16  # of each side
RANK = 20  # that blocks are balanced for if none is known


def spans(
    counts: NDArray[np.int64], rank: int = RANK, blocks: int = BLOCKS
) -> list[tuple[int, int]]:
    """Where each block of neighbouring rows begins and ends.

    A row costs a d^3 + b n d^2: a factorisation, and the Gram matrix of its n ratings. With
    a = b / 3, by their operations, that is in proportion to n + d / 3.
    """
    cost = np.cumsum(counts + rank / 3)
    cuts = np.searchsorted(cost, cost[-1] * np.arange(1, blocks) / blocks) + 1
    ends = np.unique(np.concatenate([cuts, [len(counts)]])).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def part(rows: Rows, begin: int, end: int) -> Rows:
    """Some of the rows, on their own."""
    starts = rows.starts[begin : end + 1]
    span = slice(int(starts[0]), int(starts[-1]))
    return Rows(starts - starts[0], rows.index[span].copy(), rows.values[span].copy())


FORMAT, FACTS = 1, "shards.json"
WATCHED = 16  # observations whose predictions are traced
Side = Literal["user", "item"]
SIDES: tuple[Side, Side] = ("user", "item")


@dataclass(frozen=True)
class Counted:
    """How many ratings each row of one side has, and the blocks that they are in."""

    counts: NDArray[np.int64]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Shards:
    """What is known of ratings whose blocks are files: ids, counts, scale and mean.

    ``user-0003.parquet`` has the item (its number) and the value of every rating by the users of
    block 3, user after user; ``item-0003.parquet`` the users of the items of block 3. users.parquet
    and items.parquet have ids and numbers of ratings.
    """

    folder: Path
    users: Ids
    items: Ids
    by_user: Counted
    by_item: Counted
    scale: Scale
    mean: float
    size: int
    digest: str
    sample: Ratings  # a few of them

    def __len__(self) -> int:
        return self.size

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def nbytes(self) -> int:
        """Bytes held by the observations: they are in files."""
        return 0

    def __repr__(self) -> str:
        return (
            f"Shards({len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users in "
            f"{self.folder})"
        )

    def fingerprint(self) -> str:
        """That of the ratings which were cut."""
        return self.digest

    @classmethod
    def open(cls, folder: str | Path) -> Shards:
        """A folder that ``shard`` wrote."""
        folder = Path(folder).resolve()
        try:
            told = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            if told["format"] != FORMAT:
                raise DataError(f"{folder}: shards of format {told['format']}, not {FORMAT}")
            ids, counted = {}, {}
            for side in SIDES:
                table = parquet.read_table(folder / f"{side}s.parquet")
                values = table["id"].to_numpy()
                ids[side] = Ids(values.astype(np.int64 if values.dtype.kind == "i" else object))
                blocks = [(int(begin), int(end)) for begin, end in told["blocks"][side]]
                counted[side] = Counted(table["ratings"].to_numpy().astype(np.int64), blocks)
            few = told["sample"]
            scale = Scale(**told["scale"])
            sample = Ratings.from_sorted(
                ids["user"], ids["item"], np.array(few["user"], np.int32),
                np.array(few["item"], np.int32), np.array(few["value"], float), None, scale,
            )  # fmt: skip
            return cls(folder, ids["user"], ids["item"], counted["user"], counted["item"], scale,
                       float(told["mean"]), int(told["ratings"]), str(told["sha256"]),
                       sample)  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(
                f"{folder}: no folder of shards that can be read ({error}); write it with bayesmf "
                "shard"
            ) from error

    def rows(self, side: Side, number: int) -> Rows:
        """One block."""
        counted = self.by_user if side == "user" else self.by_item
        begin, end = counted.spans[number]
        return read_block(self.folder, side, number, counted.counts[begin:end])


def read_block(folder: Path, side: Side, number: int, counts: NDArray[np.int64]) -> Rows:
    """A block whose rows have so many ratings."""
    path = _path(folder, side, number)
    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: a shard that cannot be read ({error}); write it anew") from error
    if table.num_rows != counts.sum():
        raise DataError(f"{path}: {table.num_rows} ratings, not {counts.sum()}; write it anew")
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Rows(starts, table["index"].to_numpy(), table["value"].to_numpy())


def _path(folder: Path, side: Side, number: int) -> Path:
    return folder / f"{side}-{number:04}.parquet"


def shard(
    ratings: Ratings, folder: str | Path, *, blocks: int = BLOCKS, rank: int = RANK
) -> Shards:
    """Write ratings as shards, so that an engine's workers can read their own.

    ``blocks`` of each side have about the same work for a model of this ``rank``.
    """
    if blocks < 1:
        raise DataError(f"blocks={blocks}: choose 1 or more")
    every = -(-len(ratings) // WATCHED)
    few = ratings.select(np.arange(0, len(ratings), every))
    told: dict[str, Any] = {
        "format": FORMAT, "ratings": len(ratings), "mean": ratings.mean,
        "scale": asdict(ratings.scale), "sha256": ratings.fingerprint(), "blocks": {},
        "sample": {"user": few.by_user.row_index.tolist(), "item": few.by_user.index.tolist(),
                   "value": few.values.tolist()},
    }  # fmt: skip
    with whole_folder(Path(folder), None) as made:
        for side in SIDES:
            rows, ids = ((ratings.by_user, ratings.users) if side == "user"
                         else (ratings.by_item, ratings.items))  # fmt: skip
            told["blocks"][side] = spans(rows.counts, rank, blocks)
            table = {"id": pa.array(ids.values), "ratings": pa.array(rows.counts)}
            parquet.write_table(pa.table(table), made / f"{side}s.parquet")
            for number, span in enumerate(told["blocks"][side]):
                block = part(rows, *span)
                table = {"index": pa.array(block.index), "value": pa.array(block.values)}
                parquet.write_table(pa.table(table), _path(made, side, number))
        (made / FACTS).write_text(json.dumps(told) + "\n", encoding="utf-8")
    return Shards.open(folder)
