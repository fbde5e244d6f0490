"""Weights survive every cut, split, shard and file, and bad ones are named in a sentence."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from bayesmf import DataError, Ratings, kfold, load, load_split, save_split, shard, split, write
from bayesmf.data.io.shards import part
from bayesmf.data.split import carve
from bayesmf.data.summary import summarise

N_USERS, N_ITEMS = 30, 20
PLAIN = {"users": [1, 1, 2], "items": [5, 6, 5], "ratings": [1, 2, 4]}


def made(seed: int = 3, count: int = 250) -> Ratings:
    """Ratings whose weight tells the pair, so that a weight in the wrong place is seen."""
    cells = np.random.default_rng(seed).choice(N_USERS * N_ITEMS, count, replace=False)
    return Ratings.from_triplets(
        users=cells // N_ITEMS,
        items=cells % N_ITEMS,
        ratings=1 + cells % 5,
        times=cells,
        weights=(cells + 1) / 7,
    )


def check(ratings: Ratings) -> None:
    """Every observation has the weight of its pair, on both sides."""
    assert len(ratings)
    for data, flip in ((ratings, False), (ratings.T, True)):
        rows = data.by_user
        mine, other = data.users[rows.row_index], data.items[rows.index]
        cells = other * N_ITEMS + mine if flip else mine * N_ITEMS + other
        assert rows.weights.tolist() == ((cells + 1) / 7).tolist()
        assert not rows.weights.flags.writeable


def test_every_cut_and_split():
    ratings = made()
    few = ratings.select(ratings.by_user.row_index < 9).drop_unused()
    for each in (ratings, ratings.T.T, ratings.select(ratings.values > 3), few,
                 ratings.onto(few.users, few.items), *split(ratings, "random"),
                 *split(ratings, "time"), *carve(ratings, 0.2)):  # fmt: skip
        check(each)
    for fold in kfold(ratings, folds=3):
        check(fold.train)
    for rows in (ratings.by_user, ratings.by_item):
        pieces = [part(rows, 0, 7), part(rows, 7, len(rows.starts) - 1)]
        assert np.array_equal(np.concatenate([piece.weights for piece in pieces]), rows.weights)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".csv.gz"])
def test_every_file(ending, tmp_path):
    ratings = made()
    write(ratings, tmp_path / f"r{ending}")
    assert load(tmp_path / f"r{ending}") == ratings
    assert load(tmp_path / f"r{ending}", weight="none").by_user.weights is None
    whole = split(ratings, "cold-start", user_fraction=0.3, given=2)
    save_split(whole, tmp_path / "split", ending)
    back = load_split(tmp_path / "split")
    assert (back.train, back.given, back.test) == (whole.train, whole.given, whole.test)
    check(back.given)


def test_shards(tmp_path):
    ratings = made()
    shards = shard(ratings, tmp_path / "shards", blocks=3)
    table = parquet.read_table(tmp_path / "shards" / "user-0000.parquet")
    assert table.column_names == ["index", "value", "time", "weight"]
    for side, rows in (("user", ratings.by_user), ("item", ratings.by_item)):
        blocks = range(len(shards.by_user.spans if side == "user" else shards.by_item.spans))
        found = [shards.rows(side, number).weights for number in blocks]
        assert np.array_equal(np.concatenate(found), rows.weights)


def test_columns_are_found_by_name_and_by_number(tmp_path):
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 1], "rating": [3, 4], "Weight": [2, 0.5]})
    assert Ratings.from_frame(frame).by_user.weights.tolist() == [2, 0.5]
    assert Ratings.from_frame(frame, weight="none").by_user.weights is None
    renamed = frame.rename(columns={"Weight": "plays"})
    assert Ratings.from_frame(renamed).by_user.weights is None
    assert Ratings.from_frame(renamed, weight="plays").by_user.weights.tolist() == [2, 0.5]
    (tmp_path / "r.csv").write_text("1,1,3,2\n2,1,4,0.5\n")
    numbered = load(tmp_path / "r.csv", weight=4)
    assert numbered.by_user.weights.tolist() == [2, 0.5]
    assert numbered.by_user.times is None
    (tmp_path / "r.csv").write_text("u,1,3,2,7\nv,1,4,0.5,8\n")
    named = load(tmp_path / "r.csv", user=1, item=2, rating=3, weight=4, time=5)
    assert named.by_user.weights.tolist() == [2, 0.5]
    assert named.by_user.times.tolist() == [7, 8]


def test_weights_are_part_of_the_ratings():
    one, other = (Ratings.from_triplets(**PLAIN, weights=w) for w in ([1, 2, 3], [1, 2, 4]))
    plain = Ratings.from_triplets(**PLAIN)
    timed = Ratings.from_triplets(**PLAIN, times=[1, 2, 3])
    assert one != other
    assert one != plain
    assert len({each.fingerprint() for each in (one, other, plain, timed)}) == 4
    assert one.nbytes == plain.nbytes + 2 * 3 * 8
    assert one.to_arrow()["weight"].to_pylist() == [1, 2, 3]
    assert summarise(one).weights == {"min": 1, "mean": 2, "max": 3}
    assert summarise(plain).weights is None


def test_duplicates_with_weights():
    pairs = {"users": [1, 1, 2, 1], "items": [5, 5, 5, 5], "ratings": [1, 2, 4, 6]}
    weights = [3, 1, 5, 4]
    last = Ratings.from_triplets(**pairs, weights=weights, duplicates="last")
    assert (last.values.tolist(), last.by_user.weights.tolist()) == ([6, 4], [4, 5])
    mean = Ratings.from_triplets(**pairs, weights=weights, duplicates="mean")
    assert mean.values.tolist() == [(3 * 1 + 1 * 2 + 4 * 6) / 8, 4]
    assert mean.by_user.weights.tolist() == [8, 5]
    heavy = Ratings.from_triplets(**pairs, weights=[1e9, 1e9, 1, 1], duplicates="mean")
    assert Ratings.from_frame(heavy.to_arrow()) == heavy  # what can be made can be read


def test_ratings_without_weights_that_are_put_among_others_weigh_one():
    plain = Ratings.from_triplets(**PLAIN, scale=(1, 5))
    more = Ratings.from_triplets(users=[1, 2], items=[5, 6], ratings=[3, 3], weights=[7, 8],
                                 scale=(1, 5))  # fmt: skip
    assert plain.put(more).by_user.weights.tolist() == [7, 1, 1, 8]
    assert more.put(plain).by_user.weights.tolist() == [1, 1, 1, 8]
    assert plain.put(plain).by_user.weights is None


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([1, 0, 1], "2 of the arrays: the weight 0 is not above 0 and finite; correct it, leave "
                    "out the row, or leave weights= out"),
        ([1, 1, -2.5], "3 of the arrays: the weight -2.5 is not above 0 and finite"),
        (np.array([np.nan, 1, 1]), "1 of the arrays: the weight nan is not above 0 and finite"),
        ([1, np.inf, 1], "2 of the arrays: the weight inf is not above 0 and finite"),
        ([1, 1, 1e10], "3 of the arrays: the weight 1e.10 is not from 1e-09 to 1e.09; divide all "
                       "weights by the same number, or leave weights= out"),
        ([1, 1e-10, 1], "2 of the arrays: the weight 1e-10 is not from"),
        ([1, None, 1], "2 of the arrays: the weight is missing; give every rating one, or leave"),
        (["a", "b", "c"], "1 of the arrays: the weight 'a' is string, not a number; convert the "
                          "column first, or leave weights= out"),
        ([True, True, True], "the weight True is bool, not a number"),
        ([1, 2], "the arrays differ in length .3 users, 3 items, 3 ratings, 2 weights."),
    ],
)  # fmt: skip
def test_bad_weights(weights, told):
    with pytest.raises(DataError, match=told):
        Ratings.from_triplets(**PLAIN, weights=weights)


def test_remedies_are_those_of_the_source(tmp_path):
    frame = pd.DataFrame({"user": [1], "item": [1], "rating": [3], "weight": [0]})
    with pytest.raises(DataError, match="frame, row 1: .* with weight='none' of Ratings.from_fram"):
        Ratings.from_frame(frame)
    table = pa.table({"user": [1], "item": [1], "rating": [3], "weight": [Decimal("2.5")]})
    assert Ratings.from_frame(table).by_user.weights.tolist() == [2.5]
    parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "r.parquet")
    with pytest.raises(DataError, match="parquet, row 1: the weight 0 .* with weight='none'$"):
        load(tmp_path / "r.parquet")
