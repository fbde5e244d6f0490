"""Every way to get a ratings file wrong that we know of, and what the user is told.

``PYTHONPATH=tests python tests/oracle/bad_inputs.py`` prints the table of docs/input-errors.md.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bayesmf import load
from oracle.sentences import message_of, table_of

GOOD = b"user,item,rating\n1,10,4\n1,11,5\n2,10,3\n"
WEIGHTED = b"user,item,rating,weight\n1,10,4,2\n"


def _zip(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return file.getvalue()


@dataclass(frozen=True)
class Case:
    what: str
    content: bytes
    message: str
    name: str = "ratings.csv"
    options: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("missing column", b"user,item,stars_given\n1,10,4\n",
         "ratings.csv, line 1: no column for the rating among 'user', 'item', 'stars_given'; "
         "name it with rating=NAME"),
    Case("ambiguous columns", b"user,movie_id,asin,rating\n1,10,7,4\n",
         "ratings.csv, line 1: 'movie_id' and 'asin' could both be the item; choose one by "
         "its name or number with item="),
    Case("two columns of one name", b"user,user,item,rating\n1,2,3,4\n",
         "ratings.csv, line 1: 'user' and 'user' could both be the user; choose one by its "
         "name or number with user="),
    Case("one column for two roles", GOOD,
         "ratings.csv, line 1: column 'user' cannot be both the item and another; name different "
         "columns", options={"user": "user", "item": "user"}),
    Case("named column absent", GOOD,
         "ratings.csv, line 1: no column 'stars' for the rating; the columns are 'user', 'item', "
         "'rating'", options={"rating": "stars"}),
    Case("five columns, no header", b"1,2,3,4,5\n",
         "ratings.csv, line 1: there are 5 fields and no header to tell them apart; give "
         "user=, item= and rating= as numbers from 1"),
    Case("two columns", b"1,2\n3,4\n",
         "ratings.csv, line 1: '1,2' does not split into user, item and rating; separate them by "
         "commas, tabs, '::' or spaces, or give separator=TEXT"),
    Case("unparsable rating", GOOD + b"2,12,good\n",
         "ratings.csv, line 5: the rating 'good' is not a number; write it like 4 or 3.5"),
    Case("unparsable rating after a quoted newline", b'user,item,rating\n"a\nb",x,4\nc,x,y\n',
         "ratings.csv, line 4: the rating 'y' is not a number; write it like 4 or 3.5"),
    Case("decimal comma", b"user;item;rating\n1;10;4\n1;11;3,5\n",
         "ratings.csv, line 3: the rating '3,5' is not a number; write it like 4 or 3.5"),
    Case("missing rating", GOOD + b"2,12,\n",
         "ratings.csv, line 5: the rating is missing; leave out pairs without a rating"),
    Case("NaN", GOOD + b"2,12,nan\n",
         "ratings.csv, line 5: the rating is nan; leave out the row or give a finite number"),
    Case("infinity", b"1::10::inf\n1::11::4\n",
         "ratings.dat, line 1: the rating is inf; leave out the row or give a finite number",
         "ratings.dat"),
    Case("empty file", b"", "ratings.csv: the file is empty; give one rating a line"),
    Case("only a header", b"user,item,rating\n",
         "ratings.csv: there is a header but no rating; check the file"),
    Case("empty id", b"user,item,rating\n1,10,4\n,11,5\n",
         "ratings.csv, line 3: the user id is empty; give every rating a user"),
    Case("duplicate pair", GOOD + b"\n1,11,2\n",
         "ratings.csv, line 6: user 1 rated item 11 before (ratings.csv, line 3); keep the later "
         "rating with duplicates='last', or their mean with duplicates='mean'"),
    Case("ids that mix types", GOOD + b"bob,11,2\n",
         "ratings.csv, line 5: the user id 'bob' is text but those before it are integers; correct "
         "it, or read all ids as text with ids='text'"),
    Case("ids that differ by blanks alone", b"user,item,rating\nbob,10,4\nann,10,4\nbob ,11,5\n",
         "ratings.csv, line 4: the user id 'bob ' differs from 'bob' (ratings.csv, line 2) only by "
         "blanks around it, which do not count; write it in one way, or rename one "
         "of the two"),
    Case("rating outside a declared scale", GOOD + b"2,12,6\n",
         "ratings.csv, line 5: the rating 6 is not on the scale 1..5; correct it, or declare "
         "another scale with scale=", options={"scale": "1:5"}),
    Case("rating between the steps", GOOD + b"2,12,3.7\n",
         "ratings.csv, line 5: the rating 3.7 is not on the scale 1..5 by 0.5; correct it, or "
         "declare another scale with scale=", options={"scale": "1:5:0.5"}),
    Case("scale that is none", GOOD,
         "'5:1' is not a rating scale; write LOW:HIGH or LOW:HIGH:STEP, such as 1:5:1",
         options={"scale": "5:1"}),
    Case("truncated gzip", gzip.compress(GOOD * 50, mtime=0)[:-12],
         "ratings.csv.gz: the compressed data is cut short; fetch or copy the file again",
         "ratings.csv.gz"),
    Case("damaged zip", _zip(ratings_csv=GOOD).replace(b"user", b"used", 1),
         "ratings.zip/ratings.csv: the compressed data is damaged (Bad CRC-32 for file "
         "'ratings.csv'); fetch the file again", "ratings.zip"),
    Case("zip with several candidates", _zip(a_csv=GOOD, b_csv=GOOD),
         "ratings.zip: several members could be the ratings: 'a.csv', 'b.csv'; choose with "
         "member=NAME", "ratings.zip"),
    Case("zip without a table", _zip(README_md=b"hello"),
         "ratings.zip: the archive holds no table of ratings, only 'README.md'; give another one",
         "ratings.zip"),
    Case("file that is not text", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)),
         "ratings.csv: the file is not text (nor parquet, gzip, bzip2 or zip); give a ratings "
         "table as csv, tsv or parquet"),
    Case("UTF-16", GOOD.decode().encode("utf-16"),
         "ratings.csv: the text is UTF-16; save it as UTF-8"),
    Case("damaged parquet", b"PAR1" + bytes(100),
         "ratings.parquet: not a readable parquet file (Parquet magic bytes not found in footer. "
         "Either the file is corrupted or this is not a parquet file.); write it again",
         "ratings.parquet"),
    Case("quote that is never closed", b'user,item,rating,title\n1,2,3,a\n2,2,4,"b\n3,2,5,c\n',
         "ratings.csv, line 3: a quote opens here and is never closed; close it, or double it if "
         "it belongs to the text"),
    Case("line without an end", b"1,2,3\n" + b"x" * (1 << 22) + b",2,3\n",
         "ratings.csv: a line is longer than 1 MB; give one rating a line"),
    Case("two encodings in one file", "user,item,rating\n\u00e9,1,4\n".encode() + b"\xe9,2,4\n",
         "ratings.csv, line 3: the line is not UTF-8 but others are; save the whole file as UTF-8"),
    Case("blanks after commas, and quotes", b'user, item, rating\n1, "a,b", 3\n',
         "ratings.csv, line 2: '1, \"a,b\", 3' has 4 fields where the first line has 3; correct "
         "the line (fields are separated by comma)"),
    Case("ragged row", GOOD + b"3,12\n",
         "ratings.csv, line 5: '3,12' has 2 fields where the first line has 3; correct the line "
         "(fields are separated by comma)"),
    Case("time that is none", b"1\t10\t4\t881250949\n1\t11\t4\tlater\n",
         "u.data, line 2: the time 'later' is not whole seconds like the first; correct it, or "
         "ignore times with time='none'", "u.data"),
    Case("date that is none", b"user,item,rating,date\n1,1,4,2020-01-01\n1,2,4,soon\n",
         "ratings.csv, line 3: the time 'soon' is neither whole seconds since 1970 nor a date like "
         "the others; correct it, or ignore times with time='none'"),
    Case("time out of bounds", b"1,1,4,5\n1,2,4,99999999999999999999\n",
         "ratings.csv, line 2: the time '99999999999999999999' is not whole seconds like the "
         "first; correct it, or ignore times with time='none'"),
    Case("missing time", b"1\t10\t4\t881250949\n1\t11\t4\t\n",
         "u.data, line 2: the time '' is not whole seconds like the first; correct it, or ignore "
         "times with time='none'", "u.data"),
    Case("missing weight", WEIGHTED + b"1,11,4,\n",
         "ratings.csv, line 3: the weight is missing; give every rating one, or ignore weights "
         "with weight='none'"),
    Case("weight that is no number", WEIGHTED + b"1,11,4,high\n",
         "ratings.csv, line 3: the weight 'high' is not a number; write it like 2 or 0.5, or "
         "ignore weights with weight='none'"),
    Case("weight of zero", WEIGHTED + b"1,11,4,0\n",
         "ratings.csv, line 3: the weight 0 is not above 0 and finite; correct it, leave out the "
         "row, or ignore weights with weight='none'"),
    Case("negative weight", WEIGHTED + b"1,11,4,-1\n",
         "ratings.csv, line 3: the weight -1 is not above 0 and finite; correct it, leave out the "
         "row, or ignore weights with weight='none'"),
    Case("weight that is NaN", WEIGHTED + b"1,11,4,nan\n",
         "ratings.csv, line 3: the weight nan is not above 0 and finite; correct it, leave out the "
         "row, or ignore weights with weight='none'"),
    Case("infinite weight", WEIGHTED + b"1,11,4,inf\n",
         "ratings.csv, line 3: the weight inf is not above 0 and finite; correct it, leave out the "
         "row, or ignore weights with weight='none'"),
    Case("weight out of bounds", WEIGHTED + b"1,11,4,2e12\n",
         "ratings.csv, line 3: the weight 2e+12 is not from 1e-09 to 1e+09; divide all weights by "
         "the same number, or ignore weights with weight='none'"),
    Case("id with a NUL character", b"".join(b"%d,1,4\n" % k for k in range(20000)) + b"x\0,1,4\n",
         "ratings.csv, line 20001: the user id 'x\\x00' holds a NUL character; remove it",
         options={"ids": "text"}),
]  # fmt: skip


def make(case: Case, folder: Path) -> None:
    """Read the file."""
    path = folder / case.name
    path.write_bytes(case.content)
    load(path, **case.options)


message = partial(message_of, make)
table = partial(table_of, CASES, make)


if __name__ == "__main__":
    print(table(), end="")
