"""Files that are read for a model have ids of the model's kind, without being told."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from test_cli_model import run

import bayesmf

USERS = [f"{number:03d}" for number in (1, 2, 7, 45, 100, 200, 300)]
PAIRS = [(user, item) for user in USERS for item in range(10, 18) if (int(user) + item) % 7]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A model whose users are text that looks like numbers, and whose items are numbers."""
    folder = tmp_path_factory.mktemp("odd")
    lines = [f"{user},{item},{1 + (int(user) * item) % 5}" for user, item in PAIRS]
    (folder / "r.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    run("fit", folder / "r.csv", "--rank", 2, "--sweeps", 30, "--out", folder / "fit", "--quiet")
    return folder


def test_text_that_looks_like_numbers(odd, tmp_path):
    fit = bayesmf.load_model(odd / "fit")
    assert (fit.posterior.users.kind, fit.posterior.items.kind) == ("text", "integer")
    some = tmp_path / "some.csv"  # of which every user, taken alone, is a number
    some.write_text("user,item,rating\n100,10,4\n200,11,2\n")
    table = fit.predict([("100", 10), ("200", 11)])
    facts = json.loads(run("evaluate", odd / "fit", some, "--json"))
    errors = [table["mean"][0].as_py() - 4, table["mean"][1].as_py() - 2]
    assert facts["rmse"] == pytest.approx((sum(e**2 for e in errors) / 2) ** 0.5)
    rows = run("predict", odd / "fit", some, "--json").splitlines()
    assert [json.loads(row)["known"] for row in rows] == ["warm", "warm"]
    assert "score" in run("recommend", odd / "fit", "--user", "100", "--seen", some, "-n", 1)
    some.write_text("user,item,rating\n400,10,4\n500,11,2\n")
    assert "2 new users" in run("fold-in", odd / "fit", some, "--out", tmp_path / "more")
    assert list(bayesmf.load_model(tmp_path / "more").posterior.users)[-2:] == ["400", "500"]
    some.write_text("user,item,rating\n100,98,4\n200,99,2\n")
    out = run("fold-in", odd / "fit", some, "--side", "item", "--out", tmp_path / "items")
    assert "2 new items" in out


def test_numbers_in_parquet_are_read_as_text_for_a_model_of_text(odd, tmp_path):
    table = pa.table({"user": [100, 200], "item": [10, 11], "rating": [4.0, 2.0]})
    parquet.write_table(table, tmp_path / "some.parquet")
    (tmp_path / "some.csv").write_text("user,item,rating\n100,10,4\n200,11,2\n")
    facts = [run("evaluate", odd / "fit", tmp_path / f"some.{ending}", "--json")
             for ending in ("csv", "parquet")]  # fmt: skip
    assert facts[0] == facts[1]
    assert list(bayesmf.load(tmp_path / "some.parquet", ids="text").users) == ["100", "200"]
    assert list(bayesmf.load(tmp_path / "some.csv", ids=("text", "auto")).users) == ["100", "200"]
    assert list(bayesmf.load(tmp_path / "some.csv", ids=("text", "auto")).items) == [10, 11]
    with pytest.raises(bayesmf.DataError, match="say 'auto' or 'text'"):
        bayesmf.load(tmp_path / "some.csv", ids=("text", "number"))


def test_the_user_to_recommend_to(odd, tmp_path):
    one = run("recommend", odd / "fit", "--user", "007", "-n", 1, "--json")
    assert [json.loads(line)["user"] for line in one.splitlines()] == ["007"]
    asked = bayesmf.load_model(odd / "fit").recommend(["007"], 1)
    assert [json.loads(line)["item"] for line in one.splitlines()] == asked["item"].to_pylist()
    out = run("recommend", odd / "fit", "--user", "7", "-n", 1, "--no-exclude-seen")
    assert "'7' was not in training" in out


def test_other_kinds_are_refused_in_a_sentence(odd, tmp_path):
    (tmp_path / "x.csv").write_text("user,item,rating\n007,ten,3\n")
    out = run("evaluate", odd / "fit", tmp_path / "x.csv", code=2)
    assert "the item ids are integers here but text in the question (such as 'ten')" in out
    (tmp_path / "n.csv").write_text("who,what,stars_given\n007,10,3\n")
    for words in (["evaluate", odd / "fit", tmp_path / "n.csv"],
                  ["fold-in", odd / "fit", tmp_path / "n.csv", "--replace-known", "--out",
                   tmp_path / "more"],
                  ["recommend", odd / "fit", "--user", "007", "--seen", tmp_path / "n.csv"],
                  ["predict", odd / "fit", tmp_path / "n.csv"]):  # fmt: skip
        assert "name it with --user-col" in run(*words, code=2)
        columns = ["--user-col", "who", "--item-col", "what", "--rating-col", "stars_given"]
        run(*words, *(columns[:4] if words[0] == "predict" else columns))


ODD_IDS = ["[/b]", "[rec]", ":smile:", "[link=x]y[/link]", "a\\[b]"]


def test_ids_are_printed_as_they_are(tiny_fit, tmp_path):
    """They are no markup of the terminal."""
    lines = "".join(f"{one},{one}\n" for one in ODD_IDS)
    (tmp_path / "p.csv").write_text("user,item\n" + lines)
    out = run("predict", tiny_fit, tmp_path / "p.csv")
    for one in ODD_IDS:
        assert out.count(one) == 2
        assert f"user {one!r} was not" in run("recommend", tiny_fit, "--user", one, "-n", 1)


def test_control_characters_are_visible(tiny_fit, tmp_path):
    """In tables and in messages: no id moves the cursor, or hides what follows it."""
    odd = "a\x1b[31mb\x9bc\u202ed\te"
    shown = "a\\x1b[31mb\\x9bc\\u202ed\\te"
    (tmp_path / "p.csv").write_text(f'user,item\n"{odd}",i1\n')
    assert shown in run("predict", tiny_fit, tmp_path / "p.csv")
    missing = run("predict", tiny_fit, tmp_path / odd, code=2)
    assert shown in missing
    assert odd not in missing


def test_a_message_about_a_long_value_stays_readable(tiny_fit, tmp_path):
    line = f"u1,{'x' * 60_000},4\n"
    (tmp_path / "r.csv").write_text(f"user,item,rating\n{line}{line}")
    out = run("evaluate", tiny_fit, tmp_path / "r.csv", code=2)
    assert "r.csv, line 3" in out
    assert "--duplicates" in out
    assert len(out) < 1500
