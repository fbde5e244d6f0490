"""How a text file of ratings is laid out, as its first lines show."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Literal

from bayesmf.data.columns import ID_NAMES, simplify
from bayesmf.data.io.archive import HEAD
from bayesmf.errors import DataError, Option

SEPARATORS = ("::", "\t", ",", ";", "|", " ")
NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*|\s*[-+]?(nan|inf|infinity)\s*", re.I)
BLANK_LINES = re.compile(r"([ \t]*(\r\n|\n|\r))*")
SAMPLE_RECORDS = 50
Record = Literal["rating", "pair", "row", "id"]
FIELDS: dict[Record, tuple[int, str]] = {
    "rating": (3, "user, item and rating"),
    "pair": (2, "user and item"),
    "row": (2, "an id and its attributes"),
    "id": (2, "ids"),  # which may also stand alone
}
"""What a line of a file holds: how many fields it has at least, and which."""


@dataclass(frozen=True)
class Dialect:
    """How a text file is laid out."""

    separator: str
    fields: int
    header: list[str] | None
    skip: int  # physical lines before the first record
    first: list[str]  # the first record
    escaped: bool  # quotes inside quotes are written \" and not ""
    encoding: str = "utf-8"

    @property
    def quoted(self) -> bool:
        """Whether fields may be in quotes."""
        return takes_quotes(self.separator)

    @property
    def separator_name(self) -> str:
        """The separator in words."""
        return NAMES.get(self.separator, repr(self.separator))

    def parse(self, text: IO[str]) -> Iterator[tuple[int, list[str]]]:
        """Yield every record after the header with the number of its first line; this is slow."""
        for _ in range(self.skip):
            text.readline()
        for line, fields in parse(text, self.separator, self.escaped):
            yield self.skip + line, fields


def sniff(
    name: str, head: bytes, separator: str | None, header: bool | None, what: Record = "rating"
) -> Dialect:
    """Find out the layout of a file that begins with ``head``.

    ``what`` says what a line holds. ``separator`` and ``header`` are taken as given unless they are
    None. ``name`` begins the messages.
    """
    least, listed = FIELDS[what]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: the text is UTF-16; save it as UTF-8")
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise DataError(f"{name}: the file is empty; give one {what} a line")
    if b"\0" in head:
        raise DataError(
            f"{name}: the file is not text (nor parquet, gzip, bzip2 or zip); "
            f"give a {'ratings ' if what == 'rating' else ''}table as csv, tsv or parquet"
        )
    text = _decode(head)
    start = BLANK_LINES.match(text)
    assert start is not None  # it matches nothing, too
    blank, text = len(start[0].splitlines()), text[start.end() :]
    separator = "\t" if separator == "\\t" else separator
    whole = len(head) < HEAD
    choices = [separator] if separator else [s for s in SEPARATORS if s != " " or what != "id"]
    samples = {choice: _sample(text, choice, whole) for choice in choices}
    separator = separator or _separator(samples, least) or ("\t" if what == "id" else None)
    if separator is None or not samples[separator]:
        first_line = re.split(r"[\r\n]", text, maxsplit=1)[0]
        raise DataError(
            f"{name}, line {blank + 1}: {short(first_line)} does not split into {listed}; separate "
            f"them by commas, tabs, '::' or spaces, or give {Option('separator', 'TEXT')}"
        )
    sample, escaped = samples[separator], escapes(text.encode(), separator)
    first = sample[0][1]
    if header is None:
        header = not any(NUMBER.fullmatch(field) for field in first)
        if len(first) == 1:  # of ids that stand alone
            header = simplify(first[0]) in ID_NAMES
    if not header:
        return Dialect(separator, len(first), None, blank, first, escaped)
    if len(sample) == 1 and whole:
        raise DataError(f"{name}: there is a header but no {what}; check the file")
    line, record = sample[1] if len(sample) > 1 else (2, [])
    return Dialect(separator, len(first), first, blank + line - 1, record, escaped)


def parse(text: IO[str], separator: str, escaped: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield every record that is not an empty line, with the number of its first line."""
    csv.field_size_limit(1 << 30)
    if takes_quotes(separator):
        reader = csv.reader(text, delimiter=separator, escapechar="\\" if escaped else None)
        line = 1
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    else:
        for number, row in enumerate(text, 1):
            row = row.rstrip("\r\n")
            if row.strip() if separator == " " else row:
                yield number, row.split(None if separator == " " else separator)


def takes_quotes(separator: str) -> bool:
    """Whether fields may be in quotes: files with '::' or spaces know no quotes."""
    return len(separator) == 1 and separator.isascii() and separator != " "


def escapes(text: bytes, separator: str) -> bool:
    """Whether quotes inside quotes are written \\" here.

    A field may also just end in a backslash, so only \\" with more of the field after it counts.
    """
    behind = rb'[^"\r\n' + re.escape(separator.encode()) + b"]"
    return b'\\"' in text and re.search(rb'\\"' + behind, text) is not None


def short(text: str, most: int = 40) -> str:
    """Quote a value for a message, and cut it if it is long."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _decode(head: bytes) -> str:
    """Decode as UTF-8, of which the last character may be cut, or else as Latin-1."""
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return head.decode("latin-1")


def _sample(text: str, separator: str, whole: bool) -> list[tuple[int, list[str]]]:
    """Parse the first records; the last one of a text that was cut may be incomplete."""
    escaped = escapes(text.encode(), separator)
    records = parse(io.StringIO(text, newline=""), separator, escaped)
    sample = list(itertools.islice(records, SAMPLE_RECORDS))
    return sample if whole or len(sample) < 2 else sample[:-1]


def _separator(samples: Mapping[str, list[tuple[int, list[str]]]], least: int) -> str | None:
    """Choose the first separator that cuts all records into equally many fields, and enough.

    If none does, the first that cuts the first record so is chosen. Spaces come last, as a table
    with another separator may well have blanks in its fields.
    """
    usable = [s for s, sample in samples.items() if sample and len(sample[0][1]) >= least]
    if len(usable) > 1 and " " in usable:
        usable.remove(" ")
    alike = [s for s in usable if len({len(fields) for _, fields in samples[s]}) == 1]
    return next(iter(alike + usable), None)
