"""Tables of attributes: kinds, exact encodings, what is missing, and what is refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bayesmf import Attributes, AttributesWarning, DataError
from bayesmf.data.ids import Ids
from bayesmf.model.designs import SideFacts
from oracle.bad_attributes import CASES, GOOD, message, table

HALF = 1 / np.sqrt(2)
MOVIES = {
    "movie": [30, 10, 20],
    "year": [2000.0, None, 1990.0],
    "country": ["US", "FR", None],
    "genres": ["Drama|War", "War", ""],
}
ENCODED = [[1, 0, 1, HALF, HALF], [0, 1, 0, 0, 1], [-1, 0, 0, 0, 0]]  # FR, US; Drama, War


def movies(**options) -> Attributes:
    return Attributes.from_frame(pa.table(MOVIES), kinds={"genres": "set"}, **options)


def rows_of(attributes: Attributes, ids, counts=None):
    """The matrix of these ids, dense."""
    ids = Ids(np.asarray(ids))
    counts = np.ones(len(ids), np.int64) if counts is None else counts
    found = attributes.matrix(SideFacts("item", ids, counts))
    out = np.zeros((len(ids), attributes.width))
    starts, index, values = found.rows
    for i in range(len(ids)):
        out[i, index[starts[i] : starts[i + 1]]] = values[starts[i] : starts[i + 1]]
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_bad_table_gets_one_sentence(case, tmp_path):
    assert message(case, tmp_path) == case.message


def test_the_table_of_bad_attributes_in_the_docs_is_what_users_see():
    page = Path(__file__).parents[2] / "docs" / "input-errors.md"
    assert table() in page.read_text(encoding="utf-8")


def test_numbers_are_standardised_categories_flagged_and_sets_scaled():
    found = movies()
    assert [column.kind for column in found.columns] == ["number", "category", "set"]
    assert (found.columns[0].mean, found.columns[0].sd) == (1995, 5)
    assert found.columns[2].values == ("Drama", "War")
    assert np.array_equal(found.encode(pa.table(MOVIES)).toarray(), ENCODED)
    assert found.encode(pa.table(MOVIES)).shape == (3, found.width) == (3, 5)
    in_order = [ENCODED[1], ENCODED[2], [0] * 5, ENCODED[0]]  # 25 has no row in the table
    assert np.array_equal(rows_of(found, [10, 20, 25, 30]), in_order)
    labels = [(column.name, value) for column, value in found.labels()]
    assert labels == [("year", None), ("country", "FR"), ("country", "US"),
                      ("genres", "Drama"), ("genres", "War")]  # fmt: skip


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_kind_of_frame_and_file_is_the_same(make, tmp_path):
    frame = make(MOVIES)
    assert Attributes.from_frame(frame, id="movie", kinds={"genres": "set"}) == movies()
    pd.DataFrame(MOVIES).to_csv(tmp_path / "m.csv", index=False)
    pd.DataFrame(MOVIES).to_parquet(tmp_path / "m.parquet")
    for name in ("m.csv", "m.parquet"):
        assert Attributes.load(tmp_path / name, kinds={"genres": "set"}) == movies()
    assert movies(columns=["year"]) != movies()
    swapped = Attributes.from_frame(pa.table({**MOVIES, "year": [1990.0, None, 2000.0]}),
                                    kinds={"genres": "set"})  # fmt: skip
    assert swapped.columns == movies().columns
    assert swapped != movies()


def test_attributes_travel():
    assert pickle.loads(pickle.dumps(movies())) == movies()
    assert hash(movies()) == hash(copy.deepcopy(movies()))


def test_other_types_of_columns(tmp_path):
    frame = pd.DataFrame({
        "id": pd.Series([1, 2, 3], dtype="Int32"), "a": pd.Categorical(["x", None, "y"]),
        "b": pd.Series([1, None, 0], dtype="Int8"),
        "c": pd.Series([True, None, False], dtype=object),
    })  # fmt: skip
    found = Attributes.from_frame(frame)
    assert [column.describe() for column in found.columns] == [
        "a (category, 2 values)", "b (number)", "c (category, 2 values)",
    ]  # fmt: skip
    frame.to_parquet(tmp_path / "t.parquet")
    assert Attributes.load(tmp_path / "t.parquet") == found
    halves = pd.DataFrame({"id": [1.0, 2.0], "x": ["p", "q"]})  # as pandas reads a gap
    assert Attributes.from_frame(halves).ids.values.tolist() == [1, 2]


def test_what_the_table_did_not_have_has_no_entry():
    later = pa.table({"genres": ["War|Western|War", "Western", None], "country": ["US", "PE", ""],
                      "year": [2005.0, None, 1995.0]})  # fmt: skip
    expected = [[2, 0, 1, 0, 1], [0] * 5, [0] * 5]
    assert np.array_equal(movies().encode(later).toarray(), expected)
    with pytest.raises(DataError, match="the frame: there is no column 'country', which the model"):
        movies().encode(later.drop_columns("country"))
    with pytest.raises(DataError, match="'old' in column 'year' is not a number; correct it, or"):
        movies().encode(later.set_column(2, "year", pa.array(["old"] * 3)))


def test_kinds_are_recognised(tmp_path):
    frame = pd.DataFrame({
        "id": ["a", "b", "c"], "age": [1, 2, 3], "code": [1, 1, 2], "adult": [True, False, True],
        "tags": [["x", "y"], [], ["x"]], "genres": ["A|B", "B|C", "C"], "one": ["A|B", "B", "C"],
    })  # fmt: skip
    found = Attributes.from_frame(frame, kinds={"code": "category"})
    kinds = {column.name: column.kind for column in found.columns}
    assert kinds == {"age": "number", "code": "category", "adult": "category", "tags": "set",
                     "genres": "set", "one": "category"}  # fmt: skip
    assert found.columns[1].values == ("1", "2")
    (tmp_path / "t.tsv").write_text(
        "id\tage\tzip\tsex\n1\t24\t02138\tM\n2\tNA\t85711\tF\n3\t9\t\tF\n"
    )
    found = Attributes.load(tmp_path / "t.tsv")
    assert [column.describe() for column in found.columns] == [
        "age (number)", "zip (category, 2 values)", "sex (category, 2 values)",
    ]  # fmt: skip
    assert found.columns[0].mean == 16.5


def test_files_of_movielens(tmp_path):
    (tmp_path / "u.user").write_text("1|24|M|85711\n2|53|F|94043\n3|23|M|32067\n")
    named = Attributes.load(tmp_path / "u.user", names=["user", "age", "gender", "zip"],
                            columns=["age", "gender"])  # fmt: skip
    numbered = Attributes.load(tmp_path / "u.user", columns=[2, 3])
    assert numbered.columns[1].values == named.columns[1].values == ("F", "M")
    assert [column.name for column in numbered.columns] == ["2", "3"]
    (tmp_path / "movies.dat").write_bytes(
        "1::Caf\u00e9 (1995)::Drama|War\n2::Heat::War|Action\n".encode("latin-1")
    )
    found = Attributes.load(tmp_path / "movies.dat", names=["movie", "title", "genres"])
    assert found.columns[0].values == ("Caf\u00e9 (1995)", "Heat")
    assert found.columns[1].values == ("Action", "Drama", "War")


def test_a_constant_column_is_left_out_with_a_sentence(tmp_path):
    (tmp_path / "m.csv").write_bytes(GOOD.replace(b"1999", b"1995"))
    found = Attributes.load(tmp_path / "m.csv")
    assert found.notes == ("column 'year' has the same value in every row and was left out",)
    assert [column.name for column in found.columns] == ["genres"]
    assert repr(found) == f"Attributes(3 rows by 'movie': genres (set, 3 values); {found.notes[0]})"
    flag = Attributes.from_frame(pa.table({"id": [1, 2], "cult": ["yes", None]}))
    assert np.array_equal(rows_of(flag, [1, 2]), [[1], [0]])  # present or not is a difference


def test_integers_and_text_are_the_same_ids(tmp_path):
    frame = pa.table({"id": [9, 10, 11], "x": [1.0, 2.0, 3.0]})
    found = Attributes.from_frame(frame)
    texts = np.array(["10", "11", "12", "9"], object)
    assert rows_of(found, texts)[:, 0].tolist() == [0, rows_of(found, [11])[0, 0], 0,
                                                    rows_of(found, [9])[0, 0]]  # fmt: skip
    (tmp_path / "t.csv").write_text("id,x\n9,1\n10,2\ntt1,3\n")
    mixed = Attributes.load(tmp_path / "t.csv")
    assert mixed.ids.values.tolist() == ["10", "9", "tt1"]
    assert rows_of(mixed, [9])[0, 0] < -1


def test_how_many_have_no_row_is_said():
    side = SideFacts("user", Ids(np.array([1, 10, 20, 31])), np.array([0, 3, 1, 2]))
    with pytest.warns(AttributesWarning) as caught:
        movies().check_rows(side)
    assert str(caught[0].message) == (
        "1 of 3 users have no row in the user attributes, such as 31; they count as without "
        "attributes"
    )
    movies().check_rows(SideFacts("user", Ids(np.array([1, 10])), np.array([0, 3])))


def test_names_that_are_wanted_are_kept_up_to_a_bound():
    frame = pa.table({"id": range(30), "title": [f"name {k}" for k in range(30)]})
    assert Attributes.from_frame(frame, kinds={"title": "category"}).width == 30
    many = pa.table({"id": range(10_001), "title": [f"name {k}" for k in range(10_001)]})
    with pytest.raises(DataError, match=r"10,001 values .* kinds=\{'title': 'none'\} of [\w.]+$"):
        Attributes.from_frame(many, kinds={"title": "category"})
