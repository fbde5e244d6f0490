"""New users given the items: exact where it can be, and the variance of a prediction."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf import Gibbs, RatedSet, Ratings, Variational
from bayesmf.fitted.fold_in import add_rows
from bayesmf.inference.variational.draws import noise_variance, prediction_variance
from bayesmf.model.conditionals import unpack
from bayesmf.model.designs import SideFacts
from oracle.new_rows import ones, plain_new_rows, regress
from oracle.variants import VARIANTS, small_ratings

EXACT = [name for name, model in VARIANTS.items()
         if model.precision == "constant" and model.prior == "gaussian"]  # fmt: skip
TRAIN = small_ratings(6, 5, seed=1)
WHO = 700
NEW = Ratings.from_triplets(users=[WHO] * 3, items=TRAIN.items.values[1:4],
                            ratings=[1.0, -1.0, 2.0], scale=(-9, 9))  # fmt: skip


def sampled(name):
    return Gibbs(VARIANTS[name], sweeps=3, burn_in=1, seed=4, chains=1).fit(TRAIN)


def given_parts(posterior, ids, number):
    """What designs that do not depend on ratings add to users, in one draw."""
    given = [each for each in posterior.model.user_designs if not isinstance(each, RatedSet)]
    if not given:
        return np.zeros((len(ids), posterior.model.size))
    facts = [SideFacts("user", each, np.ones(len(each), int)) for each in (TRAIN.users, ids)]
    known, X = (
        np.hstack([design.matrix(one).to_sparse().toarray() for design in given]) for one in facts
    )
    return X @ regress(posterior.draws["user.x"][number], known, posterior.user_counts)


@pytest.mark.parametrize("name", EXACT)
def test_a_new_user_is_at_the_mean_of_the_conditional(name):
    """Given the items of each draw, under the prior of rows that rated just these; by hand."""
    posterior = sampled(name).posterior
    more, size = add_rows(posterior, NEW), posterior.model.size
    kept = [TRAIN.items.values.tolist().index(item) for item in NEW.items.values]
    left = NEW.by_user.values - posterior.mean
    row = int(more.row_of("user", [WHO])[0])
    for k in range(len(posterior)):
        own = posterior.draws["user.x"][k] - given_parts(posterior, TRAIN.users, k)
        draws = {**posterior.draws, "user.x": {k: own}}
        plain = plain_new_rows(posterior, draws, k, "user")
        y, tau = posterior.draws["item.x"][k].astype(float), float(posterior.draws["tau"][k, 0])
        z, g = ones(y[kept]), len(kept)
        prior = np.linalg.inv(plain.R(g))
        centre = plain.a(g + 1, plain.Q[kept].sum(axis=0)) + given_parts(posterior, NEW.users, k)[0]
        linear = prior @ centre + tau * z.T @ (left - y[kept, 0])
        mean = np.linalg.solve(prior + tau * z.T @ z, linear)
        # draws are kept in single precision
        np.testing.assert_allclose(more.draws["user.x"][k, row, :size], mean, rtol=1e-4, atol=1e-5)


def test_folding_in_leaves_the_fit_alone():
    posterior = sampled("user side, robust").posterior
    before = {name: values.copy() for name, values in posterior.draws.items()}
    add_rows(posterior, NEW)
    add_rows(posterior, NEW.T, "item")
    for name, values in before.items():
        np.testing.assert_array_equal(posterior.draws[name], values)


@pytest.mark.parametrize("name", ["no side, robust", "both sides, joint bias, robust, student-t"])
def test_hidden_precisions_are_drawn(name):
    """A user's precision follows its own conditional: other draws, other means."""
    posterior = sampled(name).posterior
    one, again, other = (add_rows(posterior, NEW, seed=seed) for seed in (1, 1, 2))
    row = int(one.row_of("user", [WHO])[0])
    x, alpha = (
        [each.draws[f"user.{part}"][:, row] for each in (one, again, other)]
        for part in ("x", "alpha")
    )
    np.testing.assert_array_equal(x[0], x[1])
    assert np.abs(x[0] - x[2]).max() > 1e-6
    assert (alpha[0] != alpha[2]).all()


def test_precisions_scatter_as_their_conditional_does():
    """Of a Gamma with the shape a + n / 2, the variance is at least mean^2 / shape.

    Given the row it is that, and rows differ. Means of the conditional would scatter less.
    """
    posterior = sampled("no side, robust").posterior
    count, items = 1000, TRAIN.items.values[1:4]
    new = Ratings.from_triplets(
        users=np.repeat(WHO + np.arange(count), len(items)), items=np.tile(items, count),
        ratings=np.tile([1.0, -1.0, 2.0], count), scale=(-9, 9),
    )  # fmt: skip
    more = add_rows(posterior, new)
    alpha = more.draws["user.alpha"][0, more.row_of("user", WHO + np.arange(count))].astype(float)
    shape = posterior.model.precision_prior[0] + len(items) / 2
    # the variance of a Gamma's sample variance is (2 + 6 / shape) / n of its square; 5 of its roots
    error = 5 * np.sqrt((2 + 6 / shape) / count)
    assert alpha.var() / alpha.mean() ** 2 > (1 - error) / shape


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
