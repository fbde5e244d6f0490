"""``bayesmf fit`` by each algorithm: the same options, the same JSON."""

from __future__ import annotations

import json
import re

import click
import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import choices, load, load_model
from bayesmf.cli.choose import _name_likelihoods
from bayesmf.cli.fit import model_from_options
from bayesmf.cli.main import main
from bayesmf.model.ordinal import Ordinal

SMALL = ["--rank", "3", "--sweeps", "4", "--threads", "1"]  # with the progress bar
PAPER = ["--holdout", "paper"]


def run(*args: object, code: int = 0, data: object = "demo"):
    words = ["fit", data, *args]
    done = CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "100"})
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("inference", choices.INFERENCES)
def test_every_algorithm_writes_the_same_things(inference, tmp_path):
    out = tmp_path / "fit"
    words = ["--inference", inference, *SMALL, *PAPER, "--paper", "no-side", "--precision",
             "robust", "--out", str(out)]  # fmt: skip
    facts = json.loads(run(*words, "--json").stdout.splitlines()[-1])
    tested = facts["evaluation"]
    assert 0.7 < facts["test_rmse"] == tested["rmse"] < 1.1
    assert facts["sweeps"] >= 4
    assert facts["seconds"] > 0
    assert facts["inference"]["algorithm"] == inference
    assert facts["model"]["precision"] == "robust"
    bins = tested["by_user_frequency"]
    assert sum(row["test_ratings"] for row in bins) == facts["holdout"]["test"]
    mean_square = sum(row["test_ratings"] * row["rmse"] ** 2 for row in bins)
    assert (mean_square / facts["holdout"]["test"]) ** 0.5 == pytest.approx(tested["rmse"])
    assert 0 < tested["coverage_50"] < tested["coverage_80"] < tested["coverage_95"] < 1
    saved = json.loads((out / "fit.json").read_text())
    assert saved["evaluation"] == tested
    assert all(re.fullmatch(r"\w+", key) for key in keys(saved)), "a key is not in snake_case"
    run(*words, "--overwrite")


def keys(facts):
    """Every key of an object and of the objects in it."""
    inside = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ()
    return [*(facts if isinstance(facts, dict) else ()), *(k for one in inside for k in keys(one))]


@pytest.mark.parametrize("inference", choices.INFERENCES)
def test_the_one_test_error(inference, tmp_path):
    """What is printed, what is written, and what the saved model says of the same ratings."""
    words = ["--inference", inference, *SMALL, "--holdout", "random", "--out", tmp_path / "fit"]
    facts = json.loads(run(*words, "--json").stdout.splitlines()[-1])
    _, test = bayesmf.split(load("demo"), "random", 0)
    fit = load_model(tmp_path / "fit")
    error = fit.evaluate(test)["rmse"]
    rounding = 1e-6  # draws are saved as float32
    assert facts["test_rmse"] == pytest.approx(error, rel=rounding)
    mean = fit.predict(test)["mean"].to_numpy()
    assert np.sqrt(np.mean((mean - test.by_user.values) ** 2)) == pytest.approx(error)
    written = load(tmp_path / "fit" / "predictions.csv", rating="mean")
    assert np.sqrt(np.mean((written.by_user.values - test.by_user.values) ** 2)) == pytest.approx(
        error, rel=rounding
    )
    printed = run(*words, "--overwrite").stdout
    assert re.search(rf"test RMSE {error:.4f} (\(.* with endless draws\) )?after", printed)


def test_all_ratings_are_trained_on_unless_some_are_held_out(tmp_path):
    done = run(*SMALL, "--out", tmp_path / "fit")
    whole = load("demo")
    counts = f"{len(whole):,} ratings of {whole.n_items:,} items by {whole.n_users:,} users"
    first, second = done.stdout.splitlines()[:2]
    assert first == f"trained on {counts}; held out nothing"
    assert re.fullmatch(r"finished 16 sweeps of 4 chains in [\d.]+ s", second)
    assert not (tmp_path / "fit" / "predictions.csv").exists()
    facts = json.loads(run(*SMALL, "--json").stdout)
    assert facts["test_rmse"] is None
    assert facts["holdout"]["trained_on"]["ratings"] == len(whole)


def test_dropped_ratings_are_told(tmp_path):
    """A sparse file: the paper's protocol drops most of it, and the command says so."""
    counts = [1] * 300 + [2] * 230 + [3] * 150 + [4] * 49 + [5] * 8 + [53]
    assert (len(counts), sum(counts)) == (738, 1499)
    lines = [
        f"u{(7 * item + 11 * k) % 400},i{item},{1 + (item + k) % 5}"
        for item, count in enumerate(counts)
        for k in range(count)
    ]
    path = tmp_path / "sparse.csv"
    path.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    cut = bayesmf.split(load(path), "paper", 0)
    done = run(*SMALL, *PAPER, data=path)
    told = done.stdout.splitlines()[0]
    whole, kept = load(path), {name for part in cut for name in part.users.values.tolist()}
    lost = whole.n_users - len(kept)
    assert told == (
        f"trained on {len(cut.train)} ratings of 208 items by {cut.train.n_users} users; held out "
        f"{len(cut.test)} ratings (paper protocol, seed 0); dropped 760 ratings of 530 items with "
        "fewer than 3 ratings" + (f", and {lost} users who rated nothing else" if lost else "")
    )
    words = ["split", str(path), "--out", str(tmp_path / "split")]
    assert told.split("; ")[-1] in CliRunner().invoke(main, words).stdout.splitlines()[0]
    held = json.loads(run(*SMALL, *PAPER, "--json", data=path).stdout)["holdout"]
    assert (held["dropped_ratings"], held["dropped_items"], held["dropped_users"]) == (
        760, 530, lost,
    )  # fmt: skip
    assert held["train"] + held["test"] + held["dropped_ratings"] == 1499
    plain = run(*SMALL, data=path).stdout.splitlines()[0]
    assert plain.startswith("trained on 1,499 ratings of 738 items by ")


def test_what_is_held_out(tiny_ratings):
    fraction = ["--test-fraction", "0.2", "--validation", "0.1", "--seed", "3"]
    told = run(*SMALL, "--holdout", "random", *fraction, data=tiny_ratings).stdout.splitlines()[0]
    size = len(load(tiny_ratings))
    train, test = bayesmf.split(load(tiny_ratings), "random", 3, test_fraction=0.2)
    assert len(test) == pytest.approx(0.2 * size, abs=1)
    assert f"held out {len(test):,} ratings (random protocol, seed 3) and " in told
    assert told.endswith(f"{len(train) - round(0.9 * len(train)):,} ratings for validation")
    done = run("--test-fraction", "0.2", code=2)
    assert "say which ratings, as in --holdout random" in done.output


def test_the_latest_ratings_are_held_out(tmp_path):
    path = tmp_path / "timed.csv"
    lines = [f"{k % 9},{k // 9},{1 + k % 5},{1000 + k}" for k in range(200)]
    path.write_text("user,item,rating,time\n" + "\n".join(lines) + "\n")
    told = run(*SMALL, "--holdout", "time", data=path).stdout.splitlines()[0]
    assert told.startswith("trained on 140 ratings of ")
    assert told.endswith("held out 60 ratings (time protocol)")
    assert "needs times" in run(*SMALL, "--holdout", "time", code=2).output


def test_a_saved_model_knows_what_was_rated(tiny_ratings, tmp_path):
    """Recommended items were rated neither in training nor in what was held out."""
    words = [*SMALL, *PAPER, "--validation", "0.1", "--quiet", "--out"]
    run(*words, tmp_path / "fit", data=tiny_ratings)
    fit, whole = load_model(tmp_path / "fit"), load(tiny_ratings)
    best = fit.recommend(n=5)
    rated = set(
        zip(*(whole.to_arrow()[name].to_pylist() for name in ("user", "item")), strict=True)
    )
    assert not rated & set(zip(best["user"].to_pylist(), best["item"].to_pylist(), strict=True))
    run(*words, tmp_path / "bare", "--without-ratings", data=tiny_ratings)
    with pytest.raises(bayesmf.DataError, match="not at hand"):
        load_model(tmp_path / "bare").recommend(n=5)
    assert "name its folder with --out" in run("--without-ratings", code=2).output


def test_the_burn_in_follows_the_sweeps():
    facts = json.loads(run("--rank", 2, "--sweeps", 12, "--json").stdout)
    assert facts["sweeps"] == 4 * 12


def test_every_choice_is_defined_once():
    """Choices of the command line are those of the library; other modules have no copies."""
    known = {value for name, value in vars(choices).items() if name.isupper()}
    own = {("bash", "zsh", "fish"), ("csv", "tsv", "parquet", "csv.gz")}
    own.add((*choices.PROTOCOLS, "kfold"))

    def each(group):
        for command in group.commands.values():
            yield from each(command) if isinstance(command, click.Group) else command.params

    found = [one for one in each(main) if isinstance(one.type, click.Choice)]
    assert len(found) > 20
    for one in found:
        assert tuple(one.type.choices) in known | own, one.name


def options(**given):
    names = ("paper", "user_designs", "item_designs", "own_features", "precision", "bounds",
             "prior", "bias")  # fmt: skip
    return {**dict.fromkeys(names), "rank": 4, **given}


def test_models_from_options():
    default = model_from_options(**options())
    assert (default.rank, default.precision, default.bias) == (4, "robust", "joint")
    assert model_from_options(**options(user_designs="rated:0.5")) == default
    paper = model_from_options(**options(paper="side"))
    assert (paper.precision, paper.bias) == ("constant", "learned")
    assert model_from_options(**options(paper="side", user_designs="rated:1")) == paper
    plain = model_from_options(**options(paper="no-side"))
    assert model_from_options(**options(paper="side", user_designs="none")) == plain
    only = model_from_options(**options(paper="side-only"))
    assert model_from_options(**options(paper="side", own_features=False)) == only
    assert model_from_options(**options(rank=0)).rank == 0
    assert model_from_options(**options(bounds="4")).bounds == (0.25, 4.0)
    for text in ("side", "rated", "rated:x", "rated:-1"):
        with pytest.raises(bayesmf.DataError, match="--item-designs .*write 'none', or 'rated:P'"):
            model_from_options(**options(item_designs=text))


def test_what_variational_inference_tells():
    words = ["--inference", "vi", "--paper", "no-side", *SMALL, *PAPER]
    facts = json.loads(run(*words, "--prior-scale", "map-driven", "--json").stdout)
    assert facts["best_sweep"] == 4
    assert facts["least_test_rmse"] <= facts["test_rmse"]
    assert facts["bound"] < 0
    assert "lower bound -" in run(*words, "--start", "random").stdout


def test_a_person_learns_of_overfitting():
    words = ["--inference", "vi", "--paper", "no-side", "--rank", "30", *PAPER, "--quiet"]
    done = run(*words, "--prior-scale", "map-driven", "--validation", "0.1", "--patience", "3")
    assert "Q overfits" in " ".join(done.stderr.split())
    assert "(the validation error has stopped falling)" in done.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--inference", "vi", "--chains", "2"], "--chains is for --inference gibbs"),
        (["--inference", "map", "--moments", "first"], "--moments is for --inference vi"),
        (["--penalty", "3"], "--penalty is for --inference map"),
        (["--inference", "map", "--start", "map"], "--start is for --inference gibbs and vi"),
        (["--inference", "map", "--penalty", "-1"], "penalty=-1.0: choose a finite number above 0"),
        (["--inference", "vi", "--sweeps", "0"], "=0: choose 1 or more"),
        (["--workers", "2"], "add --engine ray, or leave it out"),
    ],
)
def test_options_that_do_not_fit_are_refused(args, told):
    assert told in run(*args, code=2).output


def test_gibbs_from_a_map_start():
    args = [*SMALL, *PAPER, "--paper", "no-side", "--burn-in", "0", "--json"]
    facts, other = (json.loads(run(*args, *start).stdout) for start in (["--start", "map"], []))
    assert facts["test_rmse"] < other["test_rmse"]


def test_cut_points_of_all_users():
    likelihood = model_from_options(
        None, 2, *[None] * 7, likelihood="ordinal", cuts="global"
    ).likelihood
    assert likelihood == Ordinal(cuts="global")
    names = _name_likelihoods(("gaussian", "ordinal"), ("users", "global"))
    assert names == {
        "gaussian": "gaussian",
        "ordinal": Ordinal(),
        "ordinal with global cuts": Ordinal(cuts="global"),
    }
    assert _name_likelihoods(("ordinal",), ()) == {"ordinal": "ordinal"}
    told = "Error: --cuts is for --likelihood ordinal; add --likelihood ordinal, or leave it out\n"
    for command in ("fit", "cross-validate"):
        for words in ([], ["--likelihood", "gaussian"]):
            done = CliRunner().invoke(main, [command, "demo", *words, "--cuts", "users"])
            assert (done.exit_code, done.stderr) == (2, told)
