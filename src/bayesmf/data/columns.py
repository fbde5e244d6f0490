"""From whatever the caller has (arrays, a sparse matrix, a dataframe) to plain columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import narwhals as nw
import numpy as np
import pyarrow as pa

from bayesmf.data.ids import Locate, to_arrow
from bayesmf.errors import DataError, Option

Role = Literal["user", "item", "rating", "time", "weight"]
ROLES: tuple[Role, ...] = get_args(Role)
OPTIONAL: tuple[Role, ...] = ("time", "weight")  # which ratings may have or not
Axis = Literal["rows", "columns"]
Named = Mapping[Role, str | int | None]
"""The column of each role as the user named it: by its name, by its number from 1, or not at all.

A role that is no key cannot be named by the caller's interface.
"""


class Remembered(str):
    """The name that a column had in training; it counts where there is a column of that name."""


KNOWN_NAMES: Mapping[Role, str] = {
    "user": "user userid uid users reviewerid reviewer customerid customer memberid accountid "
    "profileid profilename username",
    "item": "item itemid iid items movie movieid productid product asin isbn book bookid artist "
    "artistid businessid songid trackid gameid animeid jokeid recipeid beerid",
    "rating": "rating ratings score stars star overall bookrating reviewoverall reviewscore value",
    "time": "timestamp unixreviewtime unixtimestamp time ts datetime date createdat",
    "weight": "weight weights",
}
ID_NAMES = {"id", *KNOWN_NAMES["user"].split(), *KNOWN_NAMES["item"].split()}
"""What the column with the ids of a table about users or items may be called."""


@dataclass(frozen=True)
class Columns:
    """Ratings as they were read, one Arrow column for each role, before any check."""

    user: pa.ChunkedArray
    item: pa.ChunkedArray
    rating: pa.ChunkedArray
    time: pa.ChunkedArray | None
    locate: Locate
    untyped: bool = False  # read from a text file, so that ids are text until shown otherwise
    time_remedy: str = f"ignore times with {Option('time', 'none')}"
    reader: str = ""  # the function to name beside its options, as it may not be the one called
    weight: pa.ChunkedArray | None = None
    weight_remedy: str = f"ignore weights with {Option('weight', 'none')}"
    names: Mapping[Role, str] = field(default_factory=dict)  # that the columns had, if they had any


def recognise(
    names: Sequence[str], given: Named, where: str, roles: Sequence[Role] = ROLES, reader: str = ""
) -> dict[Role, int]:
    """Return the position of the column that plays each role.

    A column is the one that ``given`` names, else the one that is remembered there, and else the
    one whose own name is known to play the role. ``where`` begins the messages, and ``reader`` is
    the function whose options they name.
    """
    found: dict[Role, int] = {}
    for role in roles:
        name = given.get(role)
        if name is not None and not (
            isinstance(name, Remembered) or (role in OPTIONAL and name == "none")
        ):
            k = position(names, name, role, where)
            if k in found.values():
                raise DataError(
                    f"{where}: column {names[k]!r} cannot be both the {role} and another; name "
                    "different columns"
                )
            found[role] = k
    for role in roles:
        name = given.get(role)
        if isinstance(name, Remembered) and name in names:
            k = list(names).index(name)
            if k not in found.values():
                found[role] = k
    plain = [simplify(name) for name in names]
    for role in roles:
        if role in found or (role in OPTIONAL and given.get(role) == "none"):
            continue
        known = KNOWN_NAMES[role].split()
        matches = [k for k, name in enumerate(plain) if name in known and k not in found.values()]
        if len(matches) > 1 and role not in OPTIONAL:
            both = " and ".join(repr(names[k]) for k in matches[:2])
            remedy = "rename one of them"
            if role in given:
                remedy = f"choose one by its name or number with {Option(role, None, reader)}"
            raise DataError(f"{where}: {both} could both be the {role}; {remedy}")
        if matches:
            found[role] = min(matches, key=lambda k: known.index(plain[k]))
        elif role not in OPTIONAL:
            remedy = f"call the column {role!r}"
            if role in given:
                remedy = f"name it with {Option(role, 'NAME', reader)}"
            listed = list_names(names)
            raise DataError(f"{where}: no column for the {role} among {listed}; {remedy}")
    return found


def position(names: Sequence[str], name: str | int, role: str, where: str) -> int:
    """Return the position of the column with this name, or this number from 1."""
    if isinstance(name, str) and name in names:
        return list(names).index(name)
    if isinstance(name, int) or name.isdecimal():
        if 1 <= int(name) <= len(names):
            return int(name) - 1
        raise DataError(
            f"{where}: no column {name} for the {role}; there are {len(names)}, counted from 1"
        )
    listed = list_names(names)
    raise DataError(f"{where}: no column {name!r} for the {role}; the columns are {listed}")


def list_names(names: Sequence[str]) -> str:
    """Write names for a message."""
    return ", ".join(repr(name) for name in names)


def simplify(name: str) -> str:
    """Make 'userid' of 'User-ID', 'user_id' and 'user_id:token'."""
    return "".join(c for c in name.split(":")[0].casefold() if c.isalnum())


def from_triplets(
    users: Any, items: Any, ratings: Any, times: Any = None, weights: Any = None
) -> Columns:
    """Take parallel sequences, of which the entries at one position make one observation."""

    def locate(row: int) -> str:
        return f"rating {row + 1} of the arrays"

    user = to_arrow(users, "user", locate)
    item = to_arrow(items, "item", locate)
    rating = to_arrow(ratings, "rating", locate)
    time = None if times is None else to_arrow(times, "time", locate)
    weight = None if weights is None else to_arrow(weights, "weight", locate)
    given = {"users": user, "items": item, "ratings": rating, "times": time, "weights": weight}
    lengths = {name: len(column) for name, column in given.items() if column is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise DataError(f"the arrays differ in length ({listed}); give one of each per rating")
    return Columns(
        user,
        item,
        rating,
        time,
        locate,
        time_remedy="leave times= out",
        weight=weight,
        weight_remedy="leave weights= out",
    )


def as_frame(given: Any, *, column: bool = False) -> Any:
    """Return a frame as narwhals has it, or a single ``column``; raise TypeError for others.

    What a lazy frame describes is computed.
    """
    found = nw.from_native(given, allow_series=True) if column else nw.from_native(given)
    return found.collect() if isinstance(found, nw.LazyFrame) else found


def open_frame(frame: Any, refusal: str) -> tuple[Any, list[str]]:
    """Return a frame as narwhals has it, and the names of its columns.

    ``refusal`` is what to say of an object that is no frame.
    """
    try:
        table = as_frame(frame)
        return table, [str(name) for name in table.columns]
    except nw.exceptions.DuplicateError:
        raise DataError("two columns of the frame have the same name; rename one") from None
    except TypeError:
        raise DataError(refusal) from None


def read_column(table: Any, position: int) -> Any:
    """Return a column of a frame in Arrow, or as a list if its values are of mixed types."""
    series = table.get_column(table.columns[position])
    try:
        return series.to_arrow()
    except (pa.ArrowException, OverflowError, TypeError):  # who needs the column will say so
        return series.to_list()


def locate_in_frame(row: int) -> str:
    """Say where a row of a frame stands."""
    return f"the frame, row {row + 1}"


def from_frame(frame: Any, given: Named) -> Columns:
    """Take a pandas, polars or pyarrow table, or whatever else narwhals reads."""
    table, names = open_frame(
        frame,
        f"a {type(frame).__name__} is not a dataframe; give a pandas, polars or pyarrow table",
    )
    reader = "Ratings.from_frame"
    roles = recognise(names, given, "the frame", reader=reader)

    def column(role: Role) -> pa.ChunkedArray | None:
        if role not in roles:
            return None
        return to_arrow(read_column(table, roles[role]), role, locate_in_frame)

    return Columns(
        column("user"),
        column("item"),
        column("rating"),
        column("time"),
        locate_in_frame,
        time_remedy=f"ignore times with {Option('time', 'none', reader)}",
        reader=reader,
        weight=column("weight"),
        weight_remedy=f"ignore weights with {Option('weight', 'none', reader)}",
        names={role: names[k] for role, k in roles.items()},
    )


def from_sparse(matrix: Any, users: Axis, user_ids: Any = None, item_ids: Any = None) -> Columns:
    """Take a scipy sparse matrix, of which every stored entry is a rating, a stored zero too."""
    if not hasattr(matrix, "tocoo") or matrix.ndim != 2:
        raise DataError(
            f"a {type(matrix).__name__} is not a scipy sparse matrix; in a dense array a missing "
            "rating cannot be told from a zero: give triplets instead"
        )
    if users not in get_args(Axis):
        raise DataError(f"users={users!r}: say users='rows' or users='columns'")
    entries = matrix.tocoo()
    axes = [entries.row, entries.col]
    sizes = list(entries.shape)
    if users == "columns":
        axes.reverse()
        sizes.reverse()
    ids = [
        _ids_along(*axis)
        for axis in zip(axes, sizes, (user_ids, item_ids), ("user", "item"), strict=True)
    ]

    def locate(row: int) -> str:
        return f"entry ({entries.row[row]}, {entries.col[row]}) of the matrix"

    values = to_arrow(np.asarray(entries.data), "rating", locate)
    return Columns(ids[0], ids[1], values, None, locate)


def _ids_along(index: Any, size: int, own: Any, what: str) -> pa.ChunkedArray:
    """Return the id of each entry along one axis: the caller's ``own``, or the position."""

    def locate(row: int) -> str:
        return f"{what} id {row + 1}"

    if own is None:
        return to_arrow(np.asarray(index, np.int64), what, locate)
    column = to_arrow(own, what, locate)
    if len(column) != size:
        raise DataError(f"{len(column)} {what} ids for {size} {what}s; give one for each")
    if len(column.unique()) != size:
        raise DataError(f"two {what}s have the same id; give each its own")
    return column.take(pa.array(index))
