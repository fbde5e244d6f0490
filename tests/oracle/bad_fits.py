"""Ratings that can be read and that a model cannot take, and what the user is told.

``PYTHONPATH=tests python tests/oracle/bad_fits.py`` prints the table of docs/input-errors.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from bayesmf import Gibbs, Model, Ratings, load
from bayesmf.model.ordinal import Ordinal
from oracle.sentences import message_of, table_of

UNTIMED = "user,item,rating\n1,10,4\n1,11,5\n2,10,3\n"
TIMED = "user,item,rating,time\n1,10,4,5\n1,11,5,65\n2,10,3,7\n"
CHAIN = Model(rank=1, time="chain")
STARS = Model(rank=1, likelihood=Ordinal((1.0, 2.0, 3.0, 4.0, 5.0)))
THUMBS = Model(rank=1, likelihood="binary")


@dataclass(frozen=True)
class Case:
    what: str
    model: Model
    content: str
    message: str
    verb: Literal["fit", "fold_in", "update"] = "fit"


CASES = [
    Case("a time chain without times", CHAIN, UNTIMED,
         "the model has a time chain, but these ratings have no times; give a column of times, or "
         "fit without the chain: time='none' of Model"),
    Case("negative times", CHAIN, TIMED + "2,11,4,-5\n",
         "the time -5 is before 1970; correct it, leave its row out, or fit without the chain: "
         "time='none' of Model"),
    Case("times in milliseconds", CHAIN, TIMED + "2,11,4,978300760000\n",
         "the time 978300760000 is after the year 5000 in seconds since 1970; if times are "
         "milliseconds, divide them by 1,000"),
    Case("times in microseconds", CHAIN, TIMED + "2,11,4,978300760000000\n",
         "the time 978300760000000 is after the year 5000 in seconds since 1970; if times are "
         "microseconds, divide them by 1,000,000"),
    Case("fold-in without times on a time chain", CHAIN, UNTIMED.replace("\n1,", "\n8,"),
         "the model has a time chain, but these ratings have no times; give a column of times with "
         "time=NAME", "fold_in"),
    Case("update without times on a time chain", CHAIN, UNTIMED,
         "the model has a time chain, but these ratings have no times; give a column of times with "
         "time=NAME", "update"),
    Case("update with negative times", CHAIN, TIMED + "2,11,4,-5\n",
         "the time -5 is before 1970; correct it, or leave its row out", "update"),
    Case("a rating off the ordinal levels", STARS, UNTIMED + "2,11,2.5\n",
         "the rating 2.5 is none of 1, 2, ..., 5, which is what the ordinal likelihood knows; "
         "correct it, or choose likelihood='gaussian'"),
    Case("more than two values for binary", THUMBS, UNTIMED,
         "the binary likelihood is for ratings of two values, and these have 3; choose "
         "likelihood='ordinal' or likelihood='gaussian'"),
]  # fmt: skip


def _sampler(model: Model) -> Gibbs:
    return Gibbs(model, sweeps=4, burn_in=1, keep=2, chains=1, seed=0)


@cache
def _fit(model: Model) -> Any:
    times = [5, 65, 7, 70]
    rated = {"users": [1, 1, 2, 2], "items": [10, 11, 10, 11], "ratings": [4, 5, 3, 1]}
    return _sampler(model).fit(Ratings.from_triplets(**rated, times=times))


def make(case: Case, folder: Path) -> None:
    """Give the file to the model."""
    path = folder / "ratings.csv"
    path.write_text(case.content)
    if case.verb == "fit":
        _sampler(case.model).fit(load(path))
    else:
        getattr(_fit(case.model), case.verb)(load(path))


message = partial(message_of, make)
table = partial(table_of, CASES, make)


if __name__ == "__main__":
    print(table(), end="")
