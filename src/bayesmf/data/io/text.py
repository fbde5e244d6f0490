"""Files of ratings, pairs and attributes, read whole columns at a time without a loop over rows.

The fast path gives the text to Arrow. Only when something is wrong does a second, slow pass go
over the file line by line, to name the line.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from bayesmf.data.columns import OPTIONAL, ROLES, Columns, Named, Remembered, Role, recognise
from bayesmf.data.ids import Locate, strip, to_arrow
from bayesmf.data.io.archive import PARQUET, Source, open_source, read_all
from bayesmf.data.io.dialect import NUMBER, Dialect, Record, escapes, short, sniff
from bayesmf.data.values import wrong_weight
from bayesmf.errors import DataError, Option

INTEGER = re.compile(r"[-+]?\d{1,18}")
BLOCK = 1 << 20
UNIT = b"\x1f"  # stands in for separators that Arrow cannot take


def read_columns(
    path: Path,
    given: Named,
    separator: str | None = None,
    header: bool | None = None,
    member: str | None = None,
) -> Columns:
    """Read the columns of a csv, tsv, MovieLens, space-separated or parquet file.

    ``given`` names columns. ``separator``, ``header`` and ``member`` are those of ``load``.
    """
    source = open_source(path, member)
    head = source.head()
    if head.startswith(PARQUET):
        return _read_parquet(source, given)
    dialect = sniff(source.name, head, separator, header)
    where = f"{source.name}, line {max(dialect.skip, 1)}"
    if dialect.header is not None:
        roles = recognise(dialect.header, given, where)
    else:
        roles = _by_position(dialect, given, where)
    table, dialect = _read_text(source, dialect, roles)
    pa.default_memory_pool().release_unused()  # the raw text, as large as the file
    if table.num_rows == 0:
        raise DataError(f"{source.name}: there is a header but no rating; check the file")
    time, weight = (table[role] if role in roles else None for role in OPTIONAL)
    return Columns(
        table["user"],
        table["item"],
        table["rating"],
        time,
        _locate(source, dialect),
        untyped=True,
        weight=weight,
        names={role: dialect.header[k] for role, k in roles.items()} if dialect.header else {},
    )


def _locate(source: Source, dialect: Dialect) -> Locate:
    """Make the function that says where a record stands."""

    def locate(row: int) -> str:
        for number, (line, _) in enumerate(_records(source, dialect)):
            if number == row:
                return f"{source.name}, line {line}"
        return source.name

    return locate


def read_pairs(
    path: Path,
    given: Named,
    separator: str | None = None,
    header: bool | None = None,
    member: str | None = None,
    timed: bool = False,
) -> tuple[dict[Role, pa.ChunkedArray], pa.Table]:
    """Read the user and the item column of a file of the same kinds, and all others as they are.

    If ``timed``, a column of times is read too, where there is one. As in ``read_columns`` followed
    by ``Ratings.from_columns``, blanks around the ids of a text file are stripped. The second table
    has every column but those of the user and the item.
    """
    pair: tuple[Role, ...] = ("user", "item", "time") if timed else ("user", "item")
    source = open_source(path, member)
    head = source.head()
    if head.startswith(PARQUET):
        names, table = _parquet(source, given, None)
        roles = recognise(names, given, source.name, pair)
        if table.num_rows == 0:
            raise DataError(f"{source.name}: there is no pair in the table; check the file")
        columns = {role: table[names[k]] for role, k in roles.items()}
        return columns, table.drop_columns([names[roles["user"]], names[roles["item"]]])
    dialect = sniff(source.name, head, separator, header, "pair")
    where = f"{source.name}, line {max(dialect.skip, 1)}"
    names = dialect.header or [str(k + 1) for k in range(dialect.fields)]
    if dialect.header is None:
        given = {role: None if isinstance(n, Remembered) else n for role, n in given.items()}
        by_number: dict[Role, str | int | None] = {
            role: given.get(role) or k for k, role in enumerate(pair[:2], 1)
        }
        given = by_number | ({"time": given["time"]} if timed and given.get("time") else {})
    roles = recognise(names, given, where, pair)
    places: dict[Any, int] = dict(roles)
    places |= {f"other {k}": k for k in range(dialect.fields) if k not in roles.values()}
    table, _ = _read_text(source, dialect, places)
    called = {k: key for key, k in places.items() if key not in ("user", "item")}
    others = pa.table({names[k]: table[called[k]] for k in sorted(called)})
    columns = {role: table[role] if role == "time" else strip(table[role]) for role in roles}
    return columns, others


def read_table(
    path: Path,
    names: Sequence[str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    member: str | None = None,
    what: Record = "row",
) -> tuple[pa.Table, Locate, bool]:
    """Read all columns of a file of the same kinds, those of a text file as text.

    ``names`` are those of the columns, where the file has no header; else they are numbers from 1.
    Where ``what`` is "id", there may be but one column. Returns the table, where each of its rows
    stands, and whether it was read from text.
    """
    source = open_source(path, member)
    head = source.head()
    if head.startswith(PARQUET):
        _, table = _parquet(source, {}, None)
        return table, lambda row: f"{source.name}, row {row + 1}", False
    dialect = sniff(source.name, head, separator, False if names is not None else header, what)
    called = list(names or dialect.header or (str(k + 1) for k in range(dialect.fields)))
    if len(called) != dialect.fields:
        raise DataError(
            f"{source.name}: {len(called)} names for {dialect.fields} columns; give one for each "
            f"with {Option('names', function='Attributes.load')}"
        )
    table, dialect = _read_text(source, dialect, {str(k): k for k in range(dialect.fields)})
    return table.rename_columns(called), _locate(source, dialect), True


def _read_parquet(source: Source, given: Named) -> Columns:
    names, table = _parquet(source, given, ROLES)
    roles = recognise(names, given, source.name)

    def column(role: Role) -> Any:
        return to_arrow(table[names[roles[role]]], role, locate) if role in roles else None

    def locate(row: int) -> str:
        return f"{source.name}, row {row + 1}"

    user, item, rating, time, weight = (column(role) for role in ROLES)
    called = {role: names[k] for role, k in roles.items()}
    return Columns(user, item, rating, time, locate, weight=weight, names=called)


def _parquet(
    source: Source, given: Named, roles: Sequence[Role] | None
) -> tuple[list[str], pa.Table]:
    """Return the names of all columns, and the table of those that play one of the roles.

    The table has all columns if ``roles`` is None.
    """
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(source.path if source.path else read_all(source))
        names = file.schema_arrow.names
        chosen = names
        if roles is not None:
            chosen = [names[k] for k in recognise(names, given, source.name, roles).values()]
        if any(names.count(name) > 1 for name in chosen):
            raise DataError(f"{source.name}: two columns have the same name; rename one")
        table = file.read(columns=chosen)
        table.validate(full=True)  # that text is text, among others
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{source.name}: not a readable parquet file ({reason}); write it again"
        ) from None
    return names, table


def _by_position(dialect: Dialect, given: Named, where: str) -> dict[Role, int]:
    """Return the columns of a file without a header: user, item, rating, time, unless given."""
    names = [str(k + 1) for k in range(dialect.fields)]
    given = {role: None if isinstance(n, Remembered) else n for role, n in given.items()}
    asked = {role: name for role, name in given.items() if name is not None}
    if dialect.fields < 3:
        raise DataError(
            f"{where}: found {dialect.fields} fields separated by {dialect.separator_name}; "
            "a rating needs three: user, item, rating"
        )
    if dialect.fields > 4 and not {"user", "item", "rating"} <= asked.keys():
        user, item, rating = (Option(role) for role in ROLES[:3])
        raise DataError(
            f"{where}: there are {dialect.fields} fields and no header to tell them apart; "
            f"give {user}, {item} and {rating} as numbers from 1"
        )
    defaults: dict[Role, str | int | None] = {"user": 1, "item": 2, "rating": 3}
    if dialect.fields == 4:
        defaults["time"] = 4
    taken = {str(name) for name in asked.values()}
    usable = {role: k for role, k in defaults.items() if str(k) not in taken or role in asked}
    return recognise(names, {**given, **usable, **asked}, where)


def _read_text(
    source: Source, dialect: Dialect, roles: Mapping[Any, int]
) -> tuple[pa.Table, Dialect]:
    """Parse the text; again if further down it proves to be Latin-1, or to escape its quotes."""
    try:
        with source.reading() as stream:
            watcher = _Watcher(stream, dialect)
            table = _parse_text(watcher, dialect, roles)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" in str(error) and dialect.encoding == "utf-8":
            _refuse_mixed_encodings(source)
            return _read_text(source, replace(dialect, encoding="latin-1"), roles)
        raise _diagnose(source, dialect, roles, str(error)) from None
    if watcher.escapes and not dialect.escaped:
        return _read_text(source, replace(dialect, escaped=True), roles)
    if dialect.quoted and watcher.quotes % 2:
        _refuse_open_quote(source, dialect)
    return table, dialect


def _parse_text(stream: _Watcher, dialect: Dialect, roles: Mapping[Any, int]) -> pa.Table:
    from pyarrow import csv as arrow_csv

    names = [f"column {k}" for k in range(dialect.fields)]
    for role, k in roles.items():
        names[k] = role
    types = {k: pa.float64() if k in ("rating", "weight") else pa.string() for k in roles}
    types.pop("time", None)  # of which Arrow finds the type, and keeps all blocks until it has
    if _seconds(dialect, roles):
        types["time"] = pa.int64()
    return arrow_csv.read_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            column_names=names, skip_rows=dialect.skip, block_size=BLOCK, encoding=dialect.encoding
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect.separator if dialect.quoted else UNIT.decode(),
            quote_char='"' if dialect.quoted else False,
            escape_char="\\" if dialect.escaped and dialect.quoted else False,
            newlines_in_values=dialect.quoted,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=list(roles),
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _seconds(dialect: Dialect, roles: Mapping[Any, int]) -> bool:
    """Whether times are whole numbers, as far as the first record shows."""
    k = roles.get("time")
    return (
        k is not None and k < len(dialect.first) and INTEGER.fullmatch(dialect.first[k]) is not None
    )


class _Watcher(io.RawIOBase):
    """A stream that counts the quotes it passes on, and replaces separators unknown to Arrow."""

    def __init__(self, stream: IO[bytes], dialect: Dialect) -> None:
        self.stream, self.dialect, self.ready = stream, dialect, b""
        self.quotes, self.escapes = 0, False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self.ready:
            self.ready = self._next()
        size = len(self.ready) if size < 0 else size
        out, self.ready = self.ready[:size], self.ready[size:]
        return out

    def _next(self) -> bytes:
        block = self.stream.read(BLOCK)
        if self.dialect.quoted:
            self.quotes += block.count(b'"')
            self.escapes = self.escapes or escapes(block, self.dialect.separator)
            return block
        block += self.stream.readline()  # never half a separator
        if self.dialect.separator == " ":
            return _squeeze(block)
        return block.replace(self.dialect.separator.encode(self.dialect.encoding), UNIT)


def _squeeze(block: bytes) -> bytes:
    """Make one separator of a run of spaces and tabs, and none of those at the ends of a line."""
    block = block.replace(b" ", UNIT).replace(b"\t", UNIT)
    ends = (UNIT + UNIT, UNIT + b"\n", UNIT + b"\r", b"\n" + UNIT)
    if any(run in block for run in ends) or block[:1] == UNIT:
        block = re.sub(rb"\x1f+", UNIT, block)
        block = re.sub(rb"(?m)^\x1f|\x1f(?=\r?$)", b"", block)
    return block


def _records(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield every record with the number of its line; slow, to name the place of an error."""
    encoding = dialect.encoding.replace("utf-8", "utf-8-sig")
    with source.reading() as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
        yield from dialect.parse(text)


def _refuse_open_quote(source: Source, dialect: Dialect) -> None:
    """Refuse a quote that is never closed: it makes one field of the rest of the file."""
    last = dialect.skip + 1
    for line, _ in _records(source, dialect):
        last = line
    with source.reading() as stream:
        text = io.TextIOWrapper(stream, encoding="latin-1", newline="")
        for _ in range(last - 1):
            text.readline()
        escape = "\\" if dialect.escaped else None
        try:
            list(csv.reader(text, delimiter=dialect.separator, strict=True, escapechar=escape))
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise DataError(
                    f"{source.name}, line {last}: a quote opens here and is never closed; close "
                    "it, or double it if it belongs to the text"
                ) from None


def _refuse_mixed_encodings(source: Source) -> None:
    """Refuse text of which some lines are UTF-8 and others are not; else it is Latin-1."""
    bad, good = None, False
    with source.reading() as stream:
        for number, line in enumerate(stream, 1):
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
                good = True
            except UnicodeDecodeError:
                bad = bad or number
    if bad and good:
        raise DataError(
            f"{source.name}, line {bad}: the line is not UTF-8 but others are; save the whole file "
            "as UTF-8"
        )


def _diagnose(source: Source, dialect: Dialect, roles: Mapping[Any, int], reason: str) -> DataError:
    """Return the error that names the first line which Arrow could not take, and says why."""
    if "straddl" in reason:
        if dialect.quoted:
            _refuse_open_quote(source, dialect)
        return DataError(f"{source.name}: a line is longer than 1 MB; give one rating a line")
    for line, fields in _records(source, dialect):
        where = f"{source.name}, line {line}"
        if len(fields) != dialect.fields:
            joined = short(dialect.separator.join(fields))
            return DataError(
                f"{where}: {joined} has {len(fields)} fields where the first line has "
                f"{dialect.fields}; correct the line (fields are separated by "
                f"{dialect.separator_name})"
            )
        if "rating" not in roles:
            continue
        rating = fields[roles["rating"]]
        if not rating.strip():
            return DataError(f"{where}: the rating is missing; leave out pairs without a rating")
        if not NUMBER.fullmatch(rating):
            return DataError(
                f"{where}: the rating {short(rating)} is not a number; write it like 4 or 3.5"
            )
        weight = fields[roles["weight"]] if "weight" in roles else "1"
        if not NUMBER.fullmatch(weight):
            return wrong_weight(where, weight, Columns.weight_remedy)
        if _seconds(dialect, roles) and not INTEGER.fullmatch(fields[roles["time"]]):
            return DataError(
                f"{where}: the time {short(fields[roles['time']])} is not whole seconds like the "
                f"first; correct it, or ignore times with {Option('time', 'none')}"
            )
    return DataError(
        f"{source.name}: cannot be read as a table ({reason.splitlines()[0]}); check its layout"
    )
