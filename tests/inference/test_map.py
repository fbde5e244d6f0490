"""MAP estimation: the energy and its gradient, both ways down, precisions, penalties, starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import MAP, DataError, Gibbs, Model, Variational, load, split
from bayesmf.data.split import carve
from bayesmf.inference.loop import Progress
from bayesmf.inference.map import descent
from bayesmf.inference.map.descent import Momentum, energy, gradients
from bayesmf.inference.map.fit import PENALTIES, coordinate_sweep, fit_biases, fit_precisions
from bayesmf.model.data import Data
from bayesmf.model.state import State, random_start, refresh_offsets
from oracle.conditionals import rated, weighed
from oracle.variants import BASE, VARIANTS, WEIGHTED, random_state, small_ratings


def slow_energy(data: Data, state: State) -> float:
    """From the definition, by loops."""
    total, size = 0.0, state.user.size
    for i in range(len(state.user.x)):
        for j, r, given in weighed(data.user, i):
            x, y = state.user.x[i, :size], state.item.x[j, :size]
            total += given * (r - x[0] - y[0] - x[1:] @ y[1:]) ** 2
    for side in (state.user, state.item):
        total += sum(u @ side.Lambda @ u for u in side.own)
        total += sum(w @ shift.Lambda @ w for shift in side.shifts for w in shift.W)
    return 0.5 * total


def slopes(model: Model, data: Data, state: State, step: float = 1e-4) -> dict[str, np.ndarray]:
    """Finite differences of the energy in own rows and W: S = own + offset moves with both."""
    out = {}
    for mine in (data.user, data.item):
        me, _ = state.sides(mine.name)

        def moved(shift, row, column, by, me=me, mine=mine):
            own, x = me.own.copy(), me.x.copy()
            changed = own if shift is None else shift.W
            before = changed.copy()
            changed[row, column] += by
            refresh_offsets(me, mine)
            me.x[:, : me.size] = own + me.offset if me.shifts else own
            value = slow_energy(data, state)
            changed[:], me.x[:] = before, x
            refresh_offsets(me, mine)
            return value

        shifted = range(model.first_shifted, me.size)
        parts = {"x": (None, len(me.x), range(me.size if model.has_own(mine.name) else 1))}
        for number, shift in enumerate(me.shifts):
            parts[f"W{number}"] = (shift, len(shift.W), shifted)
        for what, (shift, rows, columns) in parts.items():
            slope = np.zeros((rows, me.size))
            for row in range(rows):
                for column in columns:
                    up, down = (moved(shift, row, column, by) for by in (step, -step))
                    slope[row, column] = (up - down) / (2 * step)
            out[f"{mine.name}.{what}"] = slope
    return out


def agree(found: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    """Rounding: an energy of 1e3, good to 1e-13, over twice a step of 1e-4; curvature: step^2."""
    return found.keys() == right.keys() and all(
        np.allclose(found[name], right[name], rtol=1e-6, atol=1e-5) for name in right
    )


@pytest.mark.parametrize("name", [*VARIANTS, *WEIGHTED])
def test_gradients_are_differences_of_the_energy(name):
    model = (VARIANTS | WEIGHTED)[name]
    data = Data.of(small_ratings(weighted=name in WEIGHTED), model)
    state = random_state(model, data)
    assert energy(data, state) == pytest.approx(slow_energy(data, state), rel=1e-12)
    assert agree(gradients(model, data, state), slopes(model, data, state))


def test_a_gradient_without_the_normalisation_is_noticed(monkeypatch):
    model = VARIANTS["user side"]
    data = Data.of(small_ratings(), model)
    state = random_state(model, data)
    right = slopes(model, data, state)
    kernel = descent.offsets
    monkeypatch.setattr(
        descent, "offsets", lambda o, W, c, out: kernel(o, W / W.std(axis=0), c, out)
    )
    assert not agree(gradients(model, data, state), right)


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("name", [*VARIANTS, *WEIGHTED])
def test_momentum_never_raises_the_energy(name, hold):
    model = (VARIANTS | WEIGHTED)[name]
    data = Data.of(small_ratings(30, 20, weighted=name in WEIGHTED), model)
    state = random_start(model, data, 0)
    biases = state.user.own[:, 0].copy()
    start = energy(data, state)
    down = Momentum(model, data, state, hold_biases=hold)
    values = []
    for _ in range(30):
        values.append(down.step())
        assert values[-1] == energy(data, state)
    assert (np.diff([start, *values]) <= 0).all()
    if model.rank or not hold:
        assert values[-1] < start
    after = state.user.own[:, 0]
    assert np.allclose(after, biases, atol=1e-12) == hold


def test_a_step_uphill_is_taken_back():
    """At the minimum, pushed by a velocity: the energy stays, whatever the velocity."""
    model = VARIANTS["no side"]
    data = Data.of(small_ratings(30, 20), model)
    state = random_start(model, data, 0)
    for _ in range(500):
        coordinate_sweep(model, data, state)
    down = Momentum(model, data, state, hold_biases=False)
    down.rate = 1e9
    before = energy(data, state)
    assert down.step() <= before
    assert down.rate < 1e9
    assert energy(data, state) <= before


@pytest.mark.parametrize("name", [*VARIANTS, *WEIGHTED])
def test_coordinates_never_raise_the_energy(name):
    """And the rows that were last updated are at their minimum: no slope is left."""
    model = (VARIANTS | WEIGHTED)[name]
    data = Data.of(small_ratings(30, 20, weighted=name in WEIGHTED), model)
    state = random_start(model, data, 0)
    values = [energy(data, state)]
    for _ in range(10):
        coordinate_sweep(model, data, state)
        values.append(energy(data, state))
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert np.abs(gradients(model, data, state)["item.x"]).max() < 1e-9


def penalised(model: Model, data: Data, penalty: float) -> State:
    state = random_start(model, data, 0)
    MAP(model)._penalise(state, penalty)
    return state


@pytest.mark.parametrize("features", ["no-side", "side"])
def test_coordinates_need_fewer_sweeps_than_momentum(features):
    """Lower after half as many sweeps, all along, and the same minimum in the end."""
    model = Model.paper(features, rank=3)
    data = Data.of(load("demo"), model)
    one, two = (penalised(model, data, 10.0) for _ in range(2))
    down = Momentum(model, data, two, hold_biases=False)
    for sweep in range(80):
        coordinate_sweep(model, data, one)
        value = down.step() if sweep >= 10 else [down.step() for _ in range(2)][-1]
        if sweep < 10:
            assert energy(data, one) < value
    # what is left of the way is 1e-6 of it
    assert energy(data, one) == pytest.approx(value, rel=2e-6)


def test_biases_alone_are_a_ridge_regression():
    """Stage one, solved exactly; the features are put back."""
    model = VARIANTS["both sides, joint bias"]
    ratings = small_ratings(30, 20)
    data = Data.of(ratings, model)
    state = penalised(model, data, 10.0)
    features = state.user.x[:, 1:].copy()
    fit_biases(model, data, state, tolerance=1e-14)
    X = np.zeros((len(ratings), 50))
    X[np.arange(len(X)), ratings.by_user.row_index] = 1
    X[np.arange(len(X)), 30 + ratings.by_user.index] = 1
    y = ratings.by_user.values - ratings.mean
    right = np.linalg.solve(X.T @ X + 3.0 * np.eye(50), X.T @ y)
    assert state.user.x[:, 0] == pytest.approx(right[:30], abs=1e-5)
    assert state.item.x[:, 0] == pytest.approx(right[30:], abs=1e-5)
    assert np.array_equal(state.user.x[:, 1:], features)


@pytest.mark.parametrize("precision", ["constant", "robust", "truncated"])
def test_precisions_satisfy_their_equations(precision):
    """1/alpha_i = mean_j tau beta_j e_ij^2, and so on round; truncated ones are cut."""
    model = replace(BASE, precision=precision)
    data = Data.of(small_ratings(30, 20), model)
    state = random_start(model, data, 0)
    fit_precisions(model, data, state, tolerance=1e-12)
    e2, size = np.full((30, 20), np.nan), model.size
    for i in range(30):
        for j, r in rated(data.user, i):
            x, y = state.user.x[i, :size], state.item.x[j, :size]
            e2[i, j] = (r - x[0] - y[0] - x[1:] @ y[1:]) ** 2
    alpha, beta, tau = state.user.alpha, state.item.alpha, state.tau
    assert tau == pytest.approx(1 / np.nanmean(alpha[:, None] * beta * e2), rel=1e-9)
    if precision == "constant":
        assert (alpha == 1).all()
        assert (beta == 1).all()
        return
    users, items = data.user.counts > 0, data.item.counts > 0
    low, high = model.bounds if precision == "truncated" else (0.0, 1e3)
    right = np.clip(1 / np.nanmean((tau * beta * e2)[users], axis=1), low, high)
    assert alpha[users] == pytest.approx(right, rel=1e-4)
    right = np.clip(1 / np.nanmean((tau * alpha[:, None] * e2)[:, items], axis=0), low, high)
    assert beta[items] == pytest.approx(right, rel=1e-4)
    assert (alpha[~users] == 1).all()
    if precision == "truncated":
        assert {low, high} <= set(alpha)
    else:
        assert alpha.max() > 2.0


@pytest.mark.parametrize("method", ["coordinate", "momentum"])
def test_the_penalty_is_chosen_by_the_validation_error(method):
    train, rest = split(load("demo"), "paper", seed=0)
    way = MAP(Model.paper("no-side", rank=3), method=method, sweeps=25)
    fit = way.fit(train, rest, validation=rest)
    single = [replace(way, penalty=p).fit(train, rest, validation=rest) for p in PENALTIES]
    best = [min(one.trace["validation rmse"]) for one in single]
    chosen = single[int(np.argmin(best))]
    assert fit.penalty == chosen.penalty
    assert fit.test_rmse == chosen.test_rmse == pytest.approx(min(best), abs=1e-5)
    assert np.array_equal(fit.state.user.x, chosen.state.user.x)
    assert fit.sweeps == sum(one.sweeps for one in single)


def test_without_validation_the_last_fit_is_on_all_ratings():
    train, test = split(load("demo"), "paper", seed=0)
    way = MAP(Model.paper("no-side", rank=3), penalty=10.0)
    fit = way.fit(train, test)
    part, judge = carve(train, 0.1)
    first = way.fit(part, validation=judge)
    sweeps = int(np.argmin(first.trace["validation rmse"])) + 1
    assert len(fit.trace["energy"]) == pytest.approx(sweeps, abs=1)
    assert fit.sweeps == first.sweeps + len(fit.trace["energy"])
    assert "validation rmse" not in fit.trace
    assert fit.test_rmse < MAP(Model.paper("none")).fit(train, test).test_rmse - 0.01


@pytest.mark.parametrize("method", ["coordinate", "momentum"])
@pytest.mark.parametrize("name", VARIANTS)
def test_contract(name, method):
    """Every variant runs, and repeats itself."""
    train = small_ratings(30, 20)
    way = MAP(VARIANTS[name], method=method, penalty=5.0, sweeps=5)
    one, two = way.fit(train, train), way.fit(train, train)
    assert np.array_equal(one.state.user.x, two.state.user.x)
    assert one.test_rmse == two.test_rmse
    assert np.isfinite(one.test_rmse)
    assert (one.state.user.alpha > 0).all()


@pytest.mark.parametrize("name", ["no side", "both sides, joint bias, robust, student-t"])
def test_as_a_start(name):
    """``start="map"`` is the estimate with the same model and seed."""
    model, train = VARIANTS[name], small_ratings(30, 20)
    state = MAP(model, seed=4).fit(train).state
    sampler = Gibbs(model, sweeps=3, burn_in=0, seed=4, chains=1)
    one, two = sampler.fit(train, start="map"), sampler.fit(train, start=state)
    assert np.array_equal(one.states[0].user.x, two.states[0].user.x)
    assert not np.array_equal(one.states[0].user.x, sampler.fit(train).states[0].user.x)
    method = Variational(model, sweeps=3, seed=4)
    one, two = method.fit(train), method.fit(train, start=state)
    assert np.array_equal(one.state.user.x, two.state.user.x)
    assert one.trace["bound"] == two.trace["bound"]


def test_reasons_to_stop():
    train = small_ratings(30, 20)

    def third(progress: Progress) -> bool:
        return progress.sweep == 3

    fit = MAP(BASE).fit(train, callbacks=[third])
    assert (fit.sweeps, fit.stopped) == (3, "a callback ended it")
    assert MAP(BASE).fit(train, budget=0.0).stopped == "the time was up"

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    assert MAP(BASE).fit(train, callbacks=[interrupt]).stopped == "interrupted"


def test_settings_that_make_no_sense():
    for wrong, match in (({"method": "newton"}, "method='newton'"), ({"penalty": 0.0}, "penalty=0"),
                         ({"bias_penalty": -1.0}, "bias_penalty=-1"),
                         ({"threads": 0}, "threads=0")):  # fmt: skip
        with pytest.raises(DataError, match=match):
            MAP(BASE, **wrong)
    with pytest.raises(DataError, match="use momentum"):
        MAP(BASE, hold_biases=True).fit(small_ratings(30, 20))
