"""Blanks around an id do not count, wherever it comes from."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from bayesmf import DataError, Ratings, load
from bayesmf.cli.main import main
from bayesmf.data.ids import Ids, look_up, read_id
from bayesmf.data.io.text import read_pairs

PADDED = 'user,item,rating\n ann ,x,4\n"bob ", y,5\n\tcleo,\u00a0z,3\n'


@pytest.fixture
def put(tmp_path):
    def write_text(text: str, name: str = "r.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write_text


def test_ratings_and_pairs_files_follow_one_rule(put):
    ratings = load(put(PADDED))
    assert list(ratings.users) == ["ann", "bob", "cleo"]
    assert list(ratings.items) == ["x", "y", "z"]
    users, items = read_pairs(put(PADDED, "pairs.csv"), {})[0].values()
    assert users.to_pylist() == ["ann", "bob", "cleo"]
    assert ratings.items.index(items).tolist() == [0, 1, 2]


def test_integers_padded_with_blanks_are_integers(put):
    padded = "user,item,rating\n 1, 10,4\n1 ,11,5\n2,  10,3\n"
    plain = Ratings.from_triplets(users=[1, 1, 2], items=[10, 11, 10], ratings=[4, 5, 3])
    assert load(put(padded)) == plain
    users = read_pairs(put(padded), {})[0]["user"]
    assert look_up(plain.users, users, "user", str).tolist() == [0, 0, 1]


def test_parquet_frames_and_arrays_follow_it_too(tmp_path):
    columns = {"user": [" a", "b"], "item": ["x ", "y"], "rating": [1.0, 2.0]}
    parquet.write_table(pa.table(columns), tmp_path / "r.parquet")
    found = load(tmp_path / "r.parquet")
    assert list(found.users) == ["a", "b"]
    assert Ratings.from_frame(pd.DataFrame(columns)) == found
    assert found.items.index([" x", "y", "z"]).tolist() == [0, 1, -1]
    users = read_pairs(tmp_path / "r.parquet", {})[0]["user"]
    assert look_up(found.users, users, "user", str).tolist() == [0, 1]
    columns["user"] = [" a", "a"]
    for given in (columns, pd.DataFrame(columns)):
        with pytest.raises(DataError, match="the user id 'a' differs from ' a' .* only by blanks"):
            Ratings.from_frame(pa.table(given) if isinstance(given, dict) else given)


def test_a_model_that_was_saved_with_blanks_in_its_ids_finds_them():
    old = Ids(np.array([" a", "a", "b "], dtype=object))
    assert old.index([" a", "a", "b ", "b"]).tolist() == [0, 1, 2, -1]


def test_ids_that_stripping_makes_equal_are_refused(put):
    told = r"line 4: the user id ' a' differs from 'a' \(.*r.csv, line 3\) only by blanks"
    with pytest.raises(DataError, match=told):
        load(put("user,item,rating\nb,1,3\na,1,3\n a,2,4\na,3,4\n"))
    with pytest.raises(DataError, match="line 3: the item id '7 ' differs from '7'"):
        load(put("user,item,rating\n1,7,3\n2,7 ,4\n"), ids="text")
    with pytest.raises(DataError, match="line 2: the user id is empty"):
        load(put("user,item,rating\n ,1,3\n\t,2,4\n"))


def test_a_pair_rated_twice_but_for_blanks_is_not_kept_twice(put):
    with pytest.raises(DataError, match="user 1 rated item 5 before"):
        load(put("1,5,3\n 1,5,4\n2,5,4\n"))


def test_numbers_among_text_are_seen_through_their_blanks(put):
    with pytest.raises(DataError, match="line 2: the user id '12' is an integer but those"):
        load(put("bob,1,3\n 12,1,4\n"))


def test_ids_typed_on_a_command_line():
    assert [read_id(text, "text") for text in ("a", " a b\t", "007")] == ["a", "a b", "007"]
    assert [read_id(text, "integer") for text in ("7", " -7 ")] == [7, -7]
    assert {read_id(text, "integer") for text in ("007", "x", "", str(2**63))} == {None}


def test_columns_of_files_are_looked_up_as_the_model_has_them():
    integers, texts = Ids(np.array([1, 20])), Ids(np.array(["1", "20", "x"], dtype=object))
    floats = pa.chunked_array([pa.array([20.0, 3.0, 1.0])])
    assert look_up(integers, floats, "user", str).tolist() == [1, -1, 0]
    assert look_up(texts, floats, "user", str).tolist() == [1, -1, 0]
    words = pa.chunked_array([pa.array(["20", "020", "x"])])
    assert look_up(integers, words, "user", str).tolist() == [1, -1, -1]
    for hole in (None, float("nan")):
        column = pa.chunked_array([pa.array([1.0, hole])])
        with pytest.raises(DataError, match="^pair 2: the item id is empty; give every pair a"):
            look_up(integers, column, "item", lambda row: f"pair {row + 1}")


def test_a_model_knows_the_ids_of_its_file_with_and_without_blanks(put, tmp_path):
    """From the file of a fit to predictions and recommendations, on the command line."""

    def run(*words: object) -> list[dict]:
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]

    lines = [f" {u} ,{i} ,{1 + (u * i) % 5}" for u in range(6) for i in range(5) if (u + i) % 4]
    data = put("user,item,rating\n" + "\n".join(lines).replace(" 0", "zero") + "\n")
    text = ["--ids", "text"]
    out = tmp_path / "fit"
    run("fit", data, *text, "--rank", 2, "--sweeps", 30, "--holdout", "none", "--out", out)
    known = []
    for pairs in ("user,item\n1,2\nzero,3\n", "user,item\n 1, 2\n zero ,3 \n"):
        rows = run("predict", out, put(pairs, "pairs.csv"), "--json")
        known.append([(row["user"], row["item"], row["known"], row["mean"]) for row in rows])
    assert known[0] == known[1]
    assert all("new" not in row[2] for row in known[0])
    one, other = (
        run("recommend", out, "--user", user, "--no-exclude-seen", "--json")
        for user in ("1", " 1 ")
    )
    assert one == other
    assert one[0]["user"] == "1"
