"""The ids that users and items have in the data, and the integers that stand for them inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bayesmf.errors import DataError, Option, clause

Kind = Literal["integer", "text"]
Locate = Callable[[int], str]
"""Says where row k of the input stands, for an error message: "ratings.csv, line 7"."""

INTEGER = r"^-?[0-9]+$"
FEW = 16  # one id is looked for as soon as a table of so many is made


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
        """Return the index of each id, or -1 where it is unknown; blanks around it do not count."""
        column = to_arrow(ids, "ids", lambda row: f"id {row + 1} of those asked for")
        if len(column) == 0:
            return np.empty(0, np.int32)
        kind = "integer" if pa.types.is_integer(column.type) else "text"
        if kind != self.kind:
            names = {"integer": "integers", "text": "text"}
            raise DataError(
                f"the {what} are {names[self.kind]} here but {names[kind]} in the question "
                f"(such as {column[0].as_py()!r}); ask with ids of the same type"
            )
        if column.type == pa.uint64():  # no id is above the largest int64
            column = pc.if_else(pc.less(column, pa.scalar(2**63, pa.uint64())), column, None)
        asked = column.cast(pa.int64() if kind == "integer" else pa.string())
        if FEW * len(asked) < len(self) and not asked.null_count:
            return self._search(asked)
        known = pa.array(self.values, asked.type)
        found = pc.index_in(asked, value_set=known)
        if kind == "text" and found.null_count:  # an old model may have ids with blanks
            found = pc.coalesce(found, pc.index_in(strip(asked), value_set=known))
        found = pc.fill_null(found, -1)
        return found.to_numpy().astype(np.int32, copy=False)  # type: ignore[no-any-return]

    def _search(self, asked: pa.ChunkedArray) -> NDArray[np.int32]:
        """Look for a few ids one by one, where a table of all ids would take longer to make."""
        if self.kind == "integer":
            return self._find(asked.to_numpy())
        found = self._find(np.array(asked.to_pylist(), object))
        if (found < 0).any():
            stripped = self._find(np.array(strip(asked).to_pylist(), object))
            found = np.where(found < 0, stripped, found)
        return found

    def _find(self, asked: NDArray[Any]) -> NDArray[np.int32]:
        at = np.minimum(np.searchsorted(self.values, asked), len(self) - 1)
        return np.where(self.values[at] == asked, at, -1).astype(np.int32)

    def take(self, keep: NDArray[Any]) -> Ids:
        """Return the ids at the given positions, or under the given mask."""
        return Ids(self.values[keep])


def strip(text: Any) -> Any:
    """Remove the blanks around each id of an Arrow column.

    This is the one rule for ids, wherever they come from: blanks around them do not count.
    """
    return pc.utf8_trim_whitespace(text)


def read_id(text: str, kind: Kind) -> int | str | None:
    """Return the id that a text means, or None if ids are integers and the text is none.

    Blanks around it do not count. "007" is not the integer 7.
    """
    stripped: str = strip(pa.array([text], pa.string()))[0].as_py()
    return stripped if kind == "text" else _read_integer(stripped)


def _read_integer(text: str) -> int | None:
    if text.removeprefix("-").isdecimal() and str(int(text)) == text and abs(int(text)) < 2**63:
        return int(text)
    return None


def look_up(known: Ids, column: pa.ChunkedArray, what: str, locate: Locate) -> NDArray[np.int32]:
    """Return the index of each id of a column read from a file, or -1 where the id is unknown.

    The column may hold integers as text, text as integers, or integers as whole floats. An id that
    is missing is refused.
    """
    if pa.types.is_nested(column.type):
        raise DataError(
            f"{locate(0)}: the {what} ids are of type {column.type}; ids are integers or text: "
            "convert the column first"
        )
    encoded = column.dictionary_encode().combine_chunks()
    texts = [write_id(value) for value in encoded.dictionary.to_pylist()]
    stripped = strip(pa.array(texts, pa.string())).to_pylist()
    code: NDArray[np.int32] = pc.fill_null(encoded.indices, len(texts)).to_numpy()
    empty = np.array([*(text == "" for text in stripped), True])[code]
    if empty.any():
        row = int(np.argmax(empty))
        raise DataError(f"{locate(row)}: the {what} id is empty; give every pair a {what}")
    if known.kind == "text":
        index = known.index(pa.array(texts, pa.string()))
    else:
        integers = [_read_integer(text) for text in stripped]
        numbers = np.array([0 if number is None else number for number in integers], np.int64)
        index = known.index(numbers).copy()
        index[[number is None for number in integers]] = -1
    return index[code]


def write_id(value: Any) -> str:
    """Write an id as a text file has it: 1.0 is 1, and NaN is nothing."""
    if value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def to_arrow(values: Any, what: str, locate: Locate) -> pa.ChunkedArray:
    """Convert one column to Arrow, and refuse values of mixed types instead of converting them."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "T":
        values = values.astype(object)
    if np.ndim(values) != 1 and not isinstance(values, pa.ChunkedArray):
        raise DataError(f"the {what} column is not a list of values; give one for each rating")
    try:
        column = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError):
        raise DataError(_describe_mixed_objects(values, what, locate)) from None
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def encode(
    column: pa.ChunkedArray, what: str, locate: Locate, untyped: bool, as_text: bool = False
) -> tuple[Ids, NDArray[np.int32]]:
    """Return the distinct ids in ascending order, and for each row the index of its id.

    Blanks around an id are stripped. ``untyped`` says that the column was read from a text file, in
    which "12" means the integer 12 unless another id of the column says otherwise. ``as_text``
    makes it text all the same.
    """
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DataError(f"{locate(row)}: the {what} id is empty; give every rating a {what}")
    if pa.types.is_integer(column.type) and as_text:
        column = column.cast(pa.string())
    if pa.types.is_integer(column.type):
        return _number(_as_int64(column, what, locate))
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(
            f"{locate(0)}: the {what} ids are of type {column.type} (such as "
            f"{column[0].as_py()!r}); "
            "ids are integers or text: convert the column first"
        )
    if untyped and not as_text:
        integers = _as_integers(column)
        if integers is not None:
            return integers
    ids, codes = _number(column)
    _check_text(ids.values, codes, what, locate)
    ids, codes = _strip_distinct(ids, codes, what, locate)
    if untyped and not as_text:
        _refuse_mixed_kinds(ids.values, codes, what, locate)
    return ids, codes


def _as_int64(column: pa.ChunkedArray, what: str, locate: Locate) -> pa.ChunkedArray:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        row = int(np.argmax(column.to_numpy() > np.iinfo(np.int64).max))
        raise DataError(
            f"{locate(row)}: the {what} id {column[row]} does not fit in 64 signed bits; "
            "give such ids as text"
        ) from None


def _as_integers(column: pa.ChunkedArray) -> tuple[Ids, NDArray[np.int32]] | None:
    """Encode text as integers if that loses nothing but blanks ("007" is not 7), else None."""
    try:
        ids, codes = _number(column.cast(pa.int64()))
    except pa.ArrowInvalid:
        column = strip(column)
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


def _check_text(ids: NDArray[Any], codes: NDArray[np.int32], what: str, locate: Locate) -> None:
    """Refuse empty ids, and ids that no text file can hold."""
    texts = pa.array(ids, pa.string())
    empty = pc.equal(strip(texts), "").to_numpy(zero_copy_only=False)
    if empty.any():
        row = int(np.argmax(empty[codes]))
        raise DataError(f"{locate(row)}: the {what} id is empty; give every rating a {what}")
    nul = pc.match_substring(texts, "\0").to_numpy(zero_copy_only=False)
    if nul.any():
        row = int(np.argmax(nul[codes]))
        raise DataError(
            f"{locate(row)}: the {what} id {ids[codes[row]]!r} holds a NUL character; remove it"
        )


def _strip_distinct(
    ids: Ids, codes: NDArray[np.int32], what: str, locate: Locate
) -> tuple[Ids, NDArray[np.int32]]:
    """Strip the blanks around the ids, and refuse two ids that differ by nothing else."""
    written = pa.array(ids.values, pa.string())
    stripped = strip(written)
    if stripped.equals(written):
        return ids, codes
    merged, position = _number(pa.chunked_array([stripped]))
    if len(merged) < len(ids):
        first = np.unique(codes, return_index=True)[1]  # row of each id as it is written
        earliest = np.full(len(merged), len(codes))
        np.minimum.at(earliest, position, first)
        row = int(first[first > earliest[position]].min())
        before = int(earliest[position[codes[row]]])
        raise DataError(
            f"{locate(row)}: the {what} id {ids[codes[row]]!r} differs from "
            f"{ids[codes[before]]!r} ({locate(before)}) only by blanks around it, which do not "
            "count; write it in one way, or rename one of the two"
        )
    return merged, position[codes]


def _refuse_mixed_kinds(
    ids: NDArray[Any], codes: NDArray[np.int32], what: str, locate: Locate
) -> None:
    """Refuse numbers among text, and text among numbers."""
    texts = pa.array(ids, pa.string())
    numeric = pc.match_substring_regex(texts, INTEGER).to_numpy(zero_copy_only=False)
    other = numeric != numeric[codes[0]]
    if other.any():
        row = int(np.argmax(other[codes]))
        kind, rest = ("text", "integers") if numeric[codes[0]] else ("an integer", "text")
        raise DataError(
            f"{locate(row)}: the {what} id {ids[codes[row]]!r} is {kind} but those before it are "
            f"{rest}; correct it"
            + clause(f", or read all ids as text with {Option('ids', 'text')}")
        )


def _describe_mixed_objects(values: Any, what: str, locate: Locate) -> str:
    """Write the sentence for a column whose values have no common type."""
    first = next((type(v) for v in values if v is not None), type(None))
    for row, value in enumerate(values):
        if value is not None and type(value) is not first:
            return (
                f"{locate(row)}: the {what} column mixes types: {value!r} is "
                f"{type(value).__name__} but those before it are {first.__name__}; "
                "convert the column to one type"
            )
    return (
        f"{locate(0)}: the {what} column holds {first.__name__} values that cannot be used; give "
        "64-bit integers, finite numbers or text"
    )
