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

ALL = {
    name: replace(model, rank=4) for name, model in {**VARIANTS, **WEIGHTED}.items() if model.rank
}
SIDES = ("user", "item")
SINGLE = 2  # so that two directions are left, which share a factor


def world(name):
    model = ALL[name]
    data = Data.of(small_ratings(weighted=name in WEIGHTED), model)
    return model, data, random_state(model, data, 4)


@pytest.fixture(autouse=True)
def single(monkeypatch):
    monkeypatch.setattr(scales, "SINGLE", SINGLE)


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
        wide = np.repeat(c.reshape(-1, SINGLE + 2), [1, 1, 1, 2], axis=1)
        change += float(np.sum(volume(model, side, len(me.x), me) * np.log(wide)))
        assert change == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", SIDES)
def test_what_is_moved_and_what_stays(name, side):
    """Own parts and designs each by factors of their own; what has a fixed prior stays."""
    model, data, state = world(name)
    old = copy.deepcopy(state)
    move(model, data, state, side)
    (me, others), (was, same) = state.sides(side), old.sides(side)
    np.testing.assert_array_equal(others.x, same.x)
    learned = np.zeros(me.size, bool)
    for group in model.groups(side):
        learned[group.first : group.end] = group.hyper is not None
    axes = scales._axes(model, side, old, Draws(2))
    own, before = me.own @ axes, was.own @ axes
    factors = own.sum(axis=0) / np.where(before.sum(axis=0), before.sum(axis=0), 1)
    np.testing.assert_allclose(own, before * factors, atol=1e-9)
    assert not np.isclose(factors[learned], 1).any()
    np.testing.assert_allclose(own[:, ~learned], before[:, ~learned], atol=1e-9)
    np.testing.assert_allclose((me.mu @ axes)[learned], (was.mu @ axes * factors)[learned])
    mine = data.user if side == "user" else data.item
    for number, shift in enumerate(me.shifts):
        assert not np.allclose(shift.W, was.shifts[number].W)
        moved = shift.offset.copy()
        refresh_offsets(me, mine, number)
        np.testing.assert_allclose(shift.offset, moved, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", SIDES)
def test_a_move_changes_no_axis(name, side):
    """Or the way back would be another: in the axes covariances are diagonal, before and after."""
    model, data, state = world(name)
    inverse = np.linalg.inv(scales._axes(model, side, state, Draws(2)))
    for _ in range(2):
        me, others = state.sides(side)
        for rows, own, turn in (
            (me, model.has_own(side), inverse),
            (others, model.has_own(SIDES[side == "user"]), np.linalg.inv(inverse).T),
        ):
            Lambda = (rows if own else rows.shifts[0]).Lambda[1:, 1:]
            seen = turn[1:, 1:] @ Lambda @ turn[1:, 1:].T
            np.testing.assert_allclose(seen, np.diag(np.diag(seen)), atol=1e-9 * seen.max())
        move(model, data, state, side)


def test_every_direction_has_its_turn():
    """Which directions have a factor of their own depends on the sweep alone, each as often."""
    model, _, state = world("no side")
    first, *more = (scales._axes(model, "user", state, Draws(1, sweep=k)) for k in range(400))
    places = [np.argmax(np.abs(np.linalg.inv(first) @ each), axis=0)[1:] for each in more]
    counts = np.apply_along_axis(np.bincount, 0, np.array(places))[1:]
    assert ((counts > 60) & (counts < 140)).all(), counts


def test_rows_with_priors_of_their_own_stay():
    model, data, state = world("no side")
    before = copy.deepcopy(state)
    priors = RowPriors(np.empty(0), np.empty(0))
    move(model, replace(data, user=replace(data.user, priors=priors)), state, "user")
    np.testing.assert_array_equal(state.user.x, before.user.x)


def test_rows_with_many_ratings_stay():
    """Six ratings of a row of three columns are as many as it takes, two are not."""
    model = VARIANTS["no side"]
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
AXES = test_a_move_changes_no_axis, "both sides", "user"
MOMENTS = (test_the_factors_leave_their_density_as_it_is,)
MISTAKES = {  # of each function: what is right, what is written for it, and what notices
    scales.move_scales: [
        ("state.tau * me.alpha", "state.tau * np.ones(len(me.alpha))", DENSITY),
        ("state.tau * me.alpha", "me.alpha", DENSITY),
        ("inverse.T, others.alpha", "inverse.T, np.ones(len(others.x))", DENSITY),
        ("@ inverse.T, others", "@ inverse, others", DENSITY),
        ("axes / factor @ inverse", "axes @ inverse", DENSITY),
    ],
    scales._axes: [
        ("np.linalg.inv(mine), theirs", "mine, theirs", AXES),
        ("np.linalg.inv(mine), theirs", "mine + theirs", AXES),
        ("SIDES if name == ", "SIDES if name != ", AXES),
    ],
    scales._prior: [
        ("= group.hyper.nu", "= group.hyper.nu + 1", DENSITY),
        ("(A.T @ G @ A) * Lambda", "Lambda", DENSITY),
        ("(A.T @ G @ A) * Lambda", "G * Lambda", DENSITY),
        ("B @ layer.Lambda[mine, mine] @ B.T", "layer.Lambda[mine, mine]", DENSITY),
        ("(A.T @ m) * (Lambda @ (A.T @ layer.mu[mine]))", "0.0", DENSITY),
        ("(A.T @ m) * (Lambda", "m * (Lambda", DENSITY),
        ("(A.T @ layer.mu[mine])", "layer.mu[mine]", DENSITY),
        ("[model.design_group()] if number else", "[] if number else", MOVED),
    ],
    scales._apply: [
        ("shift.W = shift.W @ A", "pass", DENSITY),
        ("shift.offset = shift.offset @ A", "pass", MOVED),
        ("x += shift.offset", "pass", MOVED),
        ("turn_prior(me, *turns[0])", "pass", DENSITY),
        ("turn_prior(shift, A, inverse)", "pass", DENSITY),
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
