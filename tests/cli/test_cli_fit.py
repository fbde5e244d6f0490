"""``bayesmf fit`` by each algorithm: the same options, the same JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bayesmf import load
from bayesmf.cli.main import main

SMALL = ["--rank", "3", "--sweeps", "4", "--threads", "1"]  # with the progress bar


def run(*args: str, code: int = 0):
    done = CliRunner().invoke(main, ["fit", "demo", *args], env={"COLUMNS": "100"})
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("inference", ["gibbs", "vi", "map"])
def test_every_algorithm_writes_the_same_things(inference, tmp_path):
    extra = ["--burn-in", "1"] if inference == "gibbs" else []
    out = tmp_path / "fit"
    extra += ["--model", "no-side", "--precision", "robust"]
    done = run("--inference", inference, *SMALL, *extra, "--out", str(out), "--json")
    facts = json.loads(done.stdout.splitlines()[-1])
    assert 0.7 < facts["test_rmse"] < 1.1
    assert facts["sweeps"] >= 4
    assert facts["seconds"] > 0
    assert facts["inference"]["algorithm"] == inference
    assert facts["model"]["precision"] == "robust"
    bins = facts["by_frequency"]
    assert sum(row["test_ratings"] for row in bins) == facts["holdout"]["test"]
    mean_square = sum(row["test_ratings"] * row["rmse"] ** 2 for row in bins)
    assert (mean_square / facts["holdout"]["test"]) ** 0.5 == pytest.approx(
        facts["test_rmse"], abs=1e-5
    )
    if inference == "gibbs":
        assert set(facts["coverage"]) == {"0.5", "0.8", "0.95"}
        assert "sd_of_rating" in (out / "predictions.csv").read_text().splitlines()[0]
    predictions = load(out / "predictions.csv", rating="mean")
    assert len(predictions) == facts["holdout"]["test"]
    saved = json.loads((out / "fit.json").read_text())
    assert saved["test_rmse"] == facts["test_rmse"]
    run("--inference", inference, *SMALL, *extra, "--out", str(out), "--overwrite")


def test_what_variational_inference_tells():
    done = run("--inference", "vi", "--model", "no-side", *SMALL, "--prior-scale", "map-driven",
               "--json")  # fmt: skip
    facts = json.loads(done.stdout)
    assert facts["update"] == 4
    assert facts["least_test_rmse"] <= facts["test_rmse"]
    assert facts["bound"] < 0
    plain = run("--inference", "vi", "--model", "no-side", *SMALL, "--start", "random")
    assert "lower bound -" in plain.stdout


def test_a_person_learns_of_overfitting():
    done = run("--inference", "vi", "--model", "no-side", "--rank", "30", "--prior-scale",
               "map-driven", "--validation", "0.1", "--patience", "3", "--quiet")  # fmt: skip
    assert "Q overfits" in " ".join(done.stderr.split())
    assert "(the validation error has stopped falling)" in done.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--inference", "vi", "--chains", "2"], "--chains is for --inference gibbs"),
        (["--inference", "map", "--moments", "first"], "--moments is for --inference vi"),
        (["--penalty", "3"], "--penalty is for --inference map"),
        (["--inference", "map", "--start", "map"], "--start is for --inference gibbs and vi"),
        (["--inference", "map", "--penalty", "-1"], "penalty=-1.0: choose a number above 0"),
        (["--inference", "vi", "--sweeps", "0"], "updates=0: choose 1 or more"),
    ],
)
def test_options_that_do_not_fit_are_refused(args, told):
    assert told in run(*args, code=2).output


def test_gibbs_from_a_map_start():
    args = [*SMALL, "--model", "no-side", "--burn-in", "0", "--json"]
    facts, other = (json.loads(run(*args, *start).stdout) for start in (["--start", "map"], []))
    assert facts["test_rmse"] < other["test_rmse"]
