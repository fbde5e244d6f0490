"""The conditionals are slices of the joint density, and the kernels compute the conditionals."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from bayesmf import DataError
from bayesmf.kernels.designs import draw_centred, draw_non_centred, pattern, store_grams
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Data, refresh_offset
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_normal
from bayesmf.random.streams import stream
from bayesmf.sweep import sweep
from oracle import conditionals as readable
from oracle.joint import log_joint
from oracle.variants import BASE, VARIANTS, random_state, small_ratings

ROUNDING = 1e-9  # densities of about 100 in size, sums of about 100 terms


@pytest.fixture(params=VARIANTS, ids=str)
def world(request):
    model = VARIANTS[request.param]
    data = Data.of(small_ratings(), model)
    return model, data, random_state(model, data)


def both(data: Data, state):
    return (
        (data.user, data.item, state.user, state.item),
        (data.item, data.user, state.item, state.user),
    )


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
    for mine, _, me, _ in both(data, state):
        if not (model.has_own(mine.name) or model.features == "none"):
            continue
        for i in (0, 1, len(me.x) - 1):
            conditional = readable.row(state, mine, i, model)

            def put(changed, value, name=mine.name, i=i):
                getattr(changed, name).x[i, : len(value)] = value

            values = rng.normal(0, 1, (3, me.size))
            slice_of_joint(model, data, state, conditional.log_density, put, values)


def test_hyper_parameters_are_slices_of_the_joint(world):
    model, data, state = world
    for mine, _, me, _ in both(data, state):
        for group in model.groups(mine.name):
            if group.hyper is None:
                continue
            weights = me.spread if group.end > 1 else np.ones(len(me.x))
            conditional = conditionals.hyper(group, me.own, weights)
            columns = slice(group.first, group.end)

            def put(changed, value, name=mine.name, columns=columns):
                side = getattr(changed, name)
                side.mean[columns], side.precision[columns, columns] = value

            values = [conditional.sample(Draws(7, sweep=k)) for k in range(3)]
            slice_of_joint(model, data, state, lambda v, c=conditional: c.log_density(*v), put,
                           values)  # fmt: skip


def test_precisions_are_slices_of_the_joint(world):
    model, data, state = world
    for mine, _, me, others in both(data, state):
        errors = np.zeros(len(me.x))
        for i in range(len(me.x)):
            for j, r in readable.rated(mine, i):
                e = r - me.x[i, 0] - others.x[j, 0] - me.x[i, 1:] @ others.x[j, 1:]
                errors[i] += others.noise[j] * e**2
        if model.precision != "constant":
            conditional = conditionals.noise(model, mine.counts, errors, state.tau)

            def put(changed, value, name=mine.name):
                getattr(changed, name).noise[:] = value

            values = [np.linspace(0.55 + a, 1.5, len(me.x)) for a in (0.0, 0.1, 0.3)]
            slice_of_joint(model, data, state, lambda v, c=conditional: c.log_density(v).sum(),
                           put, values)  # fmt: skip
        if model.prior == "student-t" and model.has_own(mine.name):
            group = model.groups(mine.name)[-1]
            conditional = conditionals.spread(model, me, group)

            def put(changed, value, name=mine.name):
                getattr(changed, name).spread[:] = value

            values = [np.full(len(me.x), v) for v in (0.4, 1.0, 2.5)]
            slice_of_joint(model, data, state, lambda v, c=conditional: c.log_density(v).sum(),
                           put, values)  # fmt: skip
    conditional = conditionals.tau(model, data.size, float(me.noise @ errors))

    def put_tau(changed, value):
        changed.tau = value

    slice_of_joint(model, data, state, lambda v: conditional.log_density(np.array([v]))[0],
                   put_tau, [0.5, 1.0, 3.0])  # fmt: skip


def test_side_features_are_slices_of_the_joint(world):
    """Centred: S stays and U moves. Non-centred: U stays and S moves."""
    model, data, state = world
    rng = np.random.default_rng(2)
    for mine, raters, me, _ in both(data, state):
        if not model.has_side(mine.name):
            continue
        first = model.first_side
        for k in (0, 1, len(me.W) - 1):

            def centred(changed, value, mine=mine, k=k, first=first):
                side = getattr(changed, mine.name)
                side.W[k, first:] = value
                refresh_offset(side, mine)

            def free(changed, value, mine=mine, k=k, first=first, centred=centred):
                side = getattr(changed, mine.name)
                own = side.own.copy()
                centred(changed, value, mine, k)
                side.x[:, first : side.size] = (own + side.offset)[:, first:]

            values = rng.normal(0, 1, (3, me.size - first))
            conditional = readable.free_side(state, mine, raters, k, model)
            slice_of_joint(model, data, state, conditional.log_density, free, values)
            if model.has_own(mine.name):
                conditional = readable.centred_side(state, mine, raters, k, model)
                slice_of_joint(model, data, state, conditional.log_density, centred, values)


@pytest.mark.parametrize("sample", [True, False])
def test_the_row_kernel_is_the_conditional(world, sample):
    model, data, state = world
    for mine, _, me, others in both(data, state):
        if not (model.has_own(mine.name) or model.features == "none"):
            continue
        counter = stream(Draws(3, 1, 5), mine.name, "rows").counter()
        expected, noise = [], np.empty(me.size)
        for i in range(len(me.x)):
            fill_normal(counter, i, noise)
            conditional = readable.row(state, mine, i, model)
            expected.append(conditional.sample(noise) if sample else conditional.mean())
        errors, x = np.empty(len(me.x)), me.x.copy()
        known = OtherSide.of(others.x, others.noise, sweep.POINTS)
        draw_rows(mine.observed, known, state.tau * me.noise, sweep.prior_of(model, mine, me),
                  counter, sample, x, errors, sweep.POINTS, sweep.NO_VALUES,
                  state.width())  # fmt: skip
        assert x[:, : me.size] == pytest.approx(np.array(expected), rel=1e-9, abs=1e-9)
        for i in range(len(me.x)):
            total = sum(
                others.noise[j] * (r - x[i, 0] - others.x[j, 0] - x[i, 1:] @ others.x[j, 1:]) ** 2
                for j, r in readable.rated(mine, i)
            )
            assert errors[i] == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sample", [True, False])
def test_the_non_centred_kernel_is_the_conditional(world, sample):
    model, data, state = world
    for mine, raters, me, others in both(data, state):
        if not model.has_side(mine.name):
            continue
        first = model.first_side
        counter = stream(Draws(3, 1, 5), mine.name, "W_free").counter()
        precision = me.W_precision[first:, first:]
        grams = np.empty((len(me.x), me.x.shape[1], me.x.shape[1]))
        known = OtherSide.of(others.x, others.noise, sweep.POINTS)
        store_grams(mine.observed, known, me.size, state.width(), grams)
        x, W = me.x.copy(), me.W.copy()
        draw_non_centred(pattern(raters.observed), mine.shrink, state.tau * me.noise, grams,
                         precision, precision @ me.W_mean[first:], first, counter, sample, x,
                         W)  # fmt: skip
        own, noise = me.own.copy(), np.empty(me.size - first)
        for k in range(len(me.W)):
            conditional = readable.free_side(state, mine, raters, k, model)
            fill_normal(counter, k, noise)
            me.W[k, first:] = conditional.sample(noise) if sample else conditional.mean()
            refresh_offset(me, mine)
            me.x[:, : me.size] = own + me.offset
        assert pytest.approx(me.W, rel=1e-8, abs=1e-8) == W
        assert x == pytest.approx(me.x, rel=1e-8, abs=1e-8)


def test_the_centred_kernel_is_the_conditional(world, monkeypatch):
    """Without noise W passes through the conditionals' means; with it, their spread is right."""
    model, data, state = world
    for mine, raters, me, _ in both(data, state):
        if not (model.has_side(mine.name) and model.has_own(mine.name)):
            continue
        first = model.first_side
        before = copy.deepcopy(me)

        def still(*args):
            return draw_centred(*args[:5], False, *args[6:])

        monkeypatch.setattr(sweep, "draw_centred", still)
        sweep._draw_centred(model, mine, raters, me, sweep.Sampling(Draws(0)))
        after, me.W[:] = me.W.copy(), before.W
        for k in range(len(me.W)):
            conditional = readable.centred_side(state, mine, raters, k, model)
            me.W[k, first:] = conditional.mean()
            refresh_offset(me, mine)
        assert after == pytest.approx(me.W, rel=1e-8, abs=1e-8)
        # The first W_k drawn depends on nothing drawn before: its noise has the precision's root.
        monkeypatch.setattr(sweep, "draw_centred", draw_centred)
        draws = np.empty((4000, me.size - first))
        for n in range(len(draws)):
            me.W[:], me.x[:], me.offset[:] = before.W, before.x, before.offset
            sweep._draw_centred(model, mine, raters, me, sweep.Sampling(Draws(1, sweep=n)))
            draws[n] = me.W[0, first:]
        me.W[:], me.offset[:] = before.W, before.offset
        conditional = readable.centred_side(state, mine, raters, 0, model)
        white = (draws - conditional.mean()) @ np.linalg.cholesky(conditional.precision)
        # 4000 standard normals a column: 5 standard errors of mean and (co)variance
        assert np.abs(white.mean(axis=0)).max() < 5 / np.sqrt(4000)
        assert np.abs(np.cov(white.T) - np.eye(white.shape[1])).max() < 5 * np.sqrt(2 / 4000)


def test_n_for_n_squared_in_the_centred_form_is_noticed(monkeypatch):
    """The comparison with the conditional sees c_i for c_i^2, which Geweke's test hardly does."""
    model = VARIANTS["user side"]
    data = Data.of(small_ratings(), model)
    found = []
    for power in (1.0, 0.5):

        def draw(raters, weight, *rest, power=power):
            draw_centred(raters, weight**power, *rest[:3], False, *rest[4:])

        state = random_state(model, data)
        monkeypatch.setattr(sweep, "draw_centred", draw)
        sweep._draw_centred(model, data.user, data.item, state.user, sweep.Sampling(Draws(0)))
        found.append(state.user.W[0, 1:].copy())
    fresh = random_state(model, data)
    right = readable.centred_side(fresh, data.user, data.item, 0, model).mean()
    assert found[0] == pytest.approx(right, rel=1e-8, abs=1e-8)
    assert np.abs(found[1] - right).max() > 0.01


def test_a_table_of_variants_names_every_choice():
    used = {(key, value) for m in VARIANTS.values() for key, value in vars(m).items()
            if isinstance(value, str)}  # fmt: skip
    from bayesmf.model.spec import CHOICES

    assert used == {(key, value) for key, values in CHOICES.items() for value in values}


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"features": "all"}, "features='all': choose one of none, user-item, side, side-only"),
        ({"rank": 0}, "rank=0"),
        ({"bounds": (2, 1)}, "bounds="),
        ({"features": "side-only", "bias": "joint"}, "choose bias='learned'"),
    ],
)
def test_models_that_make_no_sense(wrong, match):
    with pytest.raises(DataError, match=match):
        Model(**wrong)


def test_a_group_of_one_is_a_gamma():
    """The learned bias prior is Gamma(a, b) on the precision: the one-dimensional Wishart."""
    group = BASE.groups("user")[0]
    precisions = np.array([group.hyper.sample(Draws(1, sweep=k))[1][0, 0] for k in range(4000)])
    a, b = BASE.hyper.bias_shape, BASE.hyper.bias_rate
    assert precisions.mean() == pytest.approx(a / b, abs=5 * np.sqrt(a) / b / np.sqrt(4000))
    assert Group(0, 1, None).hyper is None
