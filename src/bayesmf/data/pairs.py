"""Pairs of users and items in, frames out, in the caller's own kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from time import time as clock
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bayesmf.data.columns import Role, as_frame, read_column, recognise
from bayesmf.data.ids import Ids, to_arrow
from bayesmf.data.ratings import Ratings
from bayesmf.data.values import check_times
from bayesmf.errors import DataError, Option

Index = NDArray[np.int32]


@dataclass(frozen=True)
class Pairs:
    """Whose rating of what is asked for, perhaps when, and the frame that the question came in."""

    user: Any
    item: Any
    time: Any = None  # as it was given; ``seconds`` checks it
    like: Any = None  # the frame, if there was one
    others: Any = None  # a frame of its other columns, which come back in the answer
    rows: tuple[Index, Index] | None = None  # in the model's ids, where the caller knows them

    def seconds(self) -> NDArray[np.int64] | None:
        """Return the times as whole seconds since 1970, or None if there are none."""
        if self.time is None:
            return None
        remedy = "correct it, or leave the column of times out"
        return check_times(to_arrow(self.time, "time", _place), _place, remedy)

    def at(self, time: Any) -> Pairs:
        """Return the same pairs, all at one time (see ``read_time``) unless it is None."""
        if time is None:
            return self
        if self.time is not None:
            raise DataError(
                f"the pairs have times of their own; leave {Option('at')} out, or their times"
            )
        seconds = np.full(len(to_arrow(self.user, "user", _place)), read_time(time), np.int64)
        return replace(self, time=seconds)


def read_time(asked: Any) -> int:
    """Read a time as seconds since 1970: a whole number of them, a date, or "now"."""
    if asked == "now":
        return int(clock())
    if isinstance(asked, int | np.integer) and not isinstance(asked, bool):
        return int(asked)
    if isinstance(asked, str) and asked.strip().isdigit():
        return int(asked)
    try:
        if isinstance(asked, datetime) and asked.tzinfo is not None:
            return int(asked.timestamp())
        found = np.datetime64(asked, "s")
        if asked is None or isinstance(asked, bool) or np.isnat(found):
            raise ValueError
    except (TypeError, ValueError):
        raise DataError(
            f"{Option('at', str(asked))} is no time; write a date such as 2026-11-17, seconds "
            "since 1970, or now"
        ) from None
    return int(found.astype(np.int64))


class Cells(NamedTuple):
    """Pairs by the numbers of their rows in a model; -1 stands for somebody it does not know.

    Strangers of whom attributes are known have numbers of their own, from -2 down.
    """

    user: Index
    item: Index
    time: NDArray[np.int64] | None = None  # seconds since 1970
    given: Mapping[str, Any] | None = None  # by side, the designs of strangers -2, -3, ...

    @classmethod
    def of(cls, asked: Pairs | Ratings, users: Ids, items: Ids, *, timed: bool = True) -> Cells:
        """Find the rows of pairs, or of ratings in their order.

        - ``users``, ``items``: the ids of the model, whose positions are its rows.
        - ``timed``: False leaves out the times, and does not look at them.
        """
        if isinstance(asked, Ratings):
            rows = asked.by_user
            times = rows.times if timed else None
            return cls(
                _renumber(asked.users, users, "user")[rows.row_index],
                _renumber(asked.items, items, "item")[rows.index],
                None if times is None else np.asarray(times, np.int64),
            )
        time = asked.seconds() if timed else None
        if asked.rows is not None:
            return cls(*asked.rows, time)
        user = to_arrow(asked.user, "user", _place)
        item = to_arrow(asked.item, "item", _place)
        if len(user) != len(item):
            raise DataError(f"{len(user)} users and {len(item)} items make no pairs; give as many")
        return cls(users.index(user, "user ids"), items.index(item, "item ids"), time)

    def take(self, span: Any) -> Cells:
        """Return some of the cells, by a slice or a mask."""
        time = None if self.time is None else self.time[span]
        return Cells(self.user[span], self.item[span], time, self.given)

    def plain(self) -> Cells:
        """Return the same with -1 for all strangers."""
        return Cells(np.maximum(self.user, -1), np.maximum(self.item, -1), self.time)


def ids_of(asked: Pairs | Ratings, side: str) -> NDArray[Any]:
    """The ids of the users, or items, of pairs or ratings, in their order."""
    if isinstance(asked, Ratings):
        rows = asked.by_user
        if side == "user":
            return asked.users.values[rows.row_index]
        return asked.items.values[rows.index]
    return np.array(to_arrow(getattr(asked, side), side, _place).to_pylist(), object)


def _place(row: int) -> str:
    return f"pair {row + 1}"


def _renumber(theirs: Ids, ours: Ids, what: str) -> Index:
    """For each of their ids its position among ours; -1 where there is none."""
    if theirs is ours:
        return np.arange(len(ours), dtype=np.int32)
    return ours.index(theirs.values, f"{what} ids")


def pairs_of(
    given: Any,
    user: str | int | None = None,
    item: str | int | None = None,
    time: str | int | None = None,
) -> Pairs:
    """Read pairs from a frame, ratings, a list of (user, item), or two columns of an array.

    Columns of a frame that are not named are recognised by their names; a time may be missing.
    """
    if isinstance(given, Pairs):
        return given
    if isinstance(given, Ratings):
        table = given.to_arrow()
        return Pairs(table["user"], table["item"], given.by_user.times)
    try:
        frame = as_frame(given)
    except TypeError:
        return _read_plain(given)
    roles = recognise(
        [str(name) for name in frame.columns],
        {"user": user, "item": item, "time": time},
        "the frame",
        ("user", "item", "time"),
    )
    columns = {role: read_column(frame, k) for role, k in roles.items()}
    pair = roles["user"], roles["item"]
    others = frame[:, [k for k in range(len(frame.columns)) if k not in pair]].to_native()
    like = frame.to_native()
    return Pairs(columns["user"], columns["item"], columns.get("time"), like, others)


def _read_plain(given: Any) -> Pairs:
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.shape[1] != 2:
            raise DataError(
                f"an array of shape {given.shape} holds no pairs; give two columns, user and item"
            )
        return Pairs(given[:, 0], given[:, 1])
    try:
        if isinstance(given, str | Mapping):
            raise TypeError
        rows = [None if isinstance(pair, str) else tuple(pair) for pair in given]
        user, item = [u for u, _ in rows], [i for _, i in rows]  # type: ignore[misc]
    except (TypeError, ValueError):
        raise DataError(
            f"{_shown(given)} holds no pairs; give a frame with the columns user and item, or a "
            "list of (user, item)"
        ) from None
    return Pairs(user, item)


def _shown(given: Any) -> str:
    return f"{given!r}" if np.ndim(given) == 0 else f"the {type(given).__name__}"


def ids_in(given: Any, role: Role, named: str | int | None = None) -> tuple[Any, Any]:
    """Read ids from one id, a list, a column, or a frame with a column of users (or items).

    Returns the ids, and the frame or column they came in, if they came in one.
    """
    if isinstance(given, str | int | np.integer):
        given = [given]
    try:
        native = as_frame(given, column=True)
    except TypeError:
        ids = np.asarray(given)
        if ids.ndim != 1:
            raise DataError(
                f"{_shown(given)} is no list of {role}s; give one id, a list of ids, or a frame "
                f"with the column {role}"
            ) from None
        return ids, None
    if isinstance(native, nw.Series):
        return native.to_numpy(), given
    names = [str(name) for name in native.columns]
    roles = recognise(names, {role: named}, "the frame", (role,))
    return native.get_column(native.columns[roles[role]]).to_numpy(), native.to_native()


def frame_like(columns: Mapping[str, Any], like: Any = None, *, same_rows: bool = True) -> Any:
    """Make a frame of the kind of ``like``, or a pyarrow table where there is none.

    ``same_rows`` says that row k of the frame answers row k of ``like``: then a pandas frame has
    the index of ``like``, so that its columns can be put beside those of ``like``.
    """
    table = pa.table({name: _to_arrow(values) for name, values in columns.items()})
    if like is None or isinstance(like, pa.Table | pa.ChunkedArray | pa.Array):
        return table
    asked = as_frame(like, column=True)
    frame = nw.from_arrow(table, backend=nw.get_native_namespace(asked)).to_native()
    index = nw.maybe_get_index(asked) if same_rows else None
    if index is not None:
        frame.index = index
    return frame


def answer_pairs(columns: Mapping[str, Any], asked: Pairs) -> Any:
    """Make the frame that answers pairs, with the other columns of the frame that they came in.

    A column of the answer takes the place of one of the same name.
    """
    made = frame_like(columns, asked.like)
    if asked.others is None:
        return made
    others = as_frame(asked.others)
    kept = [k for k, name in enumerate(others.columns) if str(name) not in columns]
    if not kept:
        return made
    return nw.concat([nw.from_native(made), others[:, kept]], how="horizontal").to_native()


def _to_arrow(values: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    text = isinstance(values, np.ndarray) and values.dtype.kind == "O"
    return pa.array(values.tolist() if text else values)
