"""Every way to get titles, conditions and questions about a fit wrong that we know of.

``PYTHONPATH=tests python tests/oracle/bad_titles.py`` prints the table of docs/input-errors.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from oracle.explored import ATTRIBUTES, fitted
from oracle.sentences import message_of, table_of


@dataclass(frozen=True)
class Case:
    what: str
    message: str
    titles: Any = None  # the bytes of a file, or something else to take titles from
    ask: Callable[[Any], Any] | None = None  # of a fit


CASES = [
    Case("an id twice",
         "films.csv, line 3: the id 'i1' has a row already (films.csv, line 2); give one row for "
         "each id", b"id,title\ni1,a\ni1,b\n"),
    Case("an empty id", "films.csv, line 2: the id is empty; give every row an id",
         b"id,title\n,a\n"),
    Case("no id column",
         "films.csv: no column for the item among 'what', 'title'; call it 'item'",
         b"what,title\ni1,a\n"),
    Case("two columns that could be the id",
         "films.csv: 'movie' and 'asin' could both be the item; rename one of them",
         b"movie,asin,title\ni1,x,a\n"),
    Case("no column of titles",
         "films.csv: no column for the titles among 'id', 'year', 'genre'; call it 'title'",
         b"id,year,genre\ni1,1,a\n"),
    Case("nothing but ids", "films.csv: no column for the titles among 'id'; call it 'title'",
         b"id\ni1\n"),
    Case("ids of other items",
         "none of the 24 items of the fit, such as 'i0', is among the ids of the titles, such as "
         "'x1'; give titles of the ids that the ratings have", b"id,title\nx1,a\n"),
    Case("empty file", "films.csv: the file is empty; give one id a line", b""),
    Case("only a header", "films.csv: there is a header but no id; check the file", b"id,title\n"),
    Case("ragged row",
         "films.csv, line 2: 'i1,a,b' has 3 fields where the first line has 2; correct the line "
         "(fields are separated by comma)", b"id,title\ni1,a,b\n"),
    Case("no table at all",
         "an object of type int is no table of titles; give a pandas, polars or pyarrow table, or "
         "the path of a file", 7),
    Case("a title that is no text", "the item titles: the title of 'i1' is a list; give titles as "
         "text", {"i1": ["a"]}),
    Case("no condition",
         "where='genres' is no condition; write COLUMN=VALUE, or another sign of !=, >=, <=, > and "
         "<, as in year>=1990", ask=lambda fit: fit.recommend("u1", where="genres")),
    Case("attribute not there",
         "where='colour=red': the items have no attribute 'colour'; those they have are 'genres', "
         "'year', 'country'", ask=lambda fit: fit.recommend("u1", where="colour=red")),
    Case("value not there",
         "where='genres=Drana': no item has 'Drana' in 'genres'; what there is are 'Comedy', "
         "'Drama', 'War'", ask=lambda fit: fit.recommend("u1", where="genres=Drana")),
    Case("order of a set",
         "where='genres>Drama': 'genres' is no number; compare it with = or !=",
         ask=lambda fit: fit.recommend("u1", where="genres>Drama")),
    Case("number that is none",
         "where='year>=old': 'year' is a number, and 'old' is none; write it like year>=1990",
         ask=lambda fit: fit.recommend("u1", where=["country=fr", "year>=old"])),
    Case("too different", "diversify=1.5: choose 0 to 1",
         ask=lambda fit: fit.recommend("u1", diversify=1.5)),
    Case("an item without ratings", "the item 'i99' was not in training; fold it in first",
         ask=lambda fit: fit.similar(item="i99")),
]  # fmt: skip


@cache
def fit() -> Any:
    return fitted(sweeps=4, item_attributes=ATTRIBUTES)


def make(case: Case, folder: Path) -> None:
    """Give the titles to a fit, or ask it something."""
    if case.ask is not None:
        case.ask(fit())
    elif isinstance(case.titles, bytes):
        path = folder / "films.csv"
        path.write_bytes(case.titles)
        fit().with_titles(items=path)
    else:
        fit().with_titles(items=case.titles)


message = partial(message_of, make)
table = partial(table_of, CASES, make)


if __name__ == "__main__":
    print(table(), end="")
