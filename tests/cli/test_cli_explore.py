"""Titles, neighbours, the map, explanations and lists of some items, from the shell."""

from __future__ import annotations

import csv
import json

import pandas as pd
import pytest
from test_cli_model import run

import bayesmf
from oracle.explored import ATTRIBUTES, NAMED, TITLES, rated_frame


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The folder of a fit with titles and attributes, and the files around it."""
    folder = tmp_path_factory.mktemp("explore")
    rated_frame().to_csv(folder / "ratings.csv", index=False)
    table = ATTRIBUTES.assign(genres=["" if g is None else "|".join(g) for g in ATTRIBUTES.genres])
    table.assign(title=[TITLES.get(one, "") for one in table["item"]]).to_csv(
        folder / "films.csv", index=False
    )
    (folder / "people.csv").write_text("who,name\nu1,Ann \x1b[31m\nu2,[bold]Bob\n")
    columns = [word for role, name in NAMED.items() for word in (f"--{role}-col", name)]
    run("fit", folder / "ratings.csv", *columns, "--rank", 2, "--sweeps", 12, "--chains", 1,
        "--items", folder / "films.csv", "--users", folder / "people.csv", "--item-attributes",
        folder / "films.csv", "--item-kinds", "title:none,genres:set", "--quiet", "--out",
        folder / "fit")  # fmt: skip
    run("fit", folder / "ratings.csv", *columns, "--rank", 1, "--sweeps", 4, "--chains", 1,
        "--quiet", "--out", folder / "bare")  # fmt: skip
    return folder


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_fit_shows_titles_everywhere(world, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    fit, pairs = world / "fit", tmp_path / "pairs.csv"
    pairs.write_text("note,who,film,rating\nn1,u1,i3,\n n2,u9,i23,x\n")  # columns as in training
    rows = lines(run("predict", fit, pairs, "--json"))
    assert [row["title"] for row in rows] == ["Film 3", None]
    assert [row["user_title"] for row in rows] == ["Ann \x1b[31m", None]
    assert [(row["note"], row["rating"]) for row in rows] == [("n1", ""), (" n2", "x")]
    told = run("predict", fit, pairs)
    assert "Ann \\x1b[31m" in told  # which cannot steer a terminal
    assert "None" not in told
    assert "[bold]Bob" in run("similar", fit, "--user", "u1", "-n", 39)
    run("predict", fit, pairs, "--out", tmp_path / "out.csv")
    first = next(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert (first["note"], first["title"], first["item"]) == ("n1", "Film 3", "i3")
    best = lines(run("recommend", fit, "--user", "u1", "-n", 2, "--json"))
    assert [row["title"] for row in best] == [TITLES.get(row["item"]) for row in best]
    assert all(row["q05"] < row["score"] < row["q95"] for row in best)
    told = json.loads(run("explain", fit, "--user", "u1", "--item", "i3", "--json"))
    assert told == bayesmf.load_model(fit).explain("u1", "i3")
    shown = run("explain", fit, "--user", "u1", "--item", "i3", "--most", 2)
    assert shown.startswith("user u1 (Ann \\x1b[31m), item i3 (Film 3): expected rating ")
    for word in ("item bias", "adds", "country"):
        assert word in shown


def test_an_explanation_at_a_time_and_of_an_item_known_by_its_attributes(world, tmp_path):
    words = "--user-col", "who", "--item-col", "film", "--rating-col", "points", "--time-col", "day"
    rated = rated_frame()
    rated[rated["film"] != "i23"].to_csv(tmp_path / "ratings.csv", index=False)
    run("fit", tmp_path / "ratings.csv", *words, "--time", "chain", "--rank", 1, "--sweeps", 6,
        "--chains", 1, "--item-attributes", world / "films.csv", "--item-kinds",
        "title:none,genres:set", "--quiet", "--out", tmp_path / "fit")  # fmt: skip
    pair = tmp_path / "fit", "--user", "u1", "--item", "i23"
    fit = bayesmf.load_model(tmp_path / "fit")
    told = json.loads(run("explain", *pair, "--at", 86_400 * 9, "--json"))
    assert told == fit.explain("u1", "i23", at=86_400 * 9)
    assert "mood" in run("explain", *pair, "--at", "1970-01-10")
    assert "mood" not in run("explain", *pair)
    assert "--at never is no time" in run("explain", *pair, "--at", "never", code=2)
    for user, code in (("u1", 0), ("no", 2)):
        run("explain", tmp_path / "fit", "--user", user, "--item", "i23", code=code)


def test_titles_may_be_given_later(world, tmp_path):
    (tmp_path / "short.csv").write_text("film,what\ni1,One\ni3,Three\n")
    items = "--items", tmp_path / "short.csv"
    (tmp_path / "pairs.csv").write_text("who,film\nu1,i3\n")
    [row] = lines(run("predict", world / "bare", tmp_path / "pairs.csv", *items, "--json"))
    assert row["title"] == "Three"
    rows = lines(run("map", world / "bare", *items, "--json"))
    assert {row["title"] for row in rows} == {"One", "Three", None}
    told = run("explain", world / "bare", "--user", "u1", "--item", "i1", *items)
    assert "item i1 (One): expected" in told
    assert "title" not in run("map", world / "bare", "-n", 2)


def test_neighbours_and_the_map_file_to_file(world, tmp_path):
    fit = bayesmf.load_model(world / "fit")
    rows = lines(run("similar", world / "fit", "--item", "i1", "-n", 3, "--json"))
    assert rows == fit.similar(item="i1", n=3).to_pylist()
    rows = lines(run("similar", world / "fit", "--user", "u1", "--json"))
    assert rows == fit.similar(user="u1").to_pylist()
    assert "probability" in run("similar", world / "fit", "--item", "i1")
    found = run("map", world / "fit", "--out", tmp_path / "map.csv")
    assert found == f"24 rows written to {tmp_path / 'map.csv'}\n"
    heading = (tmp_path / "map.csv").read_text().splitlines()[0]
    assert heading.replace('"', "") == "item,title,x,y,ratings"
    rows = lines(run("map", world / "fit", "--side", "user", "-n", 2, "--json"))
    assert rows == fit.map(2, "user").to_pylist()


def recommended(world, *words):
    given = ["recommend", world / "fit", "--user", "u1", "--no-exclude-seen", "-n", 99, "--json"]
    return {row["item"] for row in lines(run(*given, *words))}


def test_lists_of_some_items(world, tmp_path):
    (tmp_path / "few.txt").write_text("i1\ni2\nunheard\n")
    (tmp_path / "with header.csv").write_text("film\ni1\ni4\n")
    few, headed = tmp_path / "few.txt", tmp_path / "with header.csv"
    assert recommended(world, "--items", few) == {"i1", "i2"}
    assert recommended(world, "--items", headed) == {"i1", "i4"}
    assert recommended(world, "--items", few, "--exclude", headed) == {"i2"}
    war = {f"i{k}" for k in range(23) if k % 3 == 1}
    assert recommended(world, "--where", "genres=War") == war
    late = {one for one in war if int(one[1:]) >= 10}
    assert recommended(world, "--where", "genres=War", "--where", "year>=1990") == late
    rows = lines(run("similar", world / "fit", "--item", "i1", "-n", 50, "--where", "genres=War",
                     "--exclude", headed, "--json"))  # fmt: skip
    assert {row["item"] for row in rows} == war - {"i1", "i4"}
    named = run("recommend", world / "fit", "--users", world / "people.csv", "-n", 1, "--json")
    assert [row["user"] for row in lines(named)] == ["u1", "u2"]
    (tmp_path / "titled.csv").write_text("item,title\ni1,Uno\ni2,Due\n")
    shown = run("recommend", world / "bare", "--user", "u1", "--no-exclude-seen", "--items",
                tmp_path / "titled.csv")  # fmt: skip
    assert "Uno" in shown
    assert "Due" in shown
    apart = lines(run("recommend", world / "fit", "--user", "u1", "-n", 4, "--diversify", "0.9",
                      "--json"))  # fmt: skip
    expected = bayesmf.load_model(world / "fit").recommend(["u1"], 4, diversify=0.9)
    assert apart == expected.to_pylist()


def test_ids_that_are_numbers(tmp_path):
    rows = [f"{u},{i},{1 + (u * i) % 5}" for u in range(1, 9) for i in range(10, 16)]
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    (tmp_path / "m.dat").write_text("10::Ten::x\n11::Eleven::y\n")
    run("fit", tmp_path / "r.csv", "--rank", 1, "--sweeps", 4, "--chains", 1, "--quiet", "--items",
        tmp_path / "m.dat", "--out", tmp_path / "f")  # fmt: skip
    (tmp_path / "p.csv").write_text("user,item\n1,10\n2,12\n")
    rows = lines(run("predict", tmp_path / "f", tmp_path / "p.csv", "--json"))
    assert [row["title"] for row in rows] == ["Ten", None]
    rows = lines(run("recommend", tmp_path / "f", "--user", "1", "--no-exclude-seen", "--items",
                     tmp_path / "m.dat", "--json"))  # fmt: skip
    assert {row["title"] for row in rows} == {"Ten", "Eleven"}
    (tmp_path / "few.txt").write_text("11\n12\nx\n")
    rows = lines(run("recommend", tmp_path / "f", "--user", "1", "--no-exclude-seen", "--items",
                     tmp_path / "few.txt", "--json"))  # fmt: skip
    assert {row["item"] for row in rows} == {11, 12}
    (tmp_path / "few.txt").write_text("x\n")
    told = run("recommend", tmp_path / "f", "--items", tmp_path / "few.txt", code=2)
    assert "no id is like the items of this model, such as 10; list some of these" in told
    assert "--item x: the items of this model are numbers" in run(
        "similar", tmp_path / "f", "--item", "x", code=2
    )


def test_attributes_of_new_items_are_known_to_every_command(world, tmp_path):
    fit, films, new = world / "fit", tmp_path / "new-films.csv", tmp_path / "new.csv"
    header, first = (world / "films.csv").read_text().splitlines()[:2]
    films.write_text(f"{header}\n{first.replace('i0', 'i99', 1)}\n")
    new.write_text("who,film,points\nu1,i99,4\nu2,i99,2\n")
    known = ("--item-attributes", films)
    saved = bayesmf.load_model(fit).with_attributes(item=films)
    test = pd.read_csv(new)
    found = json.loads(run("evaluate", fit, new, *known, "--json"))
    assert found["rmse"] == pytest.approx(saved.evaluate(test)["rmse"])
    assert found["rmse"] != pytest.approx(json.loads(run("evaluate", fit, new, "--json"))["rmse"])
    out = tmp_path / "more"
    told = run("update", fit, new, *known, "--side", "both", "--out", out)
    assert "1 new item" in told
    more, same = bayesmf.load_model(out), saved.update(test, "both")
    assert "i99" in more.posterior.model.item_designs[-1].ids.values
    pair = [("u1", "i99")]
    assert more.predict(pair)["mean"][0].as_py() == pytest.approx(
        same.predict(pair)["mean"][0].as_py(), abs=1e-4
    )


def test_mistakes_get_a_sentence(world, tmp_path):
    fit, bare, films = world / "fit", world / "bare", world / "films.csv"
    (tmp_path / "twice.csv").write_text("film,title\ni1,a\ni1,b\n")
    for words, told in (
        (("similar", fit, "--item", "no"), "the item 'no' was not in training; fold it in first"),
        (("similar", fit), "name one of them with --item or --user"),
        (("similar", fit, "--item", "i1", "--user", "u1"), "name one of them with --item or"),
        (("similar", fit, "--user", "u1", "--where", "a=b"), "--where is about items; leave it"),
        (("similar", fit, "--user", "u1", "--items", films), "--items is about items; leave it"),
        (("similar", bare, "--item", "i1", "--where", "genres=War"),
         "fit one with --item-attributes TABLE of `bayesmf fit`"),
        (("recommend", fit, "--where", "genres"), "--where genres is no condition; write COLUMN="),
        (("recommend", fit, "--where", "genres=Wax"), "no item has 'Wax' in 'genres'; what there"),
        (("recommend", fit, "--diversify", "2"), "--diversify 2.0: choose 0 to 1"),
        (("recommend", fit, "--user", "u1", "--users", films), "leave one of them out"),
        (("recommend", fit, "--items", tmp_path / "none.csv"), "none.csv: not a file that can be"),
        (("predict", fit, films, "--items", tmp_path / "twice.csv"), "'i1' has a row already"),
        (("explain", fit, "--user", "no", "--item", "i1"), "the user 'no' was not in training"),
        (("explain", fit, "--item", "i1"), "Missing option '--user'"),
        (("map", fit, "--out", tmp_path / "x.doc"), "cannot tell the format"),
        (("map", fit, "--side", "both"), "is not one of"),
        (("fit", world / "ratings.csv", "--user-col", "who", "--item-col", "film", "--rating-col",
          "points", "--items", tmp_path / "twice.csv"), "line 3: the id 'i1' has a row already"),
    ):  # fmt: skip
        assert told in run(*words, code=2), words


def test_a_model_of_biases_has_no_neighbours(world, tmp_path):
    run("fit", world / "ratings.csv", "--user-col", "who", "--item-col", "film", "--rating-col",
        "points", "--rank", 0, "--user-designs", "none", "--item-designs", "none", "--sweeps", 4,
        "--chains", 1, "--quiet", "--out", tmp_path / "f")  # fmt: skip
    told = run("similar", tmp_path / "f", "--item", "i1", code=2)
    assert "no features by which to compare; fit one with --rank 20 of `bayesmf fit`" in told
