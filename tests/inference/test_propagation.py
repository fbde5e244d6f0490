"""Posterior propagation: who tells whom, in any order, and what comes of it."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Gibbs, Hyper, Model, Propagation
from bayesmf.data.ratings import Ratings
from bayesmf.inference.engine import Threads
from bayesmf.inference.propagation import block
from bayesmf.inference.propagation.block import (
    Job,
    conditional_moments,
    rotate_towards,
    run_block,
    start_of,
)
from bayesmf.inference.propagation.fit import Deal, cut, phases
from bayesmf.inference.propagation.row_gaussians import RowGaussians, pack, product
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import Data
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep import sweep
from oracle.row_priors import MODEL, PLAIN, ROUNDING, gaussians, regressions, world
from oracle.variants import VARIANTS, random_state, small_ratings

TRAIN = world()


@pytest.mark.parametrize("name", ["no side", "no side, joint bias"])
def test_turning_changes_no_prediction_and_finds_the_way_back(name):
    model = VARIANTS[name]
    data = Data.of(small_ratings(30, 9), model)
    state = random_state(model, data)
    other = copy.deepcopy(state)
    Q, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(2, 2)))
    for side in (other.user, other.item):
        side.x[:, 1:3] = side.x[:, 1:3] @ Q
    back = rotate_towards(other, state)
    np.testing.assert_allclose(back.user.x, state.user.x, atol=ROUNDING)
    np.testing.assert_allclose(back.item.x, state.item.x, atol=ROUNDING)
    # the conditionals of a turned state are the conditionals, turned
    far = rotate_towards(state, other)
    wide = np.eye(model.size)
    wide[1:, 1:] = Q
    mean, cov = conditional_moments(model, data.user, state)
    turned_mean, turned_cov = conditional_moments(model, data.user, far)
    np.testing.assert_allclose(turned_mean, mean @ wide, atol=ROUNDING)
    np.testing.assert_allclose(unpack(turned_cov), wide.T @ unpack(cov) @ wide, atol=ROUNDING)


@pytest.mark.parametrize("order", ["dense", "even"])
def test_blocks_hold_every_rating_once(order):
    users = Deal.of(TRAIN.by_user.counts, 3, order)
    items = Deal.of(TRAIN.by_item.counts, 2, order)
    assert np.ptp(np.bincount(users.group)) <= 1
    seen, sizes = [], {}
    for i, j in [cell for phase in phases((3, 2)) for cell in phase]:
        part = cut(TRAIN, users, items, i, j)
        assert part.n_users == np.sum(users.group == i)
        assert part.n_items == np.sum(items.group == j)
        table = part.to_arrow().to_pydict()
        seen += list(zip(table["user"], table["item"], table["rating"], strict=True))
        sizes[i, j] = len(part)
    table = TRAIN.to_arrow().to_pydict()
    assert sorted(seen) == list(zip(table["user"], table["item"], table["rating"], strict=True))
    if order == "dense":
        assert max(sizes, key=sizes.get) == (0, 0)
    else:
        assert max(sizes.values()) < 1.2 * min(sizes.values())


def test_one_block_has_the_bits_of_gibbs():
    fit = Propagation(MODEL, grid=(1, 1), sweeps=12, burn_in=2, seed=4, keep=5).fit(TRAIN)
    exact = Gibbs(MODEL, sweeps=12, burn_in=2, seed=4, keep=5, chains=1).fit(TRAIN)
    for name, values in exact.posterior.draws.items():
        np.testing.assert_array_equal(fit.posterior.draws[name], values)
    assert not fit.approximate
    assert "exact" in repr(fit)
    job = Job(MODEL, 0, TRAIN, TRAIN.mean, 4, 12, 2, 10)
    data, taus = Data.of(TRAIN, MODEL), []
    state = random_start(MODEL, data, 4)
    for number in range(1, 13):
        draws = Draws(4, sweep=number)
        sweep.gibbs_sweep(MODEL, data, state, draws, "centred", same_basis=True)
        taus.append(state.tau)
    np.testing.assert_array_equal(run_block(job).noise_variance, 1 / np.array(taus[2:]))


def test_a_block_of_known_items_is_a_regression():
    """Items and the noise held by tight priors: the users' moments are those of the regressions."""
    ratings, items = world(20, 12, noise=0.5), np.random.default_rng(1).normal(size=(12, 3))
    held = RowGaussians(items, pack(np.tile(1e-14 * np.eye(3), (12, 1, 1))))
    prior = gaussians(20, 3, seed=2)
    model = replace(MODEL, hyper=Hyper(noise_shape=1e9, noise_rate=5e8))  # tau = 2
    found = run_block(Job(model, 1, ratings, 0.0, 0, 6, 2, 4, prior, held))
    exact = regressions(ratings, items, prior, 2.0)
    # tau varies by 1 / sqrt(1e9) of itself, the items by 1e-7
    np.testing.assert_allclose(found.user.mean, exact.mean, atol=1e-3)
    np.testing.assert_allclose(found.user.cov, exact.cov, atol=1e-3)


def test_a_row_without_ratings_keeps_its_prior():
    ratings = small_ratings(30, 9)  # the last of each have none
    known = gaussians(30, 3)
    found = run_block(Job(MODEL, 1, ratings, ratings.mean, 0, 6, 2, 4, known))
    np.testing.assert_allclose(found.user.mean[-1], known.mean[-1], atol=ROUNDING)
    np.testing.assert_allclose(found.user.cov[-1], known.cov[-1], atol=ROUNDING)
    assert np.trace(unpack(found.user.cov[0])) < np.trace(unpack(known.cov[0]))


def hashed(fit) -> bytes:
    return b"".join(fit.posterior.draws[name].tobytes() for name in sorted(fit.posterior.draws))


def test_the_order_and_place_of_blocks_play_no_part():
    sampler = Propagation(MODEL, grid=(2, 3), sweeps=8, burn_in=2, seed=1)
    plain = hashed(sampler.fit(TRAIN))
    assert plain == hashed(sampler.fit(TRAIN))
    assert plain != hashed(replace(sampler, seed=2).fit(TRAIN))

    class Elsewhere(Threads):
        def map(self, work, jobs):
            """In reverse, each job and result through a pickle, as another process would do it."""
            sent = [pickle.dumps(job) for job in jobs]
            done = [pickle.dumps(work(pickle.loads(job))) for job in sent[::-1]]
            return [pickle.loads(result) for result in done[::-1]]

    assert hashed(replace(sampler, engine=Elsewhere()).fit(TRAIN)) == plain


def test_who_tells_whom():
    """Block (i, j) is told by (i, 0) of its users and by (0, j) of its items, and all are heard."""
    told, heard = {}, {}

    class Listening(Threads):
        def map(self, work, jobs):
            out = []
            for job in jobs:
                told[divmod(job.number, 4)] = job
                out.append(work(job))
                heard[divmod(job.number, 4)] = out[-1]
            return out

    sampler = Propagation(MODEL, grid=(3, 4), sweeps=8, burn_in=2, engine=Listening())
    posterior = sampler.fit(TRAIN).posterior
    assert sorted(told) == [(i, j) for i in range(3) for j in range(4)]
    assert sum(len(job.ratings) for job in told.values()) == len(TRAIN)
    for (i, j), job in told.items():
        assert job.user is (heard[i, 0].user if j else None)
        assert job.item is (heard[0, j].item if i else None)
    for i in range(3):
        mine = told[i, 0].ratings.users.values
        whole = product(heard[i, 0].user, [heard[i, j].user for j in range(1, 4)])
        np.testing.assert_allclose(posterior.centre["user.x"][mine], whole.mean, atol=1e-6)
        spread = posterior.draws["user.x"][:, mine].std(axis=0, ddof=1)
        ratio = spread**2 / unpack(whole.cov)[:, range(3), range(3)]
        # the mean of 180 variances of 50 draws each: 5 standard errors, columns correlated
        assert abs(ratio.mean() - 1) < 5 * np.sqrt(2 / 49 / len(mine))
    for j in range(4):
        mine = told[0, j].ratings.items.values
        whole = product(heard[0, j].item, [heard[i, j].item for i in range(1, 3)])
        np.testing.assert_allclose(posterior.centre["item.x"][mine], whole.mean, atol=1e-6)
    noise = sum(b.size * b.noise_variance for b in heard.values()) / len(TRAIN)
    found = np.unique(1 / posterior.draws["tau"])
    np.testing.assert_allclose(found, np.sort(noise), rtol=1e-6)


def test_a_chain_that_turns_is_turned_back(monkeypatch):
    """The posterior is the same for all rotations; the mean of a chain that visits them is zero.

    Turned back, it predicts as another chain does, to 2 % of the predictions' variance.
    """
    job = Job(MODEL, 0, TRAIN, TRAIN.mean, 0, 40, 10, 30)
    still = run_block(job)

    def turning(model, data, state, draws, form, **options):
        sweep.gibbs_sweep(model, data, state, draws, form, **options)
        angle = draws.of(40).uniforms(1)[0, 0] * 2 * np.pi
        Q = np.eye(3)
        Q[1:, 1:] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        for side in (state.user, state.item):
            side.x[:, :3] = side.x[:, :3] @ Q
            side.mu, side.Lambda = Q.T @ side.mu, Q.T @ side.Lambda @ Q

    monkeypatch.setattr(block, "gibbs_sweep", turning)
    found = run_block(job)
    one, other = (b.user.mean[:, 1:] @ b.item.mean[:, 1:].T for b in (still, found))
    assert np.sum((one - other) ** 2) < 0.02 * np.sum(one**2)


def parts():
    return bayesmf.split(world(120, 80, seed=3), "random", seed=0)


@pytest.mark.parametrize("order", ["dense", "even"])
def test_the_rotation_is_carried(order):
    """Predictions of a cut table are nearly as good as those of the whole; noise has variance 1/4.

    Blocks whose features were turned at random would predict no better than the biases do: the
    features' variance is 2.
    """
    train, test = parts()
    exact = Gibbs(MODEL, sweeps=60, burn_in=20, seed=0, chains=1).fit(train).evaluate(test)
    fit = Propagation(MODEL, grid=(2, 2), order=order, sweeps=60, burn_in=20).fit(train, test)
    assert exact["rmse"] < 0.6
    assert fit.test_rmse < 1.06 * exact["rmse"]
    found = fit.evaluate(test)
    # 4 standard errors of a share of so many test ratings, and 2 points for the approximation
    for level in (0.5, 0.8, 0.95):
        slack = 4 * np.sqrt(level * (1 - level) / len(test)) + 0.02
        assert abs(found[f"coverage_{100 * level:.0f}"] - level) < slack


class Forgetful(Threads):
    """Blocks are told nothing."""

    def map(self, work, jobs):
        return [work(replace(job, user=None, item=None)) for job in jobs]


def test_without_the_priors_nothing_fits_together():
    """The mistake that the test above is there for: blocks that know nothing of each other."""
    train, test = parts()
    sampler = Propagation(MODEL, grid=(2, 2), sweeps=60, burn_in=20, engine=Forgetful())
    fit = sampler.fit(train, test)
    assert fit.test_rmse > 0.8


def test_saved_loaded_folded_in(tmp_path):
    train, test = parts()
    fit = Propagation(MODEL, grid=(2, 2), sweeps=20, burn_in=5).fit(train, test)
    fit.save(tmp_path / "fit")
    back = bayesmf.load_model(tmp_path / "fit")
    assert back.predict(test).equals(fit.predict(test))
    assert back.facts["inference"] == "propagation"
    assert back.facts["approximate"] is True
    assert back.facts["grid"] == [2, 2]
    assert "approximate: 2 x 2 blocks" in repr(fit)
    assert len(fit.recommend(n=3)) == 3 * train.n_users
    new = Ratings.from_triplets(users=[5000, 5000], items=train.items.values[:2], ratings=[1, 5])
    more = fit.fold_in(new)
    table = more.predict([(5000, train.items.values[0]), (6000, train.items.values[0])])
    assert table["known"].to_pylist() == ["warm", "new user"]
    sd = table["sd"].to_numpy()
    assert sd[0] < sd[1]


@pytest.mark.parametrize("name", PLAIN)
def test_every_plain_member_of_the_family(name):
    fit = Propagation(VARIANTS[name], grid=(2, 2), sweeps=8, burn_in=2).fit(TRAIN)
    assert np.isfinite(fit.predict(TRAIN)["sd"].to_numpy()).all()


def test_strangers_have_the_spread_of_the_rows():
    """The prior drawn with the rows is that of the rows, within what so many rows tell of it."""
    train, _ = parts()
    fit = Propagation(MODEL, grid=(2, 2), sweeps=40, burn_in=10).fit(train)
    draws = fit.posterior.draws
    for k in range(0, len(fit.posterior), 10):
        rows = draws["user.x"][k].astype(float)
        cov = np.linalg.inv(draws["user.Lambda"][k].astype(float))
        assert np.trace(cov) == pytest.approx(np.trace(np.cov(rows.T)), rel=0.5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": Model.paper("side", rank=2)}, "no designs; choose Model.paper\\('no-side'\\)"),
        ({"model": replace(MODEL, precision="robust")}, "choose precision='constant'"),
        ({"model": replace(MODEL, prior="student-t")}, "choose prior='gaussian'"),
        ({"grid": (0, 2)}, "grid=\\(0, 2\\): choose two numbers"),
        ({"grid": (300, 300)}, "at most 65536 blocks"),
        ({"order": "odd"}, "order='odd': choose one of dense, even"),
        ({"sweeps": 5, "burn_in": 4}, "keep at least two sweeps"),
        ({"keep": 1}, "keep=1: choose 2 or more"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(options, sentence):
    with pytest.raises(DataError, match=sentence):
        Propagation(**{"model": MODEL, **options})


def test_grids_that_are_too_fine_are_refused():
    fine = Propagation(MODEL, grid=(2, 8))
    with pytest.raises(DataError, match="users have 2.6 ratings in a block .* the 3 unknowns"):
        fine.fit(TRAIN)
    with pytest.raises(DataError, match="items have .* choose a coarser grid"):
        replace(fine, grid=(16, 1)).fit(TRAIN)


def test_a_chain_begins_at_its_priors():
    known = gaussians(TRAIN.n_users, 3)
    job = Job(MODEL, 3, TRAIN, TRAIN.mean, 0, 6, 2, 4, known)
    state = start_of(job, block.data_of(job))
    np.testing.assert_array_equal(state.user.x[:, :3], known.mean)
