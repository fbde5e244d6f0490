"""What users and items are called: their titles, and the names of the columns in training."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayesmf.choices import SIDES, Side
from bayesmf.data.attributes import Raw
from bayesmf.data.columns import ID_NAMES, KNOWN_NAMES, Remembered, Role, list_names, simplify
from bayesmf.data.ids import Ids, read_id, to_arrow, write_id
from bayesmf.data.io.text import read_table
from bayesmf.data.pairs import Pairs
from bayesmf.errors import DataError

TITLE_NAMES = ("title", "name", "label", "titles", "names", "labels")  # the first is taken
HEADINGS: Mapping[Side, str] = {"user": "user_title", "item": "title"}
"""What the column of titles of an answer is called."""
TITLES_FILE: Mapping[Side, str] = {side: f"{side}_titles.parquet" for side in SIDES}


@dataclass(frozen=True)
class Labels:
    """Titles of users and items by their ids, written as text, and names of columns by role."""

    titles: Mapping[Side, Mapping[str, str]] = field(default_factory=dict)
    columns: Mapping[Role, str] = field(default_factory=dict)

    def beside(self, side: Side, ids: Any) -> dict[str, Any]:
        """Return the column of titles beside these ids; nothing if the side has no titles.

        An id without a title has null.
        """
        if not self.titles.get(side):
            return {}
        return {HEADINGS[side]: pa.array(self.of(side, _to_list(ids)), pa.string())}

    def pairs(self, asked: Pairs) -> dict[str, Any]:
        """Return the columns of an answer that say which pairs it is about."""
        user, item = (self.beside(side, getattr(asked, side)) for side in SIDES)
        return {"user": asked.user, **user, "item": asked.item, **item}

    def explained(self, user: Any, item: Any, found: dict[str, Any]) -> dict[str, Any]:
        """Return an explanation with the titles of its user, its item and the rated items."""
        named: dict[str, Any] = {}
        for side, one in zip(SIDES, (user, item), strict=True):
            if self.titles.get(side):
                named[HEADINGS[side]] = self.of(side, [one])[0]
        if self.titles.get("item") and "ratings" in found:
            titles = self.of("item", (row["item"] for row in found["ratings"]))
            pairs = zip(found["ratings"], titles, strict=True)
            found["ratings"] = [{"item": row["item"], "title": t, **row} for row, t in pairs]
        return {**named, **found}

    def of(self, side: Side, ids: Iterable[Any]) -> list[str | None]:
        """Return the title of each id, None where there is none."""
        titles = self.titles.get(side, {})
        return [None if one is None else titles.get(write_id(one).strip()) for one in ids]

    def call(self, side: Side, ids: Iterable[Any]) -> list[str]:
        """Return what to call each id where there is room for one name: its title, or itself."""
        every = list(ids)
        titles = self.of(side, every)
        return [title or write_id(one) for one, title in zip(every, titles, strict=True)]

    def named(self, **given: str | int | None) -> dict[Any, Any]:
        """Return the columns that the caller has named, and those of training for the others."""
        return {
            role: Remembered(self.columns[role]) if name is None and role in self.columns else name  # type: ignore[index]
            for role, name in given.items()
        }

    def put(self, side: Side, given: Any, known: Ids) -> Labels:
        """Return the same with more titles; an id that has one already gets the new one.

        ``given`` is a mapping, a frame or the path of a file; see ``Fitted.with_titles``. ``known``
        are the ids of the model, of which one at least has to be there.
        """
        if isinstance(given, Mapping):
            found = _clean(given.keys(), given.values(), f"the {side} titles")
        else:
            found = read_titles(given, side, self.columns.get(side))
        names = {write_id(one) for one in known.values.tolist()}
        if found and names.isdisjoint(found):
            raise DataError(
                f"none of the {len(known):,} {side}s of the fit, such as {known.values.item(0)!r}, "
                f"is among the ids of the titles, such as {next(iter(found))!r}; give titles of "
                "the ids that the ratings have"
            )
        titles = {**self.titles.get(side, {}), **found}
        return replace(self, titles={**self.titles, side: titles})

    def put_all(self, user_ids: Ids, item_ids: Ids, users: Any = None, items: Any = None) -> Labels:
        """Return the same with more titles of users and of items, where these are not None."""
        found = self if users is None else self.put("user", users, user_ids)
        return found if items is None else found.put("item", items, item_ids)

    def files(self) -> dict[str, pa.Table]:
        """Return the tables that keep the titles in a model's folder, by the names of files."""
        return {
            TITLES_FILE[side]: pa.table({"id": list(titles), "title": list(titles.values())})
            for side, titles in self.titles.items()
            if titles
        }

    @classmethod
    def of_files(cls, tables: Mapping[str, pa.Table], columns: Any) -> Labels:
        """Make the labels of ``files`` again; what is wrong with them is a ValueError."""
        texts = [*columns, *columns.values()]
        titles: dict[Side, Mapping[str, str]] = {}
        for side in SIDES:
            if TITLES_FILE[side] in tables:
                table = tables[TITLES_FILE[side]]
                ids, names = table["id"].to_pylist(), table["title"].to_pylist()
                titles[side] = dict(zip(ids, names, strict=True))
                texts += [*ids, *names]
                if len(titles[side]) < len(ids):
                    raise ValueError("an id has two titles")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a title or the name of a column is no text")
        return cls(titles, dict(columns))


def _to_list(ids: Any) -> list[Any]:
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        return list(ids.to_pylist())
    return list(np.asarray(ids, object))


def _clean(ids: Iterable[Any], titles: Iterable[Any], where: str) -> dict[str, str]:
    """Return titles by id, both as text without blanks around it; without those that are empty."""
    found: dict[str, str] = {}
    for one, title in zip(ids, titles, strict=True):
        if isinstance(title, Mapping | list | tuple | bytes):
            raise DataError(
                f"{where}: the title of {one!r} is a {type(title).__name__}; give titles as text"
            )
        text = "" if title is None else write_id(title).strip()
        if text:
            found[write_id(one).strip()] = text
    return found


def read_titles(given: Any, side: Side, named: str | None = None) -> dict[str, str]:
    """Read titles by id from a frame or the path of a file.

    ``named`` is what the column of the ids was called in training.
    """
    raw = read_rows(given)
    names: list[str] = raw.table.column_names
    at = find_ids(raw, side, named)
    others = [k for k in range(len(names)) if k != at]
    plain = {simplify(names[k]): k for k in reversed(others)}
    titled = next((plain[name] for name in TITLE_NAMES if name in plain), None)
    if titled is None and (len(others) == 1 or (others and _has_no_header(raw))):
        titled = others[0]
    if titled is None:
        raise DataError(
            f"{raw.where}: no column for the titles among {list_names(names)}; call it 'title'"
        )
    ids, codes = raw.read_ids(names[at])
    return _clean(ids.values[codes].tolist(), raw.table[titled].to_pylist(), raw.where)


def list_ids(raw: Raw, side: Side, known: Ids, named: str | None = None) -> list[Any]:
    """Return the ids that a table lists, of the kind that those of the model have.

    An id that the model cannot have is left out, and a table of nothing else is refused.
    """
    name = raw.table.column_names[find_ids(raw, side, named)]
    column = to_arrow(raw.table[name], side, raw.locate)
    asked = [read_id(write_id(one), known.kind) for one in column.to_pylist() if one is not None]
    found = [one for one in asked if one is not None and one != ""]
    if not found:
        raise DataError(
            f"{raw.where}: no id is like the {side}s of this model, such as "
            f"{known.values.item(0)!r}; list some of these"
        )
    return found


def has_titles(raw: Raw) -> bool:
    """Whether a table that lists ids has a column of titles too, by its name or its place."""
    names = raw.table.column_names
    named = any(simplify(name) in TITLE_NAMES for name in names)
    return named or (len(names) > 1 and _has_no_header(raw))


def read_rows(given: Any) -> Raw:
    """Read a table with a row for each id from a frame or the path of a file."""
    if isinstance(given, Raw):
        return given
    if isinstance(given, str | os.PathLike):
        table, locate, untyped = read_table(Path(given), what="id")
        return Raw(table, locate, os.fspath(given), "", untyped)
    return Raw.of_frame(given, "", "table of titles")


def find_ids(raw: Raw, side: Side, named: str | None = None) -> int:
    """Return the position of the column with the ids of one side.

    It is the only column, the one that was the side's in training, or the one that is called id,
    user, item, movie or the like. A file without a header has it first.
    """
    names: list[str] = raw.table.column_names
    if len(names) == 1 or _has_no_header(raw):
        return 0
    if named in names:
        return names.index(named)
    mine = [k for k, name in enumerate(names) if simplify(name) in KNOWN_NAMES[side].split()]
    found = mine or [k for k, name in enumerate(names) if simplify(name) in ID_NAMES]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(repr(names[k]) for k in found[:2])
        raise DataError(f"{raw.where}: {both} could both be the {side}; rename one of them")
    raise DataError(
        f"{raw.where}: no column for the {side} among {list_names(names)}; call it {side!r}"
    )


def _has_no_header(raw: Raw) -> bool:
    names: Sequence[str] = raw.table.column_names
    return raw.untyped and list(names) == [str(k + 1) for k in range(len(names))]
