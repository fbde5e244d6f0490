"""Users of training drawn again under the prior of newcomers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesmf import Gibbs, Model, split
from bayesmf.data.synthetic import World, generate
from bayesmf.fitted.newcomers import POWER
from bayesmf.fitted.update import redraw_users
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
        again = {key: values[:1].copy() for key, values in draws.items()}
        redraw_users(model, TRAIN, again, seed)
        many.append(again["user.x"][0])
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


def test_only_the_users_are_drawn_again():
    one, two = kept(), kept(replace(PLAIN, redraw=True))
    for name, values in one.posterior.draws.items():
        same = np.array_equal(values, two.posterior.draws[name])
        assert same == (name != "user.x")
    for name, trace in one.traces.items():  # the chain itself is as it was
        np.testing.assert_array_equal(trace, two.traces[name])


def test_the_same_bits_in_a_folder_and_after_a_resume(tmp_path):
    model = replace(PLAIN, redraw=True, precision="robust")
    one = kept(model).posterior.draws["user.x"]
    sampler = Gibbs(model, sweeps=8, burn_in=2, keep=3, chains=1)
    on_disk = sampler.fit(TRAIN, keep_in=tmp_path / "draws")
    np.testing.assert_array_equal(on_disk.posterior.draws["user.x"], one)
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
