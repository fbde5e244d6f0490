from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from bayesmf import DataError, Ratings, Scale, load, write
from bayesmf.data.ids import strip
from oracle import naive

USERS, ITEMS, VALUES = [3, 1, 1, 2], ["b", "b", "a", "c"], [4, 5, 1, 2]


def small(**more) -> Ratings:
    return Ratings.from_triplets(users=USERS, items=ITEMS, ratings=VALUES, **more)


integers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
texts = texts.map(lambda text: strip(pa.array([text]))[0].as_py()).filter(bool)


@st.composite
def triplets(draw):
    """Distinct pairs with values and perhaps times, of any ids."""
    user, item = draw(st.sampled_from([integers, texts])), draw(st.sampled_from([integers, texts]))
    pairs = draw(st.lists(st.tuples(user, item), min_size=1, max_size=30, unique=True))
    number = draw(
        st.sampled_from(
            [
                st.integers(1, 5),
                st.floats(allow_nan=False, allow_infinity=False),
                st.integers(0, 999),
            ]
        )
    )
    values = draw(st.lists(number, min_size=len(pairs), max_size=len(pairs)))
    times = draw(st.lists(integers, min_size=len(pairs), max_size=len(pairs)) | st.none())
    return [p[0] for p in pairs], [p[1] for p in pairs], values, times


@given(triplets())
def test_both_sides_hold_what_was_given(data):
    users, items, values, times = data
    ratings = Ratings.from_triplets(users=users, items=items, ratings=values, times=times)
    twin = naive.index(list(zip(users, items, values, strict=True)))
    assert list(ratings.users) == twin["users"]
    assert list(ratings.items) == twin["items"]
    assert naive.rows(ratings.by_user, ratings.users, ratings.items) == twin["by_user"]
    assert naive.rows(ratings.by_item, ratings.items, ratings.users) == twin["by_item"]
    if times is not None:
        at = dict(zip(zip(users, items, strict=True), times, strict=True))
        for side, own, other, flip in (
            (ratings.by_user, ratings.users, ratings.items, False),
            (ratings.by_item, ratings.items, ratings.users, True),
        ):
            for row, col, time in zip(side.row_index, side.index, side.times, strict=True):
                pair = (own[row], other[col])
                assert at[pair[::-1] if flip else pair] == time


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".csv.gz"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=triplets())
def test_round_trip_through_a_file(data, ending, tmp_path: Path):
    users, items, values, times = data
    ratings = Ratings.from_triplets(users=users, items=items, ratings=values, times=times)
    path = tmp_path / f"ratings{ending}"
    write(ratings, path)
    kinds = {ratings.users.kind, ratings.items.kind}
    if ending == ".parquet" or kinds == {"integer"}:
        assert load(path) == ratings
    else:  # a text file cannot say that "1" is text: the reader has to
        text = Ratings.from_triplets(
            users=[str(u) for u in users],
            items=[str(i) for i in items],
            ratings=values,
            times=times,
        )
        assert load(path, ids="text") == text


@given(triplets(), st.randoms())
def test_the_order_of_the_rows_plays_no_part(data, random):
    users, items, values, _ = data
    order = list(range(len(users)))
    random.shuffle(order)
    one = Ratings.from_triplets(users=users, items=items, ratings=values)
    other = Ratings.from_triplets(
        users=[users[k] for k in order],
        items=[items[k] for k in order],
        ratings=[values[k] for k in order],
    )
    assert one == other
    assert one.fingerprint() == other.fingerprint()


def test_every_kind_of_frame_gives_the_same():
    columns = {"userId": USERS, "movieId": ITEMS, "Rating": VALUES, "timestamp": [7, 8, 9, 10]}
    expected = small(times=[7, 8, 9, 10])
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        assert Ratings.from_frame(frame) == expected
        assert Ratings.from_frame(frame, time="none") == small()
    categories = pd.DataFrame(columns).astype({"movieId": "category"})
    assert Ratings.from_frame(categories) == expected
    dates = pd.DataFrame(columns).assign(timestamp=pd.to_datetime([7, 8, 9, 10], unit="s"))
    assert Ratings.from_frame(dates) == expected
    unnamed = pd.DataFrame({0: USERS, 1: ITEMS, 2: VALUES})
    assert Ratings.from_frame(unnamed, user=1, item=2, rating=3) == small()
    aware = dates.assign(timestamp=dates["timestamp"].dt.tz_localize("UTC"))
    assert Ratings.from_frame(aware) == expected
    views = pa.table(columns).set_column(1, "movieId", pa.array(ITEMS, pa.string_view()))
    assert Ratings.from_frame(views) == expected
    nullable = pd.DataFrame(columns).astype({"userId": "Int64", "Rating": "Float64"})
    assert Ratings.from_frame(nullable) == expected
    renamed = pl.DataFrame({"a": USERS, "b": ITEMS, "c": VALUES})
    assert Ratings.from_frame(renamed, user="a", item="b", rating="c") == small()


def test_frames_with_faults_are_refused():
    def refused(match: str, **columns) -> None:
        frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1.0, 2.0], **columns})
        with pytest.raises(DataError, match=match):
            Ratings.from_frame(frame)

    refused(
        r"row 2: the user column mixes types: 'a' is str but those before it are int",
        user=pd.Series([1, "a"], dtype=object),
    )
    refused(r"row 2: the user id is empty", user=pd.Series(["a", None]))
    refused(r"row 1: the item ids are of type double \(such as 1.5\)", item=[1.5, 2.5])
    refused(r"row 2: the rating is missing", rating=[1.0, np.nan])
    refused(r"row 1: the rating 'good' is", rating=["good", "bad"])
    refused(r"row 1: the time 'now' is", time=["now", "then"])
    refused("row 1: the time .* is neither whole seconds", time=pd.period_range("2020", periods=2))
    refused("row 1: the time True is neither", time=[True, False])
    refused("row 2: the time 2.5 is neither", time=[1.0, 2.5])
    refused("cannot be used", user=pd.Series([1, 2**63], dtype=object))
    with pytest.raises(DataError, match="same name"):
        Ratings.from_frame(pd.DataFrame([[1, 1, 2, 3]], columns=["user", "user", "item", "rating"]))
    with pytest.raises(DataError, match="not a dataframe"):
        Ratings.from_frame([1, 2, 3])


def test_triplets_with_faults_are_refused():
    def refused(match: str, **arrays) -> None:
        given = {"users": [1, 2], "items": [1, 2], "ratings": [1.0, 2.0], **arrays}
        with pytest.raises(DataError, match=match):
            Ratings.from_triplets(**given)

    refused("rating 2 of the arrays: the user column mixes types", users=[1, "a"])
    refused(r"differ in length \(2 users, 3 items, 2 ratings\)", items=[1, 2, 3])
    refused("rating 2 of the arrays: the rating is nan", ratings=np.array([1, np.nan]))
    refused("rating 1 of the arrays: the rating is inf", ratings=[np.inf, 1])
    refused("the user id is empty", users=["a", " "])
    refused("does not fit in 64 signed bits", users=np.array([1, 2**63], np.uint64))
    refused("rating 2 of the arrays: the time None is neither whole seconds", times=[5, None])
    refused("user 1 rated item 1 before", users=[1, 1], items=[1, 1])
    refused("is not a list of values", users=1)
    refused("cannot be used", users=[2**70, 1])
    refused("cannot be used", users=["\ud800", "a"])
    refused(
        "rating 3 of the arrays: user 1 rated item 9 before \\(rating 2",
        users=[2, 1, 1, 2],
        items=[1, 9, 9, 1],
        ratings=[1, 1, 1, 1],
    )
    refused("there are no ratings", users=[], items=[], ratings=[])
    refused("duplicates='first'", duplicates="first")
    refused("not on the scale 3..5", scale=(3, 5))


def test_sparse_matrices_say_which_axis_is_users():
    matrix = sparse.coo_array(([4.0, 5.0, 0.0], ([0, 0, 2], [1, 0, 1])), shape=(4, 2))
    by_rows = Ratings.from_sparse(matrix, users="rows")
    assert by_rows == Ratings.from_triplets(users=[0, 0, 2], items=[1, 0, 1], ratings=[4, 5, 0])
    assert Ratings.from_sparse(matrix.T, users="columns") == by_rows
    assert Ratings.from_sparse(matrix.tocsr(), users="columns") == by_rows.T
    named = Ratings.from_sparse(matrix, users="rows", user_ids=list("wxyz"), item_ids=[7, 8])
    assert named == Ratings.from_triplets(users=["w", "w", "y"], items=[8, 7, 8], ratings=[4, 5, 0])
    with pytest.raises(TypeError, match="users"):
        Ratings.from_sparse(matrix)
    with pytest.raises(DataError, match="not a scipy sparse matrix"):
        Ratings.from_sparse(np.eye(3), users="rows")
    wide = Ratings.from_sparse(matrix.T, users="columns", user_ids=list("wxyz"), item_ids=[7, 8])
    assert wide == named
    with pytest.raises(DataError, match="two users have the same id"):
        Ratings.from_sparse(matrix, users="rows", user_ids=list("wxyy"))
    with pytest.raises(DataError, match="3 user ids for 4 users"):
        Ratings.from_sparse(matrix, users="rows", user_ids=list("wxy"))
    with pytest.raises(DataError, match="users='up'"):
        Ratings.from_sparse(matrix, users="up")


def test_sparse_and_back():
    back = Ratings.from_sparse(
        small().to_sparse(), users="rows", user_ids=[1, 2, 3], item_ids=["a", "b", "c"]
    )
    assert back == small()


def test_transposing_swaps_the_sides_and_copies_nothing():
    ratings = small(times=[7, 8, 9, 10])
    assert (
        Ratings.from_triplets(users=ITEMS, items=USERS, ratings=VALUES, times=[7, 8, 9, 10])
        == ratings.T
    )
    assert ratings.T.by_user is ratings.by_item
    assert ratings == ratings.T.T


def test_duplicates_are_merged_as_asked():
    pairs = {"users": [1, 1, 2, 1], "items": [5, 5, 5, 5], "ratings": [1, 2, 4, 6]}
    times = [30, 20, 1, 10]
    last = Ratings.from_triplets(**pairs, times=times, duplicates="last")
    assert last.values.tolist() == [6, 4]
    assert last.by_user.times.tolist() == [10, 1]
    mean = Ratings.from_triplets(**pairs, times=times, duplicates="mean")
    assert mean.values.tolist() == [3, 4]


def test_values_are_kept_exactly_in_the_smallest_type():
    def kept(*values: float) -> np.ndarray:
        n = list(range(len(values)))
        ratings = Ratings.from_triplets(users=n, items=n, ratings=list(values))
        assert ratings.values.tolist() == list(values)
        return ratings.values.dtype

    assert kept(1, 5, -128, 127) == np.int8
    assert kept(1, 128) == np.float32
    assert kept(0.5, 4.5) == np.float32
    assert kept(0.1, 4.5) == np.float64
    assert kept(1e300, 2) == np.float64


def test_nothing_can_be_changed():
    ratings = small()
    for array in (
        ratings.values,
        ratings.by_item.index,
        ratings.by_user.starts,
        ratings.users.values,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        ratings.scale = Scale(0, 1)


def test_selecting_keeps_the_id_map():
    ratings = small(times=[7, 8, 9, 10])
    part = ratings.select(np.array([True, False, False, True]))
    assert (part.n_users, part.n_items, len(part)) == (3, 3, 2)
    assert part.users == ratings.users
    assert part.by_user.times.tolist() == [9, 7]
    dropped = part.drop_unused()
    assert dropped == Ratings.from_triplets(
        users=[1, 3], items=["a", "b"], ratings=[1, 4], times=[9, 7], scale=ratings.scale
    )
    assert ratings.drop_unused() is ratings


def test_ids_are_looked_up_by_their_own_type():
    ratings = small()
    assert ratings.users.index([2, 99, 1]).tolist() == [1, -1, 0]
    assert ratings.items.index(np.array(["c", "z"])).tolist() == [2, -1]
    assert ratings.items.index(np.array(["c"], dtype=np.dtypes.StringDType())).tolist() == [2]
    assert ratings.items.index([]).tolist() == []
    with pytest.raises(DataError, match="the ids are integers here but text in the question"):
        ratings.users.index(["2"])


def test_equality_and_fingerprint_see_every_part():
    base = small(times=[7, 8, 9, 10])
    others = [
        small(),
        small(times=[7, 8, 9, 11]),
        small(times=[7, 8, 9, 10], scale=(0, 5)),
        Ratings.from_triplets(users=[4, 1, 1, 2], items=ITEMS, ratings=VALUES, times=[7, 8, 9, 10]),
        Ratings.from_triplets(users=USERS, items=ITEMS, ratings=[4, 5, 1, 3], times=[7, 8, 9, 10]),
    ]
    glued = [
        Ratings.from_triplets(users=[u], items=[i], ratings=[1]).fingerprint()
        for u, i in (("a", "xtexty"), ("atextx", "y"))
    ]
    assert glued[0] != glued[1]
    for other in others:
        assert base != other
        assert base.fingerprint() != other.fingerprint()


def test_the_scale_is_inferred_or_declared():
    assert small().scale == Scale(1, 5, 1)
    assert str(Scale.of("0.5:5:0.5")) == "0.5..5 by 0.5"
    assert Scale.infer(np.array([0.5, 3.0])) == Scale(0.5, 3, 0.5)
    assert Scale.infer(np.array([0.1234, 3.0])) == Scale(0.1234, 3)
    assert Scale.infer(np.linspace(0, 1, 500)).step is None
    for bad in ("5", "a:b", "1:5:0", (1, float("nan")), 7, "1:2:3:4"):
        with pytest.raises(DataError, match="not a rating scale"):
            Scale.of(bad)


def test_its_text_says_what_it_is():
    assert repr(small()) == "Ratings(4 ratings of 3 items by 3 users, scale 1..5 by 1)"
