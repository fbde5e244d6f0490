"""Running chains: the same bits on any threads, stopping, exact small cases."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from bayesmf import MAP, DataError, Gibbs, Hyper, Model, Variational, load, load_model, split
from bayesmf.cli.main import main
from bayesmf.data.split import carve
from bayesmf.fitted.store.kept import Kept
from bayesmf.inference.loop import Patience, Progress
from bayesmf.model.data import Data
from bayesmf.model.state import from_arrays, random_start, to_arrays
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import BASE, VARIANTS, small_ratings

HASH = """
import hashlib, sys
import bayesmf
from bayesmf import Gibbs, Model
from bayesmf.model.state import to_arrays
train, test = bayesmf.split(bayesmf.load("demo"), "paper")
few = train.select(range(0, len(train), 30))  # so few for each row that their scales are moved
ordinal = Model(5, likelihood="ordinal")
for model, ratings in (
    (Model(5), train), (Model(5, precision="truncated"), train), (Model(5), few), (ordinal, train)
):
    sampler = Gibbs(model, sweeps=4, burn_in=1, threads=int(sys.argv[1]))
    fit = sampler.fit(ratings, test)
    parts = [*fit.traces.values(), fit.predictions.mean]
    parts += [values for state in fit.states for values in to_arrays(state).values()]
    print(len(fit.states), hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest())
"""


def digest(fit) -> str:
    state = fit.states[0]
    parts = [state.user.x, state.item.x, state.user.alpha]
    parts += [shift.W for side in (state.user, state.item) for shift in side.shifts]
    return hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest()


@pytest.mark.parametrize("hyper", [{"feature_scale": scale} for scale in (1e6, 1e8, 1e12)])
def test_hyper_parameters_that_cannot_be_computed_get_a_sentence(hyper):
    """Whether a sweep cannot be computed, or only the users that are drawn again."""
    train, _ = split(load("demo"), "paper")
    model = Model(4, hyper=Hyper(**hyper))
    with pytest.raises(DataError, match="choose numbers nearer to 1"):
        Gibbs(model, sweeps=12, burn_in=4, chains=1).fit(train)


def test_errors_of_callbacks_are_not_taken_for_ones_of_the_model():
    train, _ = split(load("demo"), "paper")

    def fail(progress):
        raise np.linalg.LinAlgError("of the caller")

    with pytest.raises(np.linalg.LinAlgError, match="of the caller"):
        Gibbs(Model(2), sweeps=3, chains=1).fit(train, callbacks=[fail])


def test_the_same_bits_on_1_2_and_5_threads():
    found = set()
    for threads in (1, 2, 5):
        done = subprocess.run(
            [sys.executable, "-c", HASH, str(threads)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NUMBA_NUM_THREADS": "5"},
        )
        found.add(done.stdout)  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_contract(name):
    """Every variant runs, repeats itself by seed, and differs between seeds and chains."""
    train = small_ratings(30, 20)
    sampler = Gibbs(VARIANTS[name], sweeps=6, burn_in=2, chains=2, seed=3, form="interwoven")
    one, two = sampler.fit(train, train), sampler.fit(train, train)
    assert digest(one) == digest(two)
    assert one.test_rmse == two.test_rmse
    assert np.isfinite(one.test_rmse)
    assert one.traces["noise precision"].shape == (2, 6)
    assert not np.array_equal(*one.traces["noise precision"])
    other = Gibbs(VARIANTS[name], sweeps=6, burn_in=2, seed=4, chains=1).fit(train, train)
    assert digest(other) != digest(one)
    assert one.predictions.count == 8
    assert len(one.rmse_by_sweep) == 12


def test_bias_only_is_linear_regression():
    """With items and precisions held, a user's bias has a known Gaussian posterior."""
    hyper = Hyper(bias_mean=0.0, bias_precision=2.0)
    model = Model.paper("none", bias="fixed", hyper=hyper)
    ratings = small_ratings(8, 6)
    data = Data.of(ratings, model)
    state = random_start(model, data, 0)
    drawn = []
    for k in range(4000):
        state.item.x[:, 0], state.tau = 0.0, 1.5
        gibbs_sweep(model, data, state, Draws(0, sweep=k), "centred")
        drawn.append(state.user.x[:, 0].copy())
    n = ratings.by_user.counts
    total = np.bincount(ratings.by_user.row_index, ratings.values - ratings.mean, minlength=8)
    precision = 2.0 + 1.5 * n
    z = (np.mean(drawn, axis=0) - 1.5 * total / precision) * np.sqrt(precision * 4000)
    assert np.abs(z).max() < 4.5
    assert np.var(drawn, axis=0) * precision == pytest.approx(np.ones(8), abs=5 * np.sqrt(2 / 4000))


def test_transposing_the_data_transposes_the_model():
    """An item is a user of the transposed data: same law, so same error within chance."""
    train, test = split(load("demo"), "paper", seed=0)
    model = Model.paper("side", rank=4)
    turned = replace(model, user_designs=(), item_designs=model.user_designs)
    one = Gibbs(model, sweeps=250, burn_in=100, chains=1).fit(train, test)
    other = Gibbs(turned, sweeps=250, burn_in=100, chains=1).fit(train.T, test.T)
    assert one.test_rmse == pytest.approx(other.test_rmse, abs=0.003)


def test_side_features_and_features_pay_on_the_demo_data():
    train, test = split(load("demo"), "paper", seed=0)
    rmse = {
        name: Gibbs(model, sweeps=80, chains=1).fit(train, test).test_rmse
        for name, model in (
            ("none", Model.paper("none")),
            ("no side", Model.paper("no-side", rank=6)),
            ("side", Model.paper("side", rank=6)),
        )
    }
    assert rmse["none"] > rmse["no side"] + 0.02
    assert rmse["no side"] > rmse["side"] + 0.001


def test_reasons_to_stop():
    train = small_ratings(30, 20)
    sampler = Gibbs(BASE, sweeps=500, burn_in=2, chains=1)
    seen: list[Progress] = []

    def third(progress: Progress) -> bool:
        seen.append(progress)
        return progress.sweep == 3

    fit = sampler.fit(train, train, callbacks=[third])
    assert (fit.sweeps, fit.stopped) == (3, "a callback ended it")
    assert [p.sweep for p in seen] == [1, 2, 3]
    fit = sampler.fit(train, train, budget=0.0)
    assert (fit.sweeps, fit.stopped) == (1, "the time was up")

    def interrupt(progress: Progress) -> None:
        if progress.sweep == 5:
            raise KeyboardInterrupt

    fit = sampler.fit(train, train, callbacks=[interrupt])
    assert (fit.sweeps, fit.stopped) == (5, "interrupted")
    assert fit.predictions.count == 3


def test_the_run_ends_when_the_validation_error_of_all_chains_stops_falling():
    train, rest = split(load("demo"), "paper", seed=0)
    validation, test = carve(rest, 0.5)
    sampler = Gibbs(Model.paper("none"), sweeps=400, burn_in=5, chains=2)
    seen: list[Progress] = []
    fit = sampler.fit(train, test, validation=validation, patience=3, callbacks=[seen.append])
    assert fit.stopped == "the validation error has stopped falling"
    assert 10 < fit.sweeps < 400
    assert 2 * len(fit.validation_by_sweep) == fit.sweeps == len(fit.rmse_by_sweep)
    assert [p.validation for p in seen[1::2]] == fit.validation_by_sweep
    assert [p.chain for p in seen] == [0, 1] * (fit.sweeps // 2)
    patience = Patience(3)
    ends = [patience.ends(error) for error in fit.validation_by_sweep[5:]]
    assert ends == [False] * (len(ends) - 1) + [True]


def test_patience():
    patience = Patience(sweeps=2, least=0.1)
    assert [patience.ends(e) for e in (1.0, 0.8, 0.75, 0.71, 0.6)] == [False] * 3 + [True, False]


@pytest.mark.parametrize("name", ["no side", "both sides, joint bias, robust, student-t"])
def test_kept_draws_are_those_of_the_chain(name, tmp_path):
    """In memory or on disk, float32, evenly spaced, and their mean prediction is the average."""
    train = small_ratings(30, 20)
    sampler = Gibbs(VARIANTS[name], sweeps=14, burn_in=2, chains=2, keep=12)
    memory, disk = sampler.fit(train, train), sampler.fit(train, train, keep_in=tmp_path / "draws")
    assert len(memory.draws) == len(disk.draws) == 24
    assert memory.draws.chains == [0] * 12 + [1] * 12
    again = Kept.open(tmp_path / "draws")
    for key, values in memory.draws.arrays.items():
        assert values.dtype == np.float32
        assert np.array_equal(values, disk.draws.arrays[key])
        assert np.array_equal(values, again.arrays[key])
    total = 0
    for k in range(24):
        state = again[k]
        x, y = state.user.x, state.item.x
        user, item = train.by_user.row_index, train.by_user.index
        total = total + train.mean + x[user, 0] + y[item, 0] + (x[user, 1:] * y[item, 1:]).sum(1)
    assert total / 24 == pytest.approx(memory.predictions.mean, abs=1e-5)
    last, state = memory.draws[-1], memory.states[-1]
    assert last.sweep == state.sweep == 14
    assert last.tau == pytest.approx(state.tau, rel=1e-6)
    for kept, drawn in zip(last.user.shifts, state.user.shifts, strict=True):
        assert pytest.approx(drawn.W, rel=1e-6) == kept.W
    few = Gibbs(VARIANTS[name], sweeps=14, burn_in=2, keep=3, chains=1).fit(train)
    assert [few.draws[k].sweep for k in range(3)] == [6, 10, 14]
    with pytest.raises(IndexError):
        memory.draws[24]


def test_kept_draws_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="not a folder of kept draws"):
        Kept.open(tmp_path)
    train = small_ratings(30, 20)
    Gibbs(BASE, sweeps=4, burn_in=2, keep=2, chains=1).fit(train, keep_in=tmp_path / "draws")
    np.save(tmp_path / "draws" / "tau.npy", np.zeros((1, 1), np.float32))
    with pytest.raises(DataError, match="tau.npy has another shape"):
        Kept.open(tmp_path / "draws")
    with pytest.raises(DataError, match="draws exists already; choose another folder for keep_in$"):
        Gibbs(BASE, sweeps=4, burn_in=2, keep=2, chains=1).fit(train, keep_in=tmp_path / "draws")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_state_goes_into_arrays_and_back(name):
    model, train = VARIANTS[name], small_ratings(30, 20)
    half = Gibbs(model, sweeps=3, burn_in=0, chains=1).fit(train)
    whole = Gibbs(model, sweeps=6, burn_in=0, chains=1).fit(train)
    state = from_arrays(to_arrays(half.states[0]), Data.of(train, model))
    rest = Gibbs(model, sweeps=3, burn_in=0, chains=1).fit(train, start=state)
    assert digest(rest) == digest(whole)


def test_traces_for_arviz(tmp_path):
    arviz = pytest.importorskip("arviz")
    fit = Gibbs(BASE, sweeps=60, burn_in=20, chains=3).fit(small_ratings(30, 20))
    found = fit.to_arviz()
    assert found.posterior["noise precision"].shape == (3, 40)
    theirs = float(arviz.rhat(found)["noise precision"])
    measured = fit.diagnostics().summaries["noise precision"]
    assert float(measured.r_hat) == pytest.approx(theirs, abs=1e-6)
    fit.save(tmp_path / "fit")
    assert load_model(tmp_path / "fit").to_arviz().posterior.equals(found.posterior)


def test_fits_without_chains_have_no_traces(tmp_path):
    train = small_ratings(30, 20)
    for fit in (MAP(BASE, penalty=5.0, sweeps=2), Variational(BASE, sweeps=2)):
        one = fit.fit(train)
        one.save(tmp_path / type(fit).__name__)
        for each in (one, load_model(tmp_path / type(fit).__name__)):
            with pytest.raises(DataError, match="only Gibbs sampling leaves traces"):
                each.to_arviz()


def test_a_given_start_is_where_the_chain_begins():
    train = small_ratings(30, 20)
    first = Gibbs(BASE, sweeps=5, burn_in=0, chains=1).fit(train, train)
    rest = Gibbs(BASE, sweeps=5, burn_in=0, chains=1).fit(train, train, start=first.states[0])
    whole = Gibbs(BASE, sweeps=10, burn_in=0, chains=1).fit(train, train)
    assert digest(rest) == digest(whole)
    assert first.states[0].sweep == 5


def test_settings_that_make_no_sense():
    for wrong, match in (({"sweeps": 5, "burn_in": 5}, "burn_in=5"), ({"thin": 0}, "thin"),
                         ({"keep": 400, "sweeps": 400}, "keep=400"),
                         ({"threads": 10_000}, "threads=10000")):  # fmt: skip
        with pytest.raises(DataError, match=match):
            Gibbs(BASE, **wrong)


def test_fit_as_a_command(tmp_path):
    runner = CliRunner()
    out = tmp_path / "fit"
    args = ["fit", "demo", "--paper", "side", "--precision", "robust", "--inference", "gibbs",
            "--rank", "4", "--sweeps", "8", "--burn-in", "2", "--chains", "2", "--holdout",
            "paper", "--seed", "0", "--out", str(out), "--json", "--quiet"]  # fmt: skip
    done = runner.invoke(main, args)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.output.splitlines()[-1])
    assert facts["sweeps"] == 16
    assert facts["chains"] == 2
    assert 0.7 < facts["test_rmse"] < 1.1
    assert facts["model"]["precision"] == "robust"
    rows = load(out / "predictions.csv", rating="mean")
    assert len(rows) == facts["holdout"]["test"]
    saved = json.loads((out / "fit.json").read_text())
    assert saved["test_rmse"] == facts["test_rmse"]
    assert len(saved["rmse_by_sweep"]) == 16
    assert saved["endless_rmse"] == pytest.approx(saved["test_rmse"], rel=0.05)
    assert load_model(out).facts["endless_rmse"] == saved["endless_rmse"]
    again = runner.invoke(main, args)
    assert again.exit_code == 2
    assert "exists already" in again.output
    assert runner.invoke(main, [*args, "--overwrite"]).exit_code == 0
    plain = runner.invoke(main, ["fit", "demo", "--rank", "3", "--sweeps", "30", "--holdout",
                                 "random", "--chains", "3", "--quiet"])  # fmt: skip
    told = (
        r"test RMSE 0\.\d{4} \(0\.\d{4} ± 0\.\d{4} with endless draws\) after 90 sweeps of 3 chains"
    )
    assert re.search(told, plain.output)
    none = runner.invoke(main, ["fit", "demo", "--paper", "none", "--bounds", "2", "--precision",
                                "truncated", "--holdout", "none", "--sweeps", "3", "--burn-in", "1",
                                "--quiet", "--json"])  # fmt: skip
    assert json.loads(none.output)["model"]["bounds"] == [0.5, 2.0]
    bad = runner.invoke(main, ["fit", "demo", "--bounds", "x"])
    assert bad.exit_code == 2
    assert "write LOW:HIGH, or N" in bad.output


def test_the_default_model_is_the_best_known(tmp_path):
    done = CliRunner().invoke(main, ["fit", "demo", "--rank", "2", "--sweeps", "2", "--burn-in",
                                     "0", "--quiet", "--json"])  # fmt: skip
    model = json.loads(done.output)["model"]
    design = [{"name": "rated-set", "power": 0.5}]
    assert model["user_designs"] == model["item_designs"] == design
    assert (model["own_features"], model["precision"], model["bias"]) == (True, "robust", "joint")
    assert Model.from_dict(model) == Model(2)


def test_importing_does_not_load_the_compiler():
    code = "import sys, bayesmf; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
