"""Traces for ArviZ, whichever of its two signatures is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmf import Gibbs
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)


def fitted():
    return Gibbs(VARIANTS["no side"], sweeps=12, burn_in=2, keep=2, chains=2).fit(TRAIN)


def test_the_installed_version_takes_the_traces():
    arviz = pytest.importorskip("arviz")
    fit = fitted()
    found = fit.to_arviz()
    assert list(found.posterior.data_vars) == list(fit.traces)
    noise = fit.traces["noise precision"][:, fit.burn_in :]
    np.testing.assert_array_equal(found.posterior["noise precision"].to_numpy(), noise)
    told = arviz.summary(found, var_names=["noise precision"])
    assert "noise precision" in told.index


def before_one(posterior=None, *, posterior_predictive=None, **more):
    return "InferenceData", posterior


def since_one(data, *, name=None, sample_dims=None, **more):
    assert set(data) == {"posterior"}
    return "DataTree", data["posterior"]


@pytest.mark.parametrize(("from_dict", "kind"), [(before_one, "InferenceData"),
                                                 (since_one, "DataTree")])  # fmt: skip
def test_both_signatures(from_dict, kind, monkeypatch):
    """ArviZ before 1.0 takes the group as an argument, since then all groups as one dict."""
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=from_dict))
    fit = fitted()
    made, traces = fit.to_arviz()
    assert made == kind
    assert list(traces) == list(fit.traces)
    assert traces["noise precision"].shape == (2, 10)


def test_a_missing_arviz_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'bayesmf\[arviz\]'"):
        fitted().to_arviz()
