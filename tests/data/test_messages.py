"""Messages speak in the words of the interface: arguments in Python, flags of the command."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import DataError, Ratings, load, shard, split
from bayesmf.cli.main import main
from bayesmf.cli.shared.options import Cli
from bayesmf.data.columns import recognise
from bayesmf.data.io.atomic import check_folder
from bayesmf.data.io.load import refuse_reading_options
from bayesmf.errors import Option, clause

SPARSE = "user,item,rating\n" + "".join(f"{k},{k},{1 + k % 5}\n" for k in range(20))


@click.group(cls=Cli)
def tool() -> None:
    pass


@tool.command()
@click.option("--time-col", "time")
@click.option("--header/--no-header", default=None)
@click.option("--overwrite", is_flag=True)
@click.option("-n", "--count")
@click.argument("message")
def rich(message: str, **_: object) -> None:
    raise DataError(message)


@tool.command()
@click.argument("message")
def poor(message: str) -> None:
    raise DataError(message)


def told(command: str, message: str) -> str:
    done = CliRunner().invoke(tool, [command, message])
    assert done.exit_code == 2
    return done.stderr.removeprefix("Error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("option", "in_python", "as_flag"),
    [
        (Option("time", "none"), "time='none'", "--time-col none"),
        (Option("time", "NAME"), "time=NAME", "--time-col NAME"),
        (Option("time"), "time=", "--time-col"),
        (Option("time", "NAME", "load"), "time=NAME of load", "--time-col NAME"),
        (Option("overwrite", True), "overwrite=True", "--overwrite"),
        (Option("header", True), "header=True", "--header"),
        (Option("header", False), "header=False", "--no-header"),
        (Option("count", 1.5), "count=1.5", "--count 1.5"),
    ],
)
def test_an_option_is_spelled_as_the_reader_would_type_it(option, in_python, as_flag):
    message = f"wrong; mend it with {option}, now"
    assert str(DataError(message)) == f"wrong; mend it with {in_python}, now"
    assert told("rich", message) == f"wrong; mend it with {as_flag}, now"
    assert told("poor", message) == f"wrong; mend it with {as_flag} of `bayesmf rich`, now"


def test_what_no_command_has_is_said_in_python():
    assert told("rich", f"wrong; use {Option('nothing', 1)}") == "wrong; use nothing=1 in Python"


def test_a_clause_about_an_option_that_is_not_at_hand_is_left_out():
    message = "wrong; mend it" + clause(f", or say {Option('overwrite', True)}") + ", please"
    assert str(DataError(message)) == "wrong; mend it, or say overwrite=True, please"
    assert told("rich", message) == "wrong; mend it, or say --overwrite, please"
    assert told("poor", message) == "wrong; mend it, please"


@pytest.mark.parametrize(
    "quoted",
    ["1", "", "[]", "{}", '["a"]', '[1, 2, ""]', '["a", null, "", 4]', '[["a"], null, ""]',
     "[" * 5000, "x\x0f\x0e"],
)  # fmt: skip
def test_what_a_message_quotes_is_no_option(quoted):
    """A file may hold the characters that stand around options, and around clauses."""
    told = str(DataError(f"the rating \x02{quoted}\x03 is no number"))
    assert "the rating" in told
    assert "is no number" in told
    assert told.isprintable()
    assert str(DataError(f"{clause(chr(2) + quoted + chr(3))}; choose {Option('n', 3)}")).endswith(
        "; choose n=3"
    )


def test_an_error_that_travels_keeps_its_words():
    error = DataError(f"line\nend; see {Option('time', 'none')}")
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == str(error) == "line end; see time='none'"
    assert repr(back) == repr(error)
    assert back.message == error.message
    assert told("rich", f"again: {back.message}") == "again: line end; see --time-col none"


def test_the_words_of_the_split(tmp_path):
    """In ``fit``, which cannot lower it, the remedy is an option of another command."""
    (tmp_path / "r.csv").write_text(SPARSE)
    with pytest.raises(DataError, match="no item has 3 ratings, .*; lower min_item_ratings=, or"):
        split(load(tmp_path / "r.csv"))

    def run(*words: object) -> str:
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 2, done.output
        return done.stderr

    cut = run("split", tmp_path / "r.csv", "--out", tmp_path / "s")
    assert "lower --min-item-ratings, or" in cut
    fit = next(command for name, command in main.commands.items() if name == "fit")
    fitted = run("fit", tmp_path / "r.csv", "--holdout", "paper")
    if "min_item_ratings" in {parameter.name for parameter in fit.params}:
        assert "lower --min-item-ratings, or" in fitted
    else:
        assert "lower --min-item-ratings of `bayesmf split`, or" in fitted
    half = run("split", tmp_path / "r.csv", "--test-fraction", 2, "--out", tmp_path / "s")
    assert "--test-fraction 2.0: choose a fraction between 0 and 1" in half


def test_a_column_is_named_only_where_it_can_be(tmp_path):
    frame = pd.DataFrame({"who": [1], "item": [1], "rating": [3]})
    with pytest.raises(DataError, match="name it with user=NAME of Ratings.from_frame$"):
        Ratings.from_frame(frame)
    (tmp_path / "r.csv").write_text("who,item,rating\n1,1,3\n")
    with pytest.raises(DataError, match="name it with user=NAME$"):
        load(tmp_path / "r.csv")
    (tmp_path / "r.csv").write_text("1,1,3\n")
    with pytest.raises(DataError, match="no column for the rating among '1', .* rating=NAME$"):
        load(tmp_path / "r.csv", user=3)
    with pytest.raises(DataError, match="no column for the user among 'who'; call the column"):
        recognise(["who"], {}, "the frame", ("user",))
    with pytest.raises(DataError, match="'user' and 'uid' could both be the user; rename one"):
        recognise(["user", "uid"], {}, "the frame", ("user",))


def test_remedies_are_those_of_the_function(tmp_path):
    pairs = {"users": [1, 1], "items": [1, 1], "ratings": [1, 2]}
    with pytest.raises(DataError, match="with duplicates='last', or their mean with dupl.*'mean'$"):
        Ratings.from_triplets(**pairs)
    frame = pd.DataFrame({"user": [1, 1], "item": [1, 1], "rating": [1, 2], "time": ["x", "y"]})
    with pytest.raises(DataError, match="or ignore times with time='none' of Ratings.from_frame$"):
        Ratings.from_frame(frame)
    with pytest.raises(DataError, match="'last' of Ratings.from_frame, or their mean with"):
        Ratings.from_frame(frame, time="none")
    with pytest.raises(DataError, match="correct it, or leave times= out$"):
        Ratings.from_triplets(**pairs, times=["x", "y"])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    with pytest.raises(DataError, match="exists already; choose another name, or allow overwrite="):
        check_folder(tmp_path / "there")
    ratings = Ratings.from_triplets(users=[1], items=[1], ratings=[1])
    with pytest.raises(DataError, match="exists already; choose another folder$"):
        shard(ratings, tmp_path / "there")


def test_reading_options_where_nothing_is_read(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="the ratings file of ml-1m is known; leave out member=$"):
        load("ml-1m", member="ml-1m/users.dat")
    shard(load("demo"), tmp_path / "shards", blocks=1)
    with pytest.raises(DataError, match="shards is a folder of shards, which can only be fitted"):
        load(tmp_path / "shards", user="who")
    reading = {"user": None, "header": False, "ids": "auto", "duplicates": "error", "scale": "1:5"}
    with pytest.raises(DataError, match="^S holds shards; leave out header=False and scale=$"):
        refuse_reading_options("S holds shards", reading)
    refuse_reading_options("S holds shards", {"user": None, "ids": "auto", "duplicates": "error"})
    done = CliRunner().invoke(main, ["data", "describe", "demo", "--user-col", "x", "--no-header"])
    assert done.stderr == (
        "Error: demo is generated, not read; leave out --user-col and --no-header\n"
    )


def test_no_message_of_this_room_spells_a_flag():
    """A flag in a message would be read in Python, too, where there is none."""
    room = Path(bayesmf.__file__).parent / "data"
    for path in room.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"(?<![\w-])--[a-z]", node.value), (path.name, node.value)
