"""Users of training drawn again under the prior of newcomers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import Gibbs, Model, Ratings, split
from bayesmf.data.pairs import Cells
from bayesmf.data.synthetic import World, generate
from bayesmf.fitted.fold_in import add_rows
from bayesmf.fitted.newcomers import POWER
from bayesmf.fitted.store.kept import Kept
from bayesmf.fitted.update import redraw_users, update
from bayesmf.model.spec import Hyper
from oracle.new_rows import PlainNewRows, ones

TRAIN = generate(World(30, 25, 260, rank=2), seed=5)[0]
PLAIN = Model(rank=2, redraw=False, precision="constant")


def kept(model=PLAIN, **settings):
    return Gibbs(model, sweeps=8, burn_in=2, keep=3, chains=1, **settings).fit(TRAIN)


def test_users_are_drawn_from_ratings_and_prior():
    """Means and covariances of many redraws of one draw, against plain loops."""
    fit = kept()
    draws, model = fit.posterior.draws, fit.posterior.model
    many = []
    for seed in range(300):
        again = Kept(1)
        again.put({key: values[0] for key, values in draws.items()}, (0, 0))
        redraw_users(model, TRAIN, again, seed)
        many.append(again[0].user.x[:, : model.size])
    rows = TRAIN.by_user
    pairs = list(zip(rows.row_index.tolist(), rows.index.tolist(), strict=True))
    prior_cov = np.linalg.inv(draws["user.Lambda"][0].astype(float))
    plain = PlainNewRows(draws["user.x"][0], pairs, TRAIN.n_items, prior_cov, POWER)
    y, tau = draws["item.x"][0].astype(float), float(draws["tau"][0, 0])
    for i in (0, 3, 7):
        span = slice(rows.starts[i], rows.starts[i + 1])
        which, g = rows.index[span], int(rows.counts[i])
        z, left = ones(y)[which], rows.values[span] - fit.posterior.mean - y[which, 0]
        prior = np.linalg.inv(plain.R(g))
        P = prior + tau * z.T @ z
        mean = np.linalg.solve(P, prior @ plain.a(g, g * plain.q[i]) + tau * z.T @ left)
        found, sd = np.array(many)[:, i], np.sqrt(np.diag(np.linalg.inv(P)))
        assert (np.abs(found.mean(axis=0) - mean) < 5 * sd / np.sqrt(300)).all()
        assert np.abs(found.std(axis=0) / sd - 1).max() < 5 / np.sqrt(600)
        np.testing.assert_allclose(again.arrays["user.x"][0, i], mean, rtol=1e-4)  # float32


def test_what_is_drawn_beyond_the_means_widens_predictions():
    """Against loops over the draws: means of x'z, and their variance with that of the noise."""
    found = kept(replace(PLAIN, redraw=True)).posterior
    user, item = np.array([2, 0, -1], np.int32), np.array([1, 4, 3], np.int32)
    moments = found.moments(Cells(user, item))
    for k in (0, 1):
        fitted, beyond = [], []
        for number in range(len(found)):
            x, e, y = (found.draws[name][number].astype(float)[row]
                       for name, row in (("user.x", user[k]), ("user.noise", user[k]),
                                         ("item.x", item[k])))  # fmt: skip
            z = np.append(1.0, y[1:])
            fitted.append(found.mean + y[0] + x @ z)
            beyond.append((e @ z) ** 2)
        assert moments.mean[k] == pytest.approx(np.mean(fitted), abs=1e-5)
        doubt = np.var(fitted, ddof=1) + np.mean(beyond)
        assert moments.doubt[k] == pytest.approx(doubt, rel=1e-4)
    del (bare := dict(found.draws))["user.noise"]
    known = replace(found, draws=bare).moments(Cells(user, item))
    assert moments.doubt[0] > known.doubt[0]
    assert moments.doubt[2] > moments.doubt[0]  # a stranger has a doubt of their own


def test_others_learn_from_draws_and_not_from_means():
    """Newcomers' priors and new items' rows are given the users as they were drawn."""
    found = kept(replace(PLAIN, redraw=True)).posterior
    plain = {**found.draws, "user.x": found.draws["user.x"] + found.draws["user.noise"]}
    del plain["user.noise"]
    drawn = replace(found, draws=plain)
    for name in ("user", "item"):
        one, two = (each.newcomers.new_rows(each.draws, 1, name) for each in (found, drawn))
        np.testing.assert_allclose(one.cov, two.cov, rtol=1e-5)
        np.testing.assert_allclose(one.cross, two.cross, rtol=1e-5)
    new = Ratings.from_triplets(users=TRAIN.users.values[:5], items=[900] * 5, ratings=[5] * 5)
    one, two = (add_rows(each, new, "item").draws for each in (found, drawn))
    np.testing.assert_allclose(one["item.x"][:, -1], two["item.x"][:, -1], rtol=1e-3, atol=1e-5)
    few = Ratings.from_triplets(users=TRAIN.users.values[:1], items=TRAIN.items.values[-1:],
                                ratings=[1])  # fmt: skip
    one, two = (update(each, few, "item").draws["item.x"] for each in (found, drawn))
    np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)


def test_updated_users_are_means_with_noise_too():
    found = kept(replace(PLAIN, redraw=True)).posterior
    few = Ratings.from_triplets(users=TRAIN.users.values[:1], items=TRAIN.items.values[-1:],
                                ratings=[1])  # fmt: skip
    many = [update(found, few, seed=seed).draws for seed in range(200)]
    rows = np.array([each["user.x"][0, 0] for each in many])
    noise = np.array([each["user.noise"][0, 0] for each in many])
    np.testing.assert_allclose(rows, rows[:1].repeat(200, axis=0), rtol=1e-5)  # no chance in it
    assert (np.abs(noise.mean(axis=0)) < 5 * noise.std(axis=0) / np.sqrt(200)).all()
    assert (noise.std(axis=0) > 0).all()
    assert not np.allclose(rows[0], found.draws["user.x"][0, 0])
    np.testing.assert_array_equal(many[0]["user.noise"][:, 1:], found.draws["user.noise"][:, 1:])


def test_only_the_users_are_drawn_again():
    one, two = kept(), kept(replace(PLAIN, redraw=True))
    assert set(two.posterior.draws) == {*one.posterior.draws, "user.noise"}
    for name, values in one.posterior.draws.items():
        same = np.array_equal(values, two.posterior.draws[name])
        assert same == (name != "user.x")
    for name, trace in one.traces.items():  # the chain itself is as it was
        np.testing.assert_array_equal(trace, two.traces[name])


def test_the_same_bits_in_a_folder_and_after_a_resume(tmp_path):
    model = replace(PLAIN, redraw=True, precision="robust")
    whole = kept(model)
    one = whole.posterior.draws["user.x"]
    sampler = Gibbs(model, sweeps=8, burn_in=2, keep=3, chains=1)
    on_disk = sampler.fit(TRAIN, keep_in=tmp_path / "draws")
    np.testing.assert_array_equal(on_disk.posterior.draws["user.x"], one)
    np.testing.assert_array_equal(on_disk.draws[1].user.x, whole.draws[1].user.x)
    run = tmp_path / "run"
    sampler.fit(TRAIN, checkpoint=run)
    again = sampler.fit(TRAIN, checkpoint=run, resume=True)
    np.testing.assert_array_equal(again.posterior.draws["user.x"], one)


def test_test_errors_are_those_of_the_users_drawn_again():
    train, test = split(TRAIN, "random", seed=0)
    fit = Gibbs(Model(rank=2), sweeps=30, burn_in=10, chains=3).fit(train, test)
    assert fit.test_rmse == fit.evaluate(test)["rmse"]
    assert abs(fit.endless_rmse - fit.test_rmse) < 0.1
    assert fit.endless_rmse_error > 0


def test_the_papers_models_are_left_alone():
    assert not Model.paper().redraw
    assert Model().redraw
    old = {**Model(hyper=Hyper(noise_shape=3.0)).to_dict()}
    del old["redraw"]
    assert not Model.from_dict(old).redraw  # models of earlier versions were not redrawn
