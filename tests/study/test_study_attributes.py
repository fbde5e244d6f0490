"""Attributes in a study: one more model for newcomers, and a part of what the study is."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import Attributes, DataError, Gibbs
from bayesmf.cli.main import main
from bayesmf.model.attributes import with_attributes
from bayesmf.study.cold_start import ColdStart
from bayesmf.study.results import Results
from bayesmf.study.runner import Study
from bayesmf.study.specs import EXPERIMENTS, NEW, Lengths, runs_of

LENGTHS = Lengths.of("", quick=True, rank=2)


@pytest.fixture(scope="module")
def tables(tiny_attributes):
    paths = {"user": tiny_attributes[1], "item": tiny_attributes[5]}
    return {s: Attributes.load(path, kinds={"title": "none"}) for s, path in paths.items()}


def designs(run) -> dict[str, list]:
    """The attributes in the model of a run, by side."""
    of_sides = {"user": run.model.user_designs, "item": run.model.item_designs}
    found = {s: [d for d in of if isinstance(d, Attributes)] for s, of in of_sides.items()}
    return {s: some for s, some in found.items() if some}


def test_one_model_has_the_attributes_and_all_others_are_as_without(tables):
    without = {run.name: run for run in runs_of(tuple(EXPERIMENTS), LENGTHS)}
    found = {run.name: run for run in runs_of(tuple(EXPERIMENTS), LENGTHS, tables)}
    names = [f"cold-start-{new}-default-attributes" for new in NEW]
    more = [found.pop(name) for name in names]
    assert found == without
    assert not any(designs(run) for run in found.values())
    for run, new in zip(more, NEW, strict=True):
        assert designs(run) == {s: [table] for s, table in tables.items()}
        assert run.new == new
        assert run.model.user_designs[:-1] == bayesmf.Model(rank=2).user_designs
        assert run.settings == found[f"cold-start-{new}-default"].settings


@pytest.mark.parametrize("side", NEW)
def test_of_one_side_they_are_known_to_new_users_and_to_new_items(side, tables):
    study = Study("demo", Path("nowhere"), **{f"{side}_attributes": tables[side]})
    found = {run.name: run for _, run in study.tasks()}
    for new in NEW:
        assert designs(found[f"cold-start-{new}-default-attributes"]) == {side: [tables[side]]}


def test_a_frame_or_a_path_will_do_in_python(tables, tiny_attributes):
    frame = tables["user"].table
    study = Study("demo", Path("nowhere"), user_attributes=frame)
    assert study.tables == {"user": Attributes.from_frame(frame)}
    with pytest.raises(DataError, match="column 'title' has 50 values in 50 rows, like a name"):
        Study("demo", Path("nowhere"), item_attributes=tiny_attributes[5]).tasks()


@pytest.mark.parametrize("new", NEW)
def test_it_says_of_newcomers_what_evaluate_says(new, attributes_study, tables, tiny_ratings):
    model = with_attributes(bayesmf.Model(rank=2), tables["user"], tables["item"])
    held = ColdStart.hold_out(bayesmf.load(tiny_ratings), 0, new)
    settings = {"sweeps": LENGTHS.cold, "burn_in": LENGTHS.burn_in, "keep": LENGTHS.keep}
    fit = Gibbs(model, seed=0, chains=1, until="sweeps", **settings).fit(held.train)
    by_given = Results(attributes_study)[0, f"cold-start-{new}-default-attributes"]["by_given"]
    for given in (0, 5):
        folded = fit.fold_in(held.known(given), new) if given else fit
        facts = folded.evaluate(held.asked(given))
        for key in ("rmse", "log_score", "coverage_80"):  # as float32 and in another order
            assert by_given[str(given)][key] == pytest.approx(facts[key], rel=1e-6)


@pytest.mark.parametrize("new", NEW)
def test_newcomers_are_known_by_their_attributes_with_and_without_ratings(new, attributes_study):
    """The attributes say all but the noise of 0.7 and rounding; without them the error is 1.05."""
    read = Results(attributes_study)
    plain, known = (
        read[0, f"cold-start-{new}-default{more}"]["by_given"] for more in ("", "-attributes")
    )
    for given in ("0", "1", "2"):
        assert known[given]["rmse"] < 0.85 * plain[given]["rmse"], given


def digests(folder: Path) -> dict[str, str]:
    """Every file but the lock, the times, and the report, which has the times in it."""
    files = [p for p in folder.rglob("*") if p.name in ("study.json", "result.json", "arrays.npz")]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "bayesmf", *map(str, words)], check=True,
                          capture_output=True, text=True)  # fmt: skip


def test_what_is_missing_is_done_again_with_the_same_bytes(
    attributes_study, tiny_ratings, tiny_attributes, tmp_path
):
    """In worker processes, two at a time."""
    copy = tmp_path / "copy"
    shutil.copytree(attributes_study, copy)
    for new in NEW:
        shutil.rmtree(copy / "split-0" / f"cold-start-{new}-default-attributes")
    words = ("study", tiny_ratings, "--quick", "--rank", 2, "--only", "cold-start", "--workers", 2)
    run(*words, *tiny_attributes, "--resume", "--out", copy)
    assert digests(copy) == digests(attributes_study)


def test_the_command_in_a_result_makes_it_again(attributes_study, tmp_path):
    name = "cold-start-item-default-attributes"
    words = Results(attributes_study)[0, name]["command"].split()
    run(*words[1:], "--out", tmp_path / "out")
    again, before = digests(tmp_path / "out"), digests(attributes_study)
    assert again["study.json"] == before["study.json"]
    for file in ("result.json", "arrays.npz"):
        assert again[f"split-0/{name}/{file}"] == before[f"split-0/{name}/{file}"]


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def refuse(folder: Path, *words: object) -> str:
    """The sentence with which a study is refused; what the folder holds stays as it is."""
    before = contents(folder)
    done = CliRunner().invoke(main, [*map(str, words), "--out", str(folder)])
    assert done.exit_code == 2, done.output
    assert contents(folder) == before
    return done.stderr


def test_other_attributes_are_refused(attributes_study, tiny_ratings, tiny_attributes, tmp_path):
    plain = tmp_path / "plain"
    facts = Results(attributes_study).study
    Results(plain).begin({key: value for key, value in facts.items() if key != "attributes"})
    words = ("study", tiny_ratings, "--quick", "--rank", 2, "--resume")
    end = ", or choose another folder\n"
    assert refuse(attributes_study, *words) == (
        f"Error: {attributes_study} holds a study with attributes of users; add --user-attributes "
        f"FILE{end}"
    )
    assert refuse(attributes_study, *words, *tiny_attributes[:4]) == (
        f"Error: {attributes_study} holds a study with attributes of items; add --item-attributes "
        f"FILE{end}"
    )
    assert refuse(plain, *words, *tiny_attributes[:4]) == (
        f"Error: {plain} holds a study without attributes of users; leave --user-attributes "
        f"out{end}"
    )
    others = tmp_path / "items.csv"
    others.write_text(Path(tiny_attributes[5]).read_text().replace(".", ".1", 1))  # one value
    changed = [*tiny_attributes[:5], others, *tiny_attributes[6:]]
    assert refuse(attributes_study, *words, *changed) == (
        f"Error: {attributes_study} holds a study with other attributes of items; give the table "
        f"of that study as --item-attributes{end}"
    )


def test_mistakes_are_told_before_anything_is_written(tiny_ratings, tmp_path):
    words = ("study", tiny_ratings, "--quick")
    assert "--item-kinds is about a table" in refuse(tmp_path, *words, "--item-kinds", "a:none")
    table = tmp_path / "strangers.csv"
    table.write_text("user,age\nx1,1\nx2,2\n")
    told = refuse(tmp_path / "out", *words, "--user-attributes", table)
    assert told.startswith("Error: none of the 120 users has a row in the user attributes")


def test_who_has_no_row_is_told_once(tiny_ratings, tiny_attributes, tmp_path):
    table = tmp_path / "users.csv"
    table.write_text("\n".join(Path(tiny_attributes[1]).read_text().splitlines()[:100]))
    words = ("--user-attributes", table, *tiny_attributes[2:4], "--out", tmp_path / "out")
    only = ",".join(f"cold-start-{new}-default-attributes" for new in NEW)
    done = run("study", tiny_ratings, "--quick", "--rank", 2, "--only", only, *words)
    told = " ".join(done.stderr.split())
    assert told.count("Warning") == 1
    assert "Warning: 21 of 120 users have no row in the user attributes, such as" in told
    assert np.isfinite(Results(tmp_path / "out")[0, only.split(",")[0]]["by_given"]["0"]["rmse"])
