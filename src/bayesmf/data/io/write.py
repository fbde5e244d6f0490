"""Ratings to files that any tool can read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa

from bayesmf.data.io.atomic import OVERWRITE, check_place, whole_file
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError

FORMATS = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")


def write(ratings: Ratings, path: str | Path) -> None:
    """Write the columns user, item, rating and, if there are any, time, weight; one row a rating.

    The ending of the path says how: .csv, .tsv, .parquet, .csv.gz or .tsv.gz.
    """
    write_table(ratings.to_arrow(), path)


def write_table(table: pa.Table, path: str | Path, overwrite: bool = True) -> None:
    """Write any table; the file appears whole or not at all."""
    path = Path(path)
    ending = _ending(path)
    with whole_file(path, overwrite) as temporary:
        if ending == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, temporary)
            return
        from pyarrow import csv

        # A float32 has fewer digits than the float64 it is read back as.
        for k, field in enumerate(table.schema):
            if field.type == pa.float32():
                wide = table[field.name].cast(pa.float64())
                table = table.set_column(k, field.name, wide)
        options = csv.WriteOptions(
            delimiter="\t" if ".tsv" in ending else ",", quoting_style="needed"
        )
        if ending.endswith(".gz"):
            # No name and no time inside, so that equal ratings make equal files.
            with open(temporary, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                csv.write_csv(table, packed, write_options=options)
        else:
            csv.write_csv(table, temporary, write_options=options)


def check_table(path: Path, overwrite: bool = False) -> None:
    """Refuse a path to which a table cannot be written, before the work on the table."""
    _ending(path)
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists already; {OVERWRITE}")
    check_place(path)


def _ending(path: Path) -> str:
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if ending not in FORMATS:
        raise DataError(f"{path}: cannot tell the format; end the name in {', '.join(FORMATS)}")
    return ending
