"""Bins of users by their number of ratings."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf import DataError, Ratings, load, split
from bayesmf.evaluation.frequency import FrequencyBins, totals_of


def test_bins_are_quantiles_over_test_ratings():
    """Two users: one with 2 ratings, one with 8, half of each in the test."""
    users = np.repeat(["rare", "often"], [2, 8])
    ratings = Ratings.from_triplets(users=users, items=np.r_[0:2, 0:8], ratings=np.r_[1:6, 1:6])
    keep = np.arange(10) % 2 == 0
    train, test = ratings.select(keep), ratings.select(~keep)
    totals = totals_of([train, test], test)
    assert sorted(totals) == [2, 8, 8, 8, 8]
    bins = FrequencyBins.of([train, test], test, quantiles=(0.2, 0.9))
    assert (bins.uppers, bins.labels) == ((2,), ["<=2", "3+"])
    assert list(bins.counts) == [1, 4]
    errors = np.where(totals == 2, 3.0, 1.0)
    assert bins.rmse(errors) == pytest.approx([3.0, 1.0])


def test_the_overall_error_is_the_bins_together():
    train, test = split(load("demo"), "paper", seed=0)
    bins = FrequencyBins.of([train, test], test)
    assert bins.counts.sum() == len(test)
    assert (np.diff(bins.uppers) > 0).all()
    errors = np.random.default_rng(0).normal(size=len(test))
    together = np.sqrt(np.average(bins.rmse(errors) ** 2, weights=bins.counts))
    assert together == pytest.approx(np.sqrt(np.mean(errors**2)))
    shares = np.cumsum(bins.counts)[:-1] / len(test)
    assert shares[0] >= 0.01


def test_labels_of_neighbours_and_of_one_bin():
    totals = np.array([1, 2, 3, 9])
    assert FrequencyBins((1, 2, 5), totals).labels == ["<=1", "2", "3-5", "6+"]
    assert FrequencyBins((), totals).labels == ["all"]


def test_parts_of_other_data_are_refused():
    train, test = split(load("demo"), "paper", seed=0)
    other = Ratings.from_triplets(users=["a"], items=["b"], ratings=[1.0])
    with pytest.raises(DataError, match="other users"):
        FrequencyBins.of([train, other], test)
    with pytest.raises(DataError, match="no test ratings"):
        FrequencyBins.of([train], train.select(np.zeros(len(train), bool)))


def test_bins_that_do_not_rise_are_refused():
    totals = np.array([1, 20, 300])
    for bad in ((100, 10), (10, 10), (1.5,), ("10",), (True,)):
        with pytest.raises(DataError, match="give whole numbers that rise"):
            FrequencyBins(bad, totals)
    assert list(FrequencyBins(np.array([10, 100]), totals).counts) == [1, 1, 1]
