"""The commands on a model, given what they should not be given; and what each says of itself."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from test_cli_model import run

import bayesmf
from bayesmf.cli.main import main
from bayesmf.fitted.store import scores as recommending


def commands(group=main, words=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield pytest.param([*words, name], id=" ".join([*words, name]))


@pytest.mark.parametrize("words", list(commands()))
def test_every_command_shows_an_example_of_itself(words):
    told = run(*words, "--help")
    example = next(line for line in told.splitlines() if line.strip().startswith("Example: "))
    assert f"bayesmf {' '.join(words)}" in example


@pytest.fixture
def fit(tiny_fit):
    return tiny_fit


@pytest.fixture
def pairs(tmp_path):
    def put(text: str):
        (tmp_path / "pairs.csv").write_text(text)
        return tmp_path / "pairs.csv"

    return put


def test_models_that_are_none(pairs, tmp_path):
    ok = pairs("user,item\nu1,i1\n")
    told = run("predict", tmp_path / "none", ok, code=2)
    assert told == (
        f"Error: {tmp_path / 'none'}: there is no such file or folder; check the path, or make a "
        "model with `bayesmf fit`\n"
    )
    assert "is not a model that can be read" in run("predict", ok, ok, code=2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("user,item\n", "there is a header but no pair; check the file"),
        ("", "the file is empty; give one pair a line"),
        ("user,item\nu1,i1\n ,i2\n", "pairs.csv, pair 2: the user id is empty; give every pair a"),
        ("user,item\nu1,\n", "pairs.csv, pair 1: the item id is empty; give every pair a"),
        ("user,item\nu1\n", "line 2: 'u1' has 1 fields where the first line has 2"),
    ],
)
def test_pairs_that_are_none(fit, pairs, text, told):
    assert told in run("predict", fit, pairs(text), code=2)


@pytest.mark.parametrize("hole", [None, float("nan")])
def test_holes_in_parquet(fit, tmp_path, hole):
    table = pa.table({"user": ["u1", "u2"], "item": pa.array([hole, 2.0], pa.float64())})
    parquet.write_table(table, tmp_path / "p.parquet")
    told = run("predict", fit, tmp_path / "p.parquet", code=2)
    assert "p.parquet, pair 1: the item id is empty" in told


def test_threads_that_the_machine_has_not(fit, pairs):
    ok = pairs("user,item\nu1,i1\n")
    for number in (0, 999):
        assert f"threads={number}: choose 1" in run("predict", fit, ok, "--threads", number,
                                                       code=2)  # fmt: skip
    with pytest.raises(bayesmf.DataError, match="threads=999"):
        bayesmf.load_model(fit, threads=999)


def test_options_that_contradict_each_other(fit, pairs):
    ok = pairs("user,item\nu1,i1\n")
    assert "--clip has no meaning with --probabilities" in run(
        "predict", fit, ok, "--clip", "--probabilities", code=2
    )
    assert "--quantiles has no meaning with --probabilities" in run(
        "predict", fit, ok, "--quantiles", "0.5", "--probabilities", code=2
    )
    for wrong in ("5", "0.1,", "0.5,x", "nan"):
        assert f"--quantiles '{wrong}': write numbers between 0 and 1, as in" in run(
            "predict", fit, ok, "--quantiles", wrong, code=2
        )
    for flag, value in (("--relevant", 3), ("--rank-by", "lower"), ("--seed", 1)):
        assert f"{flag} is about lists; say how long they are with --top" in run(
            "evaluate", fit, ok, flag, value, code=2
        )
    assert "--seen has no meaning with --no-exclude-seen" in run(
        "recommend", fit, "--seen", ok, "--no-exclude-seen", code=2
    )


def test_a_place_is_checked_before_the_work(fit, pairs, tmp_path, monkeypatch):
    """An earlier file is kept, unless it may be replaced."""
    ok = pairs("user,item\nu1,i1\n")
    monkeypatch.setattr("bayesmf.fitted.base.load_model", lambda *_: pytest.fail("began"))
    (tmp_path / "file.csv").write_text("mine")
    for words in (["predict", fit, ok], ["recommend", fit]):
        for name, told in (("file.csv", "exists already; choose another name, or allow --over"),
                           ("file.csv/x.csv", "a part of this path is a file"),
                           ("x.doc", "cannot tell the format")):  # fmt: skip
            assert told in run(*words, "--out", tmp_path / name, code=2)
    for name in ("fit", "model.zip"):
        (tmp_path / name).mkdir() if name == "fit" else (tmp_path / name).write_text("mine")
    (tmp_path / "fit" / "mine").write_text("mine")
    for name in ("fit", "model.zip"):
        assert "exists already" in run("fold-in", fit, ok, "--out", tmp_path / name, code=2)
    assert (tmp_path / "file.csv").read_text() == "mine"
    monkeypatch.undo()
    done = run("predict", fit, ok, "--out", tmp_path / "file.csv", "--overwrite", "--json")
    assert json.loads(done) == {"rows": 1, "out": str(tmp_path / "file.csv")}
    assert (tmp_path / "file.csv").read_text().startswith('"user"')


def test_recommendations_for_all_that_are_stopped_leave_nothing(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(recommending, "CELLS", 350)  # a few users at a time
    seen = []

    def watch(done, total):
        seen.append((done, total))
        if done > 20:
            raise KeyboardInterrupt

    users = len(bayesmf.load_model(fit).posterior.users)
    bayesmf.load_model(fit).recommend(n=2, progress=lambda *told: seen.append(told))
    few = seen[0][0]
    assert few < 20
    assert seen[:2] == [(few, users), (2 * few, users)]
    assert seen[-1] == (users, users)
    monkeypatch.setattr("bayesmf.cli.use.advance", lambda bar, task: watch)
    before = sorted(os.listdir(tmp_path))
    done = CliRunner().invoke(main, ["recommend", str(fit), "--out", str(tmp_path / "all.csv")])
    assert (done.exit_code, done.stderr) == (130, "Stopped.\n")
    assert sorted(os.listdir(tmp_path)) == before


def test_more_items_than_there_are(fit, tmp_path):
    run(
        "recommend",
        fit,
        "--user",
        "u1",
        "-n",
        999,
        "--no-exclude-seen",
        "--out",
        tmp_path / "r.csv",
    )
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert len(rows) == len({row["item"] for row in rows}) == 50


def test_what_became_of_folded_ratings(fit, tmp_path):
    (tmp_path / "new.csv").write_text("user,item,rating\nzoe,i1,5\nzoe,odd,1\nu1,i2,1\n")
    words = ["fold-in", fit, tmp_path / "new.csv", "--replace-known", "--out"]
    told = run(*words, tmp_path / "a")
    assert told == (
        "1 new user, 1 replaced; 1 ratings of items that the model does not know were left out; "
        f"written to {tmp_path / 'a'}\n"
    )
    assert json.loads(run(*words, tmp_path / "b", "--json")) == {
        "new": 1, "replaced": 1, "left_out": 1, "out": str(tmp_path / "b"),
    }  # fmt: skip


def test_bins_without_ratings(fit, tmp_path):
    (tmp_path / "t.csv").write_text("user,item,rating\nu1,i1,5\nu2,i3,1\n")
    out = run("evaluate", fit, tmp_path / "t.csv", "--bins", "1,500,900")
    rows = [line.split() for line in out.splitlines() if line.strip()]
    assert ["<=1", "0", *["-"] * 7] in rows
    assert ["901+", "0", *["-"] * 7] in rows
    assert "…" not in out
    facts = json.loads(run("evaluate", fit, tmp_path / "t.csv", "--bins", "1,500,900", "--json"))
    first = facts["by_user_frequency"][0]
    assert (first["test_ratings"], first["rmse"]) == (0, None)
    assert "write rising whole numbers" in run("evaluate", fit, tmp_path / "t.csv", "--bins", "9,1",
                                               code=2)  # fmt: skip
    (tmp_path / "t.csv").write_text("user,item,rating\nu1,i1,5\n")
    assert run("evaluate", fit, tmp_path / "t.csv").count("all") == 1


def test_a_model_without_chains_has_nothing_to_diagnose(tiny_ratings, tmp_path):
    run("fit", tiny_ratings, "--inference", "map", "--penalty", 10, "--rank", 2, "--sweeps", 2,
        "--out", tmp_path / "fit", "--quiet")  # fmt: skip
    assert "no chains" in run("diagnose", tmp_path / "fit")


def test_the_list_of_data_sets_for_machines():
    rows = [json.loads(line) for line in run("data", "list", "--json").splitlines()]
    assert [row["name"] for row in rows][:2] == ["demo", "ml-100k"]
    assert set(rows[0]) == {"name", "what", "here", "terms"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["data", "list"], ["data", "describe", "demo", "--json"]])
def test_an_output_that_is_full_or_closed_is_no_traceback(words):
    command = " ".join([sys.executable, "-m", "bayesmf", *words])
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    assert full.returncode == 2
    assert full.stderr == "Error: the output cannot be written (No space left on device)\n"
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_ids_that_are_lists_are_refused_in_a_sentence(fit, tmp_path):
    table = pa.table({"user": [[1], [2]], "item": [1, 2], "rating": [1.0, 2.0]})
    parquet.write_table(table, tmp_path / "l.parquet")
    for words in (["predict", fit], ["evaluate", fit]):
        out = run(*words, tmp_path / "l.parquet", code=2)
        assert "the user ids are of type list" in out
