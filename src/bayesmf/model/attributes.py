"""Attributes: a design of what is known about users or items beforehand, such as age or genre."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from bayesmf.choices import AttributeKind
from bayesmf.data.attributes import TYPES, Column, Raw, choose_columns, clean, learn
from bayesmf.data.ids import Ids
from bayesmf.data.io.text import read_table
from bayesmf.errors import AttributesWarning, DataError, Option
from bayesmf.model.designs import Matrix, SideFacts, register
from bayesmf.model.spec import Model

MOST_LISTED = 12  # columns that are named where a table is shown


@register("design")
@dataclass(frozen=True, eq=False, repr=False)
class Attributes:
    """What is known about users or items beforehand: a table with a row for each id.

    ``Attributes.from_frame`` and ``Attributes.load`` make it. As a design, X_ik is

    - of a number: (value - mean) / sd, with the mean and the sd of the table's rows;
    - of a category: 1 in the column of its value;
    - of a set of m values: 1 / sqrt(m) in the column of each of them.

    What is missing has no entry, so that a missing number counts as the mean. Neither has an id
    that is not in the table, nor a value that was not there when the table was made.
    """

    id: str  # what the column with the ids is called
    ids: Ids
    columns: tuple[Column, ...]
    table: pa.Table  # the values, a row for each of ``ids``
    notes: tuple[str, ...] = ()  # what was left out, a sentence each

    name: ClassVar[str] = "attributes"

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: str | int | None = None,
        kinds: Mapping[Any, AttributeKind] | None = None,
        columns: Sequence[str | int] | None = None,
    ) -> Attributes:
        """Take a pandas, polars or pyarrow table with a row for each user, or each item.

        - ``id``: the column with the ids, by its name or its number from 1. It is recognised if it
          is called id, user, item, movie or the like.
        - ``kinds``: what columns are: {"year": "number", "genres": "set", "title": "none"}. The
          kinds are "number", "category", "set" (lists, or text such as "Action|Comedy") and "none",
          which leaves the column out. Columns that are not named are recognised: numbers are
          numbers, text with "|" in several values is a set, other text a category.
        - ``columns``: the columns to use; all if None.

        A column with the same value in every row is left out; ``notes`` says so.
        """
        return cls._of_raw(Raw.of_frame(frame), id, kinds, columns)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        id: str | int | None = None,
        kinds: Mapping[Any, AttributeKind] | None = None,
        columns: Sequence[str | int] | None = None,
        names: Sequence[str] | None = None,
        separator: str | None = None,
        header: bool | None = None,
        member: str | None = None,
    ) -> Attributes:
        """Read a table from a csv, tsv, MovieLens ``::``, ``|``-separated or parquet file.

        - ``id``, ``kinds``, ``columns``: those of ``Attributes.from_frame``. In a text file a
          column is a number if all its values are; codes such as 007 are not.
        - ``names``: what the columns are called, for a file without a header. Otherwise they are
          called by their numbers, from 1, and the first one has the ids.
        - ``separator``, ``header``, ``member``: those of ``bayesmf.load``.
        """
        raw = _read(path, names, separator, header, member)
        if id is None and raw.table.column_names[0] == "1":
            id = 1
        return cls._of_raw(raw, id, kinds, columns)

    @classmethod
    def _of_raw(cls, raw: Raw, id: Any, kinds: Any, columns: Any) -> Attributes:
        id_name = raw.find_id(id)
        chosen = choose_columns(raw, id_name, kinds, columns)
        ids, codes = raw.read_ids(id_name)
        found, values, notes = learn(raw, chosen)
        table = pa.table({id_name: pa.array(ids.values[codes].tolist()), **values})
        table = table.take(pa.array(np.argsort(codes, kind="stable")))
        return cls(id_name, ids, tuple(found.values()), table.combine_chunks(), tuple(notes))

    @cached_property
    def _matrix(self) -> Any:
        """X of all rows of the table, and a row without entries for everybody else."""
        parts = [column.encode(self.table[column.name]) for column in self.columns]
        whole = sparse.hstack(parts, format="csr")
        return sparse.vstack([whole, sparse.csr_array((1, whole.shape[1]))], format="csr")

    @property
    def width(self) -> int:
        """How many columns the matrix has."""
        return sum(column.width for column in self.columns)

    def matrix(self, side: SideFacts) -> Matrix:
        """Return the matrix of these rows."""
        return Matrix.from_sparse(self._matrix[self.rows_of(side.ids)])

    def encode(self, rows: Any) -> Any:
        """Return the matrix of other rows, in their order, as a scipy sparse array.

        ``rows`` is a frame with the same columns or the path of a file; ids are not needed. It is
        encoded as the table was, and a value that the table did not have has no entry.
        """
        raw = _read_more(rows)
        values = self._clean(raw)
        return sparse.hstack([one.encode(values[one.name]) for one in self.columns], format="csr")

    def extend(self, rows: Any) -> Attributes:
        """Return the same with more rows; the row of an id that is there already is replaced.

        ``rows`` is a frame with the same columns, that of the ids included, or the path of a file.
        It is encoded as the table was, and a value that the table did not have has no entry.
        """
        raw = _read_more(rows)
        ids, codes = raw.read_ids(raw.find_id(self.id))
        if ids.kind != self.ids.kind:
            raise DataError(
                f"{raw.where}: ids such as {ids.values.item(0)!r} are of another type than those "
                f"of the model, such as {self.ids.values.item(0)!r}; give ids of the same type"
            )
        more = pa.table({self.id: pa.array(ids.values[codes].tolist()), **self._clean(raw)})
        old = self.table.filter(pa.array(~np.isin(self.ids.values, ids.values)))
        both = pa.concat_tables([old, more.cast(old.schema)])
        values = np.array(both[self.id].to_pylist(), self.ids.values.dtype)
        order = np.argsort(values, kind="stable")
        table = both.take(pa.array(order)).combine_chunks()
        return replace(self, ids=Ids(values[order]), table=table)

    def _clean(self, raw: Raw) -> dict[str, pa.ChunkedArray]:
        """The columns of another table, as those of this one are."""
        for column in self.columns:
            if column.name not in raw.table.column_names:
                raise DataError(
                    f"{raw.where}: there is no column {column.name!r}, which the model has; add "
                    "it, empty where it is not known"
                )
        return {one.name: clean(raw, one.name, one.kind) for one in self.columns}

    def labels(self) -> Iterator[tuple[Column, str | None]]:
        """The column of the table that each column of the matrix is from, and its value if any."""
        for column in self.columns:
            for value in column.values or (None,):
                yield column, value

    def rows_of(self, ids: Ids) -> NDArray[np.int32]:
        """The row of each id; -1 where there is none. 12 and "12" are the same id here."""
        if ids.kind == self.ids.kind:
            return self.ids.index(ids.values)
        mine, theirs = (np.array([str(v) for v in one.values], object) for one in (self.ids, ids))
        order = np.argsort(mine, kind="stable")
        found = Ids(mine[order]).index(theirs)
        return np.where(found >= 0, order[found], -1).astype(np.int32)

    def check_rows(self, side: SideFacts) -> None:
        """Refuse a table without any of the rows that have ratings; say how many it lacks."""
        rated = side.ids.take(side.counts > 0)
        row, what = self.rows_of(rated), side.name
        lacking = int(np.count_nonzero(row < 0))
        if len(rated) and lacking == len(rated):
            names = {"integer": "integers", "text": "text"}
            mine, theirs = self.ids.values.item(0), rated.values.item(0)
            raise DataError(
                f"none of the {len(rated):,} {what}s has a row in the {what} attributes: ids there "
                f"are {names[self.ids.kind]} such as {mine!r}, in the ratings {names[rated.kind]} "
                f"such as {theirs!r}; give a table with the ids of the ratings"
            )
        if lacking:
            warnings.warn(
                f"{lacking:,} of {len(rated):,} {what}s have no row in the {what} attributes, such "
                f"as {rated.values.item(int(np.argmin(row)))!r}; they count as without attributes",
                AttributesWarning,
                stacklevel=2,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what describes the attributes but for the values, which are known by their sum."""
        columns = [asdict(column) for column in self.columns]
        return {"id": self.id, "columns": columns, "rows": len(self.ids), "sha256": self.sha256}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Attributes:
        """Make the attributes of ``to_dict`` again, from their ``table`` and what describes it."""
        if "table" not in facts:
            raise DataError(
                "the table of the attributes is not here; load the whole model with load_model"
            )
        columns = [Column(**{**one, "values": tuple(one["values"])}) for one in facts["columns"]]
        table = facts["table"]
        types = {column.name: TYPES[column.kind] for column in columns}
        if table.column_names != [facts["id"], *types]:
            raise DataError("the table of the attributes has other columns")
        for name, kind in types.items():
            if table[name].type != kind:
                raise DataError(f"the column {name!r} of the attributes is of another type")
        ids, codes = Raw(table, str, "", "").read_ids(facts["id"])
        found = cls(facts["id"], ids, tuple(columns), table)
        if (np.diff(codes) < 0).any() or found.sha256 != facts["sha256"]:
            raise DataError("the table of the attributes is not what was saved")
        return found

    @cached_property
    def sha256(self) -> str:
        """The sum of all that predictions depend on."""
        words = json.dumps([self.id, [asdict(c) for c in self.columns], self.ids.values.tolist()])
        total = hashlib.sha256(words.encode())
        for array in (self._matrix.indptr, self._matrix.indices):
            total.update(array.astype(np.int64).tobytes())
        total.update(self._matrix.data.tobytes())
        return total.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attributes):
            return NotImplemented
        return self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        listed = ", ".join(column.describe() for column in self.columns[:MOST_LISTED])
        if len(self.columns) > MOST_LISTED:
            listed += f" and {len(self.columns) - MOST_LISTED} more columns"
        told = "; ".join([f"{len(self.ids):,} rows by {self.id!r}: {listed}", *self.notes])
        return f"Attributes({told})"


def _read(path: Any, *layout: Any) -> Raw:
    table, locate, untyped = read_table(Path(path), *layout)
    return Raw(table, locate, os.fspath(path), "Attributes.load", untyped)


def _read_more(rows: Any) -> Raw:
    return _read(rows) if isinstance(rows, str | os.PathLike) else Raw.of_frame(rows)


def extend_attributes(model: Model, user: Any = None, item: Any = None) -> Model:
    """Return the model with more rows in the attributes of users and items; see ``extend``."""
    changed: dict[str, tuple[Any, ...]] = {}
    for name, rows in (("user", user), ("item", item)):
        designs = model.user_designs if name == "user" else model.item_designs
        if rows is None:
            continue
        if not any(isinstance(design, Attributes) for design in designs):
            raise DataError(
                f"the model has no attributes of {name}s; fit one with "
                f"{Option(f'{name}_attributes', 'TABLE')}"
            )
        changed[f"{name}_designs"] = tuple(
            one.extend(rows) if isinstance(one, Attributes) else one for one in designs
        )
    return replace(model, **changed)  # type: ignore[arg-type]


def with_attributes(model: Model, user: Any = None, item: Any = None) -> Model:
    """Return the model with the attributes of users and items as further designs.

    They are ``Attributes``, a frame or the path of a file; None leaves a side as it is.
    """
    designs = {"user_designs": model.user_designs, "item_designs": model.item_designs}
    for name, table in (("user_designs", user), ("item_designs", item)):
        if table is not None:
            designs[name] = (*designs[name], as_attributes(table))
    return replace(model, **designs)  # type: ignore[arg-type]


def as_attributes(table: Any) -> Attributes:
    """Return ``Attributes`` as they are, and make those of a frame or of the path of a file."""
    if isinstance(table, Attributes):
        return table
    is_path = isinstance(table, str | os.PathLike)
    return Attributes.load(table) if is_path else Attributes.from_frame(table)
