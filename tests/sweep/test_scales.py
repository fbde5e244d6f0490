"""The move of scales: the density that it draws from, and where it is made."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.kernels import densities
from bayesmf.model.data import Data, RowPriors
from bayesmf.model.state import refresh_offsets
from bayesmf.random.draws import Draws
from bayesmf.sweep import scales, sweep
from oracle.joint import log_joint
from oracle.variants import VARIANTS, WEIGHTED, random_state, small_ratings
from statistical import mistakes

ALL = {name: model for name, model in {**VARIANTS, **WEIGHTED}.items() if model.rank}
SIDES = ("user", "item")


def world(name):
    model = ALL[name]
    data = Data.of(small_ratings(weighted=name in WEIGHTED), model)
    return model, data, random_state(model, data, 4)


def move(model, data, state, side, sweep=0):
    me, others = state.sides(side)
    mine = data.user if side == "user" else data.item
    scales.move_scales(model, mine, me, others, state, Draws(1, sweep=sweep))


def volume(model, side, rows, me):
    """The power of each factor by which the move stretches a layer: its rows, mu and Lambda."""
    powers = []
    for number, count in enumerate([rows, *(len(shift.W) for shift in me.shifts)]):
        groups = [model.design_group()] if number else model.groups(side)
        mine = np.zeros(me.size)
        for group in groups:
            if group.hyper is not None:
                mine[group.first : group.end] = count + 1 - (group.end - group.first + 1)
        powers.append(mine)
    return np.array(powers)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", SIDES)
def test_the_factors_are_drawn_from_the_joint_density(name, side, monkeypatch):
    """log p along the move, with the volume that it stretches, is what the kernel takes it for."""
    model, data, state = world(name)
    me, _ = state.sides(side)
    rng, found = np.random.default_rng(0), []

    def draw_scales(Q, q, R, r, power, rounds, counter):
        def log_density(c):
            d = 1 / c
            return q @ c - c @ Q @ c / 2 - power @ np.log(c) + r @ d - d @ R @ d / 2

        c = np.exp(np.where(power > 0, rng.normal(0, 0.4, len(q)), 0.0))
        found[:] = [c, log_density(c) - log_density(np.ones(len(q)))]
        return c

    monkeypatch.setattr(scales, "draw_scales", draw_scales)
    for _ in range(3):
        new = copy.deepcopy(state)
        move(model, data, new, side)
        c, expected = found
        change = log_joint(model, data, new) - log_joint(model, data, state)
        wide = np.repeat(c.reshape(-1, 2), [1, model.rank], axis=1)
        change += float(np.sum(volume(model, side, len(me.x), me) * np.log(wide)))
        assert change == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", SIDES)
def test_what_is_moved_and_what_stays(name, side):
    """Own parts and designs each by a factor of their own; what has a fixed prior stays."""
    model, data, state = world(name)
    old = copy.deepcopy(state)
    move(model, data, state, side)
    (me, others), (was, same) = state.sides(side), old.sides(side)
    np.testing.assert_array_equal(others.x, same.x)
    learned = np.zeros(me.size, bool)
    for group in model.groups(side):
        learned[group.first : group.end] = group.hyper is not None
    factors = me.own.sum(axis=0) / np.where(was.own.sum(axis=0), was.own.sum(axis=0), 1)
    np.testing.assert_allclose(me.own, was.own * factors, atol=1e-9)
    assert not np.isclose(factors[learned], 1).any()
    np.testing.assert_allclose(me.own[:, ~learned], was.own[:, ~learned], atol=1e-9)
    np.testing.assert_allclose(me.mu[learned], (was.mu * factors)[learned])
    mine = data.user if side == "user" else data.item
    for number, shift in enumerate(me.shifts):
        assert not np.allclose(shift.W, was.shifts[number].W)
        moved = shift.offset.copy()
        refresh_offsets(me, mine, number)
        np.testing.assert_allclose(shift.offset, moved, atol=1e-9)


def test_rows_with_priors_of_their_own_stay():
    model, data, state = world("no side")
    before = copy.deepcopy(state)
    priors = RowPriors(np.empty(0), np.empty(0))
    move(model, replace(data, user=replace(data.user, priors=priors)), state, "user")
    np.testing.assert_array_equal(state.user.x, before.user.x)


def test_rows_with_many_ratings_stay():
    """Six ratings of a row of three columns are as many as it takes, two are not."""
    model = ALL["no side"]
    for items, moved in ((12, False), (3, True)):
        data = Data.of(small_ratings(6, items), model)
        state = random_state(model, data, 4)
        before = copy.deepcopy(state)
        move(model, data, state, "user")
        assert np.array_equal(state.user.x, before.user.x) != moved


def test_a_sweep_makes_the_move_on_both_sides(monkeypatch):
    model, data, state = world("both sides, joint bias")
    seen = []
    monkeypatch.setattr(sweep, "move_scales", lambda model, data, *rest: seen.append(data.name))
    sweep.gibbs_sweep(model, data, state, Draws(1), "centred")
    assert seen == ["user", "item"]


def some_density():
    """Of three factors that depend on one another, of which the second stays."""
    Q = np.array([[6.0, 0.5, 4.5], [0.5, 1.0, 0.3], [4.5, 0.3, 5.0]])
    R = np.array([[5.0, 0.2, 4.5], [0.2, 1.0, 0.4], [4.5, 0.4, 5.0]])
    return Q, np.array([7.0, 1.0, 8.0]), R, np.array([2.0, -0.5, 1.0]), np.array([1.0, 0.0, 2.0])


def test_the_factors_leave_their_density_as_it_is():
    """Under the density, the slope of its log in every s has the mean 0, and its square that of
    the curvature. The factor of a part without a power stays."""
    Q, q, R, r, power = some_density()
    moments, D = [], np.ones(3)
    for number in range(12_000):  # a chain: what is drawn is where the next draw begins
        Q_c, R_c = Q * np.outer(D, D), R / np.outer(D, D)
        counter = Draws(2, sweep=number).counter()
        c = densities.draw_scales(Q_c, q * D, R_c, r / D, power, 3, counter)
        assert c[1] == 1
        D = D * c
        up, down = D * (Q @ D) - q * D, (R @ (1 / D)) / D - r / D
        slope = down - up - power
        curvature = up + D * D * np.diag(Q) + down + np.diag(R) / (D * D)
        free = power > 0
        moments.append([slope[free], (slope**2 - curvature)[free]])
    means = np.array(moments).reshape(40, 300, 4).mean(axis=1)
    z = means.mean(axis=0) / (means.std(axis=0, ddof=1) / np.sqrt(40))
    assert np.abs(z).max() < 4.5, z


DENSITY = (
    test_the_factors_are_drawn_from_the_joint_density,
    "both sides, joint bias, robust, student-t",
    "user",
)
MOVED = test_what_is_moved_and_what_stays, "both sides, joint bias", "user"
MOMENTS = (test_the_factors_leave_their_density_as_it_is,)
MISTAKES = {  # of each function: what is right, what is written for it, and what notices
    scales.move_scales: [
        ("state.tau * me.alpha", "state.tau * np.ones(len(me.alpha))", DENSITY),
        ("state.tau * me.alpha", "me.alpha", DENSITY),
        ("others.x, others.alpha", "others.x, np.ones(len(others.x))", DENSITY),
    ],
    scales._prior: [
        ("= group.hyper.nu", "= group.hyper.nu + 1", DENSITY),
        ("G * Lambda", "Lambda", DENSITY),
        ("m * (Lambda @ layer.mu[mine])", "0.0", DENSITY),
        ("[model.design_group()] if number else", "[] if number else", MOVED),
    ],
    scales._apply: [
        ("shift.W = shift.W * factor", "pass", DENSITY),
        ("shift.offset = shift.offset * factor", "pass", MOVED),
    ],
    scales._apply_to_prior: [
        ("layer.mu * factor", "layer.mu", DENSITY),
        ("/ np.outer(factor, factor)", "/ factor", DENSITY),
    ],
}  # fmt: skip
IN_KERNEL = [  # each of them is compiled
    ("-power[k], up", "-power[k] + 1.0, up", MOMENTS),
    ("Q[k, k] / 2.0, down", "Q[k, k], down", MOMENTS),
    ("R[k, k] / 2.0, *none", "R[k, k], *none", MOMENTS),
    ("Q[k, b] * c[b]", "Q[k, b]", MOMENTS),
    ("R[k, b] / c[b]", "R[k, b]", MOMENTS),
    ("up, down = -q[k], -r[k]", "up, down = -q[k], r[k]", MOMENTS),
]


@pytest.mark.parametrize(
    ("function", "right", "wrong", "check"),
    [(function, *each) for function, every in MISTAKES.items() for each in every]
    + [pytest.param(densities.draw_scales, *each, marks=pytest.mark.slow) for each in IN_KERNEL],
)
def test_mistakes_are_caught(function, right, wrong, check, monkeypatch):
    """Each line of the move, written wrong, is noticed by a check above."""
    mistakes.rewrite(monkeypatch, function, right, wrong)
    mistakes.expect_failure(check, monkeypatch)
