"""The study: runs shared and ordered, results that a kill does not change, users' mistakes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import MAP, DataError, Gibbs, Variational
from bayesmf.choices import FEATURES, PRECISIONS
from bayesmf.cli.main import main
from bayesmf.data.io.atomic import locked
from bayesmf.data.split import cold_start
from bayesmf.study.cold_start import FEWEST, ColdStart
from bayesmf.study.results import Results
from bayesmf.study.runner import Study
from bayesmf.study.specs import COLD, EXPERIMENTS, GIVEN, NEW, Lengths, runs_of

LENGTHS = Lengths.of("", quick=True, rank=2)


def test_a_name_means_one_run_wherever_it_appears():
    found = {}
    for make in EXPERIMENTS.values():
        for run in make(LENGTHS):
            assert found.setdefault(run.name, run) == run
            if run.name.startswith("vi-validation"):
                assert run.start.startswith("start-validation")  # it has not seen what is held out


def test_every_run_once_and_after_what_it_needs():
    runs = runs_of(tuple(EXPERIMENTS), LENGTHS)
    names = [run.name for run in runs]
    assert len(set(names)) == len(names)
    for place, run in enumerate(runs):
        assert set(run.needs) <= set(names[:place])
        assert run.cost > 0


def test_table_2_has_every_cell():
    names = {run.name for run in runs_of(("table-2",), LENGTHS)}
    for features in FEATURES:
        for precision in PRECISIONS:
            for kind in ("gibbs", "vi", "map"):
                assert f"{kind}-{features}-{precision}" in names


def test_other_splits_have_the_tables_only():
    study = Study("demo", Path("nowhere"), quick=True, splits=2)
    names = [{run.name for k, run in study.tasks() if k == split} for split in (0, 1)]
    assert names[1] < names[0]
    assert "gibbs-side-only-truncated" in names[1]
    assert "vi-printed-no-side-robust" not in names[1]
    asked = Study("demo", Path("nowhere"), quick=True, splits=2, only=("gibbs-side-robust",))
    assert [(k, run.name) for k, run in asked.tasks()] == [(0, "gibbs-side-robust"),
                                                           (1, "gibbs-side-robust")]  # fmt: skip


def parts(path: Path, seed: int = 0):
    return bayesmf.split(bayesmf.load(path), "paper", seed)


def rmse(folder: Path, name: str, split: int = 0) -> float:
    return Results(folder)[split, name]["rmse"]


ROUNDING = 1e-6  # relative: a fit keeps its draws as float32, a study averages float64


def test_one_test_error_under_gibbs(tiny_study, tiny_ratings):
    """What a study writes is what ``evaluate`` says of a fit that keeps every draw."""
    runs = {run.name: run for run in runs_of(tuple(EXPERIMENTS), LENGTHS)}
    for split in (0, 1):
        train, test = parts(tiny_ratings, split)
        for name in ("gibbs-side-robust", "gibbs-both-sides-constant"):
            run, result = runs[name], Results(tiny_study)[split, name]
            every = run.settings["sweeps"] - run.settings["burn_in"]
            fit = Gibbs(run.model, seed=split, keep=every, chains=1, **run.settings).fit(train)
            facts = fit.evaluate(test, result_bins(tiny_study))
            assert result["rmse"] == pytest.approx(facts["rmse"], rel=ROUNDING)
            for key in ("mae", "log_score", "crps"):
                assert result[key] == pytest.approx(facts[key], rel=10 * ROUNDING)
            for key in ("coverage_50", "coverage_80", "coverage_95"):
                assert result[key] == pytest.approx(facts[key], abs=2 / len(test))
            rows = [row["rmse"] for row in facts["by_user_frequency"] if row["test_ratings"]]
            by_bin = [error for error in result["by_bin"]["rmse"] if error is not None]
            assert by_bin == pytest.approx(rows, rel=ROUNDING)


def result_bins(folder: Path) -> list[int]:
    return Results(folder).study["bins"]


def test_one_test_error_under_map_and_vi(tiny_study, tiny_ratings):
    """What a study writes is the ``test_rmse`` of a fit, which is what ``evaluate`` says."""
    runs = {run.name: run for run in runs_of(tuple(EXPERIMENTS), LENGTHS)}
    train, test = parts(tiny_ratings)
    run = runs["map-side-constant"]
    fit = MAP(run.model, seed=0, **run.settings).fit(train, test)
    assert rmse(tiny_study, run.name) == pytest.approx(fit.test_rmse, rel=ROUNDING)
    assert rmse(tiny_study, run.name) == pytest.approx(fit.evaluate(test)["rmse"], rel=ROUNDING)
    run = runs["vi-no-side-constant"]
    start = Results(tiny_study).state(0, "start-no-side")
    fit = Variational(run.model, seed=0, **run.settings).fit(train, test, start=start)
    assert rmse(tiny_study, run.name) == pytest.approx(fit.test_rmse, rel=ROUNDING)
    assert rmse(tiny_study, run.name) == pytest.approx(fit.evaluate(test)["rmse"], rel=ROUNDING)
    assert Results(tiny_study)[0, run.name]["least"] == min(fit.trace["test rmse"])


def test_results_have_snake_case_keys(tiny_study):
    for path in tiny_study.rglob("*.json"):
        if path.parent.parent.name == "split-0" or path.name == "study.json":
            for key in keys(json.loads(path.read_text())):
                assert re.fullmatch(r"\w+", key), (path, key)
    for path in tiny_study.rglob("arrays.npz"):
        with np.load(path) as arrays:
            assert all(re.fullmatch(r"[\w.]+", name) for name in arrays.files), path


def keys(facts):
    """Every key of an object and of the objects in it."""
    inside = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ()
    return [*(facts if isinstance(facts, dict) else ()), *(k for one in inside for k in keys(one))]


def test_results_of_another_version_are_refused(tmp_path):
    (tmp_path / "study.json").write_text('{"format": 1}')
    with pytest.raises(DataError, match="written by another version of bayesmf; run the study ag"):
        Results.open(tmp_path)


def test_damaged_results_of_a_run_are_one_sentence(tmp_path):
    results = Results(tmp_path)
    results.write(0, "run", {"rmse": 1.0}, {"curve": np.arange(500.0)})
    place = results.place(0, "run")
    whole = (place / "arrays.npz").read_bytes()
    for damaged in (b"", whole[:-30], whole[:200] + b"?" + whole[201:]):
        (place / "arrays.npz").write_bytes(damaged)
        for read in (lambda: results[0, "run"].array("curve"), lambda: results.state(0, "run")):
            with pytest.raises(DataError, match="cannot be read .* delete it and run the study"):
                read()
    (place / "result.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read .* delete it and run the study"):
        results[0, "run"]


def test_the_paper_s_third_stage_changes_precisions_alone(tiny_study):
    results = Results(tiny_study)
    facts = [results[0, f"map-side-{precision}"] for precision in PRECISIONS]
    assert facts[0]["rmse"] == facts[1]["rmse"] == facts[2]["rmse"]
    assert len({one["log_score"] for one in facts}) == 3


@pytest.mark.parametrize("new", NEW)
def test_newcomers_are_better_known_with_more_ratings(new, tiny_study):
    for variant in COLD:
        result = Results(tiny_study)[0, f"cold-start-{new}-{variant}"]
        errors = {given: facts["rmse"] for given, facts in result["by_given"].items()}
        if variant != "none":  # the ratings are made without biases: there are none to know
            assert errors["20"] < min(errors["0"], errors["1"])
        for given, facts in result["by_given"].items():
            squares = result.array(f"squares_{given}")
            assert facts["rmse"] == pytest.approx(np.sqrt(squares.sum() / facts["test_ratings"]))
            assert (squares > 0).sum() == facts["newcomers"]


@pytest.mark.parametrize("new", NEW)
def test_a_study_says_of_newcomers_what_evaluate_says(new, tiny_study, tiny_ratings):
    run = {run.name: run for run in EXPERIMENTS["cold-start"](LENGTHS)}[f"cold-start-{new}-default"]
    assert run.model == bayesmf.Model(rank=2)
    held = ColdStart.hold_out(bayesmf.load(tiny_ratings), 0, new)
    fit = Gibbs(run.model, seed=0, chains=1, until="sweeps", **run.settings).fit(held.train)
    by_given = Results(tiny_study)[0, run.name]["by_given"]
    for given in (0, 5, max(held.numbers)):
        folded = fit.fold_in(held.known(given), new) if given else fit
        facts = folded.evaluate(held.asked(given))
        for key in ("rmse", "log_score"):
            assert by_given[str(given)][key] == pytest.approx(facts[key], rel=ROUNDING)
        assert by_given[str(given)]["coverage_80"] == pytest.approx(facts["coverage_80"])


@pytest.mark.parametrize("new", NEW)
def test_newcomers_are_those_of_the_split(new, tiny_ratings):
    """Up to 20 ratings they have one test; more are given to those who have yet more."""
    whole = bayesmf.load(tiny_ratings)
    cut = cold_start(whole if new == "user" else whole.T, 3, 0.1, FEWEST)
    held = ColdStart.hold_out(whole, 3, new)
    before = set()
    for given in (*GIVEN, 40):
        known, asked = held.known(given), held.asked(given)
        if new == "item":
            known, asked = known.T, asked.T
        counts, left = known.by_user.counts, asked.by_user.counts
        told = set(zip(known.by_user.row_index, known.by_user.index, strict=True))
        if given <= FEWEST:
            assert asked == cut.test
            assert set(counts[left > 0]) == {given}
            assert before <= told  # the few ratings are among the many
            before = told
        else:
            totals = cut.given.by_user.counts + cut.test.by_user.counts
            able = (totals > given) & (cut.given.by_user.counts > 0)
            assert counts.tolist() == np.where(able, given, 0).tolist()
            assert left.tolist() == np.where(able, totals - given, 0).tolist()
        assert not told & set(zip(asked.by_user.row_index, asked.by_user.index, strict=True))
    assert held.known(FEWEST) == (cut.given if new == "user" else cut.given.T)
    assert not set(held.train.T.users.values if new == "item" else held.train.users.values) & set(
        cut.given.drop_unused().users.values
    )


def test_where_nobody_has_enough_ratings_no_newcomers_are_held_out():
    few = bayesmf.Ratings.from_triplets(users=[1, 1, 2], items=[1, 2, 1], ratings=[1, 2, 3])
    with pytest.raises(DataError, match="too few items have more than 20 ratings"):
        ColdStart.hold_out(few, 0, "item")


def digests(folder: Path) -> dict[str, str]:
    """Every result file; times are not results."""
    files = [path for path in folder.rglob("*") if path.name in ("result.json", "arrays.npz")]
    files.append(folder / "study.json")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files}  # fmt: skip


def command(data: Path, out: Path, *more: object) -> list[str]:
    words = ["study", data, "--quick", "--rank", 2, "--out", out, *more]
    return [sys.executable, "-m", "bayesmf", *map(str, words)]


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_killed_and_resumed_it_ends_with_the_same_bytes(kills, tiny_ratings, tmp_path):
    only = () if kills > 1 else ("--only", "table-4,fig-2")
    whole = tmp_path / "whole"
    began = time.perf_counter()
    subprocess.run(command(tiny_ratings, whole, *only), check=True, capture_output=True)
    seconds = time.perf_counter() - began
    moments, out = random.Random(3), tmp_path / "killed"
    for _ in range(kills):
        process = subprocess.Popen(
            command(tiny_ratings, out, *only, "--resume"), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(seconds * moments.uniform(0.2, 0.6))
        os.kill(process.pid, signal.SIGKILL)  # its workers notice by themselves
        process.wait()
    again = subprocess.run(
        command(tiny_ratings, out, *only, "--resume"), check=True, capture_output=True, text=True
    )
    assert "report in" in again.stdout
    assert digests(out) == digests(whole)
    assert not list(out.glob("split-*/.*"))  # nothing half-written is left


def test_more_can_be_added_to_a_study(tiny_ratings, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".study.json.12345678.bayesmf").touch()  # left by a kill
    for words in (("--only", "map-none-constant"), ("--only", "gibbs-none-constant", "--resume")):
        subprocess.run(command(tiny_ratings, out, *words), check=True, capture_output=True)
        (out / "split-0" / ".left-by-a-kill").mkdir(exist_ok=True)
    subprocess.run(command(tiny_ratings, out, *words), check=True, capture_output=True)
    assert {p.name for p in (out / "split-0").iterdir()} == {
        "users", "map-none-constant", "gibbs-none-constant",
    }  # fmt: skip
    assert (out / "report.html").is_file()
    assert not list(out.glob(".study*"))


def invoke(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_mistakes_get_a_sentence(tiny_ratings, tiny_study, tmp_path):
    study = ("study", tiny_ratings, "--quick", "--rank", 2, "--out")
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("dear")
    file = tmp_path / "file"
    file.write_text("")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "study.json").write_text("{")
    cases = {
        (
            *study,
            tmp_path / "a",
            "--only",
            "table-9",
        ): "no experiment 'table-9'; choose",
        (*study, tiny_study): "holds a study already; continue it with --resume",
        (*study, tiny_study, "--resume", "--seed", 5): "another seed (0, not 5)",
        (*study, tiny_study, "--resume", "--bins", "5,9"): "another bins",
        (*study, full): "holds other files",
        (*study, file): "is not a folder",
        (*study, tmp_path / "a", "--bins", "9,5"): "rising whole numbers",
        (*study, broken, "--resume"): "cannot be read",
        ("study", tmp_path / "none.csv", "--out", tmp_path / "b"): "none.csv",
        ("report", full): "no study.json in it",
        ("report", tmp_path / "nowhere"): "no study.json in it",
    }
    for words, sentence in cases.items():
        done = invoke(*words)
        assert done.exit_code == 2, words
        assert sentence in done.output.replace("\n", " "), done.output
    assert (full / "letter.txt").read_text() == "dear"
    assert [path.name for path in full.iterdir()] == ["letter.txt"]  # and no lock beside it
    assert not (tmp_path / "b").exists()


def test_a_second_study_in_the_same_folder_is_refused(tiny_ratings, tmp_path):
    with locked(tmp_path, "another study"):
        done = invoke("study", tiny_ratings, "--quick", "--out", tmp_path)
    assert done.exit_code == 2
    assert "in use by another study" in done.output
    with locked(tmp_path, "another study"):  # let go of
        pass


def test_a_run_that_dies_says_so(tiny_ratings, tmp_path, monkeypatch):
    import bayesmf.study.runner as runner

    monkeypatch.setattr(runner, "_work", _die)
    study = Study(str(tiny_ratings), tmp_path / "out", quick=True, rank=2, only=("fig-7",))
    with pytest.raises(DataError, match="killed by the system.*--workers 1"):
        study.run()


def _die(split, run):
    os.kill(os.getpid(), signal.SIGKILL)


def test_bins_can_be_set(tiny_ratings, tmp_path):
    out = tmp_path / "out"
    words = ("--only", "gibbs-none-constant", "--bins", "10,20")
    subprocess.run(command(tiny_ratings, out, *words), check=True, capture_output=True)
    facts = json.loads((out / "study.json").read_text())
    assert facts["bin_labels"] == ["<=10", "11-20", "21+"]
    result = Results(out)[0, "gibbs-none-constant"]
    assert len(result["by_bin"]["rmse"]) == 3
    assert "--bins 10,20" in result["command"]
    assert np.isfinite(result.array("by_bin")).all()


def test_the_command_in_a_result_makes_it_again(tiny_study, tmp_path):
    name = "vi-no-side-robust"
    words = Results(tiny_study)[0, name]["command"].split()
    assert words[0] == "bayesmf"
    subprocess.run([sys.executable, "-m", *words, "--out", tmp_path / "out"], check=True,
                   capture_output=True)  # fmt: skip
    again, before = digests(tmp_path / "out"), digests(tiny_study)
    for file in ("result.json", "arrays.npz"):
        assert again[f"split-0/{name}/{file}"] == before[f"split-0/{name}/{file}"]
