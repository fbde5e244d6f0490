"""The users' and the items' own ids, and the integers that stand for them inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bayesmf.errors import DataError

Kind = Literal["integer", "text"]
Place = Callable[[int], str]
"""Says where row k of the input stands, for an error message: "ratings.csv, line 7"."""

INTEGER = r"^-?[0-9]+$"


@dataclass(frozen=True, eq=False)
class Ids:
    """Distinct ids in ascending order; an id's index is its position here.

    Integers are kept as int64, text as Python strings. Sorting makes the index independent
    of the order of the rows in the input.
    """

    values: NDArray[Any]

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    @property
    def kind(self) -> Kind:
        """Whether the ids are integers or text."""
        return "text" if self.values.dtype == object else "integer"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        return self.kind == other.kind and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def index(self, ids: Sequence[Any] | NDArray[Any], what: str = "ids") -> NDArray[np.int32]:
        """The index of each id, or -1 where it is unknown."""
        asked = to_arrow(ids, "ids", lambda row: f"id {row + 1} of those asked for")
        if len(asked) == 0:
            return np.empty(0, np.int32)
        kind = "integer" if pa.types.is_integer(asked.type) else "text"
        if kind != self.kind:
            named = {"integer": "integers", "text": "text"}
            raise DataError(
                f"the {what} are {named[self.kind]} here but {named[kind]} in the question "
                f"(such as {asked[0].as_py()!r}); ask with ids of the same type"
            )
        known = pa.array(self.values, pa.int64() if kind == "integer" else pa.string())
        found = pc.fill_null(pc.index_in(asked.cast(known.type), value_set=known), -1)
        return found.to_numpy().astype(np.int32, copy=False)  # type: ignore[no-any-return]

    def take(self, keep: NDArray[Any]) -> Ids:
        """The ids at the given positions, or under the given mask."""
        return Ids(self.values[keep])


def to_arrow(values: Any, what: str, place: Place) -> pa.ChunkedArray:
    """One column as Arrow, refusing values of mixed types instead of converting them."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "T":
        values = values.astype(object)
    if np.ndim(values) != 1 and not isinstance(values, pa.ChunkedArray):
        raise DataError(f"the {what} column is not a list of values; give one for each rating")
    try:
        column = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError):
        raise DataError(_mixed_objects(values, what, place)) from None
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def encode(
    column: pa.ChunkedArray, what: str, place: Place, untyped: bool, as_text: bool = False
) -> tuple[Ids, NDArray[np.int32]]:
    """Distinct ids in ascending order, and for each row the index of its id.

    ``untyped`` says that the column was read from a text file, where "12" means the integer 12
    unless another id of the column says otherwise; ``as_text`` makes it text all the same.
    """
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DataError(f"{place(row)}: the {what} id is empty; give every rating a {what}")
    if pa.types.is_integer(column.type) and as_text:
        column = column.cast(pa.string())
    if pa.types.is_integer(column.type):
        return _number(_as_int64(column, what, place))
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(
            f"{place(0)}: the {what} ids are of type {column.type} (such as "
            f"{column[0].as_py()!r}); "
            "ids are integers or text: convert the column first"
        )
    if untyped and not as_text:
        integers = _as_integers(column)
        if integers is not None:
            return integers
    ids, codes = _number(column)
    _check_text(ids.values, codes, what, place, may_mix=as_text or not untyped)
    return ids, codes


def _as_int64(column: pa.ChunkedArray, what: str, place: Place) -> pa.ChunkedArray:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        row = int(np.argmax(column.to_numpy() > np.iinfo(np.int64).max))
        raise DataError(
            f"{place(row)}: the {what} id {column[row]} does not fit in 64 signed bits; "
            "give such ids as text"
        ) from None


def _as_integers(column: pa.ChunkedArray) -> tuple[Ids, NDArray[np.int32]] | None:
    """The text as integers if that loses nothing ("007" is not 7) but blanks around, else None."""
    try:
        ids, codes = _number(column.cast(pa.int64()))
    except pa.ArrowInvalid:
        column = pc.utf8_trim_whitespace(column)
        try:
            ids, codes = _number(column.cast(pa.int64()))
        except pa.ArrowInvalid:
            return None
    # Any other spelling of an integer is longer than the canonical one, so equal total
    # lengths mean that every spelling is canonical.
    written = pc.sum(pc.binary_length(column)).as_py()
    lengths = np.array([len(str(value)) for value in ids.values.tolist()])
    canonical = int(np.bincount(codes, minlength=len(ids)) @ lengths)
    return (ids, codes) if written == canonical else None


def _number(column: pa.ChunkedArray) -> tuple[Ids, NDArray[np.int32]]:
    encoded = column.dictionary_encode().combine_chunks()
    distinct = encoded.dictionary
    order = pc.sort_indices(distinct).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = rank[encoded.indices.to_numpy()]
    if pa.types.is_integer(column.type):
        return Ids(distinct.to_numpy()[order]), codes
    return Ids(np.array(distinct.take(pa.array(order)).to_pylist(), dtype=object)), codes


def _check_text(
    ids: NDArray[Any], codes: NDArray[np.int32], what: str, place: Place, may_mix: bool
) -> None:
    """Refuse empty ids, ids no text file can hold and, unless they may mix, numbers among text."""

    def first_row(bad: NDArray[np.bool_]) -> int:
        return int(np.argmax(bad[codes]))

    texts = pa.array(ids, pa.string())
    empty = pc.equal(pc.utf8_trim_whitespace(texts), "").to_numpy(zero_copy_only=False)
    if empty.any():
        raise DataError(
            f"{place(first_row(empty))}: the {what} id is empty; give every rating a {what}"
        )
    nul = pc.match_substring(texts, "\0").to_numpy(zero_copy_only=False)
    if nul.any():
        row = first_row(nul)
        raise DataError(
            f"{place(row)}: the {what} id {ids[codes[row]]!r} holds a NUL character; remove it"
        )
    if may_mix:
        return
    numeric = pc.match_substring_regex(texts, INTEGER).to_numpy(zero_copy_only=False)
    other = numeric != numeric[codes[0]]
    if other.any():
        row = first_row(other)
        kind, rest = ("text", "integers") if numeric[codes[0]] else ("an integer", "text")
        raise DataError(
            f"{place(row)}: the {what} id {ids[codes[row]]!r} is {kind} but those before it are "
            f"{rest}; correct it, or read all ids as text with --ids text (ids='text' in Python)"
        )


def _mixed_objects(values: Any, what: str, place: Place) -> str:
    """The sentence for a column whose values have no common type."""
    first = next((type(v) for v in values if v is not None), type(None))
    for row, value in enumerate(values):
        if value is not None and type(value) is not first:
            return (
                f"{place(row)}: the {what} column mixes types: {value!r} is "
                f"{type(value).__name__} but those before it are {first.__name__}; "
                "convert the column to one type"
            )
    return (
        f"{place(0)}: the {what} column holds {first.__name__} values that cannot be used; give "
        "64-bit integers, finite numbers or text"
    )
