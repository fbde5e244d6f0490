"""Times survive every cut, split, shard and file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bayesmf import Ratings, kfold, load, load_split, save_split, shard, split, write
from bayesmf.data.io.shards import part
from bayesmf.data.split import carve, cold_start

N_USERS, N_ITEMS = 30, 20


@pytest.fixture(scope="module", params=["seconds", "milliseconds"])
def timed(request) -> Ratings:
    """Ratings whose time tells the pair, so that a time in the wrong place is seen."""
    rng = np.random.default_rng(3)
    cells = rng.choice(N_USERS * N_ITEMS, 250, replace=False)
    step = 1 if request.param == "seconds" else 1000  # too large for 32 bits
    return Ratings.from_triplets(
        users=cells // N_ITEMS,
        items=cells % N_ITEMS,
        ratings=1 + cells % 5,
        times=(1_600_000_000 + cells) * step,
    )


def check(ratings: Ratings) -> None:
    """Every observation has the time of its pair, on both sides."""
    assert len(ratings)
    for data, flip in ((ratings, False), (ratings.T, True)):
        rows = data.by_user
        assert rows.times is not None
        mine, other = data.users[rows.row_index], data.items[rows.index]
        cells = other * N_ITEMS + mine if flip else mine * N_ITEMS + other
        step = 1000 if rows.times.max() > 2**32 else 1
        assert (rows.times == (1_600_000_000 + cells) * step).all()


def test_every_cut(timed):
    check(timed)
    check(timed.T.T)
    check(timed.select(np.arange(0, len(timed), 3)))
    check(timed.select(timed.values > 3).drop_unused())
    few = timed.select(timed.by_user.row_index < 9).drop_unused()
    check(few)
    check(timed.onto(few.users, few.items))
    rows = timed.by_user
    user, item = rows.row_index, rows.index
    again = Ratings.from_sorted(
        timed.users, timed.items, user, item, rows.values, rows.times, timed.scale
    )
    assert again == timed
    check(again)


def test_every_split(timed):
    for protocol in ("paper", "random", "time"):
        for piece in split(timed, protocol):
            check(piece)
    made = cold_start(timed, user_fraction=0.3, given=2)
    for piece in (made.train, made.given, made.test):
        check(piece)
    for fold in kfold(timed, folds=3):
        check(fold.train)
        check(fold.test)
    for piece in carve(timed, 0.2):
        check(piece)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".csv.gz"])
def test_every_file(timed, ending, tmp_path):
    write(timed, tmp_path / f"r{ending}")
    assert load(tmp_path / f"r{ending}") == timed
    made = split(timed, "cold-start", user_fraction=0.3, given=2)
    save_split(made, tmp_path / "split", ending)
    back = load_split(tmp_path / "split")
    assert (back.train, back.given, back.test) == (made.train, made.given, made.test)
    check(back.given)


def test_parts_of_rows(timed):
    for rows in (timed.by_user, timed.by_item):
        pieces = [part(rows, 0, 7), part(rows, 7, len(rows.starts) - 1)]
        assert np.array_equal(np.concatenate([piece.times for piece in pieces]), rows.times)
    assert part(timed.by_user, 2, 2).times.size == 0
    untimed = Ratings.from_triplets(users=[1, 2], items=[1, 2], ratings=[3, 4])
    assert part(untimed.by_user, 0, 1).times is None


def test_shards(timed, tmp_path):
    shards = shard(timed, tmp_path / "shards", blocks=3)
    table = parquet.read_table(tmp_path / "shards" / "user-0000.parquet")
    assert table.column_names == ["index", "value", "time"]
    for side, rows in (("user", timed.by_user), ("item", timed.by_item)):
        blocks = range(len(shards.by_user.spans if side == "user" else shards.by_item.spans))
        times = [shards.rows(side, number).times for number in blocks]
        assert np.array_equal(np.concatenate(times), rows.times)


def test_shards_without_times_are_read_as_before(tmp_path):
    ratings = Ratings.from_triplets(users=[1, 2], items=[1, 2], ratings=[3, 4])
    shards = shard(ratings, tmp_path / "shards", blocks=1)
    assert shards.rows("user", 0).times is None
    table = parquet.read_table(tmp_path / "shards" / "item-0000.parquet")
    assert table.column_names == ["index", "value"]
    assert table["value"].type == pa.int8()
