"""The measures, the warm-up, the error of endless draws and the verdict, on known chains."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.evaluation import diagnostics
from bayesmf.evaluation.convergence import MEDIAN, WORST, Diagnostics
from bayesmf.evaluation.diagnostics import (
    LOG_PRECISION,
    PREDICTIONS,
    SPREAD,
    SUMMARIES,
    TAU,
    Run,
    Targets,
    effective_draws,
    endless_error,
    find_warm_up,
    judge,
    measure,
)
from oracle.chains import autoregression, chains_like

TARGETS = Targets()


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, -0.4])
def test_effective_draws_of_an_autoregression(phi):
    """n (1 - phi) / (1 + phi) is exact; the estimate of 4 x 4000 draws is good to 20 %."""
    x = autoregression(4, 4000, phi, seed=1)
    exact = 16_000 * (1 - phi) / (1 + phi)
    found = measure(x)
    assert found.ess == pytest.approx(exact, rel=0.2)
    assert effective_draws(x) == found.ess
    assert found.r_hat == pytest.approx(1.0, abs=0.01)
    assert found.mcse == pytest.approx(x.std() / np.sqrt(exact), rel=0.15)
    assert (found.mean, found.sd) == pytest.approx((x.mean(), x.std()))


def test_r_hat_sees_a_shift_a_trend_and_a_spread():
    x = autoregression(4, 500, 0.3, seed=2)
    assert measure(x + np.array([0, 0, 0, 1])[:, None]).r_hat > 1.05
    assert measure(x + np.linspace(0, 3, 500)).r_hat > 1.05
    wide = x * np.array([1, 1, 1, 4])[:, None]
    assert measure(wide).r_hat > 1.05  # only the folded draws tell the chains apart
    stats = diagnostics.load_stats()
    alone = stats.rhat(wide, chain_axis=0, draw_axis=1, method="z_scale")
    assert alone < 1.02, "then this test would pass without the folded R-hat"


def test_the_measures_are_those_of_arviz():
    arviz = pytest.importorskip("arviz")
    x = autoregression(3, 300, 0.6, seed=3) + np.array([0.0, 0.0, 0.4])[:, None]
    found = measure(np.stack([x, -2 * x**3], axis=2))
    for k, values in enumerate((x, -2 * x**3)):
        assert found.r_hat[k] == pytest.approx(float(arviz.rhat(values)), rel=1e-9)
        assert found.ess[k] == pytest.approx(float(arviz.ess(values, method="bulk")), rel=1e-9)
        assert found.mcse[k] == pytest.approx(float(np.squeeze(arviz.mcse(values))), rel=1e-9)
        tail = float(arviz.ess(values, method="tail", prob=(0.05, 0.95)))
        assert found.ess_tail[k] == pytest.approx(tail, rel=1e-9)


def test_what_never_changes_has_no_measures():
    x = np.full((4, 100), 0.1)
    assert np.isnan([measure(x).r_hat, measure(x).ess, effective_draws(x)]).all()
    assert np.isnan(measure(autoregression(4, 7, 0.0, seed=1)).ess)


def test_the_warm_up_is_dropped_and_nothing_else():
    steady = autoregression(4, 640, 0.5, seed=4)
    drift = steady + 8 * np.exp(-np.arange(640) / 40)
    short, long = find_warm_up({TAU: steady}), find_warm_up({TAU: drift})
    assert short <= 640 // 16
    assert 80 <= long <= 280  # the drift is 1 sd after 83 sweeps, and 0.01 sd after 267
    assert effective_draws(drift[:, long:]) > 5 * effective_draws(drift)
    assert find_warm_up({TAU: steady, SPREAD: drift}) == long  # the worst summary counts
    assert find_warm_up({PREDICTIONS: drift[:, :, None]}) == 0  # which predictions are not
    assert find_warm_up({}) == 0
    assert find_warm_up({TAU: np.ones((4, 640))}) == 0


def test_the_error_of_endless_draws():
    """Chains whose means are truth plus noise of simulation: 200 worlds, known RMSE 0.5."""
    rng = np.random.default_rng(5)
    found, plain = [], []
    for _ in range(200):
        truth = rng.normal(size=4000)
        values = truth + 0.5 * rng.normal(size=4000)
        means = truth + 0.4 * rng.normal(size=(4, 4000))
        found.append(endless_error(means, values))
        plain.append(np.sqrt(np.mean((means.mean(axis=0) - values) ** 2)))
    rmse, _ = np.array(found).T
    # the sd of one world is 0.5 / sqrt(2 * 4000) = 0.0056 and more; 0.002 is 4 standard errors
    assert rmse.mean() == pytest.approx(0.5, abs=0.002)
    assert np.mean(plain) == pytest.approx(np.sqrt(0.25 + 0.04), abs=0.002)


def test_the_simulation_error_of_the_error_of_endless_draws():
    """For the same ratings, chains drawn anew move the estimate by what the jackknife says."""
    rng = np.random.default_rng(6)
    truth = rng.normal(size=1000)
    values = truth + 0.5 * rng.normal(size=1000)
    found = [endless_error(truth + 0.4 * rng.normal(size=(8, 1000)), values) for _ in range(300)]
    rmse, error = np.array(found).T
    assert np.sqrt(np.mean(error**2)) == pytest.approx(rmse.std(), rel=0.25)
    one = truth[None]
    assert np.isnan(endless_error(one, values)).all()
    two = endless_error(np.stack([truth, truth]), values)
    assert two[0] == pytest.approx(np.sqrt(np.mean((truth - values) ** 2)))
    assert np.isnan(two[1])


def test_chains_that_agree_have_converged():
    verdict = judge(chains_like(0.3), TARGETS)
    assert verdict.converged is True
    assert (verdict.chains, verdict.draws, verdict.predictions) == (4, 500, 64)
    assert verdict.share == 1
    assert verdict.words.startswith(
        "Converged: all 64 predictions have R-hat of at most 1.05 and 100 "
    )
    assert "Fit with" not in verdict.words
    name, fewest = verdict.fewest_draws
    assert fewest == min(verdict.ess.values()) == verdict.ess[name]
    assert f"the {name} with the fewest: {fewest:,.0f} effective draws" in verdict.words
    assert verdict.worst_r_hat[1] == max(verdict.r_hat.values())
    assert verdict.low_ess < verdict.median_ess


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.parametrize("mistake", ["shift", "spread", "trend"])
def test_one_summary_that_differs_is_enough(name, mistake):
    traces = chains_like(0.3)
    change = {"shift": lambda x: x + np.array([0, 0, 0, 1.5])[:, None],
              "spread": lambda x: x * np.array([1, 1, 1, 3])[:, None],
              "trend": lambda x: x + np.linspace(0, 2, 500)}[mistake]  # fmt: skip
    traces[name] = change(traces[name])
    verdict = judge(traces, TARGETS, run=Run(600))
    assert verdict.converged is False
    assert verdict.worst_r_hat[0] == name
    assert verdict.words.startswith("Not converged: all 64 predictions have R-hat of at most 1.05")
    assert f"; but the {name} has" in verdict.words


def test_too_many_predictions_that_differ():
    traces = chains_like(0.3)
    traces[PREDICTIONS][0, :, :3] += 3.0
    verdict = judge(traces, TARGETS)
    assert verdict.converged is True  # 61 of 64 are more than 95 %
    assert verdict.words.startswith("Converged: 95 % of 64 predictions")
    traces[PREDICTIONS][0, :, :4] += 3.0
    verdict = judge(traces, TARGETS)
    assert (verdict.converged, verdict.share) == (False, 60 / 64)
    assert "93 % of 64 predictions" in verdict.words
    assert "and 95 % should; all summaries do, the" in verdict.words
    assert judge(traces, replace(TARGETS, share=0.9)).converged is True


@pytest.mark.parametrize("strict", [{"r_hat": 1 + 1e-9}, {"ess": 1e9}])
def test_each_target_counts(strict):
    traces, lax = chains_like(0.3), Targets(9.0, 1.0, 0.5)
    assert judge(traces, lax).converged is True
    assert judge(traces, replace(lax, **strict)).converged is False


def test_advice_is_reckoned_from_the_draws_that_are_missing():
    """With a ninth of the effective draws, nine times the sweeps; never more than ten times."""
    slow, strict = chains_like(0.9), Targets(1.01, 400)
    verdict = judge(slow, strict, run=Run(600))
    assert verdict.converged is False
    low = np.quantile(measure(slow[PREDICTIONS]).ess, 0.05)
    times = max(strict.ess / min(low, *verdict.ess.values()), 2)
    sweeps = int(verdict.words.rpartition("sweeps=")[2].rstrip("."))
    assert 600 * times <= sweeps <= 600 * times * 1.1
    assert sweeps % 100 == 0
    fast = chains_like(0.0)
    fast[TAU] = fast[TAU] + np.array([0, 0, 0, 0.3])[:, None]
    fast[LOG_PRECISION] = fast[TAU] * 2 + 1
    assert judge(fast, Targets(1.01, 10), run=Run(600)).words.endswith("Fit with sweeps=1200.")
    fast[SPREAD] = fast[SPREAD] / 1e3 + np.arange(4)[:, None]
    assert judge(fast, TARGETS, run=Run(600)).words.endswith("Fit with sweeps=6000.")


def test_what_cannot_be_judged_says_why():
    whole = chains_like(0.3)
    one = {name: trace[:1] for name, trace in whole.items()}
    few = {name: trace[:, :5] for name, trace in whole.items()}
    old = {TAU: whole[TAU], "prediction 1": whole[PREDICTIONS][:, :, 0]}
    still = {name: np.ones_like(trace) for name, trace in whole.items()}
    for traces, why, remedy in (
        (one, "one chain says nothing about what another start", "Fit with chains=4."),
        (few, "too few draws of each chain (5) are left after the warm-up", "Fit with sweeps=400."),
        (old, "saved by an earlier version, without the predictions", "Fit it again."),
        (still, "no prediction ever changes", "Check the ratings."),
        ({}, "There are no chains to judge: only Gibbs", "Fit with inference='gibbs'."),
    ):
        verdict = judge(traces)
        assert verdict.converged is None
        assert why in verdict.words
        assert verdict.words.endswith(remedy)
        assert verdict.short == "convergence cannot be judged"
        json.dumps(Diagnostics.from_traces(traces).to_dict(), allow_nan=False)


def test_a_constant_trace_is_left_out():
    """A likelihood without tau keeps it at 1."""
    traces = chains_like(0.3)
    traces[TAU] = np.full((4, 500), 0.1)
    traces[PREDICTIONS][:, :, :7] = 3.3
    found = Diagnostics.from_traces(traces)
    assert found.verdict.converged is True
    assert TAU not in found.verdict.ess
    assert found.verdict.predictions == 57
    assert TAU not in found.table["name"].to_pylist()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", [TAU, PREDICTIONS])
def test_what_is_not_finite_has_not_converged(name, value):
    traces = chains_like(0.3)
    traces[name][2, 7] = value
    verdict = judge(traces)
    assert verdict.converged is False
    assert f"the trace of {name} holds values that are not finite" in verdict.words


def test_the_table_and_its_text():
    found = Diagnostics.from_traces(chains_like(0.3))
    table = found.table
    assert table.column_names == ["name", "mean", "sd", "mcse", "r_hat", "ess", "ess_tail"]
    assert table["name"].to_pylist() == [*SUMMARIES, MEDIAN, WORST]
    ess = table["ess"].to_pylist()
    assert ess[3] == np.median(found.predictions.ess)
    assert ess[4] == np.quantile(found.predictions.ess, 0.01) == found.verdict.low_ess
    assert table["r_hat"][4].as_py() == np.quantile(found.predictions.r_hat, 0.99)
    assert table["mean"][4].as_py() is None
    lines = repr(found).splitlines()
    assert lines[0] == found.verdict.words
    assert lines[2].split() == ["mean", "sd", "error", "R-hat", "ESS", "tail", "ESS"]
    assert [line[: len(WORST)].strip() for line in lines[3:]] == table["name"].to_pylist()
    assert len({len(line) for line in lines[2:]}) == 1
    facts = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert facts["converged"] is True
    assert facts["summaries"]["noise_precision"]["r_hat"] == float(found.summaries[TAU].r_hat)
    assert facts["predictions"]["median"]["ess"] == ess[3]
    assert facts["targets"]["ess"] == 100
