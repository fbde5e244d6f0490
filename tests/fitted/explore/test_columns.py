"""Columns by the names they have: named, as in training, or known; and others that come back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bayesmf
from bayesmf import DataError, Ratings
from oracle.explored import NAMED, fitted, rated_frame

PAIRS = pd.DataFrame({"who": ["u1", "u2"], "film": ["i3", "i4"]})
PLAIN = [("u1", "i3"), ("u2", "i4")]


@pytest.fixture(scope="module", params=["fit", "saved"])
def fit(request, tmp_path_factory):
    made = fitted(sweeps=8)
    if request.param == "fit":
        return made
    path = tmp_path_factory.mktemp("saved") / "model.zip"
    made.save(path)
    return bayesmf.load_model(path)


def test_the_columns_of_training_are_remembered(fit):
    expected = fit.predict(PLAIN)["mean"].to_numpy()
    np.testing.assert_array_equal(fit.predict(PAIRS)["mean"], expected)
    assert "p1" in fit.probabilities(PAIRS)
    ratings = rated_frame()
    test = fit.evaluate(ratings)
    assert test == fit.evaluate(Ratings.from_frame(ratings, **NAMED))
    new = ratings.head(2).assign(who="new")
    assert fit.fold_in(new).predict([("new", "i1")])["known"][0].as_py() == "warm"
    assert fit.update(new).predict([("new", "i1")])["known"][0].as_py() == "warm"
    seen = fit.recommend(PAIRS, 24, seen=PAIRS)
    assert len(seen) == 2 * 23
    assert set(fit.recommend(PAIRS, items=PAIRS, exclude_seen=False)["item"]) == {"i3", "i4"}


def test_a_column_that_is_named_comes_first_and_known_names_last(fit):
    expected = fit.predict(PLAIN)["mean"].to_numpy()
    other = PAIRS.assign(who="u9", name=PAIRS["who"])
    np.testing.assert_array_equal(fit.predict(other, user="name")["mean"], expected)
    known = PAIRS.rename(columns={"who": "userId", "film": "movieId"})
    np.testing.assert_array_equal(fit.predict(known)["mean"], expected)
    swapped = PAIRS.rename(columns={"who": "film", "film": "who"})
    np.testing.assert_array_equal(fit.predict(swapped, user=1, item=2)["mean"], expected)
    crossed = PAIRS.rename(columns={"film": "user"})
    found = fit.predict(crossed, item="user")  # which would be the user by its name
    np.testing.assert_array_equal(found["mean"], expected)
    ratings = rated_frame().rename(columns={"points": "how much"})
    with pytest.raises(DataError, match="no column for the rating"):
        fit.evaluate(ratings)
    assert fit.evaluate(ratings, rating="how much") == fit.evaluate(rated_frame())
    taken = PAIRS.assign(user=PAIRS["who"], who=PAIRS["film"])  # the remembered one is the item
    np.testing.assert_array_equal(fit.predict(taken, item="who")["mean"], expected)


def test_a_file_is_read_by_the_names_of_training_too(tmp_path):
    rated_frame().to_csv(tmp_path / "r.csv", index=False)
    rated_frame().to_parquet(tmp_path / "r.parquet")
    for name in ("r.csv", "r.parquet"):
        ratings = bayesmf.load(tmp_path / name, **NAMED)
        assert ratings.columns == NAMED
        assert ratings.select(np.arange(9)).columns == NAMED
        assert bayesmf.split(ratings, "random").train.columns == NAMED


def test_names_of_columns_are_refused_where_there_are_none(fit):
    ratings = Ratings.from_frame(rated_frame(), **NAMED)
    with pytest.raises(DataError, match="have been read already; leave out rating="):
        fit.evaluate(ratings, rating="points")
    with pytest.raises(TypeError, match="there is no argument 'stars'; columns are"):
        fit.update(rated_frame(), stars="points")
    with pytest.raises(DataError, match="no column 'x' for the user; the columns are"):
        fit.predict(PAIRS, user="x")
    with pytest.raises(DataError, match="no column for the user among 'a'; name it with user=NAME"):
        fit.recommend(pd.DataFrame({"a": ["u1"]}))


OTHERS = {
    "note": ["b", None],
    "when": pd.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("Europe/Rome"),
    "group": pd.Categorical(["x", "y"]),
    "many": [[1, 2], []],
    7: [0.1, np.nan],
}


def test_other_columns_of_pandas_come_back_untouched(fit):
    frame = PAIRS.assign(**{str(k): v for k, v in OTHERS.items()}).rename(columns={"7": 7})
    frame.index = ["a", "a"]
    for table in (fit.predict(frame), fit.probabilities(frame)):
        pd.testing.assert_frame_equal(table[list(OTHERS)], frame[list(OTHERS)])
        assert list(table.columns[:2]) == ["user", "item"]
        assert list(table.index) == ["a", "a"]


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas])
def test_other_columns_of_polars_and_arrow_come_back_untouched(fit, kind):
    frame = kind(PAIRS.assign(note=["b", None], number=[1, 2]))
    table = fit.predict(frame)
    assert type(table) is type(frame)
    assert table[["note", "number"]].equals(frame[["note", "number"]]) if kind is pl.from_pandas \
        else table.select(["note", "number"]).equals(frame.select(["note", "number"]))  # fmt: skip


def test_a_column_of_the_answer_replaces_one_of_its_name(fit):
    again = fit.predict(fit.predict(PAIRS.assign(mean=9.0)))
    assert list(again.columns).count("mean") == 1
    np.testing.assert_array_equal(again["mean"], fit.predict(PLAIN)["mean"].to_numpy())


def test_a_lazy_frame_is_computed(fit):
    lazy = pl.from_pandas(PAIRS).lazy().with_columns(note=pl.lit("n"))
    table = fit.predict(lazy)
    assert isinstance(table, pl.DataFrame)
    assert table["note"].to_list() == ["n", "n"]
    np.testing.assert_array_equal(table["mean"], fit.predict(PLAIN)["mean"].to_numpy())
    assert isinstance(fit.recommend(lazy, 1), pl.DataFrame)
    ratings = pl.from_pandas(rated_frame()).lazy()
    assert fit.evaluate(ratings) == fit.evaluate(rated_frame())
    assert Ratings.from_frame(ratings, **NAMED) == Ratings.from_frame(rated_frame(), **NAMED)


def test_two_columns_without_names_go_by_position():
    from bayesmf.sklearn import MatrixFactorization

    frame = rated_frame()
    model = MatrixFactorization(rank=1, sweeps=4)
    X = frame[["who", "film"]].to_numpy()
    expected = model.fit(X, frame["points"]).predict(X)
    for names in ([0, 1], ["column_0", "column_1"], ["a", "b"], ["user", "item"]):
        unnamed = pd.DataFrame(X, columns=names)
        np.testing.assert_array_equal(
            model.fit(unnamed, frame["points"]).predict(unnamed), expected
        )
    swapped = pd.DataFrame(X[:, ::-1], columns=["item", "user"])  # by name, where there is one
    np.testing.assert_array_equal(model.predict(swapped), expected)
