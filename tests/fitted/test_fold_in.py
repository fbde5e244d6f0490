"""New users given the items: exact where it can be, and the variance of a prediction."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import Gibbs, Variational
from bayesmf.fitted.fold_in import fold_in
from bayesmf.inference.target import Target
from bayesmf.inference.variational.draws import noise_variance, prediction_variance
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import Data
from bayesmf.model.state import refresh_offsets
from bayesmf.random.draws import Draws
from oracle import conditionals as readable
from oracle.variants import VARIANTS, small_ratings

EXACT = [name for name, model in VARIANTS.items()
         if model.precision == "constant" and model.prior == "gaussian"]  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_a_new_user_is_at_the_mean_of_the_conditional(name):
    """Against the readable conditional, with the offset of the items this user rated."""
    model = VARIANTS[name]
    train, others = small_ratings(6, 5, seed=1), small_ratings(6, 5, seed=2)
    state = Gibbs(model, sweeps=3, burn_in=1, seed=4, chains=1).fit(train).states[0]
    data = Data.of(others, model, train.mean)
    new = fold_in(model, state, data, Draws(0, 1))
    if len(new.user.offset):
        expected = np.zeros_like(new.user.offset)
        for number, shift in enumerate(state.user.shifts):
            for i in range(others.n_users):
                for k, x in readable.entries(data.user, number, i).items():
                    expected[i] += x * shift.W[k]
        np.testing.assert_allclose(new.user.offset, expected, atol=1e-12)
    size = model.size
    for i in range(others.n_users):
        found = new.user.x[i, :size]
        if model.has_own("user"):
            gaussian = readable.row(new, data.user, i, model)
            columns = slice(0, size)
            mean = np.linalg.solve(gaussian.precision[columns, columns], gaussian.linear[columns])
            np.testing.assert_allclose(found[columns], mean, rtol=1e-9, atol=1e-9)
        else:  # only the bias is free
            np.testing.assert_allclose(found[1:], new.user.offset[i, 1:])


def test_folding_in_leaves_the_fit_alone():
    model = VARIANTS["user side, robust"]
    train = small_ratings(6, 5, seed=1)
    state = Gibbs(model, sweeps=3, burn_in=1, chains=1).fit(train).states[0]
    before = [state.user.x.copy(), state.user.alpha.copy(), state.item.x.copy()]
    fold_in(model, state, Data.of(small_ratings(6, 5, seed=2), model, train.mean), Draws(0, 1))
    for now, then in zip((state.user.x, state.user.alpha, state.item.x), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("name", ["no side, robust", "both sides, joint bias, robust, student-t"])
def test_hidden_precisions_are_drawn(name):
    """A user's precision and scale follow their own conditional: other draws, other means."""
    model = VARIANTS[name]
    train = small_ratings(6, 5, seed=1)
    state = Gibbs(model, sweeps=3, burn_in=1, chains=1).fit(train).states[0]
    data = Data.of(small_ratings(6, 5, seed=2), model, train.mean)
    one, again, other = (fold_in(model, state, data, Draws(0, c)) for c in (1, 1, 2))
    np.testing.assert_array_equal(one.user.x, again.user.x)
    assert np.abs(one.user.x - other.user.x).max() > 1e-6
    assert (one.user.alpha != other.user.alpha).all()


@pytest.mark.slow
def test_folded_in_users_agree_with_a_long_refit():
    """The user's mean over draws of the items is that of a chain which has the user in it.

    The rest of the ratings outweigh one user's, so the items hardly move; 4 standard errors of
    both averages, from batches of draws, are allowed.
    """
    rng = np.random.default_rng(0)
    model = replace(VARIANTS["user side"], rank=2)
    full = small_ratings(60, 12, seed=3)
    new = full.by_user.row_index == 0
    known = new & (rng.random(len(full)) < 0.5)
    train, given, test = full.select(~new), full.select(known), full.select(new & ~known)
    fit = Gibbs(model, sweeps=3000, burn_in=500, keep=500, seed=1, chains=1).fit(train)
    data = Data.of(given, model, train.mean)
    target = Target(test, data, model)
    draws = np.array([
        target.predict(fold_in(model, fit.draws[k], data, Draws(0, 1)))
        for k in range(len(fit.draws))
    ])  # fmt: skip
    both = full.select(~new | known)
    refit = Gibbs(model, sweeps=3000, burn_in=500, keep=500, seed=2, chains=1).fit(both)
    again = Target(test, Data.of(both, model), model)
    refitted = np.array([again.predict(refit.draws[k]) for k in range(len(refit.draws))])

    def batches(values):
        means = values.reshape(10, -1, values.shape[1]).mean(axis=1)
        return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(10)

    (one, se_one), (two, se_two) = batches(draws), batches(refitted)
    z = (one - two) / np.hypot(se_one, se_two)
    assert np.abs(z).max() < 4, z


@pytest.mark.parametrize("name", ["no side", "user side, robust", "both sides, joint bias"])
def test_variance_of_a_prediction(name):
    """Against draws of Q's rows; 5 standard errors of a variance are sqrt(2 / n) of itself."""
    model = VARIANTS[name]
    train = small_ratings(6, 5, seed=1)
    fit = Variational(model, sweeps=4).fit(train, start="random")
    users, items = fit.q.covariances("user"), fit.q.covariances("item")
    user, item = np.array([0, 1, 3]), np.array([2, 0, 1])
    found = prediction_variance(fit.state, users, items, user, item)
    rng, size, n = np.random.default_rng(0), model.size, 200_000
    for k, (i, j) in enumerate(zip(user, item, strict=True)):
        x = rng.multivariate_normal(fit.state.user.x[i, :size], unpack(users.total[i]), n)
        y = rng.multivariate_normal(fit.state.item.x[j, :size], unpack(items.total[j]), n)
        drawn = x[:, 0] + y[:, 0] + np.einsum("na,na->n", x[:, 1:], y[:, 1:])
        assert abs(found[k] / drawn.var() - 1) < 5 * 3 * np.sqrt(2 / n)  # kurtosis below 9
    noise = noise_variance(fit.state, user, item)
    state = fit.state
    expected = 1 / (state.tau * state.user.alpha[user] * state.item.alpha[item])
    np.testing.assert_allclose(noise, expected)


def test_unpack_takes_stacks():
    stack = np.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(unpack(stack)[1], unpack(stack[1]))
    np.testing.assert_array_equal(unpack(stack[0]), [[0, 1, 3], [1, 2, 4], [3, 4, 5]])


def test_offsets_are_of_the_new_ratings_not_the_old():
    """The trap: the offset of the training ratings, or both together."""
    model = VARIANTS["user side"]
    train, others = small_ratings(6, 5, seed=1), small_ratings(6, 5, seed=2)
    state = Gibbs(model, sweeps=3, burn_in=1, chains=1).fit(train).states[0]
    new = fold_in(model, state, Data.of(others, model, train.mean), Draws(0, 1))
    side = copy.deepcopy(new.user)
    refresh_offsets(side, Data.of(train, model).user)
    assert np.abs(side.offset - new.user.offset).max() > 1e-3
