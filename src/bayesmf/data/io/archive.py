"""Bytes from a plain, gzip, bzip2 or zip file, recognised by its content and not its name."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from bayesmf.errors import DataError, Option

GZIP, BZIP2, ZIP, PARQUET = b"\x1f\x8b", b"BZh", b"PK\x03\x04", b"PAR1"
HEAD = 1 << 16
DAMAGE = (
    zlib.error,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    NotImplementedError,  # a method of compression or a version of zip that never was
    UnicodeDecodeError,  # in the names inside a zip
)
MOST_UNPACKED, SMALL = 64, 1 << 30  # bytes that a byte of a file may stand for, and any file
TABLES = (".csv", ".tsv", ".dat", ".txt", ".data", ".parquet", ".inter")


@dataclass(frozen=True)
class Source:
    """A file, or one inside an archive, that can be opened again and again."""

    name: str  # for messages
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    path: Path | None  # of the file itself, if nothing needs unpacking

    @contextlib.contextmanager
    def reading(self) -> Iterator[IO[bytes]]:
        """Open the source, and turn what damaged archives raise into one sentence."""
        try:
            with self.open() as stream:
                yield stream
        except EOFError:
            raise DataError(
                f"{self.name}: the compressed data is cut short; fetch or copy the file again"
            ) from None
        except DAMAGE as error:
            raise DataError(
                f"{self.name}: the compressed data is damaged ({error}); fetch the file again"
            ) from None
        except PermissionError:
            raise DataError(f"{self.name}: no permission to read it; change its mode") from None
        except OSError as error:  # bz2 reports damage as a plain OSError
            raise DataError(f"{self.name}: cannot be read ({error}); check the file") from None

    def head(self) -> bytes:
        """Read the first bytes, enough to recognise a format."""
        with self.reading() as stream:
            return stream.read(HEAD)


def open_source(path: Path, member: str | None = None) -> Source:
    """Find the table at ``path``, inside gzip, bzip2 and zip if need be.

    ``member`` says which file of a zip archive it is.
    """
    if os.path.isdir(path):
        raise DataError(f"{path} is a folder; give the ratings file inside it")
    if not os.path.isfile(path):
        raise DataError(f"{path}: not a file that can be read; check the path")

    def plain() -> IO[bytes]:
        return path.open("rb")

    source = Source(str(path), plain, path)
    for _ in range(3):  # a .csv.gz in a .zip, and no deeper
        magic = source.head()[:4]
        if magic.startswith(ZIP):
            source, member = _inside_zip(source, member), None
        elif magic.startswith(GZIP):
            source = _unpack(source, gzip.open)
        elif magic.startswith(BZIP2):
            source = _unpack(source, bz2.open)
    if member is not None:
        raise DataError(
            f"{path} is not a zip archive, so it has no member {member!r}; leave out "
            f"{Option('member')}"
        )
    return source


def _unpack(source: Source, opener: Callable[..., Any]) -> Source:
    @contextlib.contextmanager
    def open_packed() -> Iterator[IO[bytes]]:
        with source.open() as packed, opener(packed, "rb") as stream:
            yield stream

    return Source(source.name, open_packed, None)


def _inside_zip(source: Source, member: str | None) -> Source:
    with source.reading() as stream, zipfile.ZipFile(stream) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    names = [name for name in entries if name and not name.endswith("/")]
    if member is None:
        member = _choose(source.name, names)
    elif member not in names:
        raise DataError(f"{source.name}: no member {member!r}; it holds {_list(names)}")
    if entries[member].flag_bits & 1:
        raise DataError(f"{source.name}: {member!r} is encrypted; unpack it first")

    @contextlib.contextmanager
    def open_member() -> Iterator[IO[bytes]]:
        with (
            source.open() as packed,
            zipfile.ZipFile(packed) as archive,
            archive.open(member) as stream,
        ):
            yield stream

    return Source(f"{source.name}/{member}", open_member, None)


def _choose(name: str, names: list[str]) -> str:
    """Choose the one member that can be the ratings: called so, or the only table."""
    tables = [n for n in names if _is_table(PurePosixPath(n))]
    called = [n for n in tables if PurePosixPath(n).name.split(".")[0].casefold() == "ratings"]
    candidates = called or tables
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise DataError(
            f"{name}: the archive holds no table of ratings, only {_list(names)}; give another one"
        )
    raise DataError(
        f"{name}: several members could be the ratings: {_list(candidates)}; choose with "
        f"{Option('member', 'NAME')}"
    )


def _is_table(path: PurePosixPath) -> bool:
    suffixes = [s.casefold() for s in path.suffixes]
    if path.name.startswith("."):  # a Mac's notes about a file are called ._file
        return False
    if suffixes and suffixes[-1] in (".gz", ".bz2"):
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in TABLES


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "nothing"


def read_all(source: Source) -> io.BytesIO:
    """Read the whole content, for formats that must seek."""
    with source.reading() as stream:
        return io.BytesIO(stream.read())


def read_parquet(
    where: Any, name: str, choose: Callable[[list[str]], list[str]]
) -> tuple[list[str], Any]:
    """Return the names of the columns of a parquet file, and the table of those that are chosen.

    A file may hold a value once and say that it comes a billion times. So what it declares is
    looked at before anything is read, and text is put out in full only once its length is known.
    """
    import pyarrow as pa
    from pyarrow import compute, parquet

    size = os.path.getsize(where) if isinstance(where, Path) else where.getbuffer().nbytes
    most = max(MOST_UNPACKED * size, SMALL)
    file = parquet.ParquetFile(where)
    names = file.schema_arrow.names
    chosen = choose(names)

    def check(wanted: int) -> None:
        if wanted > most:
            raise DataError(
                f"{name}: {size:,} bytes that unpack to {wanted:,}, which is more than {most:,}; "
                "if it is what it should be, give it as a csv file"
            )

    facts = file.metadata
    groups = [facts.row_group(k) for k in range(facts.num_row_groups)]
    columns = range(facts.num_columns)
    check(sum(group.column(k).total_uncompressed_size for group in groups for k in columns))
    check(8 * facts.num_rows * max(len(chosen), 1))
    texts = [n for n in chosen if _is_text(file.schema_arrow.field(names.index(n)).type)]
    table = parquet.ParquetFile(where, read_dictionary=texts).read(columns=chosen)
    table.validate(full=True)  # that text is text, among others
    for text in texts:
        lengths = (
            compute.sum(compute.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
            for chunk in table[text].chunks
        )
        check(sum(lengths))
        table = table.set_column(
            table.column_names.index(text), text, table[text].cast(pa.string())
        )
    return names, table


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
