"""Every way to get a table of attributes wrong that we know of, and what the user is told.

``PYTHONPATH=tests python tests/oracle/bad_attributes.py`` prints the table of docs/input-errors.md.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bayesmf import Attributes, Gibbs, Model, Ratings
from oracle.sentences import message_of, table_of

GOOD = b"movie,year,genres\n1,1995,Action|Comedy\n2,1999,Drama|Action\n3,,Drama\n"
NAMES = "".join(f"{k},name {k}\n" for k in range(30)).encode()
DATES = [datetime.date(1970 + k, 1, 1) for k in range(3)]


@dataclass(frozen=True)
class Case:
    what: str
    given: Any  # the bytes of a file, or a frame
    message: str
    options: dict[str, Any] = field(default_factory=dict)
    name: str = "movies.csv"


CASES = [
    Case("no id column", b"film,year\n1,1995\n2,1999\n",
         "movies.csv: no column for the id among 'film', 'year'; name it with id=NAME of "
         "Attributes.load"),
    Case("two columns that could be the id", b"movie,asin,year\n1,a,1995\n2,b,1999\n",
         "movies.csv: 'movie' and 'asin' could both be the id; choose with id=NAME of "
         "Attributes.load"),
    Case("id column not there", GOOD,
         "movies.csv: no column 'film' for the id; the columns are 'movie', 'year', 'genres'",
         {"id": "film"}),
    Case("attribute column not there", GOOD,
         "movies.csv: no column 'rated' for the attributes; the columns are 'movie', 'year', "
         "'genres'", {"columns": ["year", "rated"]}),
    Case("kind of a column not there", GOOD,
         "movies.csv: no column 7 for the attributes; there are 3, counted from 1",
         {"kinds": {7: "number"}}),
    Case("kind that is none", GOOD,
         "movies.csv: 'real' is no kind for column 'year'; choose one of number, category, set, "
         "none",
         {"kinds": {"year": "real"}}),
    Case("kind of the id", GOOD, "movies.csv: column 'movie' holds the ids; give no kind for it",
         {"kinds": {"movie": "category"}}),
    Case("two columns of one name", b"movie,year,year\n1,2,3\n2,3,4\n",
         "movies.csv: two columns are called 'year'; rename one"),
    Case("an id twice", GOOD + b"1,1996,Drama\n",
         "movies.csv, line 5: the id 1 has a row already (movies.csv, line 2); give one row for "
         "each id"),
    Case("an empty id", GOOD + b",1996,Drama\n",
         "movies.csv, line 5: the id is empty; give every row an id"),
    Case("ids that differ by blanks alone", b"movie,year\na,1995\na ,1999\n",
         "movies.csv, line 3: the movie id 'a ' differs from 'a' (movies.csv, line 2) only by "
         "blanks around it, which do not count; write it in one way, or rename one "
         "of the two"),
    Case("ids of another kind than the ratings'", GOOD.replace(b"\n", b"\ntt", 3),
         "none of the 3 items has a row in the item attributes: ids there are text such as 'tt1', "
         "in the ratings integers such as 1; give a table with the ids of the ratings"),
    Case("ids of other items", b"movie,year\n71,1995\n72,1999\n",
         "none of the 3 items has a row in the item attributes: ids there are integers such as 71, "
         "in the ratings integers such as 1; give a table with the ids of the ratings"),
    Case("text among numbers", GOOD + b"4,unknown,Drama\n",
         "movies.csv, line 5: 'unknown' in column 'year' is not a number, as most of the others "
         "are; correct it, leave it empty, or say what the column is with kinds={'year': "
         "'category'} of Attributes.load"),
    Case("text declared a number", GOOD,
         "movies.csv, line 2: 'Action|Comedy' in column 'genres' is not a number; correct it, or "
         "leave it empty", {"kinds": {"genres": "number"}}),
    Case("infinity", GOOD + b"4,-inf,Drama\n",
         "movies.csv, line 5: column 'year' is -inf; correct it, or leave it empty"),
    Case("names", b"movie,title\n" + NAMES,
         "movies.csv: column 'title' has 30 values in 30 rows, like a name, which says nothing "
         "about other rows; leave the column out with kinds={'title': 'none'} of Attributes.load, "
         "or keep it with kinds={'title': 'category'}"),
    Case("nothing but constant columns", b"movie,year\n1,1995\n2,1995\n",
         "movies.csv: no column says anything about the rows; give one with two values or more"),
    Case("nothing but ids", GOOD,
         "movies.csv: no column says anything about the rows; give one with two values or more",
         {"columns": ["movie"]}),
    Case("only a header", b"movie,year\n",
         "movies.csv: there is a header but no row; check the file"),
    Case("empty file", b"", "movies.csv: the file is empty; give one row a line"),
    Case("one column", b"movie\n1\n2\n",
         "movies.csv, line 1: 'movie' does not split into an id and its attributes; separate them "
         "by commas, tabs, '::' or spaces, or give separator=TEXT"),
    Case("ragged row", GOOD + b"4,1990\n",
         "movies.csv, line 5: '4,1990' has 2 fields where the first line has 3; correct the line "
         "(fields are separated by comma)"),
    Case("too few names", b"1|24|M\n2|53|F\n",
         "u.user: 2 names for 3 columns; give one for each with names= of Attributes.load",
         {"names": ["user", "age"]}, "u.user"),
    Case("empty frame", pd.DataFrame({"movie": pd.Series([], dtype=int), "year": []}),
         "the frame: there is no row in the table; give one for each id"),
    Case("dates", pd.DataFrame({"movie": [1, 2, 3], "born": DATES}),
         "the frame: column 'born' holds values of type date32[day]; give numbers (of a date, the "
         "year) or text, or leave the column out with kinds={'born': 'none'} of "
         "Attributes.from_frame"),
    Case("values of mixed types", pd.DataFrame({"movie": [1, 2], "year": [1995, "new"]}),
         "the frame, row 2: the 'year' column mixes types: 'new' is str but those before it are "
         "int; convert the column to one type"),
    Case("ids that are no integers", pd.DataFrame({"movie": [1.5, 2.0], "year": [1995, 1999]}),
         "the frame, row 1: the movie ids are of type double (such as 1.5); ids are integers or "
         "text: convert the column first"),
    Case("no table at all", 7,
         "an object of type int is no table of attributes; give a pandas, polars or pyarrow table, "
         "or the path of a file"),
]  # fmt: skip


def make(case: Case, folder: Path) -> None:
    """Make the attributes, and a fit with them."""
    if isinstance(case.given, bytes):
        path = folder / case.name
        path.write_bytes(case.given)
        found = Attributes.load(path, **case.options)
    else:
        found = Attributes.from_frame(case.given, **case.options)
    ratings = Ratings.from_triplets(users=[1, 1, 2], items=[1, 2, 3], ratings=[1, 2, 3])
    Gibbs(Model(1, item_designs=(found,)), sweeps=1, chains=1).fit(ratings)


message = partial(message_of, make)
table = partial(table_of, CASES, make)


if __name__ == "__main__":
    print(table(), end="")
