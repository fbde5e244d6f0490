"""What a fit says of its chains: in words, in its repr, and the same after it was saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bayesmf
from bayesmf import MAP, Gibbs, Ratings, Variational
from bayesmf.evaluation import convergence
from bayesmf.evaluation.diagnostics import PREDICTIONS, TAU, Targets, judge
from bayesmf.fitted.base import SavedFit
from oracle.chains import chains_like
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)
BASE = VARIANTS["no side"]


@pytest.fixture(scope="module")
def sampled():
    return Gibbs(BASE, sweeps=12, burn_in=2, keep=2, chains=2).fit(TRAIN)


def with_traces(sampled, traces, **facts):
    return SavedFit(sampled.posterior, traces, {**sampled._saved_facts(), **facts})


@pytest.mark.parametrize(("shift", "short"), [(0.0, "converged"), (3.0, "not converged")])
def test_the_verdict_is_part_of_the_repr(sampled, shift, short):
    traces = chains_like(0.3)
    traces[TAU][0] += shift
    fit = with_traces(sampled, traces)
    assert repr(fit) == f"SavedFit(rank 2, constant precision; {short})"
    assert fit.diagnostics().verdict == judge(traces)


def test_diagnostics_are_computed_once(sampled, monkeypatch):
    calls = []

    def counted(traces):
        calls.append(1)
        return real(traces)

    real = convergence.measure_judged
    monkeypatch.setattr(convergence, "measure_judged", counted)
    fit = with_traces(sampled, chains_like(0.3))
    assert fit.diagnostics() is fit.diagnostics()
    repr(fit)
    assert len(calls) == 1
    assert fit.diagnostics(Targets(ess=1e9)).verdict.converged is False
    assert fit.diagnostics().verdict.converged is True
    fit.traces = {name: trace[:1] for name, trace in fit.traces.items()}
    assert fit.diagnostics().verdict.converged is None  # other traces, another verdict


def test_a_fit_is_judged_by_the_targets_it_was_made_with(sampled):
    fit = with_traces(sampled, chains_like(0.3), targets={"ess": 1e9, "unknown": 3})
    assert fit.diagnostics().verdict.converged is False
    assert fit.diagnostics().targets == Targets(ess=1e9)


def test_advice_counts_the_sweeps_of_the_warm_up(sampled):
    traces = chains_like(0.0)
    traces[TAU] = traces[TAU] + np.array([0, 0, 0, 0.3])[:, None]
    fit = with_traces(sampled, traces, sweeps=4 * 800, targets={"r_hat": 1.01, "ess": 10})
    assert fit.diagnostics().verdict.words.endswith("Fit with sweeps=1600.")


@pytest.mark.parametrize("ending", ["", ".zip"])
def test_a_saved_fit_has_the_same_diagnostics(sampled, ending, tmp_path):
    fit = with_traces(sampled, chains_like(0.3))
    fit.save(tmp_path / f"model{ending}")
    again = bayesmf.load_model(tmp_path / f"model{ending}")
    assert repr(again.diagnostics()) == repr(fit.diagnostics())
    assert again.diagnostics().to_dict() == fit.diagnostics().to_dict()
    np.testing.assert_array_equal(again.traces[PREDICTIONS], fit.traces[PREDICTIONS])
    new = Ratings.from_triplets(users=[5000], items=[0], ratings=[5])
    assert again.fold_in(new).diagnostics().verdict == fit.diagnostics().verdict


def test_a_gibbs_fit_is_judged_after_its_burn_in(sampled):
    assert sampled.diagnostics().verdict.draws == 10


def test_a_model_of_an_earlier_version():
    old = bayesmf.load_model(Path(__file__).parent / "format_1.zip")
    verdict = old.diagnostics().verdict
    assert verdict.converged is None
    assert "saved by an earlier version, without the predictions" in verdict.words
    assert repr(old).endswith("convergence cannot be judged)")


@pytest.mark.parametrize(
    "algorithm", [MAP(BASE, penalty=5.0, sweeps=2), Variational(BASE, sweeps=2)]
)
def test_fits_without_chains_say_so(algorithm):
    fit = algorithm.fit(TRAIN)
    found = fit.diagnostics()
    assert found.verdict.converged is None
    assert repr(found).startswith("There are no chains to judge: only Gibbs sampling leaves some.")
    assert found.table.num_rows == 0
    assert "judged" not in repr(fit)
