"""From whatever the caller has (arrays, a sparse matrix, a dataframe) to four plain columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals as nw
import numpy as np
import pyarrow as pa

from bayesmf.data.ids import Place, to_arrow
from bayesmf.errors import DataError

Role = Literal["user", "item", "rating", "time"]
ROLES: tuple[Role, ...] = ("user", "item", "rating", "time")

KNOWN_NAMES: Mapping[Role, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "users", "reviewerid", "reviewer", "customerid", "customer",
             "memberid", "accountid", "profileid", "profilename", "username"),
    "item": ("item", "itemid", "iid", "items", "movie", "movieid", "productid", "product", "asin",
             "isbn", "book", "bookid", "artist", "artistid", "businessid", "songid", "trackid",
             "gameid", "animeid", "jokeid", "recipeid", "beerid"),
    "rating": ("rating", "ratings", "score", "stars", "star", "overall", "bookrating",
               "reviewoverall", "reviewscore", "value"),
    "time": ("timestamp", "unixreviewtime", "unixtimestamp", "time", "ts", "datetime", "date",
             "createdat"),
}  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """Ratings as read, one Arrow column per role, before any check."""

    user: pa.ChunkedArray
    item: pa.ChunkedArray
    rating: pa.ChunkedArray
    time: pa.ChunkedArray | None
    place: Place
    untyped: bool = False  # read from a text file, so that ids are text until shown otherwise


def recognise(
    names: Sequence[str], given: Mapping[Role, str | int | None], where: str,
    roles: Sequence[Role] = ROLES,
) -> dict[Role, int]:  # fmt: skip
    """Which column plays which role: as given (a name, or a position from 1), else by its name."""
    found: dict[Role, int] = {}
    for role in roles:
        wanted = given.get(role)
        if wanted is not None and (role, wanted) != ("time", "none"):
            k = _position(names, wanted, role, where)
            if k in found.values():
                raise DataError(
                    f"{where}: column {names[k]!r} cannot be both the {role} and another; name "
                    "different columns"
                )
            found[role] = k
    plain = [_plain(name) for name in names]
    for role in roles:
        if role in found or (role == "time" and given.get("time") == "none"):
            continue
        known = KNOWN_NAMES[role]
        matches = [k for k, name in enumerate(plain) if name in known and k not in found.values()]
        if len(matches) > 1 and role != "time":
            both = " and ".join(repr(names[k]) for k in matches[:2])
            raise DataError(
                f"{where}: {both} could both be the {role}; choose with --{role}-col NAME or its "
                f"number ({role}= in Python)"
            )
        if matches:
            found[role] = min(matches, key=lambda k: known.index(plain[k]))
        elif role != "time":
            listed = ", ".join(repr(name) for name in names)
            raise DataError(
                f"{where}: no column for the {role} among {listed}; name it with "
                f"--{role}-col NAME ({role}=NAME in Python)"
            )
    return found


def _position(names: Sequence[str], wanted: str | int, role: Role, where: str) -> int:
    if isinstance(wanted, str) and wanted in names:
        return list(names).index(wanted)
    if isinstance(wanted, int) or wanted.isdecimal():
        if 1 <= int(wanted) <= len(names):
            return int(wanted) - 1
        raise DataError(f"{where}: no column {wanted} for the {role}; there are {len(names)}")
    listed = ", ".join(repr(name) for name in names)
    raise DataError(f"{where}: no column {wanted!r} for the {role}; the columns are {listed}")


def _plain(name: str) -> str:
    """'User-ID', 'user_id' and 'user_id:token' all become 'userid'."""
    return "".join(c for c in name.split(":")[0].casefold() if c.isalnum())


def from_triplets(users: Any, items: Any, ratings: Any, times: Any = None) -> Columns:
    """Parallel sequences: entry k of each is one observation."""

    def place(row: int) -> str:
        return f"rating {row + 1} of the arrays"

    user = to_arrow(users, "user", place)
    item = to_arrow(items, "item", place)
    rating = to_arrow(ratings, "rating", place)
    time = None if times is None else to_arrow(times, "time", place)
    given = {"users": user, "items": item, "ratings": rating, "times": time}
    lengths = {name: len(column) for name, column in given.items() if column is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise DataError(f"the arrays differ in length ({told}); give one of each per rating")
    return Columns(user, item, rating, time, place)


def from_frame(frame: Any, given: Mapping[Role, str | int | None]) -> Columns:
    """A pandas, polars or pyarrow table, or whatever else narwhals reads."""
    try:
        table = nw.from_native(frame, eager_only=True)
        names = [str(name) for name in table.columns]
    except nw.exceptions.DuplicateError:
        raise DataError("two columns of the frame have the same name; rename one") from None
    except TypeError:
        raise DataError(
            f"a {type(frame).__name__} is not a dataframe; give a pandas, polars or pyarrow table"
        ) from None
    roles = recognise(names, given, "the frame")

    def place(row: int) -> str:
        return f"the frame, row {row + 1}"

    def column(role: Role) -> pa.ChunkedArray | None:
        if role not in roles:
            return None
        series = table.get_column(table.columns[roles[role]])
        try:
            column = series.to_arrow()
        except (pa.ArrowException, OverflowError, TypeError):
            column = series.to_list()
        return to_arrow(column, role, place)

    user, item, rating = column("user"), column("item"), column("rating")
    return Columns(user, item, rating, column("time"), place)


def from_sparse(
    matrix: Any, users: Literal["rows", "columns"], user_ids: Any = None, item_ids: Any = None
) -> Columns:
    """A scipy sparse matrix; every stored entry is a rating, a stored zero too."""
    if not hasattr(matrix, "tocoo") or matrix.ndim != 2:
        raise DataError(
            f"a {type(matrix).__name__} is not a scipy sparse matrix; in a dense array a missing "
            "rating cannot be told from a zero: give triplets instead"
        )
    if users not in ("rows", "columns"):
        raise DataError(f"users={users!r}: say users='rows' or users='columns'")
    entries = matrix.tocoo()
    axes = [entries.row, entries.col]
    sizes = list(entries.shape)
    if users == "columns":
        axes.reverse()
        sizes.reverse()
    ids = [
        _axis(*axis)
        for axis in zip(axes, sizes, (user_ids, item_ids), ("user", "item"), strict=True)
    ]

    def place(row: int) -> str:
        return f"entry ({entries.row[row]}, {entries.col[row]}) of the matrix"

    values = to_arrow(np.asarray(entries.data), "rating", place)
    return Columns(ids[0], ids[1], values, None, place)


def _axis(index: Any, size: int, own: Any, what: str) -> pa.ChunkedArray:
    """The ids of the entries along one axis: the caller's own, or the positions."""

    def place(row: int) -> str:
        return f"{what} id {row + 1}"

    if own is None:
        return to_arrow(np.asarray(index, np.int64), what, place)
    column = to_arrow(own, what, place)
    if len(column) != size:
        raise DataError(f"{len(column)} {what} ids for {size} {what}s; give one for each")
    if len(column.unique()) != size:
        raise DataError(f"two {what}s have the same id; give each its own")
    return column.take(pa.array(index))
