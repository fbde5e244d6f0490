"""Tables of attributes of users or items: their columns, and the numbers that stand for them.

Each column becomes columns of a sparse matrix: a number is standardised, a category has a 1 for its
value, and a set of m values has 1 / sqrt(m) for each of them. What is missing has no entry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from bayesmf.choices import ATTRIBUTE_KINDS, AttributeKind
from bayesmf.data.columns import (
    ID_NAMES,
    list_names,
    locate_in_frame,
    open_frame,
    position,
    read_column,
    simplify,
)
from bayesmf.data.ids import INTEGER, Ids, Locate, encode, strip, to_arrow, write_id
from bayesmf.errors import DataError, Option

MOST_VALUES = 10_000  # that a category or a set may have
FEW_VALUES = 20  # so many never look like the names of rows
NUMERAL = re.compile(
    r"[-+]?(0|[1-9]\d*|(0|[1-9]\d*)?\.\d+|\d+\.)(e[-+]?\d+)?|[-+]?inf(inity)?", re.I
)
MISSING = ("", "na", "n/a", "nan", "null", "none", "\\n")  # in a column of numbers that is text
TYPES: dict[str, Any] = {
    "number": pa.float64(),
    "category": pa.string(),
    "set": pa.list_(pa.string()),
}
"""The type of a column of each kind after ``clean``; what is missing is null."""


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes columns of a matrix."""

    name: str
    kind: Literal["number", "category", "set"]
    mean: float = 0.0  # of a number, over the rows of the table that have one
    sd: float = 1.0
    values: tuple[str, ...] = ()  # of a category or a set, in their order

    def __post_init__(self) -> None:
        numbers = math.isfinite(self.mean) and math.isfinite(self.sd) and self.sd > 0
        texts = all(isinstance(value, str) for value in (self.name, *self.values))
        distinct = len(set(self.values)) == len(self.values) <= MOST_VALUES
        if self.kind not in TYPES or not (numbers and texts and distinct):
            raise DataError(f"the attribute {self.name!r} is described by impossible values")

    @property
    def width(self) -> int:
        """How many columns of the matrix stand for it."""
        return 1 if self.kind == "number" else len(self.values)

    def encode(self, column: pa.ChunkedArray) -> Any:
        """Return the sparse matrix of a clean column; a value that is not known has no entry."""
        rows = len(column)
        if self.kind == "number":
            z = (pc.fill_null(column, math.nan).to_numpy() - self.mean) / self.sd
            row = np.flatnonzero(np.isfinite(z) & (z != 0))
            return _matrix(z[row], row, np.zeros(len(row), int), (rows, 1))
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        row = np.arange(rows)
        if self.kind == "set":
            row = pc.list_parent_indices(whole).to_numpy()
            whole = pc.list_flatten(whole)
        known = pa.array(self.values, pa.string())
        code = pc.fill_null(pc.index_in(whole, value_set=known), -1).to_numpy()
        if not self.values:
            code = np.full(len(row), -1)
        row, code = row[code >= 0], code[code >= 0]
        size = np.bincount(row, minlength=rows)
        return _matrix(1 / np.sqrt(size[row]), row, code, (rows, self.width))

    def describe(self) -> str:
        """The column in words."""
        if self.kind == "number":
            return f"{self.name} (number)"
        return f"{self.name} ({self.kind}, {len(self.values):,} values)"


def _matrix(values: NDArray[Any], row: Any, column: Any, shape: tuple[int, int]) -> Any:
    return sparse.coo_array((values.astype(float), (row, column)), shape=shape).tocsr()


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before any check."""

    table: pa.Table
    locate: Locate
    where: str
    reader: str  # the function whose options messages name
    untyped: bool = False  # read from a text file, so that numbers are text until shown otherwise

    @classmethod
    def of_frame(
        cls,
        frame: Any,
        reader: str = "Attributes.from_frame",
        what: str = "table of attributes",
    ) -> Raw:
        """Take a pandas, polars or pyarrow table, or whatever else narwhals reads."""
        table, names = open_frame(
            frame,
            f"an object of type {type(frame).__name__} is no {what}; give a pandas, "
            "polars or pyarrow table, or the path of a file",
        )

        def column(k: int) -> pa.ChunkedArray:
            found = read_column(table, k)
            found = pa.chunked_array([found]) if isinstance(found, pa.Array) else found
            return to_arrow(found, repr(names[k]), locate_in_frame)

        columns = [column(k) for k in range(len(names))]
        return cls(pa.table(columns, names=names), locate_in_frame, "the frame", reader)

    def kinds(self, kinds: Mapping[str, str]) -> Option:
        """The option that says the kinds of columns."""
        return Option("kinds", dict(kinds), self.reader)

    def leave_out(self, name: str) -> str:
        """The remedy that leaves a column out."""
        return f"leave the column out with {self.kinds({name: 'none'})}"

    def find_id(self, named: str | int | None) -> str:
        """Return the name of the column with the ids, as it is named or by what it is called."""
        names: list[str] = self.table.column_names
        option = Option("id", "NAME", self.reader)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{self.where}: two columns are called {twice!r}; rename one")
        if named is not None:
            return names[position(names, named, "id", self.where)]
        found = [name for name in names if simplify(name) in ID_NAMES]
        if len(found) > 1:
            both = " and ".join(map(repr, found[:2]))
            raise DataError(f"{self.where}: {both} could both be the id; choose with {option}")
        if not found:
            raise DataError(
                f"{self.where}: no column for the id among {list_names(names)}; name it with "
                f"{option}"
            )
        return found[0]

    def read_ids(self, name: str) -> tuple[Ids, NDArray[np.int32]]:
        """Return the ids in their order, and the index of the id of each row; none comes twice."""
        column = to_arrow(self.table[name], repr(name), self.locate)
        if not len(column):
            raise DataError(f"{self.where}: there is no row in the table; give one for each id")
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        empty = pc.equal(strip(column), "") if text else column.is_null(nan_is_null=True)
        if pc.any(pc.fill_null(empty, True)).as_py():
            row = pc.index(pc.fill_null(empty, True), True).as_py()
            raise DataError(f"{self.locate(row)}: the id is empty; give every row an id")
        if pa.types.is_floating(column.type):  # as pandas has integers, where one was missing
            whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), 2.0**53))
            column = column.cast(pa.int64()) if pc.all(whole).as_py() else column
        mixed = False
        if self.untyped:  # integers, if all of them are; 12 and "12" mean the same in the end
            mixed = not pc.all(pc.match_substring_regex(strip(column), INTEGER)).as_py()
        ids, codes = encode(column, name, self.locate, self.untyped, as_text=mixed)
        if len(ids) < len(codes):
            first = np.unique(codes, return_index=True)[1]
            row = int(np.setdiff1d(np.arange(len(codes)), first)[0])
            twice, before = ids.values.item(int(codes[row])), self.locate(int(first[codes[row]]))
            raise DataError(
                f"{self.locate(row)}: the id {twice!r} has a row already ({before}); give one row "
                "for each id"
            )
        return ids, codes


def choose_columns(
    raw: Raw,
    id_name: str,
    kinds: Mapping[Any, AttributeKind] | None,
    columns: Sequence[str | int] | None,
) -> dict[str, AttributeKind | None]:
    """Return the columns to use with the kinds that are given, None where none is."""
    names = raw.table.column_names
    chosen = names if columns is None else []
    for column in columns or ():
        chosen.append(names[position(names, column, "attributes", raw.where)])
    given: dict[str, AttributeKind] = {}
    for column, kind in (kinds or {}).items():
        name = names[position(names, column, "attributes", raw.where)]
        if name == id_name:
            raise DataError(f"{raw.where}: column {name!r} holds the ids; give no kind for it")
        if kind not in ATTRIBUTE_KINDS:
            raise DataError(
                f"{raw.where}: {kind!r} is no kind for column {name!r}; choose one of "
                f"{', '.join(ATTRIBUTE_KINDS)}"
            )
        given[name] = kind
    return {
        name: given.get(name)
        for name in dict.fromkeys(chosen)
        if name != id_name and given.get(name) != "none"
    }


def learn(
    raw: Raw, chosen: Mapping[str, AttributeKind | None]
) -> tuple[dict[str, Column], dict[str, pa.ChunkedArray], list[str]]:
    """Return how each column is encoded, the clean columns, and a sentence for each left out."""
    columns, clean_ones, notes = {}, {}, []
    for name, given in chosen.items():
        kind = given or recognise_kind(raw, name)
        values = clean(raw, name, kind)
        column = learn_column(raw, name, kind, values, declared=given is not None)
        if column is None:
            notes.append(f"column {name!r} has the same value in every row and was left out")
        else:
            columns[name], clean_ones[name] = column, values
    if not columns:
        raise DataError(
            f"{raw.where}: no column says anything about the rows; give one with two values or more"
        )
    return columns, clean_ones, notes


def recognise_kind(raw: Raw, name: str) -> AttributeKind:
    """Tell numbers, sets and categories apart; the columns of a text file by what they hold."""
    column = raw.table[name]
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "set"
    texts = _texts(raw, name)
    distinct = [text for text in texts.unique().to_pylist() if text is not None]
    if raw.untyped and distinct:
        wrong = [text for text in distinct if not is_number(text)]
        if not wrong:
            return "number"
        rare = pc.sum(pc.is_in(texts, value_set=pa.array(wrong, pa.string()))).as_py()
        if 2 * rare < len(texts) - texts.null_count and not _name_like(len(distinct), len(texts)):
            row = pc.index(texts, wrong[0]).as_py()
            raise DataError(
                f"{raw.locate(row)}: {wrong[0]!r} in column {name!r} is not a number, as most of "
                f"the others are; correct it, leave it empty, or say what the column is with "
                f"{raw.kinds({name: 'category'})}"
            )
    return "set" if sum("|" in text for text in distinct) > 1 else "category"


def is_number(text: str) -> bool:
    """Whether a text is a number or stands for a missing one; "007" is a code."""
    return text.casefold() in MISSING or NUMERAL.fullmatch(text) is not None


def _name_like(values: int, rows: int) -> bool:
    """Whether a column with so many values has most of them but once, as names are."""
    return values > FEW_VALUES and 2 * values > rows


def _texts(raw: Raw, name: str) -> pa.ChunkedArray:
    """Return the values of a column as text without blanks around it, null where it is empty."""
    column = raw.table[name]
    kind = column.type
    if pa.types.is_temporal(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise DataError(
            f"{raw.where}: column {name!r} holds values of type {kind}; give numbers (of a date, "
            f"the year) or text, or {raw.leave_out(name)}"
        )
    encoded = column.dictionary_encode().combine_chunks()
    texts = strip(pa.array([write_id(v) for v in encoded.dictionary.to_pylist()], pa.string()))
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return pa.chunked_array([texts.take(encoded.indices)])


def clean(raw: Raw, name: str, kind: str) -> pa.ChunkedArray:
    """Return a column as ``TYPES`` has it, or refuse it."""
    if kind == "number":
        return _clean_numbers(raw, name)
    column = raw.table[name]
    if kind == "set" and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        members = [None if row is None else _members(row) for row in column.to_pylist()]
        return pa.chunked_array([pa.array(members, TYPES["set"])])
    texts = _texts(raw, name)
    if kind == "category":
        return texts
    encoded = texts.dictionary_encode().combine_chunks()
    members = [_members(text.split("|")) for text in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(members, TYPES["set"]).take(encoded.indices)])


def _members(values: Sequence[Any]) -> list[str] | None:
    """Return the distinct members of a set as text, in their order; None if there are none."""
    texts = (write_id(value).strip() for value in values if value is not None)
    return list(dict.fromkeys(text for text in texts if text)) or None


def _clean_numbers(raw: Raw, name: str) -> pa.ChunkedArray:
    column = raw.table[name]
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = pc.fill_null(column.cast(pa.float64()), math.nan).to_numpy()
    else:
        encoded = _texts(raw, name).dictionary_encode().combine_chunks()
        texts = encoded.dictionary.to_pylist()
        for text in texts:
            if text.casefold() not in MISSING and not _is_float(text):
                row = pc.index(encoded.indices, texts.index(text)).as_py()
                raise DataError(
                    f"{raw.locate(row)}: {text!r} in column {name!r} is not a number; correct it, "
                    f"or leave it empty"
                )
        values = [math.nan if text.casefold() in MISSING else float(text) for text in texts]
        codes = pc.fill_null(encoded.indices, len(texts)).to_numpy()
        numbers = np.array([*values, math.nan])[codes]
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise DataError(
            f"{raw.locate(int(infinite[0]))}: column {name!r} is {numbers[infinite[0]]:g}; correct "
            "it, or leave it empty"
        )
    return pa.chunked_array([pa.array(numbers, pa.float64(), from_pandas=True)])


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def learn_column(
    raw: Raw, name: str, kind: str, values: pa.ChunkedArray, declared: bool
) -> Column | None:
    """Return how a clean column is encoded, or None if it has the same value in every row."""
    if kind == "number":
        numbers = values.drop_null().to_numpy()
        sd = float(numbers.std()) if len(numbers) else 0.0
        mean = float(numbers.mean()) if len(numbers) else 0.0
        if not sd > 1e-12 * abs(mean):
            return None
        return Column(name, "number", mean, sd)
    several = kind == "set"
    members = pc.list_flatten(values) if several else values.drop_null()
    found = sorted(members.unique().to_pylist())
    if len(found) > MOST_VALUES or (_name_like(len(found), len(members)) and not declared):
        keep = f", or keep it with {Option('kinds', {name: kind})}"
        raise DataError(
            f"{raw.where}: column {name!r} has {len(found):,} values in {len(values):,} rows, like "
            f"a name, which says nothing about other rows; {raw.leave_out(name)}"
            f"{keep if len(found) <= MOST_VALUES else ''}"
        )
    if not found or (len(found) == 1 and not values.null_count):
        return None
    return Column(name, "set" if several else "category", values=tuple(found))
