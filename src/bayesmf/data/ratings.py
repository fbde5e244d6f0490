"""Ratings: the one object that every model, split and metric takes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bayesmf.choices import Duplicates, IdKind
from bayesmf.data import columns as cols
from bayesmf.data.columns import Axis, Columns, Role
from bayesmf.data.ids import Ids, encode
from bayesmf.data.indexing import equal, group, merge, sort, take
from bayesmf.data.scale import Scale
from bayesmf.data.values import check_times, check_values, check_weights, compact, compact_times
from bayesmf.errors import DataError, Option


@dataclass(frozen=True, eq=False)
class Rows:
    """The observations of one side, row after row.

    Those of row i are at the positions starts[i] to starts[i + 1] - 1, where ``index`` is the row
    of the other side. Within a row the index ascends.
    """

    starts: NDArray[np.int64]
    index: NDArray[np.int32]
    values: NDArray[Any]  # int8, float32 or float64: the smallest that holds all of them exactly
    times: NDArray[Any] | None = None  # seconds since 1970
    weights: NDArray[np.float64] | None = None  # how often each counts; all once if None

    def __post_init__(self) -> None:
        for array in self._arrays:
            array.setflags(write=False)

    @property
    def _arrays(self) -> list[NDArray[Any]]:
        arrays = (self.starts, self.index, self.values, self.times, self.weights)
        return [array for array in arrays if array is not None]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of observations of each row."""
        return np.diff(self.starts)

    @property
    def row_index(self) -> NDArray[np.int32]:
        """The row of each observation."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), self.counts)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the arrays hold."""
        return sum(array.nbytes for array in self._arrays)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Who rated what, and how: immutable, and stored both by user and by item.

    Observation k is the k-th of ``by_user``: users ascend, and items within a user. Every
    mask or position over the observations, here and in the splits, follows that order.
    """

    users: Ids  # ``users.values`` are the ids as the data has them, ascending
    items: Ids
    by_user: Rows  # starts, index, values, times, weights and counts, user after user
    by_item: Rows
    scale: Scale
    name: str = ""  # of the data set that was loaded; equal ratings may have different names
    columns: Mapping[Role, str] = field(default_factory=dict)  # what they were called, by role

    @classmethod
    def from_triplets(
        cls,
        *,
        users: Any,
        items: Any,
        ratings: Any,
        times: Any = None,
        weights: Any = None,
        scale: Any = None,
        duplicates: Duplicates = "error",
    ) -> Ratings:
        """Make ratings of parallel arrays or lists: entry k of each makes one observation.

        ``times`` are whole seconds since 1970, or dates. ``weights`` are positive numbers: a fit
        takes a rating of weight 2 as if it had been given twice. ``scale`` and ``duplicates`` are
        those of ``load``. Blanks around text ids are stripped.
        """
        table = cols.from_triplets(users, items, ratings, times, weights)
        return cls.from_columns(table, scale=scale, duplicates=duplicates)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str | int | None = None,
        item: str | int | None = None,
        rating: str | int | None = None,
        time: str | int | None = None,
        weight: str | int | None = None,
        scale: Any = None,
        duplicates: Duplicates = "error",
    ) -> Ratings:
        """Make ratings of a pandas, polars or pyarrow table, one row an observation.

        ``user``, ``item``, ``rating``, ``time`` and ``weight`` name the columns, or give their
        numbers from 1; columns not given are recognised by their names. ``time="none"`` ignores
        times, and ``weight="none"`` weights. ``scale`` and ``duplicates`` are those of ``load``.
        Blanks around text ids are stripped.
        """
        given: cols.Named = {
            "user": user,
            "item": item,
            "rating": rating,
            "time": time,
            "weight": weight,
        }
        table = cols.from_frame(frame, given)
        return cls.from_columns(table, scale=scale, duplicates=duplicates)

    @classmethod
    def from_sparse(
        cls,
        matrix: Any,
        *,
        users: Axis,
        user_ids: Any = None,
        item_ids: Any = None,
        scale: Any = None,
        duplicates: Duplicates = "error",
    ) -> Ratings:
        """Make ratings of a scipy sparse matrix, whose rows or columns are the ``users``.

        Every stored entry is a rating, an explicit zero too. Rows and columns without any entry
        are left out. Without ``user_ids`` or ``item_ids`` the ids are the positions from 0.
        """
        table = cols.from_sparse(matrix, users, user_ids, item_ids)
        return cls.from_columns(table, scale=scale, duplicates=duplicates)

    @classmethod
    def from_columns(
        cls,
        table: Columns,
        *,
        scale: Any = None,
        duplicates: Duplicates = "error",
        user_ids: IdKind = "auto",
        item_ids: IdKind = "auto",
        name: str = "",
    ) -> Ratings:
        """Check the columns of any source and index them; every constructor ends here."""
        if duplicates not in get_args(Duplicates):
            choices = " or ".join(repr(word) for word in get_args(Duplicates))
            raise DataError(f"{Option('duplicates', duplicates)}: say {choices}")
        if len(table.rating) == 0:
            raise DataError("there are no ratings; give at least one")
        declared = None if scale is None else Scale.of(scale)
        locate, untyped, reader = table.locate, table.untyped, table.reader
        time_remedy, weight_remedy = table.time_remedy, table.weight_remedy
        user_column, item_column, column = table.user, table.item, table.rating
        time, weight, called = table.time, table.weight, dict(table.names)
        del table  # each column is let go as soon as it is encoded: they are the peak of memory
        users, user = encode(user_column, "user", locate, untyped, user_ids == "text")
        del user_column
        items, item = encode(item_column, "item", locate, untyped, item_ids == "text")
        del item_column
        values = check_values(column, locate, declared)
        times = None if time is None else check_times(time, locate, time_remedy)
        weights = None if weight is None else check_weights(weight, locate, weight_remedy)
        del column, time, weight
        pa.default_memory_pool().release_unused()
        order = sort(user, item, len(users), len(items))
        user, item = user[order], item[order]
        again = np.flatnonzero((user[1:] == user[:-1]) & (item[1:] == item[:-1])) + 1
        if again.size:
            if duplicates == "error":
                k = again[np.argmin(order[again])]
                last, mean = Option("duplicates", "last", reader), Option("duplicates", "mean")
                raise DataError(
                    f"{locate(int(order[k]))}: user {users.values.item(user[k])!r} rated item "
                    f"{items.values.item(item[k])!r} before ({locate(int(order[k - 1]))}); keep "
                    f"the later rating with {last}, or their mean with {mean}"
                )
            values, weights, keep = merge(values, weights, order, again, duplicates)
            user, item, order = user[keep], item[keep], order[keep]
            if declared is not None and not declared.holds(values[order]).all():
                declared = Scale(declared.low, declared.high)  # means fall between the steps
        values = compact(values)[order]
        if times is not None:
            times = compact_times(times)[order]
        if weights is not None:
            weights = weights[order]
        if declared is None:
            declared = Scale.infer(pc.unique(pa.array(values)).to_numpy().astype(float))
        made = cls.from_sorted(users, items, user, item, values, times, declared, name, weights)
        return replace(made, columns=called)

    @classmethod
    def from_sorted(
        cls,
        users: Ids,
        items: Ids,
        user: NDArray[np.int32],
        item: NDArray[np.int32],
        values: NDArray[Any],
        times: NDArray[Any] | None,
        scale: Scale,
        name: str = "",
        weights: NDArray[np.float64] | None = None,
    ) -> Ratings:
        """Index observations that are known to be valid, distinct and sorted by user, then item."""
        starts = np.zeros(len(users) + 1, np.int64)
        np.cumsum(np.bincount(user, minlength=len(users)), out=starts[1:])
        by_user = Rows(starts, item, values, times, weights)
        item_starts, order = group(item, len(items))
        by_item = Rows(
            item_starts, user[order], values[order], take(times, order), take(weights, order)
        )
        return cls(users, items, by_user, by_item, scale, name)

    @property
    def n_users(self) -> int:
        """The number of users, those without a rating here included."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """The number of items, those without a rating here included."""
        return len(self.items)

    def __len__(self) -> int:
        return len(self.by_user.values)

    @property
    def values(self) -> NDArray[Any]:
        """The ratings, in the order of the observations."""
        return self.by_user.values

    @property
    def mean(self) -> float:
        """The mean rating."""
        return float(self.values.mean(dtype=np.float64))

    @property
    def sd(self) -> float:
        """The standard deviation of the ratings."""
        return float(self.values.std(dtype=np.float64))

    @property
    def nbytes(self) -> int:
        """The number of bytes that the observations hold, ids not counted."""
        return self.by_user.nbytes + self.by_item.nbytes

    @property
    def T(self) -> Ratings:
        """The transposed ratings, in which an item is a user; they share all arrays."""
        return Ratings(self.items, self.users, self.by_item, self.by_user, self.scale, self.name)

    def __repr__(self) -> str:
        return (
            f"Ratings({len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users, "
            f"scale {self.scale})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratings):
            return NotImplemented
        mine, theirs = self.by_user, other.by_user
        return (
            (self.users, self.items, self.scale) == (other.users, other.items, other.scale)
            and np.array_equal(mine.starts, theirs.starts)
            and np.array_equal(mine.index, theirs.index)
            and np.array_equal(mine.values, theirs.values)
            and equal(mine.times, theirs.times)
            and equal(mine.weights, theirs.weights)
        )

    __hash__ = None  # type: ignore[assignment]

    def select(self, keep: NDArray[Any]) -> Ratings:
        """Return the observations under a mask or at ascending positions; ids and scale stay."""
        rows = self.by_user
        user, item = rows.row_index[keep], rows.index[keep]
        return self._with(self.users, self.items, user, item, keep)

    def onto(self, users: Ids, items: Ids) -> Ratings:
        """Return the observations of these users with these items, indexed as these ids are."""
        if users == self.users and items == self.items:
            return self
        rows = self.by_user
        user = users.index(self.users.values, "user ids")[rows.row_index]
        item = items.index(self.items.values, "item ids")[rows.index]
        keep = (user >= 0) & (item >= 0)
        return self._with(users, items, user[keep], item[keep], keep)

    def put(self, more: Ratings) -> Ratings:
        """Return these observations and ``more``, which has the same ids.

        Where both rate the same pair, ``more`` counts. Times are kept if both have them. If one
        has weights, those of the other are 1.
        """
        by_user, by_item = _put(self.by_user, more.by_user), _put(self.by_item, more.by_item)
        return replace(self, by_user=by_user, by_item=by_item)

    def drop_unused(self) -> Ratings:
        """Return the same observations without the users and items that have none."""
        users, items = self.by_user.counts > 0, self.by_item.counts > 0
        if users.all() and items.all():
            return self
        new_user = np.cumsum(users, dtype=np.int32) - np.int32(1)
        new_item = np.cumsum(items, dtype=np.int32) - np.int32(1)
        rows = self.by_user
        user, item = new_user[rows.row_index], new_item[rows.index]
        return self._with(self.users.take(users), self.items.take(items), user, item, slice(None))

    def _with(
        self, users: Ids, items: Ids, user: NDArray[np.int32], item: NDArray[np.int32], keep: Any
    ) -> Ratings:
        """Index the observations at ``keep`` anew, by users and items of other ids."""
        rows = self.by_user
        times, weights = take(rows.times, keep), take(rows.weights, keep)
        made = Ratings.from_sorted(
            users, items, user, item, rows.values[keep], times, self.scale, self.name, weights
        )
        return replace(made, columns=self.columns)

    def to_arrow(self) -> pa.Table:
        """Return a table: user, item, rating and, if there are any, time and weight."""
        rows = self.by_user
        table = {
            "user": pa.array(self.users.values).take(pa.array(rows.row_index)),
            "item": pa.array(self.items.values).take(pa.array(rows.index)),
            "rating": pa.array(rows.values),
        }
        if rows.times is not None:
            table["time"] = pa.array(rows.times)
        if rows.weights is not None:
            table["weight"] = pa.array(rows.weights)
        return pa.table(table)

    def to_sparse(self) -> Any:
        """Return a scipy csr array with one row for each user and one column for each item."""
        from scipy import sparse

        rows = self.by_user
        shape = (self.n_users, self.n_items)
        return sparse.csr_array((rows.values, rows.index, rows.starts), shape=shape)

    def fingerprint(self) -> str:
        """Return a sha256 of ids, observations and scale: equal ratings have equal fingerprints."""
        digest = hashlib.sha256(repr(self.scale).encode())
        for ids in (self.users, self.items):
            digest.update(f"|{ids.kind} {len(ids)}|".encode())
            text = ids.kind == "text"
            digest.update("\0".join(ids.values).encode() if text else ids.values.tobytes())
        rows = self.by_user
        # Compact types depend on the other ratings of the input, so widen them, block by block.
        arrays: list[tuple[NDArray[Any], Any]] = [
            (rows.starts, np.int64),
            (rows.index, np.int32),
            (rows.values, np.float64),
        ]
        if rows.times is not None:
            arrays.append((rows.times, np.int64))
        if rows.weights is not None:
            digest.update(b"|weights")  # which may have the bytes of times
            arrays.append((rows.weights, np.float64))
        for array, wide in arrays:
            digest.update(b"|")
            for start in range(0, len(array), 1 << 20):
                digest.update(array[start : start + (1 << 20)].astype(wide).data)
        return digest.hexdigest()


def _put(rows: Rows, more: Rows) -> Rows:
    """Put observations among those of the same rows, or in their place."""
    at = np.empty(len(more.index), np.int64)
    for row in np.flatnonzero(more.counts):
        mine, theirs = slice(*rows.starts[row : row + 2]), slice(*more.starts[row : row + 2])
        at[theirs] = mine.start + np.searchsorted(rows.index[mine], more.index[theirs])
    row_index = more.row_index
    there = at < rows.starts[1:][row_index]
    there[there] = rows.index[at[there]] == more.index[there]
    added = np.bincount(row_index[~there], minlength=len(rows.starts) - 1)
    starts = rows.starts.copy()
    starts[1:] += np.cumsum(added)

    def join(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        whole = old.astype(np.result_type(old, new), copy=bool(there.any()))
        if there.any():
            whole[at[there]] = new[there]
        return np.insert(whole, at[~there], new[~there])

    times = weights = None
    if rows.times is not None and more.times is not None:
        times = join(rows.times, more.times)
    if rows.weights is not None or more.weights is not None:
        weights = join(_weights(rows), _weights(more))
    index, values = join(rows.index, more.index), join(rows.values, more.values)
    return Rows(starts, index, values, times, weights)


def _weights(rows: Rows) -> NDArray[np.float64]:
    return np.ones(len(rows.index)) if rows.weights is None else rows.weights
