"""Time and scale in a study: the default model and others, as ``evaluate`` measures them."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import bayesmf
from bayesmf import Gibbs, Model, Ratings
from bayesmf.evaluation.bootstrap import paired_change
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.report.contents import make_report
from bayesmf.report.findings import findings
from bayesmf.report.read import COMPARED, Reader
from bayesmf.study.execute import Parts, execute
from bayesmf.study.results import Results
from bayesmf.study.specs import EXPERIMENTS, TIME_AND_SCALE, Lengths

LENGTHS = Lengths.of("", quick=True, rank=2)
RUNS = {run.name: run for run in EXPERIMENTS["time-and-scale"](LENGTHS)}
OTHERS = list(TIME_AND_SCALE)[1:]
DAY = 86_400


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A file of ratings by people whose moods last an evening."""
    rng = np.random.default_rng(5)
    lines = ["user,item,rating,time"]
    for user in range(80):
        count = int(np.clip(4 * np.exp(rng.normal(1.6, 0.7)), 4, 40))
        moods, level = rng.normal(size=6), 3.3 + 0.5 * rng.normal()
        for item in rng.choice(50, count, replace=False):
            day, seconds = rng.integers(6), rng.integers(3600)
            value = np.clip(np.rint(level + moods[day] + 0.5 * rng.normal()), 1, 5)
            lines.append(f"u{user},i{item},{value:.0f},{day * DAY + seconds}")
    path = tmp_path_factory.mktemp("timed") / "timed.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def study(timed, tmp_path_factory):
    """The folder of the experiment on them, with its report."""
    out = tmp_path_factory.mktemp("study") / "out"
    words = ["study", timed, "--quick", "--rank", 2, "--only", "time-and-scale", "--out", out]
    subprocess.run([sys.executable, "-m", "bayesmf", *map(str, words)], check=True,
                   capture_output=True)  # fmt: skip
    return out


def facts_of(folder, name: str) -> dict:
    return json.loads((folder / "split-0" / name / "result.json").read_text())


def read_table(folder, name: str) -> list[list[str]]:
    with (folder / "tables" / f"{name}.csv").open() as file:
        return list(csv.reader(file))


def test_each_run_adds_to_the_default_model():
    assert RUNS["default"].model == Model(rank=2)
    assert RUNS["default-chain"].model == Model(rank=2, time="chain")
    assert RUNS["default-ordinal"].model == Model(rank=2, likelihood="ordinal")
    both = Model(rank=2, time="chain", likelihood="ordinal")
    assert RUNS["default-chain-ordinal"].model == both
    assert set(COMPARED) == set(TIME_AND_SCALE) == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_a_study_says_what_evaluate_says(name, study, timed):
    train, test = bayesmf.split(bayesmf.load(timed), "paper", 0)
    run, result = RUNS[name], Results(study)[0, name]
    fit = Gibbs(run.model, seed=0, chains=1, until="sweeps", **run.settings).fit(train)
    facts = fit.evaluate(test, Results(study).study["bins"])
    by_bin = facts.pop("by_user_frequency")
    for key, value in facts.items():
        assert result[key] == pytest.approx(value, rel=1e-12), key
        found = [each for each in result["by_bin"][key] if each is not None]
        assert found == pytest.approx([row[key] for row in by_bin if row["test_ratings"]])
    error = fit.predict(test)["mean"].to_numpy() - np.asarray(test.by_user.values, float)
    squares = np.bincount(test.by_user.row_index, error**2, minlength=test.n_users)
    np.testing.assert_allclose(result.array("user_squares"), squares, rtol=1e-12)
    assert result.array("user_count").tolist() == test.by_user.counts.tolist()


def test_moods_are_found(study):
    before, after = (facts_of(study, name) for name in ("default", "default-chain"))
    assert after["rmse"] < 0.95 * before["rmse"]
    assert after["log_probability"] > before["log_probability"]


def test_the_tables_have_the_numbers_of_the_results(study):
    """By hand, from the arrays and the bins in the files."""
    headings, *rows = read_table(study, "time-and-scale-table")
    assert headings[3:] == ["RMSE, default", *(f"{COMPARED[name]}, %" for name in OTHERS)]
    facts = json.loads((study / "study.json").read_text())
    uppers, labels = facts["bins"], facts["bin_labels"]
    place = study / "split-0"
    totals = np.load(place / "users" / "arrays.npz")["user_ratings"]
    arrays = {name: np.load(place / name / "arrays.npz") for name in RUNS}
    count, base = (arrays["default"][key] for key in ("user_count", "user_squares"))
    ends = list(zip([0, *uppers], [*uppers, totals.max()], strict=True))
    chosen = [(totals > low) & (totals <= high) for low, high in ends]
    for row, label, mask in zip(rows, [*labels, "all"], [*chosen, totals > 0], strict=True):
        told = [label, str(mask.sum()), str(count[mask].sum())]
        assert row[:3] == told
        assert row[3] == f"{np.sqrt(base[mask].sum() / count[mask].sum()):.4f}"
        for cell, name in zip(row[4:], OTHERS, strict=True):
            change = paired_change(base[mask], arrays[name]["user_squares"][mask])
            if np.isfinite(change.low):
                assert cell == f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
            else:
                assert cell.startswith(f"{change.value:+.2f} ")
    headings, *rows = read_table(study, "time-and-scale-log-probability")
    assert headings[3:] == [COMPARED[name] for name in RUNS]
    for k, row in enumerate(rows):
        each = [facts_of(study, name) for name in RUNS]
        key = "log_probability"
        values = [one[key] if k == len(labels) else one["by_bin"][key][k] for one in each]
        assert row[3:] == [f"{value:.4f}" for value in values]


def test_the_best_log_probability_stands_out(study):
    tables = {table.id: table for table in make_report(Results.open(study)).tables}
    for row in tables["time-and-scale-log-probability"].rows:
        values = [cell.sort for cell in row[3:]]
        assert [cell.kind == "best" for cell in row[3:]] == [v == max(values) for v in values]


def test_what_was_found_is_told(study):
    read = Reader(Results.open(study))
    told = [finding.text for finding in findings(read)]
    change = read.change("default", "default-chain")
    scores = [facts_of(study, name)["log_probability"] for name in ("default", "default-chain")]
    sentence = next(text for text in told if text.startswith("With a time chain, the default"))
    assert f"lowered its error by {change.value:.2f} % [{change.low:.2f}" in sentence
    assert f"test rating went from {scores[0]:.4f} to {scores[1]:.4f}." in sentence
    assert "Ratings that are still to come gain less" in (study / "report.html").read_text()


def parts_of(ratings: Ratings) -> Parts:
    cut = bayesmf.split(ratings, "paper", 0)
    return Parts(ratings, cut.train, cut.test, FrequencyBins.of(list(cut), cut.test), 0)


def reason(name: str, ratings: Ratings) -> str:
    """Why a run was left out, without any fit."""
    facts, arrays = execute(RUNS[name], parts_of(ratings), None, None, lambda share: None)
    assert list(facts) == ["skipped"]
    assert not arrays
    return facts["skipped"]


def test_ratings_without_times_have_no_chain(tiny_ratings):
    assert reason("default-chain", bayesmf.load(tiny_ratings)).endswith("ratings have no times")


def test_ratings_without_steps_have_no_ordinal_scale(timed):
    frame = pd.read_csv(timed)
    frame["rating"] += np.random.default_rng(0).uniform(0, 0.5, len(frame))
    for name in ("default-ordinal", "default-chain-ordinal"):
        assert "have no steps, or more than" in reason(name, Ratings.from_frame(frame))


def test_levels_are_the_same_for_every_model(timed):
    """On 0 to 40 by 10, which looks like 0 to 40 by 1 to a model that does not ask for levels."""
    frame = pd.read_csv(timed)
    frame["rating"] = 10 * (frame["rating"] - 1)
    parts = parts_of(Ratings.from_frame(frame))
    assert parts.train.scale.step == 1
    found = [
        execute(RUNS[name], parts, None, None, lambda share: None)[0]["log_probability"]
        for name in ("default", "default-ordinal")
    ]
    assert found[0] == pytest.approx(found[1], abs=0.5)  # log 10 apart if one had other levels


def test_times_that_a_chain_refuses_do_not_end_the_study(timed):
    frame = pd.read_csv(timed)
    frame["time"] *= 10**9
    told = reason("default-chain", Ratings.from_frame(frame))
    assert told.endswith("is after the year 5000 in seconds since 1970")


def test_what_is_left_out_is_told(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy)
    for name in OTHERS:
        place = copy / "split-0" / name
        facts = facts_of(copy, name)
        kept = {key: facts[key] for key in ("run", "command")}
        (place / "result.json").write_text(json.dumps({**kept, "skipped": "there is no way"}))
        np.savez(place / "arrays.npz")
    report = make_report(Results.open(copy))
    table = next(table for table in report.tables if table.id == "time-and-scale-table")
    for name in OTHERS:
        assert f"The model {COMPARED[name]} is left out: there is no way." in table.notes
    assert list(table.headings)[3:] == ["RMSE, default"]
    assert not any("default model" in finding.text for finding in report.page.findings)
    facts = [block for s in report.page.sections for block in s.blocks if block.form == "facts"]
    assert "time-and-scale" not in dict(facts[0].pairs)["not shown"]
