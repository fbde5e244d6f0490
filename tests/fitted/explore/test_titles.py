"""Titles of items and users: where they come from, where they are shown, and that they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pyarrow import parquet

import bayesmf
from bayesmf import DataError
from bayesmf.fitted.explore.names import TITLES_FILE
from oracle.bad_titles import CASES, message, table
from oracle.explored import TITLES, fitted

PAIRS = [("u1", "i3"), ("u2", "i23"), ("nobody", "i0")]
SHOWN = ["Film 3", None, "Film 0"]


@pytest.fixture(scope="module")
def plain():
    return fitted(sweeps=8)


@pytest.fixture(scope="module")
def fit(plain):
    return plain.with_titles(items=TITLES, users={"u1": "Ann", "nobody": "Zoe"})


def test_answers_show_titles_behind_ids(fit):
    table = fit.predict(PAIRS)
    assert table.column_names[:4] == ["user", "user_title", "item", "title"]
    assert table["title"].to_pylist() == SHOWN
    assert table["user_title"].to_pylist() == ["Ann", None, "Zoe"]
    chances = fit.probabilities(pd.DataFrame(PAIRS, columns=["who", "film"]))
    assert list(chances.columns[:4]) == table.column_names[:4]
    best = fit.recommend("u1", 3)
    assert best.column_names[:5] == ["user", "user_title", "rank", "item", "title"]
    assert best["title"].to_pylist() == [TITLES.get(one) for one in best["item"].to_pylist()]
    for found in (fit.similar(item="i1"), fit.map()):
        assert found.column_names[:2] == ["item", "title"]
        assert found["title"].to_pylist() == [TITLES.get(i) for i in found["item"].to_pylist()]
    assert fit.similar(user="u2", n=40).column_names[:2] == ["user", "user_title"]
    told = fit.explain("u1", "i3")
    assert (told["user_title"], told["title"]) == ("Ann", "Film 3")
    assert all(row["title"] == TITLES.get(row["item"]) for row in told["ratings"])
    assert list(told["ratings"][0]) == ["item", "title", "rating", "adds"]


def test_without_titles_there_are_no_such_columns(plain):
    assert "title" not in plain.predict(PAIRS).column_names
    assert "title" not in plain.recommend("u1").column_names
    assert not {"title", "user_title"} & set(plain.explain("u1", "i3"))


def test_the_fit_stays_what_it_was(plain, fit):
    assert type(fit) is type(plain)
    assert fit.traces is plain.traces
    assert "title" not in plain.predict(PAIRS).column_names  # of which this is another


FRAME = pd.DataFrame({"film": list(TITLES), "title": list(TITLES.values())})
SOURCES = {
    "mapping": lambda folder: TITLES,
    "pandas": lambda folder: FRAME,
    "polars": lambda folder: pl.DataFrame({"movieId": list(TITLES), "Name": list(TITLES.values())}),
    "lazy": lambda folder: pl.LazyFrame({"title": list(TITLES.values()), "id": list(TITLES)}),
    "two columns": lambda folder: pd.DataFrame({"item": list(TITLES), "what": TITLES.values()}),
    "csv": lambda folder: put(folder / "films.csv", FRAME.to_csv(index=False)),
    "parquet": lambda folder: put_parquet(folder / "films.parquet", FRAME),
    "more columns": lambda folder: FRAME.assign(year=1990, genres="Drama", name="not this"),
}


def put(path, text):
    path.write_text(text)
    return path


def put_parquet(path, frame):
    frame.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("source", SOURCES)
def test_where_titles_come_from(plain, source, tmp_path):
    found = plain.with_titles(items=SOURCES[source](tmp_path))
    assert found.predict(PAIRS)["title"].to_pylist() == SHOWN


def test_a_file_without_a_header_has_ids_first_and_titles_second(tmp_path):
    ratings = bayesmf.Ratings.from_triplets(
        users=[1, 1, 2, 2], items=[1, 2, 1, 3], ratings=[1, 5, 2, 4]
    )
    movies = put(tmp_path / "movies.dat", "1::Toy Story (1995)::Comedy\n2::Caf\u00e9 :)::Drama\n")
    fit = bayesmf.fit(ratings, rank=1, sweeps=4, chains=1, items=movies)
    pairs = [(1, 1), (1, 2), (1, 3)]
    assert fit.predict(pairs)["title"].to_pylist() == ["Toy Story (1995)", "Caf\u00e9 :)", None]
    text = fit.with_titles(items={"1": "as text", 2: "as a number", 3.0: " blanks "})
    assert text.predict(pairs)["title"].to_pylist() == ["as text", "as a number", "blanks"]
    frame = pd.DataFrame({"item": [1.0, 2.0], "title": [1984, None]})
    found = fit.with_titles(items=frame).predict(pairs)["title"].to_pylist()
    assert found == ["1984", "Caf\u00e9 :)", None]  # an empty title is none, and replaces none


@pytest.mark.parametrize("ending", ["", ".zip"])
def test_titles_are_saved_and_follow_the_fit(fit, ending, tmp_path):
    odd = fit.with_titles(items={"i5": "two\nlines, \x1b[31m \u202e \U0001f3ac"})
    odd.save(tmp_path / f"model{ending}")
    again = bayesmf.load_model(tmp_path / f"model{ending}")
    assert again.posterior.labels == odd.posterior.labels
    assert again.predict(PAIRS).equals(odd.predict(PAIRS))
    new = pd.DataFrame({"user": ["nobody"], "item": ["i0"], "rating": [4.0], "time": [1]})
    for more in (again.fold_in(new), again.update(new)):
        assert more.predict(PAIRS)["user_title"].to_pylist() == ["Ann", None, "Zoe"]
    again.save(tmp_path / f"model{ending}", overwrite=True)


def test_a_model_of_an_earlier_version_has_no_titles(plain, tmp_path):
    plain.save(tmp_path / "model")
    assert not (tmp_path / "model" / TITLES_FILE["item"]).exists()
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    del facts["columns"]
    (tmp_path / "model" / "model.json").write_text(json.dumps(facts))
    again = bayesmf.load_model(tmp_path / "model")
    assert again.predict(PAIRS).equals(plain.predict(PAIRS))
    with pytest.raises(DataError, match="no column for the user"):
        again.predict(pd.DataFrame(PAIRS, columns=["who", "film"]))


def test_damaged_titles_are_refused(fit, tmp_path):
    fit.save(tmp_path / "model")
    file = tmp_path / "model" / TITLES_FILE["item"]
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    with pytest.raises(DataError, match=r"item_titles.parquet is not what was saved"):
        bayesmf.load_model(tmp_path / "model")
    file.unlink()
    with pytest.raises(DataError, match=r"lacks item_titles.parquet"):
        bayesmf.load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "forged", [{"id": ["i1", "i1"], "title": ["a", "b"]}, {"id": ["i1"], "title": [3]}]
)
def test_forged_titles_are_refused(fit, forged, tmp_path):
    import hashlib

    import pyarrow as pa

    fit.save(tmp_path / "model")
    file, facts = tmp_path / "model" / TITLES_FILE["item"], tmp_path / "model" / "model.json"
    parquet.write_table(pa.table(forged), file)
    document = json.loads(facts.read_text())
    document["sha256"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    facts.write_text(json.dumps(document))
    with pytest.raises(DataError, match="two titles|no text"):
        bayesmf.load_model(tmp_path / "model")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_mistakes_get_a_sentence(case, tmp_path):
    assert message(case, tmp_path) == case.message


def test_the_table_of_mistakes_in_the_docs_is_what_users_see():
    page = Path(__file__).parents[3] / "docs" / "input-errors.md"
    assert table() in page.read_text(encoding="utf-8")


def test_a_wrong_file_is_refused_before_the_work(plain, tmp_path):
    with pytest.raises(DataError, match="none.csv: not a file that can be read"):
        plain.with_titles(items=tmp_path / "none.csv")
    with pytest.raises(DataError, match="none of the 24 items"):
        fitted(items={"x": "y"}, sweeps=10**9)  # before the work


def test_a_million_pairs_are_no_matter(fit):
    """Titles are looked up by id, and not by going through them."""
    ids = np.array(["i1", "i2"] * 50_000, object)
    assert fit.posterior.labels.beside("item", ids)["title"].to_pylist()[:2] == ["Film 1", "Film 2"]
