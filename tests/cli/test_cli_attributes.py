"""``bayesmf fit --user-attributes FILE --item-attributes FILE``: the tables, and what is told."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import Attributes, Gibbs, Model, RatedSet, Ratings, Variational
from bayesmf.cli.fit_run import describe_forecast
from bayesmf.cli.main import main

DEMO = bayesmf.load("demo")
SMALL = ["fit", "demo", "--rank", "1", "--sweeps", "2", "--chains", "1"]


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(main, [str(word) for word in (*SMALL, *words)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def tables(tmp_path):
    users, items = tmp_path / "users.csv", tmp_path / "items.csv"
    rows = (f"{who},{k % 7},{'MF'[k % 2]}\n" for k, who in enumerate(DEMO.users.values.tolist()))
    users.write_text("user,age,gender\n" + "".join(rows))
    rows = (f"{what}|{k % 5}|film {k}\n" for k, what in enumerate(DEMO.items.values.tolist()))
    items.write_text("film|code|title\n" + "".join(rows))
    return users, items


def test_tables_become_designs_and_are_saved(tables, tmp_path):
    kinds = ("--item-kinds", "film:id,code:category,title:none")
    out = ("--json", "--out", tmp_path / "fit")
    done = run("--user-attributes", tables[0], "--item-attributes", tables[1], *kinds, *out)
    facts = json.loads(done.stdout.splitlines()[-1])["model"]
    assert [one["name"] for one in facts["item_designs"]] == ["rated-set", "attributes"]
    (code,) = facts["item_designs"][1]["columns"]
    assert (code["name"], code["kind"], code["values"]) == ("code", "category", list("01234"))
    assert [one["name"] for one in facts["user_designs"][1]["columns"]] == ["age", "gender"]
    found = bayesmf.load_model(tmp_path / "fit").posterior.model
    assert found.item_designs[1].ids == DEMO.items
    assert np.isfinite(bayesmf.load_model(tmp_path / "fit").predict([(1, 1)])["mean"][0].as_py())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--item-attributes", "items.csv"],
         "items.csv: no column for the id among 'film', 'code', 'title'; name it with --item-kinds "
         "NAME:id"),
        (["--item-attributes", "items.csv", "--item-kinds", "film:id"],
         "items.csv: column 'title' has 1,000 values in 1,000 rows, like a name, which says "
         "nothing about other rows; leave the column out with --item-kinds title:none, or keep "
         "it with --item-kinds title:category"),
        (["--user-kinds", "age:number"],
         "--user-kinds is about a table; name it with --user-attributes"),
        (["--user-attributes", "users.csv", "--user-kinds", "age"],
         "--user-kinds 'age': write COLUMN:KIND, where the kinds are id, number, category, set, "
         "none"),
        (["--user-attributes", "users.csv", "--user-kinds", "age:id,gender:id"],
         "--user-kinds names 2 columns as the id; name one"),
        (["--user-attributes", "nothing.csv"],
         "nothing.csv: not a file that can be read; check the path"),
        (["--user-attributes", "short.csv"],
         "short.csv, line 1: 'user' does not split into an id and its attributes; separate them by "
         "commas, tabs, '::' or spaces, or give separator=TEXT in Python"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_flags(words, told, tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.csv").write_text("user\n1\n2\n")
    assert run(*words, code=2).stderr == f"Error: {told}\n"


@pytest.mark.parametrize("words", [(), ("--start", "map")])
def test_who_has_no_row_is_told_once(words, tables):
    lines = tables[0].read_text().splitlines()
    lines = ["user,age,gender,planet", *(f"{line},Earth" for line in lines[1:-3])]
    tables[0].write_text("\n".join(lines) + "\n")
    told = run("--user-attributes", tables[0], *words).stderr
    assert told.count("Warning: 3 of 1,500 users have no row in the user attributes, such") == 1
    note = "column 'planet' has the same value in every row and was left out"
    assert told.count(f"Warning: {tables[0]}: {note}\n") == 1


@pytest.mark.parametrize("algorithm", [Gibbs, Variational])
def test_a_forecast_of_memory_counts_the_columns_that_there_are(algorithm):
    """Two kinds of item are two vectors W; a rated set of items has one for each user."""
    users = np.arange(40_000)
    train = Ratings.from_triplets(users=users, items=users % 8, ratings=users % 5)
    kinds = Attributes.from_frame(pd.DataFrame({"item": range(8), "kind": list("aabbabab")}))
    told = []
    for designs in ((), (kinds,), (RatedSet(),)):
        model = Model(rank=10, user_designs=(), item_designs=designs)
        told.append(describe_forecast(algorithm(model, keep=10), train, 100, 1.0))
    without, with_kinds, with_rated_set = told
    assert with_kinds == without
    assert with_rated_set != without
