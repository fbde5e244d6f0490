"""Traces for ArviZ, whichever of its two signatures is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

from bayesmf import Gibbs, load_model
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES, TAU
from bayesmf.fitted.arviz import unidentified
from bayesmf.fitted.base import SavedFit
from oracle.chains import chains_like
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)


def fitted(name="two designs"):
    return Gibbs(VARIANTS[name], sweeps=12, burn_in=2, keep=2, chains=2).fit(TRAIN)


def with_traces(fit):
    """The same fit, with the traces of other chains: as many as can be judged."""
    return SavedFit(fit.posterior, chains_like(0.3, 2, 50, 6), fit._saved_facts())


def test_the_installed_version_takes_the_traces():
    arviz = pytest.importorskip("arviz")
    fit = fitted()
    found = fit.to_arviz()
    assert list(found.posterior.data_vars) == list(fit.traces)
    noise = fit.traces["noise precision"][:, fit.burn_in :]
    np.testing.assert_array_equal(found.posterior["noise precision"].to_numpy(), noise)
    told = arviz.summary(found, var_names=["noise precision"])
    assert "noise precision" in told.index


def test_predictions_have_a_dimension_of_pairs():
    arviz = pytest.importorskip("arviz")
    fit = with_traces(fitted())
    found = fit.to_arviz().posterior
    assert found[PREDICTIONS].dims == ("chain", "draw", "pair")
    np.testing.assert_array_equal(found[PREDICTIONS].to_numpy(), fit.traces[PREDICTIONS])
    measured = fit.diagnostics()
    assert list(found.data_vars) == [*SUMMARIES, PREDICTIONS]
    theirs = arviz.rhat(found)
    np.testing.assert_allclose(theirs[PREDICTIONS], measured.predictions.r_hat, rtol=1e-9)
    assert float(theirs[TAU]) == pytest.approx(float(measured.summaries[TAU].r_hat))


@pytest.mark.parametrize("saved", [False, True])
def test_raw_parameters_are_in_a_group_of_their_own(saved, tmp_path):
    pytest.importorskip("arviz")
    fit = fitted()
    arrays = fit.draws.arrays
    if saved:
        fit.save(tmp_path / "model")
        fit = load_model(tmp_path / "model")
    raw = fit.to_arviz()["unidentified"]
    assert "Do not judge convergence by these" in raw.attrs["why"]
    assert dict(raw.sizes) == {"chain": 2, "draw": 2, "column": 3, "column_2": 3}
    by_chain = arrays["user.Lambda"].reshape(2, 2, 3, 3)
    np.testing.assert_array_equal(raw["user Lambda"].to_numpy(), by_chain)
    variance = np.linalg.inv(by_chain[1, 0].astype(float))[0, 0]
    assert float(raw["user bias variance"][1, 0]) == pytest.approx(variance)
    scale = np.sqrt(np.mean(arrays["user.W_2"][2].astype(float) ** 2))
    assert float(raw["user W_2 scale"][1, 0]) == pytest.approx(scale)
    assert {"item mu", "user mu_W", "user Lambda_W_2"} <= set(raw.data_vars)


@pytest.mark.parametrize("name", ["biases", "both sides only, truncated", "no side, student-t"])
def test_every_kind_of_model_has_them(name):
    pytest.importorskip("arviz")
    raw = fitted(name).to_arviz()["unidentified"]
    assert all(np.isfinite(values).all() for values in raw.data_vars.values())


def test_chains_that_kept_unequal_numbers_of_draws():
    posterior = fitted("no side").posterior
    found = unidentified(posterior, [0, 1, 1, 1])
    assert dict(found.sizes)["draw"] == 1
    expected = posterior.draws["item.mu"][[0, 3]]
    np.testing.assert_array_equal(found["item mu"].to_numpy()[:, 0], expected)


def test_a_fit_that_kept_no_draws_has_its_traces_only():
    pytest.importorskip("arviz")
    fit = Gibbs(VARIANTS["no side"], sweeps=12, burn_in=2, keep=0, chains=2).fit(TRAIN)
    assert list(fit.to_arviz().groups()) == ["posterior"]


class BeforeOne(dict):
    """An InferenceData."""

    def add_groups(self, groups):
        self.update(groups)


def before_one(posterior=None, *, posterior_predictive=None, dims=None, **more):
    return BeforeOne(posterior=posterior)


def since_one(data, *, name=None, sample_dims=None, dims=None, **more):
    assert set(data) == {"posterior"}
    sizes = {key: ("chain", "draw", *(dims or {}).get(key, ())) for key in data["posterior"]}
    posterior = {key: (sizes[key], values) for key, values in data["posterior"].items()}
    return xarray.DataTree.from_dict({"posterior": xarray.Dataset(posterior)})


@pytest.mark.parametrize(("from_dict", "kind"), [(before_one, BeforeOne),
                                                 (since_one, xarray.DataTree)])  # fmt: skip
def test_both_signatures(from_dict, kind, monkeypatch):
    """ArviZ before 1.0 takes the group as an argument, since then all groups as one dict."""
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=from_dict))
    fit = with_traces(fitted())
    found = fit.to_arviz()
    assert type(found) is kind
    assert list(found["posterior"]) == [*SUMMARIES, PREDICTIONS]
    assert found["posterior"][TAU].shape == (2, 50)
    assert found["unidentified"]["user mu"].shape == (2, 2, 3)
    assert "Do not judge" in found["unidentified"].attrs["why"]


def test_a_missing_arviz_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'bayesmf\[arviz\]'"):
        fitted().to_arviz()
