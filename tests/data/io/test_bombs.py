"""Small files that stand for gigabytes are refused before these are in memory."""

from __future__ import annotations

import gzip
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

import bayesmf
from bayesmf import DataError

MEGABYTES = 900  # that a process may take to find out: Python, NumPy and Arrow take half of them


def endless_line(path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b"1,2,3\n")
        for _ in range(2000):
            stream.write(b"x" * (1 << 20))


def write_rows(path, columns, count: int) -> None:
    """A parquet file that has a table of columns many times, with one dictionary each."""
    table = pa.table(columns)
    with parquet.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(count):
            writer.write_table(table)


def many_rows(path) -> None:
    rows = 1 << 22
    ones = pa.array([1], pa.int64()).take(pa.array([0] * rows, pa.int32()))
    write_rows(path, {"user": ones, "item": ones, "rating": ones}, 16)


def long_ids(path) -> None:
    rows = 1 << 11
    numbers = pa.array(range(rows), pa.int64())
    indices = pa.array([0] * rows, pa.int32())
    same = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * (1 << 20)]))
    write_rows(path, {"user": same, "item": numbers, "rating": numbers}, 1)


def told_within_limits(path, memory: int) -> str:
    script = (
        "import resource, sys, bayesmf\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({memory << 20},) * 2)\n"
        "try:\n    bayesmf.load(sys.argv[1])\n"
        "except bayesmf.DataError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        (
            "line.csv.gz",
            endless_line,
            "a line is longer than 1 MB",
        ),
        ("rows.parquet", many_rows, "bytes that unpack to"),
        ("ids.parquet", long_ids, "bytes that unpack to"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux has it")
def test_bombs_are_refused(name, make, told, tmp_path):
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 1 << 24
    assert told in told_within_limits(tmp_path / name, MEGABYTES)


def test_a_table_of_one_value_is_no_bomb(tmp_path):
    path, rows = tmp_path / "ratings.parquet", 1 << 18
    users = pa.array(range(rows), pa.int64())
    ones = pa.array(["one"]).take(pa.array([0] * rows, pa.int32()))
    write_rows(path, {"user": users, "item": ones, "rating": pa.array([1.0] * rows)}, 1)
    assert len(bayesmf.load(path)) == rows


def test_a_long_line_is_read_and_a_longer_one_refused(tmp_path):
    """A line counts as a whole, also where it begins in one block and ends in the next."""
    path, name, short = tmp_path / "ratings.csv", "x" * 1_000_000, "1,2,3\n3,4,5\n"
    for before in (0, 99_999):
        text = short + "".join(f"{k},{k},3\n" for k in range(10, 10 + before))
        path.write_text(f"{text}{name},2,3\n")
        assert name in bayesmf.load(path, ids="text").users.values
        path.write_text(f"{text}{name}{name[:60_000]},2,3\n")
        with pytest.raises(DataError, match=r"a line is longer than 1 MB"):
            bayesmf.load(path, ids="text")
