"""Ratings files: what is in them is found out by looking, and read without a loop per row.

The fast path gives whole columns to Arrow. Only when something is wrong does a second, slow
pass over the file go line by line, to name the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from bayesmf.data.archive import HEAD, PARQUET, Source, in_memory, open_source
from bayesmf.data.columns import Columns, Role, recognise
from bayesmf.data.ids import to_arrow
from bayesmf.errors import DataError

SEPARATORS = ("::", "\t", ",", ";", "|", " ")
NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*|\s*[-+]?(nan|inf|infinity)\s*", re.I)
INTEGER = re.compile(r"[-+]?\d+")
BLANK_LINES = re.compile(r"([ \t]*(\r\n|\n|\r))*")
SAMPLE_RECORDS = 50
BLOCK = 1 << 20


@dataclass(frozen=True)
class Dialect:
    """How a text file is laid out."""

    separator: str
    fields: int
    header: list[str] | None
    skip: int  # physical lines before the first record
    first: list[str]  # the first record
    encoding: str = "utf-8"

    @property
    def quoted(self) -> bool:
        """Whether fields may be in quotes."""
        return _takes_quotes(self.separator)


def read_columns(
    path: Path,
    given: Mapping[Role, str | int | None],
    separator: str | None = None,
    header: bool | None = None,
    member: str | None = None,
) -> Columns:
    """The columns of a csv, tsv, MovieLens, space-separated or parquet file."""
    source = open_source(path, member)
    head = source.head()
    if head.startswith(PARQUET):
        return _read_parquet(source, given)
    dialect = _sniff(source.name, head, separator, header)
    where = f"{source.name}, line {max(dialect.skip, 1)}"
    if dialect.header is not None:
        roles = recognise(dialect.header, given, where)
    else:
        roles = _by_position(dialect, given, where)
    try:
        table = _read_text(source, dialect, roles)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" not in str(error):
            raise _diagnose(source, dialect, roles, str(error)) from None
        dialect = Dialect(**{**vars(dialect), "encoding": "latin-1"})
        try:
            table = _read_text(source, dialect, roles)
        except pa.ArrowInvalid as second:
            raise _diagnose(source, dialect, roles, str(second)) from None

    def place(row: int) -> str:
        for number, (line, _) in enumerate(_records(source, dialect)):
            if number == row:
                return f"{source.name}, line {line}"
        return source.name

    pa.default_memory_pool().release_unused()  # the raw text, as large as the file
    if table.num_rows == 0:
        raise DataError(f"{source.name}: there is a header but no rating; check the file")
    time = table["time"] if "time" in roles else None
    return Columns(table["user"], table["item"], table["rating"], time, place, untyped=True)


def _read_parquet(source: Source, given: Mapping[Role, str | int | None]) -> Columns:
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(source.path if source.path else in_memory(source))
        names = file.schema_arrow.names
        roles = recognise(names, given, source.name)
        table = file.read(columns=[names[k] for k in roles.values()])
        table.validate(full=True)  # that text is text, among others
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        told = str(error).splitlines()[0]
        raise DataError(
            f"{source.name}: not a readable parquet file ({told}); write it again"
        ) from None

    def column(role: Role) -> Any:
        return to_arrow(table[names[roles[role]]], role, place) if role in roles else None

    def place(row: int) -> str:
        return f"{source.name}, row {row + 1}"

    return Columns(column("user"), column("item"), column("rating"), column("time"), place)


def _sniff(name: str, head: bytes, separator: str | None, header: bool | None) -> Dialect:
    """Separator, number of fields and header, from the first lines."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: the text is UTF-16; save it as UTF-8")
    head = head.removeprefix(codecs.BOM_UTF8)
    if not head.strip():
        raise DataError(f"{name}: the file is empty; give one rating a line")
    if b"\0" in head:
        raise DataError(
            f"{name}: the file is not text (nor parquet, gzip, bzip2 or zip); "
            "give a ratings table as csv, tsv or parquet"
        )
    text = head.decode("latin-1")
    blank = len(BLANK_LINES.match(text)[0].splitlines())  # type: ignore[index]
    whole = len(head) < HEAD
    samples = {s: _sample(text, s, whole) for s in ([separator] if separator else SEPARATORS)}
    separator = separator or _separator(samples)
    if separator is None or not samples[separator]:
        first_line = head.strip().splitlines()[0].decode("latin-1")
        raise DataError(
            f"{name}, line {blank + 1}: {_short(first_line)} does not split into user, item and "
            "rating; separate them by commas, tabs, '::' or spaces, or give --separator"
        )
    sample = samples[separator]
    first = sample[0]
    if header is None:
        header = not any(NUMBER.fullmatch(field) for field in first)
    if not header:
        return Dialect(separator, len(first), None, blank, first)
    return Dialect(separator, len(first), first, blank + 1, sample[1] if sample[1:] else [])


def _sample(text: str, separator: str, whole: bool) -> list[list[str]]:
    """The first records under a separator; the last of a text that was cut may be half a one."""
    records = _parse(io.StringIO(text, newline=""), separator)
    sample = [fields for _, fields in itertools.islice(records, SAMPLE_RECORDS)]
    return sample if whole or len(sample) < 2 else sample[:-1]


def _separator(samples: Mapping[str, list[list[str]]]) -> str | None:
    """The first separator that cuts every record into the same number of fields, three or more."""
    for agree in (True, False):
        for separator, sample in samples.items():
            fields = {len(record) for record in sample}
            if sample and len(sample[0]) >= 3 and (not agree or len(fields) == 1):
                return separator
    return None


def _parse(text: IO[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Every record that is not blank, with the number of its first line."""
    if _takes_quotes(separator):
        reader = csv.reader(text, delimiter=separator)
        line = 1
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    else:
        for number, row in enumerate(text, 1):
            if row.strip():
                row = row.rstrip("\r\n")
                yield number, row.split(None if separator == " " else separator)


def _takes_quotes(separator: str) -> bool:
    """Whether fields may be in quotes; formats with '::' or spaces know no quotes."""
    return len(separator) == 1 and separator != " "


def _by_position(
    dialect: Dialect, given: Mapping[Role, str | int | None], where: str
) -> dict[Role, int]:
    """Without a header: user, item, rating and perhaps time, in this order, unless given."""
    names = [str(k + 1) for k in range(dialect.fields)]
    asked = {role: name for role, name in given.items() if name is not None}
    if dialect.fields < 3:
        raise DataError(
            f"{where}: found {dialect.fields} fields separated by {_named(dialect.separator)}; "
            "a rating needs three: user, item, rating"
        )
    if dialect.fields > 4 and not {"user", "item", "rating"} <= asked.keys():
        raise DataError(
            f"{where}: there are {dialect.fields} fields and no header to tell them apart; "
            "give --user-col, --item-col and --rating-col as numbers from 1"
        )
    defaults: dict[Role, str | int | None] = {"user": 1, "item": 2, "rating": 3}
    if dialect.fields == 4:
        defaults["time"] = 4
    taken = {str(name) for name in asked.values()}
    usable = {role: k for role, k in defaults.items() if str(k) not in taken or role in asked}
    return recognise(names, {**usable, **asked}, where)


def _read_text(source: Source, dialect: Dialect, roles: Mapping[Role, int]) -> pa.Table:
    from pyarrow import csv as arrow_csv

    names = [f"column {k}" for k in range(dialect.fields)]
    for role, k in roles.items():
        names[k] = role
    read = arrow_csv.ReadOptions(
        column_names=names, skip_rows=dialect.skip, block_size=BLOCK, encoding=dialect.encoding
    )
    parse = arrow_csv.ParseOptions(
        delimiter=dialect.separator if dialect.quoted else "\t",
        quote_char='"' if dialect.quoted else False,
        newlines_in_values=dialect.quoted,
    )
    types = {"user": pa.string(), "item": pa.string(), "rating": pa.float64()}
    if _seconds(dialect, roles):  # else Arrow finds the type, and keeps all blocks until it has
        types["time"] = pa.int64()
    convert = arrow_csv.ConvertOptions(
        column_types=types,
        include_columns=list(roles),
        null_values=[],
        strings_can_be_null=False,
    )
    options = {"read_options": read, "parse_options": parse, "convert_options": convert}
    if source.path is not None and dialect.quoted:
        return arrow_csv.read_csv(source.path, **options)
    with source.reading() as stream:
        return arrow_csv.read_csv(stream if dialect.quoted else _Tabbed(stream, dialect.separator),
                                  **options)  # fmt: skip


def _seconds(dialect: Dialect, roles: Mapping[Role, int]) -> bool:
    """Whether times are whole numbers, as far as the first record tells."""
    k = roles.get("time")
    return (
        k is not None and k < len(dialect.first) and INTEGER.fullmatch(dialect.first[k]) is not None
    )


class _Tabbed(io.RawIOBase):
    """A stream whose separators, such as '::' or runs of spaces, are turned into tabs."""

    def __init__(self, stream: IO[bytes], separator: str) -> None:
        self.stream, self.separator, self.ready = stream, separator, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self.ready:
            block = self.stream.read(BLOCK) + self.stream.readline()  # never half a separator
            if self.separator == " ":
                self.ready = _squeeze(block)
            else:
                self.ready = block.replace(self.separator.encode(), b"\t")
        size = len(self.ready) if size < 0 else size
        out, self.ready = self.ready[:size], self.ready[size:]
        return out


def _squeeze(block: bytes) -> bytes:
    """Runs of spaces and tabs to one tab, and none at the ends of a line."""
    block = block.replace(b" ", b"\t")
    if any(run in block for run in (b"\t\t", b"\t\n", b"\t\r", b"\n\t")) or block[:1] == b"\t":
        block = re.sub(rb"\t+", b"\t", block)
        block = re.sub(rb"(?m)^\t|\t(?=\r?$)", b"", block)
    return block


def _records(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Every record with the number of its line; slow, for naming the place of an error."""
    csv.field_size_limit(1 << 30)
    with source.reading() as stream:
        text = io.TextIOWrapper(stream, encoding=dialect.encoding.replace("utf-8", "utf-8-sig"),
                                errors="replace", newline="")  # fmt: skip
        for _ in range(dialect.skip):
            text.readline()
        for line, fields in _parse(text, dialect.separator):
            yield dialect.skip + line, fields


def _diagnose(source: Source, dialect: Dialect, roles: Mapping[Role, int], told: str) -> DataError:
    """The first line that Arrow could not take, and why."""
    for line, fields in _records(source, dialect):
        where = f"{source.name}, line {line}"
        if len(fields) != dialect.fields:
            joined = _short(dialect.separator.join(fields))
            return DataError(
                f"{where}: {joined} has {len(fields)} fields where the first line has "
                f"{dialect.fields}; correct the line (fields are separated by "
                f"{_named(dialect.separator)})"
            )
        rating = fields[roles["rating"]]
        if not rating.strip():
            return DataError(f"{where}: the rating is missing; leave out pairs without a rating")
        if not NUMBER.fullmatch(rating):
            return DataError(
                f"{where}: the rating {_short(rating)} is not a number; write it like 4 or 3.5"
            )
        if _seconds(dialect, roles) and not INTEGER.fullmatch(fields[roles["time"]]):
            return DataError(
                f"{where}: the time {_short(fields[roles['time']])} is not whole seconds like the "
                "first; correct it, or ignore times with --time-col none (time='none' in Python)"
            )
    return DataError(f"{source.name}: cannot be read as a table ({told.splitlines()[0]})")


def _named(separator: str) -> str:
    return NAMES.get(separator, repr(separator))


def _short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else text[: most - 3] + "...")
