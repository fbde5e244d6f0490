"""Splits that others have published, as their files have them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bayesmf.data.columns import Columns
from bayesmf.data.ids import Ids, strip
from bayesmf.data.io.datasets import DATASETS
from bayesmf.data.io.load import fetch
from bayesmf.data.io.text import read_columns
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import Split
from bayesmf.errors import DataError

ML_100K = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
PUBLISHED = tuple(f"ml-100k/{name}" for name in ML_100K)
ARRAYS = ("M", "Otraining", "Otest")
HDF5 = b"\x89HDF\r\n\x1a\n"
BLOCK = 512  # MATLAB puts a header of its own before HDF5's


def load_ml_100k(name: str) -> Split:
    """Read one of ``PUBLISHED``, from the folder or the archive that ml-100k is in."""
    data_set, _, which = name.partition("/")
    found = fetch(data_set)
    tables = []
    for part in ("base", "test"):
        if found.suffix == ".zip":
            tables.append(read_columns(found, {}, member=f"{data_set}/{which}.{part}"))
            continue
        path = found.with_name(f"{which}.{part}")
        if not os.path.isfile(path):
            raise DataError(
                f"{path}: no such file; take it out of {DATASETS[data_set].archive} and put it "
                f"beside {found.name}"
            )
        tables.append(read_columns(path, {}))
    part_of = np.repeat([0, 1], [len(table.rating) for table in tables])
    scale = DATASETS[data_set].scale
    train, test = cut(stack(tables), part_of, 2, scale=scale, name=data_set)
    return Split(train, test, "published", None, {"split": name})


def load_monti(path: Path) -> Split:
    """Read a file of Monti et al. (2017): Douban, Flixster or YahooMusic.

    Its arrays have a row for each user and a column for each item: the ratings ``M``, and
    ``Otraining`` and ``Otest``, which are not zero where a rating belongs to a part. Ids are the
    positions from 1, as MATLAB counts.
    """
    arrays = read_matlab(path, ARRAYS)
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {rows} x {columns}" for name, (rows, columns) in shapes.items())
        raise DataError(f"{path}: its arrays have different shapes ({told}); fetch the file again")
    ratings, parts = arrays["M"], [np.nonzero(arrays[name]) for name in ARRAYS[1:]]
    user, item = (np.concatenate(index) for index in zip(*parts, strict=True))
    part_of = np.repeat([0, 1], [len(part[0]) for part in parts])

    def locate(row: int) -> str:
        return f"{path}, row {user[row] + 1} and column {item[row] + 1} of M"

    values = ratings[user, item]
    _check_monti(path, values, user, item, part_of)
    columns = [pa.chunked_array([array]) for array in (user + 1, item + 1, values)]
    table = Columns(columns[0], columns[1], columns[2], None, locate)
    train, test = cut(table, part_of, 2)
    return Split(train, test, "published", None, {"split": path.name})


def _check_monti(path: Path, values: Any, user: Any, item: Any, part_of: NDArray[np.int64]) -> None:
    for number, name in enumerate(ARRAYS[1:]):
        if not (part_of == number).any():
            raise DataError(f"{path}: {name} is zero everywhere; fetch the file again")
    if (values == 0).any():
        k = int(np.argmax(values == 0))
        raise DataError(
            f"{path}: row {user[k] + 1} and column {item[k] + 1} of {ARRAYS[1 + part_of[k]]} say "
            "that there is a rating, where M has none; fetch the file again"
        )


def read_matlab(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """Read matrices of a .mat file as dense arrays, sparse ones too, with MATLAB's rows as rows."""
    try:
        with path.open("rb") as file:
            head = file.read(BLOCK + len(HDF5))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if HDF5 in (head[: len(HDF5)], head[BLOCK:]):
        found = _read_hdf5(path, names)
    else:
        found = _read_older(path, names)
    for name in names:
        if name not in found:
            raise DataError(
                f"{path}: there is no array {name!r} in it; give a file with {', '.join(names)}"
            )
        if found[name].ndim != 2:
            raise DataError(f"{path}: {name} is not a matrix; give another file")
    return found


def _read_older(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Read a file of a version of MATLAB's format before 7.3."""
    from scipy import io, sparse

    try:
        found = io.loadmat(path, variable_names=names)
    except Exception as error:  # scipy raises whatever its parser stumbles over
        raise DataError(f"{path}: not a readable .mat file ({error}); fetch it again") from None
    return {
        name: np.asarray(found[name].todense() if sparse.issparse(found[name]) else found[name])
        for name in names
        if name in found
    }


def _read_hdf5(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Read a file of version 7.3, which is HDF5: dense arrays lie there column by column."""
    from scipy import sparse

    try:
        import h5py
    except ImportError:
        raise ImportError(
            f"{path} is a .mat file of version 7.3, which is read with h5py: pip install "
            "'bayesmf[matlab]'"
        ) from None
    found = {}
    try:
        with h5py.File(path, "r") as file:
            for name in names:
                if name not in file:
                    continue
                node = file[name]
                if isinstance(node, h5py.Dataset):
                    found[name] = np.asarray(node).T
                    continue
                parts = (np.asarray(node[part]) for part in ("data", "ir", "jc"))
                data, row, starts = parts
                shape = int(node.attrs["MATLAB_sparse"]), len(starts) - 1
                found[name] = sparse.csc_array((data, row, starts), shape=shape).toarray()
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: not a readable .mat file ({error}); fetch it again") from None
    return found


def stack(tables: list[Columns]) -> Columns:
    """Put the rows of tables under one another, with times and weights if all tables have them."""

    def column(role: str) -> Any:
        chunks = [getattr(table, role) for table in tables]
        if any(chunk is None for chunk in chunks):
            return None
        return pa.chunked_array([c for chunk in chunks for c in chunk.chunks])

    def locate(row: int) -> str:
        for table in tables:
            if row < len(table.rating):
                return table.locate(row)
            row -= len(table.rating)
        return "the split"

    user, item, rating = column("user"), column("item"), column("rating")
    untyped, weight = tables[0].untyped, column("weight")
    return Columns(user, item, rating, column("time"), locate, untyped, weight=weight)


def cut(table: Columns, part_of: NDArray[Any], parts: int, **options: Any) -> list[Ratings]:
    """Make ratings of the rows, and give each row to the part whose number ``part_of`` has.

    All parts number users and items alike. ``options`` are those of ``Ratings.from_columns``.
    """
    whole = Ratings.from_columns(table, **options)
    # The observations are sorted now: find each row's among them by its pair.
    user = whole.users.index(_typed(table.user, whole.users, table.untyped)).astype(np.int64)
    item = whole.items.index(_typed(table.item, whole.items, table.untyped))
    of_observation = part_of[np.argsort(user * whole.n_items + item)]
    return [whole.select(of_observation == number) for number in range(parts)]


def _typed(column: pa.ChunkedArray, ids: Ids, untyped: bool) -> pa.ChunkedArray:
    """Read the column as the ids were read."""
    if untyped:
        column = strip(column)
    return column.cast(pa.int64()) if ids.kind == "integer" else column
