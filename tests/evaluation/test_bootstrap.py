"""Paired bootstrap of users."""

from __future__ import annotations

import numpy as np

from bayesmf.evaluation.bootstrap import lowest_of, paired_change


def squares(rng, users: int, better: float):
    hard = rng.gamma(2.0, 1.0, users)
    before = hard * rng.gamma(20.0, 1 / 20, users)
    return before, hard * (1 - better) ** 2 * rng.gamma(20.0, 1 / 20, users)


def test_the_value_is_the_change_in_rmse():
    before, after = np.array([4.0, 0.0, 5.0] * 4), np.array([1.0, 0.0, 3.0] * 4)
    before, after = np.tile(before, 2), np.tile(after, 2)
    change = paired_change(before, after)
    assert abs(change.value - 100 * (1 - np.sqrt(4 / 9))) < 1e-12
    assert change.low <= change.value <= change.high


def test_no_difference_is_no_difference():
    values = np.arange(1.0, 50.0)
    change = paired_change(values, values)
    assert (change.value, change.low, change.high, change.sign) == (0, 0, 0, 0)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """300 worlds: a share of 0.95 has a standard error of 0.0126; four of them are allowed."""
    rng = np.random.default_rng(1)
    held = 0
    for seed in range(300):
        before, after = squares(rng, 200, better=0.01)
        change = paired_change(before, after, draws=400, seed=seed)
        held += change.low <= 1.0 <= change.high
    assert abs(held / 300 - 0.95) < 4 * 0.0126 + 0.01


def test_pairing_is_what_makes_it_sharp():
    rng = np.random.default_rng(2)
    before, after = squares(rng, 500, better=0.05)
    paired = paired_change(before, after)
    mixed = paired_change(before, rng.permutation(after))
    assert paired.sign == 1
    assert paired.high - paired.low < 0.7 * (mixed.high - mixed.low)


def test_order_of_users_and_their_blocks_do_not_matter(monkeypatch):
    import bayesmf.evaluation.bootstrap as module

    before, after = squares(np.random.default_rng(3), 100, better=0.0)
    whole = paired_change(before, after)
    monkeypatch.setattr(module, "CELLS", 1000)
    assert paired_change(before, after) == whole


def test_few_users_cannot_be_told():
    change = paired_change(np.full(9, 2.0), np.full(9, 1.0))
    assert change.value > 0
    assert change.sign == 0
    assert np.isnan(change.low)


def test_nobody_to_resample():
    change = paired_change(np.zeros(3), np.zeros(3))
    assert np.isnan(change.value)
    assert change.sign == 0


def test_the_lowest_and_those_it_cannot_be_told_from():
    rng = np.random.default_rng(1)
    base = rng.gamma(3.0, size=300)
    squares = {"worse": 1.1 * base, "best": base, "alike": base * rng.uniform(0.8, 1.21, 300)}
    assert lowest_of(squares) == ("best", ["alike"])
    few = {name: values[:9] for name, values in squares.items()}
    best, alike = lowest_of(few)
    assert {best, *alike} == set(squares)  # nine users tell nothing
