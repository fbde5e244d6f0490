"""Searches: what they choose, what they keep, and how they go on."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings, cross_validate, tune
from bayesmf.cli.main import main
from bayesmf.data.io.atomic import locked
from bayesmf.data.split import carve, kfold
from bayesmf.inference.map.fit import MAP
from bayesmf.selection.compare import Sums
from bayesmf.selection.trials import Trials

QUICK = {"sweeps": 20, "chains": 1, "threads": 1}


@pytest.fixture(scope="module")
def ratings(tiny_ratings):
    return bayesmf.load(tiny_ratings)


@pytest.fixture(scope="module")
def tuned(ratings):
    return tune(ratings, ranks=(0, 2, 3), refit=False, **QUICK)


def test_errors_are_those_of_fits_to_the_part_that_is_left(tuned, ratings):
    train, held = carve(ratings, 0.1, 0)
    for row in tuned.rows[:2]:
        fit = Gibbs(Model(row["rank"]), seed=0, **QUICK).fit(train)
        facts = fit.evaluate(held)
        assert row["rmse"] == pytest.approx(facts["rmse"], abs=1e-12)
        assert row["log_probability"] == pytest.approx(facts["log_probability"], abs=1e-12)


def test_the_ladder_ends_where_the_error_does_not_fall_and_later_steps_begin_there(tuned):
    """The ratings have two features and stars, no times and no attributes."""
    names = [row["name"] for row in tuned.rows]
    assert names[:2] == ["rank 0", "rank 2"]
    errors = [row["rmse"] for row in tuned.rows if row["step"] == "rank"]
    assert all(b < a for a, b in pairwise(errors[:-1]))  # but for the last
    best = min((row for row in tuned.rows if row["step"] == "rank"), key=lambda row: row["rmse"])
    assert names[-1] == f"{best['name']}, ordinal"
    chosen = min(tuned.rows, key=lambda row: row["rmse"])
    assert [row["name"] for row in tuned.rows if row["chosen"]] == [chosen["name"]]
    assert tuned.best.rank == chosen["rank"]
    assert tuned.words.startswith(f"chosen: {chosen['name']}")
    assert tuned.table.num_rows == len(names)


def test_no_rank_is_tried_beyond_one_that_is_no_better(ratings, monkeypatch):
    errors = {"rank 0": 1.0, "rank 2": 0.9, "rank 3": 0.95, "rank 4": 0.5, "rank 2, ordinal": 0.8}

    def run(self, name, algorithm, train, held, cost):
        counts = held.by_user.counts.astype(float)
        facts = {"name": name, "rmse": errors[name], "log_probability": -1.0, "seconds": 1.0}
        return Sums(counts, counts * errors[name] ** 2, -counts, True), facts

    monkeypatch.setattr(Trials, "run", run)
    found = tune(ratings, ranks=(4, 0, 3, 2), refit=False)
    assert [row["name"] for row in found.rows] == ["rank 0", "rank 2", "rank 3", "rank 2, ordinal"]
    assert found.best == Model(2, likelihood="ordinal")
    assert found.comparison.rows[0]["rmse"] == pytest.approx(0.8)


def test_times_and_attributes_are_tried_if_there_are_any(ratings):
    rng = np.random.default_rng(0)
    few = ratings.select(np.arange(len(ratings)) < 400).drop_unused()
    table = few.to_arrow()
    timed = Ratings.from_triplets(
        users=table["user"], items=table["item"], ratings=table["rating"],
        times=rng.integers(10**9, 10**9 + 10**6, len(few)),
    )  # fmt: skip
    items = {"item": few.items.values.tolist(), "size": rng.normal(size=few.n_items).tolist()}

    found = tune(timed, ranks=[1], item_attributes=pa.table(items), by="log", refit=False,
                 sweeps=6, chains=1, threads=1)  # fmt: skip
    assert [row["step"] for row in found.rows] == ["rank", "likelihood", "time", "attributes"]
    assert [row["attributes"] for row in found.rows] == [False, False, False, True]
    assert found.rows[2]["time"] == "chain"
    scores = [row["log_probability"] for row in found.rows]
    assert found.rows[int(np.argmax(scores))]["chosen"]


def test_a_search_that_was_broken_off_goes_on(ratings, tuned, tmp_path, monkeypatch):
    whole = {"ranks": (0, 2, 3), "refit": False, **QUICK, "out": tmp_path / "tuned"}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / ".settings.json.12345678.bayesmf").touch()  # left by a kill
    with locked(tmp_path / "tuned", "us"), pytest.raises(DataError, match="by another search"):
        tune(ratings, **whole)
    short = tune(ratings, fits=1, **whole)
    assert {path.name for path in (tmp_path / "tuned").iterdir()} == {
        ".lock", "fits", "settings.json",
    }  # fmt: skip
    assert (len(short.rows), short.stopped) == (1, "the budget was spent")
    with pytest.raises(DataError, match="holds an earlier search; go on with it by resume=True"):
        tune(ratings, **whole)
    with pytest.raises(DataError, match="a search with another fit; choose another folder"):
        tune(ratings, **{**whole, "sweeps": 21}, resume=True)
    done = []
    fit = Gibbs.fit
    monkeypatch.setattr(Gibbs, "fit", lambda self, *a, **k: done.append(1) or fit(self, *a, **k))
    found = tune(ratings, **whole, resume=True)
    assert len(done) == len(tuned.rows) - 1

    def without(rows):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert without(found.rows) == without(tuned.rows)
    assert repr(found.comparison) == repr(tuned.comparison)
    (tmp_path / "tuned/fits/rank-0/sums.npz").write_bytes(b"damaged")
    with pytest.raises(DataError, match="cannot be read.*delete it and go on with resume=True"):
        tune(ratings, **whole, resume=True)


def test_ctrl_c_keeps_what_is_done(ratings, listening, tmp_path):
    seen = []

    def stop(step):
        seen.append(step.name)
        if seen.count("rank 2") == 16:  # of 20 sweeps: the fit could be used, but not compared
            raise KeyboardInterrupt

    found = tune(ratings, ranks=(0, 2), out=tmp_path / "out", progress=stop, **QUICK)
    assert (found.stopped, [row["name"] for row in found.rows]) == ("interrupted", ["rank 0"])
    assert found.fit is None
    assert [one.name for one in (tmp_path / "out/fits").iterdir()] == ["rank-0"]


def test_every_rating_is_predicted_once(ratings):
    models = {"biases": Model(0), "map": MAP(Model.paper("none"), penalty=5.0, threads=1)}
    steps = []
    found = cross_validate(ratings, models, 3, progress=steps.append, **QUICK)
    assert found.rows[0]["test_ratings"] == len(ratings)
    squares = 0.0
    for number, part in enumerate(kfold(ratings, 0, 3)):
        fit = Gibbs(Model(0), seed=0, **QUICK).fit(part.train)
        error = fit.evaluate(part.test)["rmse"]
        assert found.folds[2 * number]["rmse"] == pytest.approx(error, abs=1e-12)
        squares += error**2 * len(part.test)
    assert found.rows[0]["rmse"] == pytest.approx(np.sqrt(squares / len(ratings)), abs=1e-12)
    assert found.rows[1]["rmse_difference"] == pytest.approx(
        found.rows[1]["rmse"] - found.rows[0]["rmse"]
    )
    ends = [step for step in steps if step.ended]
    assert [step.name for step in ends][:2] == ["biases, fold 1", "map, fold 1"]
    assert ends[-1].done == pytest.approx(ends[-1].total)
    assert found.fold_table.num_rows == 6


def test_mistakes_are_told(ratings):
    with pytest.raises(DataError, match="there are no models"):
        cross_validate(ratings, [])
    with pytest.raises(TypeError, match="model 1 is of type NoneType; give a Model"):
        cross_validate(ratings, ["rank 3"])
    with pytest.raises(DataError, match="by='mae': choose one of rmse, log"):
        tune(ratings, by="mae")
    with pytest.raises(DataError, match="there are no ranks"):
        tune(ratings, ranks=())
    with pytest.raises(DataError, match="fits=0: choose 1 or more"):
        tune(ratings, fits=0)


def test_the_commands(tiny_ratings, tmp_path):
    quick = ["--sweeps", "20", "--chains", "1", "--threads", "1", "--quiet"]
    out = tmp_path / "tuned"
    words = ["tune", str(tiny_ratings), "--ranks", "0,2", "--out", str(out), *quick]
    done = CliRunner().invoke(main, [*words, "--fits", "2", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["words"] == json.loads((out / "tuning.json").read_text())["words"]
    assert [row["name"] for row in told["rows"]] == ["rank 0", "rank 2"]
    assert bayesmf.load_model(out).model.rank == 2  # the chosen one, on all ratings
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2
    assert "--resume" in again.output
    crossed = CliRunner().invoke(
        main, ["cross-validate", str(tiny_ratings), "--ranks", "0,2", "--folds", "2", *quick]
    )
    assert crossed.exit_code == 0, crossed.output
    assert "rank 2 has the lowest test RMSE" in crossed.output
    wrong = CliRunner().invoke(main, ["tune", str(tiny_ratings), "--ranks", "a", "--out", str(out)])
    assert "write whole numbers, as in 5,10,20" in wrong.output


def test_models_whose_names_differ_in_signs_are_kept_apart(tiny_ratings, tmp_path):
    ratings = bayesmf.load(tiny_ratings)
    models = {"a+": Model(0), "a-": Model(2), "a": Model(1)}
    plain = cross_validate(ratings, models, 2, **QUICK)
    kept = cross_validate(ratings, models, 2, out=tmp_path / "search", **QUICK)
    assert [row["rmse"] for row in kept.rows] == [row["rmse"] for row in plain.rows]


def test_a_search_that_goes_on_to_another_choice_fits_that(ratings, tmp_path, monkeypatch):
    whole = {"ranks": (0, 2), **QUICK, "out": tmp_path / "tuned"}
    sweeps = lambda self, *a, **k: fit(replace(self, sweeps=20, chains=1, until="sweeps"), *a, **k)  # noqa: E731
    fit = Gibbs.fit
    monkeypatch.setattr(Gibbs, "fit", sweeps)  # of the last fit, too
    first = tune(ratings, fits=1, **whole)
    found = tune(ratings, resume=True, **whole)
    kept = bayesmf.load_model(tmp_path / "tuned/model").posterior.model
    assert found.best != first.best
    assert kept.to_dict() == found.fit.posterior.model.to_dict()
    assert kept.rank == found.best.rank
    monkeypatch.setattr(Gibbs, "fit", None)  # all is there
    again = tune(ratings, resume=True, **whole)
    assert again.fit.posterior.model.to_dict() == kept.to_dict()


def test_a_search_with_other_tables_of_attributes_is_another(ratings, tmp_path):
    whole = {"ranks": (0,), "fits": 1, "refit": False, **QUICK, "out": tmp_path / "tuned"}
    ids = ratings.items.values
    tables = [pa.table({"item": ids, "size": np.arange(len(ids)) + k}) for k in (0.0, 1.0)]
    tune(ratings, item_attributes=tables[0], **whole)
    tune(ratings, item_attributes=tables[0], resume=True, **whole)
    with pytest.raises(DataError, match="a search with another fit"):
        tune(ratings, item_attributes=tables[1], resume=True, **whole)
