"""Times on the command line: every remedy that a message names is one that works."""

from __future__ import annotations

import pandas as pd
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf.cli.main import main

SHORT = ["--rank", "1", "--sweeps", "3", "--chains", "1", "--quiet"]
ASKED = "the model has a time chain, but these ratings have no times; give a column of times"


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stderr if code else done.output


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Ratings with times, with a negative one and with none, and a model with a chain."""
    folder = tmp_path_factory.mktemp("times")
    rated = [(user, item) for user in range(8) for item in range(9) if (3 * user + item) % 4]
    frame = pd.DataFrame(rated, columns=["user", "item"])
    frame["rating"] = 1 + (frame["user"] + frame["item"]) % 5
    frame.to_csv(folder / "untimed.csv", index=False)
    frame["when"] = 60 * frame["user"] + frame["item"]
    frame.to_csv(folder / "timed.csv", index=False)
    frame.loc[3, "when"] = -5
    frame.to_csv(folder / "negative.csv", index=False)
    chain = ["--time-col", "when", "--time", "chain", *SHORT]
    run("fit", folder / "timed.csv", *chain, "--out", folder / "chain")
    return folder


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["negative.csv", "--time-col", "when"],
         "the time -5 is before 1970; correct it, leave its row out, or fit without the chain: "
         "--time none"),
        (["negative.csv", "--time-col", "none"], f"{ASKED}, or fit without the chain: --time none"),
        (["untimed.csv"], f"{ASKED}, or fit without the chain: --time none"),
    ],
)  # fmt: skip
def test_a_fit_without_the_chain_needs_no_times(world, words, told):
    words = "fit", world / words[0], *words[1:], *SHORT, "--time"
    assert run(*words, "chain", code=2) == f"Error: {told}\n"
    assert "finished 3 sweeps" in run(*words, "none")


@pytest.mark.parametrize("command", ["fold-in", "update"])
def test_ratings_that_are_added_to_a_chain_need_times(world, command, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("user,item,rating,when\n99,1,4,70\n99,2,5,80\n")
    words = command, world / "chain", new, "--out", tmp_path / "more"
    told = f"Error: {ASKED} with --time-col NAME\n"
    assert run(*words, "--time-col", "none", code=2) == told
    assert "1 new user" in run(*words, "--time-col", "when")
    new.write_text("user,item,rating,when\n99,1,4,-5\n99,2,5,80\n")
    told = "Error: the time -5 is before 1970; correct it, or leave its row out\n"
    assert run(*words, "--overwrite", "--time-col", "when", code=2) == told
    fit = bayesmf.load_model(world / "chain")
    ratings = pd.DataFrame({"user": [99, 99], "item": [1, 2], "rating": [4, 5], "t": [70, 80]})
    add = fit.fold_in if command == "fold-in" else fit.update
    with pytest.raises(bayesmf.DataError, match=f"{ASKED} with time=NAME$"):
        add(ratings)
    assert 99 in add(ratings, time="t").posterior.users.values


def test_a_search_refuses_times_before_its_first_fit(world, tmp_path):
    words = "tune", world / "negative.csv", "--quiet", "--out", tmp_path / "tuned"
    told = "correct it, leave its row out, or ignore times with --time-col none"
    assert told in run(*words, "--time-col", "when", code=2)
    few = "--ranks", "1", "--sweeps", "3", "--fits", "1", "--no-refit", "--time-col", "none"
    assert "written to" in run(*words, *few)


def test_cross_validation_names_its_own_option(world):
    words = "cross-validate", world / "untimed.csv", "--quiet", "--ranks", 1, "--sweeps", 3
    told = run(*words, "--time", "chain", code=2)
    assert told == f"Error: {ASKED}, or fit without the chain: --time none\n"
