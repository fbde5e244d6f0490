"""Pairs of users and items in, frames out, in the caller's own kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bayesmf.data.columns import recognise
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError


@dataclass(frozen=True)
class Pairs:
    """Whose rating of what is asked for, and the frame they came in, if they came in one."""

    user: Any
    item: Any
    like: Any = None
    places: tuple[Any, Any] | None = None  # in a model, where they are known already


def pairs_of(given: Any, user: str | int | None = None, item: str | int | None = None) -> Pairs:
    """From a frame with a user and an item column, ratings, pairs, or two columns of an array."""
    if isinstance(given, Pairs):
        return given
    if isinstance(given, Ratings):
        table = given.to_arrow()
        return Pairs(table["user"], table["item"])
    try:
        frame = nw.from_native(given, eager_only=True)
    except TypeError:
        return _plain(given)
    roles = recognise([str(name) for name in frame.columns], {"user": user, "item": item},
                      "the frame", ("user", "item"))  # fmt: skip
    users, items = (frame.get_column(frame.columns[roles[r]]).to_arrow() for r in ("user", "item"))
    return Pairs(users, items, given)


def _plain(given: Any) -> Pairs:
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.shape[1] != 2:
            raise DataError(
                f"an array of shape {given.shape} holds no pairs; give two columns, user and item"
            )
        return Pairs(given[:, 0], given[:, 1])
    try:
        pairs = [(user, item) for user, item in given]
    except (TypeError, ValueError):
        raise DataError(
            f"a {type(given).__name__} holds no pairs; give a frame with the columns user and "
            "item, or a list of (user, item)"
        ) from None
    return Pairs([user for user, _ in pairs], [item for _, item in pairs])


def users_of(given: Any) -> tuple[Any, Any]:
    """Ids from one id, a list, a column or a frame with a user column, and the frame's kind."""
    if isinstance(given, str | int | np.integer):
        given = [given]
    try:
        native = nw.from_native(given, eager_only=True, allow_series=True)
    except TypeError:
        return np.asarray(given), None
    if isinstance(native, nw.Series):
        return native.to_numpy(), given
    names = [str(name) for name in native.columns]
    roles = recognise(names, {}, "the frame", ("user",))
    return native.get_column(native.columns[roles["user"]]).to_numpy(), given


def frame_like(columns: Mapping[str, Any], like: Any = None) -> Any:
    """A frame of the kind of another one; a pyarrow table where there is none."""
    table = pa.table({name: _arrow(values) for name, values in columns.items()})
    if like is None or isinstance(like, pa.Table):
        return table
    if isinstance(like, pa.ChunkedArray | pa.Array):
        return table
    backend = nw.get_native_namespace(nw.from_native(like, eager_only=True, allow_series=True))
    return nw.from_arrow(table, backend=backend).to_native()


def _arrow(values: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    text = isinstance(values, np.ndarray) and values.dtype.kind == "O"
    return pa.array(values.tolist() if text else values)


class Cells(NamedTuple):
    """Pairs by the numbers of their rows in a model; -1 stands for somebody it does not know."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    time: NDArray[Any] | None = None  # seconds since 1970

    def take(self, span: Any) -> Cells:
        """Some of the cells, by a slice or a mask."""
        time = None if self.time is None else self.time[span]
        return Cells(self.user[span], self.item[span], time)
