"""The conditionals are slices of the joint density, and the kernels compute the conditionals."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from bayesmf.kernels.designs import draw_centred, draw_non_centred, store_grams
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data
from bayesmf.model.spec import CHOICES, Group
from bayesmf.model.state import refresh_offsets
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_normal
from bayesmf.random.streams import stream
from bayesmf.sweep import designs
from bayesmf.sweep.algorithm import NO_VALUES, Sampling
from bayesmf.sweep.rows import row_prior
from oracle import conditionals as readable
from oracle.joint import log_joint
from oracle.variants import BASE, VARIANTS, WEIGHTED, random_state, small_ratings

ROUNDING = 1e-9  # densities of about 100 in size, sums of about 100 terms


@pytest.fixture(params=[*VARIANTS, *WEIGHTED], ids=str)
def world(request):
    name = request.param
    model = (VARIANTS | WEIGHTED)[name]
    data = Data.of(small_ratings(weighted=name in WEIGHTED), model)
    return model, data, random_state(model, data)


def both(data: Data, state):
    return ((data.user, state.user, state.item), (data.item, state.item, state.user))


def shifts_of(data: Data, state):
    """Every design of every side, by its number."""
    for mine, me, others in both(data, state):
        for number in range(len(me.shifts)):
            yield mine, me, others, number


def slice_of_joint(model, data, state, log_density, put, values) -> None:
    """log conditional - log joint is the same for every value."""
    gaps = []
    for value in values:
        changed = copy.deepcopy(state)
        put(changed, value)
        gaps.append(log_density(value) - log_joint(model, data, changed))
    assert np.ptp(gaps) < ROUNDING


def test_rows_are_slices_of_the_joint(world):
    model, data, state = world
    rng = np.random.default_rng(1)
    for mine, me, _ in both(data, state):
        if not model.has_own(mine.name):
            continue
        for i in (0, 1, len(me.x) - 1):
            conditional = readable.row(state, mine, i, model)

            def put(changed, value, name=mine.name, i=i):
                getattr(changed, name).x[i, : len(value)] = value

            values = rng.normal(0, 1, (3, me.size))
            slice_of_joint(model, data, state, conditional.log_density, put, values)


def test_hyper_parameters_are_slices_of_the_joint(world):
    model, data, state = world
    for mine, me, _ in both(data, state):
        for group in model.groups(mine.name):
            if group.hyper is None:
                continue
            weights = me.scale if group.end > 1 else np.ones(len(me.x))
            conditional = conditionals.hyper(group, me.own, weights)
            columns = slice(group.first, group.end)

            def put(changed, value, name=mine.name, columns=columns):
                side = getattr(changed, name)
                side.mu[columns], side.Lambda[columns, columns] = value

            values = [conditional.sample(Draws(7, sweep=k)) for k in range(3)]
            slice_of_joint(model, data, state, lambda v, c=conditional: c.log_density(*v), put,
                           values)  # fmt: skip


def test_precisions_are_slices_of_the_joint(world):
    model, data, state = world
    for mine, me, others in both(data, state):
        errors = np.zeros(len(me.x))
        for i in range(len(me.x)):
            for j, r, given in readable.weighed(mine, i):
                e = r - me.x[i, 0] - others.x[j, 0] - me.x[i, 1:] @ others.x[j, 1:]
                errors[i] += others.alpha[j] * given * e**2
        if model.precision != "constant":
            conditional = conditionals.alpha(model, mine.counts, errors, state.tau)

            def put(changed, value, name=mine.name):
                getattr(changed, name).alpha[:] = value

            values = [np.linspace(0.55 + a, 1.5, len(me.x)) for a in (0.0, 0.1, 0.3)]
            slice_of_joint(model, data, state, lambda v, c=conditional: c.log_density(v).sum(),
                           put, values)  # fmt: skip
        if model.prior == "student-t" and model.has_own(mine.name):
            group = model.groups(mine.name)[-1]
            conditional = conditionals.student_scale(model, me, group)

            def put(changed, value, name=mine.name):
                getattr(changed, name).scale[:] = value

            values = [np.full(len(me.x), v) for v in (0.4, 1.0, 2.5)]
            slice_of_joint(model, data, state, lambda v, c=conditional: c.log_density(v).sum(),
                           put, values)  # fmt: skip
    conditional = model.likelihood.tau(model.hyper, data.size, float(me.alpha @ errors))

    def put_tau(changed, value):
        changed.tau = value

    slice_of_joint(model, data, state, lambda v: conditional.log_density(np.array([v]))[0],
                   put_tau, [0.5, 1.0, 3.0])  # fmt: skip


def test_side_features_are_slices_of_the_joint(world):
    """Centred: S stays and U moves. Non-centred: U stays and S moves."""
    model, data, state = world
    rng = np.random.default_rng(2)
    first = model.first_shifted
    for mine, me, _, number in shifts_of(data, state):
        for k in (0, 1, len(me.shifts[number].W) - 1):

            def centred(changed, value, mine=mine, k=k, number=number):
                side = getattr(changed, mine.name)
                side.shifts[number].W[k, first:] = value
                refresh_offsets(side, mine)

            def free(changed, value, mine=mine, centred=centred):
                side = getattr(changed, mine.name)
                own = side.own.copy()
                centred(changed, value)
                side.x[:, first : side.size] = (own + side.offset)[:, first:]

            values = rng.normal(0, 1, (3, me.size - first))
            conditional = readable.free_side(state, mine, k, model, number)
            slice_of_joint(model, data, state, conditional.log_density, free, values)
            if model.has_own(mine.name):
                conditional = readable.centred_side(state, mine, k, model, number)
                slice_of_joint(model, data, state, conditional.log_density, centred, values)


@pytest.mark.parametrize("sample", [True, False])
def test_the_row_kernel_is_the_conditional(world, sample):
    model, data, state = world
    for mine, me, others in both(data, state):
        if not model.has_own(mine.name):
            continue
        counter = stream(Draws(3, 1, 5), mine.name, "rows").counter()
        expected, noise = [], np.empty(me.size)
        for i in range(len(me.x)):
            fill_normal(counter, i, noise)
            conditional = readable.row(state, mine, i, model)
            expected.append(conditional.sample(noise) if sample else conditional.mean())
        errors, x = np.empty(len(me.x)), me.x.copy()
        known = OtherSide.of(others.x, others.alpha, POINTS)
        draw_rows(mine.observed, known, state.tau * me.alpha, row_prior(model, mine, me), counter,
                  sample, x, errors, POINTS, NO_VALUES, state.width())  # fmt: skip
        assert x[:, : me.size] == pytest.approx(np.array(expected), rel=1e-9, abs=1e-9)
        for i in range(len(me.x)):
            total = sum(
                others.alpha[j] * given
                * (r - x[i, 0] - others.x[j, 0] - x[i, 1:] @ others.x[j, 1:]) ** 2
                for j, r, given in readable.weighed(mine, i)
            )  # fmt: skip
            assert errors[i] == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sample", [True, False])
def test_the_non_centred_kernel_is_the_conditional(world, sample):
    model, data, state = world
    first = model.first_shifted
    for mine, me, others, number in shifts_of(data, state):
        shift = me.shifts[number]
        counter = stream(Draws(3, 1, 5), mine.name, "W_free", number).counter()
        Lambda_W = shift.Lambda[first:, first:]
        grams = np.empty((len(me.x), me.x.shape[1], me.x.shape[1]))
        known = OtherSide.of(others.x, others.alpha, POINTS)
        store_grams(mine.observed, known, me.size, state.width(), grams)
        x, W = me.x.copy(), shift.W.copy()
        draw_non_centred(mine.columns[number], mine.matrices[number].scale, state.tau * me.alpha,
                         grams, Lambda_W, Lambda_W @ shift.mu[first:], first, counter, sample, x,
                         W)  # fmt: skip
        own, noise = me.own.copy(), np.empty(me.size - first)
        for k in range(len(shift.W)):
            conditional = readable.free_side(state, mine, k, model, number)
            fill_normal(counter, k, noise)
            shift.W[k, first:] = conditional.sample(noise) if sample else conditional.mean()
            refresh_offsets(me, mine)
            me.x[:, : me.size] = own + me.offset
        assert pytest.approx(shift.W, rel=1e-8, abs=1e-8) == W
        assert x == pytest.approx(me.x, rel=1e-8, abs=1e-8)


def test_the_centred_kernel_is_the_conditional(world, monkeypatch):
    """Without noise W passes through the conditionals' means; with it, their spread is right."""
    model, data, state = world
    first = model.first_shifted
    for mine, me, _, number in shifts_of(data, state):
        if not model.has_own(mine.name):
            continue
        shift, before = me.shifts[number], copy.deepcopy(me)
        W, offset = before.shifts[number].W, before.shifts[number].offset

        def still(*args):
            return draw_centred(*args[:5], False, *args[6:])

        monkeypatch.setattr(designs, "draw_centred", still)
        designs._draw_centred(model, mine, me, number, Sampling(Draws(0)))
        after, shift.W[:] = shift.W.copy(), W
        for k in range(len(W)):
            conditional = readable.centred_side(state, mine, k, model, number)
            shift.W[k, first:] = conditional.mean()
            refresh_offsets(me, mine)
        assert after == pytest.approx(shift.W, rel=1e-8, abs=1e-8)
        # The first W_k drawn depends on nothing drawn before: its noise has the precision's root.
        monkeypatch.setattr(designs, "draw_centred", draw_centred)
        draws = np.empty((4000, me.size - first))
        for n in range(len(draws)):
            shift.W[:], me.x[:], shift.offset[:] = W, before.x, offset
            designs._draw_centred(model, mine, me, number, Sampling(Draws(1, sweep=n)))
            draws[n] = shift.W[0, first:]
        shift.W[:], shift.offset[:] = W, offset
        conditional = readable.centred_side(state, mine, 0, model, number)
        white = (draws - conditional.mean()) @ np.linalg.cholesky(conditional.precision)
        # 4000 standard normals a column: 5 standard errors of mean and (co)variance
        assert np.abs(white.mean(axis=0)).max() < 5 / np.sqrt(4000)
        assert np.abs(np.cov(white.T) - np.eye(white.shape[1])).max() < 5 * np.sqrt(2 / 4000)


@pytest.mark.parametrize("name", ["user side", "user design"])
def test_n_for_n_squared_in_the_centred_form_is_noticed(name, monkeypatch):
    """The comparison with the conditional sees c_i for c_i^2, which Geweke's test hardly does."""
    model = VARIANTS[name]
    data = Data.of(small_ratings(), model)
    found = []
    for power in (1.0, 0.5):

        def draw(columns, weight, *rest, power=power):
            draw_centred(columns, weight**power, *rest[:3], False, *rest[4:])

        state = random_state(model, data)
        monkeypatch.setattr(designs, "draw_centred", draw)
        designs._draw_centred(model, data.user, state.user, 0, Sampling(Draws(0)))
        found.append(state.user.shifts[0].W[0, 1:].copy())
    fresh = random_state(model, data)
    right = readable.centred_side(fresh, data.user, 0, model).mean()
    assert found[0] == pytest.approx(right, rel=1e-8, abs=1e-8)
    assert np.abs(found[1] - right).max() > 0.01


def test_a_table_of_variants_names_every_choice():
    used = {(key, value) for m in VARIANTS.values() for key, value in vars(m).items()
            if isinstance(value, str)}  # fmt: skip
    assert used == {(key, value) for key, values in CHOICES.items() for value in values}


def test_a_group_of_one_is_a_gamma():
    """The learned bias prior is Gamma(a, b) on the precision: the one-dimensional Wishart."""
    group = BASE.groups("user")[0]
    precisions = np.array([group.hyper.sample(Draws(1, sweep=k))[1][0, 0] for k in range(4000)])
    a, b = BASE.hyper.bias_shape, BASE.hyper.bias_rate
    assert precisions.mean() == pytest.approx(a / b, abs=5 * np.sqrt(a) / b / np.sqrt(4000))
    assert Group(0, 1, None).hyper is None
