"""Pairs of users and items, with what they may carry, and their rows in a model."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bayesmf import DataError, Ratings
from bayesmf.data.ids import Ids
from bayesmf.data.pairs import Cells, Pairs, frame_like, pairs_of, read_time

USERS, ITEMS = Ids(np.array([10, 20, 30])), Ids(np.array(["a", "b"], object))
FRAME = {"user": [20, 99, 10], "item": ["b", "a", "zz"]}


def test_rows_of_pairs():
    for given in (pd.DataFrame(FRAME), list(zip(*FRAME.values(), strict=True))):
        cells = Cells.of(pairs_of(given), USERS, ITEMS)
        assert cells.user.tolist() == [1, -1, 0]
        assert cells.item.tolist() == [1, 0, -1]
        assert cells.user.dtype == cells.item.dtype == np.int32
        assert cells.time is None
    some = Cells(cells.user, cells.item, np.arange(3)).take(slice(1, 3))
    assert [values.tolist() for values in some[:3]] == [[-1, 0], [0, -1], [1, 2]]
    given = Pairs(["x"], ["y"], rows=(np.array([2], np.int32), np.array([-1], np.int32)))
    assert Cells.of(given, USERS, ITEMS)[:2] == given.rows


@pytest.mark.parametrize("times", [
    [5, 6, 7], [5.0, 6.0, 7.0],
    pd.to_datetime([5, 6, 7], unit="s"), pd.to_datetime([5, 6, 7], unit="s").tz_localize("UTC"),
])  # fmt: skip
def test_a_time_is_recognised(times):
    pairs = pairs_of(pd.DataFrame({**FRAME, "timestamp": times}))
    time = Cells.of(pairs, USERS, ITEMS).time
    assert time.tolist() == [5, 6, 7]
    assert time.dtype == np.int64
    assert Cells.of(pairs, USERS, ITEMS, timed=False).time is None
    named = pd.DataFrame({**FRAME, "when": times})
    assert pairs_of(named).time is None
    assert pairs_of(named, time="when").seconds().tolist() == [5, 6, 7]
    assert pairs_of(pd.DataFrame({**FRAME, "date": times}), time="none").time is None


def test_a_bad_time_is_refused_only_where_it_is_needed():
    pairs = pairs_of(pa.table({**FRAME, "time": [1, None, 3]}))
    with pytest.raises(DataError, match="pair 2: the time None"):
        Cells.of(pairs, USERS, ITEMS)
    assert Cells.of(pairs, USERS, ITEMS, timed=False).user.tolist() == [1, -1, 0]


def test_columns_of_mixed_types_get_a_sentence():
    odd = pd.DataFrame({"user": [20, "x"], "item": ["a", "b"], "date": ["today", 7]}, dtype=object)
    with pytest.raises(DataError, match="pair 2: the user column mixes types"):
        Cells.of(pairs_of(odd), USERS, ITEMS, timed=False)
    odd["user"] = [20, 30]
    assert Cells.of(pairs_of(odd), USERS, ITEMS, timed=False).user.tolist() == [1, 2]
    with pytest.raises(DataError, match="pair 2: the time column mixes types"):
        Cells.of(pairs_of(odd), USERS, ITEMS)


def test_rows_of_ratings_keep_their_times():
    """The same rows whether or not the ratings share the ids of the model."""
    mine = Ratings.from_triplets(users=[30, 10, 20], items=["a", "b", "a"], ratings=[1, 2, 3],
                                 times=[7, 8, 9])  # fmt: skip
    for users, items in ((USERS, ITEMS), (mine.users, mine.items)):
        cells = Cells.of(mine, users, items)
        assert cells.user.tolist() == [0, 1, 2]
        assert cells.item.tolist() == [1, 0, 0]
        assert cells.time.tolist() == [8, 9, 7]
        assert cells.time.dtype == np.int64
    assert pairs_of(mine).seconds().tolist() == [8, 9, 7]
    assert Cells.of(mine, Ids(np.array([20])), ITEMS).user.tolist() == [-1, 0, -1]


def test_columns_of_different_lengths():
    with pytest.raises(DataError, match="2 users and 1 items make no pairs"):
        Cells.of(Pairs([10, 20], ["a"]), USERS, ITEMS)


def test_frames_of_rows_that_answer_no_row_have_an_index_of_their_own():
    like = pd.DataFrame({"user": [1, 2]}, index=[5, 6])
    assert list(frame_like({"x": [1, 2]}, like).index) == [5, 6]
    assert list(frame_like({"x": [1, 2, 3]}, like, same_rows=False).index) == [0, 1, 2]


@pytest.mark.parametrize("asked", [
    1794873600, "1794873600", "2026-11-17", "2026-11-17 00:00:00", dt.date(2026, 11, 17),
    dt.datetime(2026, 11, 17), dt.datetime(2026, 11, 17, tzinfo=dt.UTC),
    np.datetime64("2026-11-17"), np.int32(1794873600),
])  # fmt: skip
def test_a_time_may_be_written_in_many_ways(asked):
    assert read_time(asked) == 1794873600


@pytest.mark.parametrize("asked", ["tomorrow", "", "NaT", 1.5, True, [1], "2026-13-40"])
def test_what_is_no_time_is_refused(asked):
    with pytest.raises(DataError, match="is no time; write a date such as 2026-11-17"):
        read_time(asked)


def test_pairs_at_one_time():
    assert pairs_of([(1, 2), (3, 4)]).at("2026-11-17").seconds().tolist() == [1794873600] * 2
    assert pairs_of([(1, 2)]).at(None).time is None
