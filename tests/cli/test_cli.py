from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bayesmf import Ratings, load, load_split, write
from bayesmf.cli.main import main
from bayesmf.data.summary import summarise
from oracle.bad_inputs import GOOD


def run(*args: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(a) for a in args], env={"COLUMNS": "100"})
    assert result.exit_code == code, result.output
    return result.output


def test_describe_prints_the_papers_table_for_the_demo_data():
    out = run("data", "describe", "demo")
    facts = summarise(load("demo"))
    for part in ("ratings per", "user", "item", "median", "pairs rated", f"{facts.ratings:,}",
                 f"{facts.per_user.mean:.1f}", "█"):  # fmt: skip
        assert part in out


def test_describe_as_json(tmp_path):
    users, items = [1, 1, 1, 2, 2, 3], [1, 2, 3, 1, 2, 1]
    times = [86400 * k for k in range(6)]
    write(Ratings.from_triplets(users=users, items=items, ratings=[1, 2, 3, 4, 5, 5], times=times),
          tmp_path / "r.csv")  # fmt: skip
    facts = json.loads(run("data", "describe", tmp_path / "r.csv", "--json"))
    assert (facts["ratings"], facts["users"], facts["items"]) == (6, 3, 3)
    assert facts["density"] == pytest.approx(6 / 9)
    assert facts["per_user"] == {
        "min": 1, "q25": 1.5, "median": 2.0, "mean": 2.0, "q75": 2.5, "max": 3,
    }  # fmt: skip
    assert facts["by_user_frequency"] == [
        {"low": 1, "high": 1, "users": 1, "ratings": 1},
        {"low": 2, "high": 3, "users": 2, "ratings": 5},
    ]
    assert facts["times"] == {"first": 0, "last": 5 * 86400}
    assert "1970-01-01 to 1970-01-06" in run("data", "describe", tmp_path / "r.csv")
    (tmp_path / "ms.csv").write_text("1,2,3,1500000000000\n")
    assert "2017-07-14 to 2017-07-14" in run("data", "describe", tmp_path / "ms.csv")
    (tmp_path / "[").mkdir()
    (tmp_path / "[/odd].csv").write_text("1,2,3,9000000000000000000\n")
    assert "9000000000000000000" in run("data", "describe", tmp_path / "[/odd].csv")


def test_list_names_all_data_sets():
    out = run("data", "list")
    for name in ("demo", "ml-100k", "ml-1m", "ml-10m", "ml-25m", "ml-latest-small", "epinions"):
        assert name in out


def test_fetch_finds_what_is_there(tmp_path, monkeypatch):
    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "u.data").write_text("1\t2\t3\t4\n")
    monkeypatch.setenv("BAYESMF_DATA", str(tmp_path))
    assert run("data", "fetch", "ml-100k").strip() == str(tmp_path / "ml-100k" / "u.data")
    assert "nothing to fetch" in run("data", "fetch", "demo")
    assert "no data set 'x'" in run("data", "fetch", "x", code=2)


def test_split_writes_a_folder_that_loads(tmp_path):
    out = run(
        "split", "demo", "--protocol", "paper", "--seed", 0, "--out", tmp_path / "s", "--json"
    )
    facts = json.loads(out)
    made = load_split(tmp_path / "s")
    assert facts == json.loads(json.dumps(made.describe()))
    assert facts["test_users_not_in_train"] == 0


def test_split_by_every_protocol(tmp_path):
    timed = tmp_path / "r.csv"
    n = range(200)
    write(Ratings.from_triplets(users=[k % 9 for k in n], items=[k // 9 for k in n],
                                ratings=[k % 5 for k in n], times=list(n)), timed)  # fmt: skip
    for protocol, more in (("random", []), ("kfold", ["--folds", 3]), ("time", ["--per-user"]),
                           ("cold-start", ["--given", 2, "--user-fraction", 0.4])):  # fmt: skip
        out = run("split", timed, "--protocol", protocol, *more, "--out", tmp_path / protocol)
        assert "test ratings" in out
    assert load_split(tmp_path / "kfold" / "fold-3").options == {"folds": 3, "fold": 3}
    assert (tmp_path / "cold-start" / "given.csv").exists()
    wrong = run("split", timed, "--folds", 3, "--out", tmp_path / "x", code=2)
    assert "--folds has no meaning with --protocol paper" in wrong
    assert not (tmp_path / "x").exists()
    wrong = run("split", timed, "--protocol", "time", "--seed", 3, "--out", tmp_path / "x", code=2)
    assert "--seed has no meaning with --protocol time" in wrong


def test_options_of_reading_reach_the_reader(tmp_path):
    path = tmp_path / "odd.txt"
    path.write_text("who/what/how/when\nann/1/4/x\nbob/2/5/y\nann/1/2/z\n")
    out = run("data", "describe", path, "--separator", "/", "--user-col", "who", "--item-col", 2,
              "--rating-col", "how", "--time-col", "none", "--duplicates", "mean", "--scale", "1:5",
              "--ids", "text", "--header", "--json")  # fmt: skip
    facts = json.loads(out)
    assert (facts["ratings"], facts["mean_rating"]) == (2, 4.0)


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path):
    """In a real process: no traceback, nothing on the output, nothing written."""
    path = tmp_path / "r.csv"
    path.write_bytes(GOOD + b"2,12,good\n")
    command = [sys.executable, "-m", "bayesmf", "split", str(path), "--out", str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"Error: {path}, line 5: the rating 'good' is not a number; write it like 4 or 3.5\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["r.csv"]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    out = run("split", "demo", "--out", tmp_path / "file" / "s", code=2)
    assert "cannot be written" in out


@pytest.mark.parametrize("command", [[], ["data"], ["data", "list"], ["data", "fetch"],
                                     ["data", "describe"], ["split"]])  # fmt: skip
def test_every_command_has_help(command):
    assert "Usage:" in run(*command, "--help")
    assert "--version" in run("--help")
