"""Posterior propagation: rows' own priors, products of posteriors, blocks in any order."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Gibbs, Hyper, Model, Propagation
from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.inference import block, propagation, sweep
from bayesmf.inference.block import Job, conditional_moments, run_block, start_of, turned
from bayesmf.inference.propagation import Deal, cut, phases
from bayesmf.inference.row_gaussians import RowGaussians, RowMoments, pack, product
from bayesmf.kernels.philox import fill_normal
from bayesmf.model import conditionals
from bayesmf.model.conditionals import unpack
from bayesmf.model.state import Data, stream
from bayesmf.prob.draws import Draws
from variants import VARIANTS, random_state, small_ratings

ROUNDING = 1e-9  # of well-conditioned matrices of size 3, entries of about 1
PLAIN = ["biases", "biases, fixed prior", "no side", "no side, fixed bias prior",
         "no side, joint bias"]  # fmt: skip
MODEL = Model(rank=2, features="user-item")


def world(n_users=60, n_items=40, seed=0, noise=0.5) -> Ratings:
    """Ratings with two features and some noise, about half of all pairs."""
    rng = np.random.default_rng(seed)
    tastes, traits = rng.normal(size=(n_users, 2)), rng.normal(size=(n_items, 2))
    user, item = np.nonzero(rng.random((n_users, n_items)) < 0.5)
    values = 3 + (tastes[user] * traits[item]).sum(axis=1) + noise * rng.normal(size=len(user))
    return Ratings.from_sorted(
        Ids(np.arange(n_users)), Ids(np.arange(n_items)), user.astype(np.int32),
        item.astype(np.int32), values, None, Scale(-9, 15),
    )  # fmt: skip


TRAIN = world()


def gaussians(rows: int, size: int, seed: int = 0) -> RowGaussians:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rows, size, size))
    return RowGaussians(rng.normal(size=(rows, size)),
                        pack(root @ root.transpose(0, 2, 1) + np.eye(size)))  # fmt: skip


def with_priors(model, ratings=None):
    """A state, and data in which users have priors of their own."""
    ratings = small_ratings(30, 9) if ratings is None else ratings
    data = Data.of(ratings, model)
    known = gaussians(ratings.n_users, model.size)
    return replace(data, user=replace(data.user, priors=known.priors())), known


def against_loops(name: str) -> bytes:
    """The kernel's draws, means and covariances, row by row, from the conditional's loop."""
    model = VARIANTS[name]
    data, known = with_priors(model, small_ratings(150, 9))  # batches for several threads
    state = random_state(model, data)
    before = copy.deepcopy(state)
    mean, cov = conditional_moments(model, data.user, state)
    sampling = sweep.Sampling(Draws(3))
    sweep.update_rows(model, data.user, state.user, state.item, state, sampling)
    place = stream(Draws(3), "user", "rows").place()
    for i in range(len(mean)):
        precision = np.linalg.inv(unpack(known.cov[i]))
        linear = precision @ known.mean[i]
        for j, r in conditionals.rated(data.user, i):
            z = np.concatenate([[1.0], before.item.x[j, 1 : model.size]])
            precision = precision + before.tau * np.outer(z, z)
            linear = linear + before.tau * z * (r - before.item.x[j, 0])
        assert mean[i] == pytest.approx(np.linalg.solve(precision, linear), abs=ROUNDING)
        assert cov[i] == pytest.approx(pack(np.linalg.inv(precision)[None])[0], abs=ROUNDING)
        gaussian = conditionals.row(before, data.user, i, model)
        assert gaussian.precision == pytest.approx(precision, abs=ROUNDING)
        assert gaussian.linear == pytest.approx(linear, abs=ROUNDING)
        noise = np.empty(model.size)
        fill_normal(place, i, noise)
        drawn = state.user.x[i, : model.size]
        assert drawn == pytest.approx(gaussian.sample(noise), abs=ROUNDING)
    return mean.tobytes() + cov.tobytes() + state.user.x.tobytes()


@pytest.mark.parametrize("name", PLAIN)
def test_rows_with_priors_of_their_own_against_loops(name):
    against_loops(name)


def test_rows_with_priors_of_their_own_on_2_threads():
    """The same in a process that has two, with the same bits on one and on both."""
    code = (
        "import test_propagation as t, numba; one = t.against_loops('no side'); "
        "numba.set_num_threads(1); assert t.against_loops('no side') == one; print('same')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "2"}, check=False,
    )  # fmt: skip
    assert done.stdout == "same\n", done.stderr


def test_a_side_with_priors_has_nothing_to_learn():
    data, _ = with_priors(MODEL)
    state = random_state(MODEL, data)
    before = copy.deepcopy(state)
    sweep.gibbs_sweep(MODEL, data, state, Draws(0), "centred")
    np.testing.assert_array_equal(state.user.mean, before.user.mean)
    np.testing.assert_array_equal(state.user.precision, before.user.precision)
    assert not np.array_equal(state.item.precision, before.item.precision)


def regressions(ratings: Ratings, items: np.ndarray, prior: RowGaussians, tau: float):
    """The users' posteriors when items and tau are known: exact, by plain linear regressions."""
    mean, cov = np.empty_like(prior.mean), np.empty_like(prior.cov)
    rows = ratings.by_user
    for i in range(len(mean)):
        span = slice(rows.starts[i], rows.starts[i + 1])
        z = items[rows.index[span]].copy()
        target = rows.values[span] - z[:, 0]
        z[:, 0] = 1.0
        P = np.linalg.inv(unpack(prior.cov[i]))
        precision = P + tau * z.T @ z
        mean[i] = np.linalg.solve(precision, P @ prior.mean[i] + tau * z.T @ target)
        cov[i] = pack(np.linalg.inv(precision)[None])[0]
    return RowGaussians(mean, cov)


def exact_case():
    """Blocks' posteriors of the users, given the items, and that of all ratings together."""
    ratings, items = world(20, 12), np.random.default_rng(1).normal(size=(12, 3))
    prior = gaussians(20, 3, seed=2)
    first = np.arange(12) % 3
    index = ratings.by_user.index
    parts = [ratings.select(first[index] == k) for k in range(3)]
    begun = regressions(parts[0], items, prior, 2.0)
    later = [regressions(part, items, begun, 2.0) for part in parts[1:]]
    return begun, later, regressions(ratings, items, prior, 2.0)


def test_the_product_is_the_posterior_of_all_ratings():
    """With one side known the posteriors are Gaussian, and nothing is lost by cutting."""
    begun, later, whole = exact_case()
    found = product(begun, later)
    np.testing.assert_allclose(found.mean, whole.mean, atol=ROUNDING)
    np.testing.assert_allclose(found.cov, whole.cov, atol=ROUNDING)
    assert product(begun, []) is begun
    # the formula as it is written, and the mistakes it is there to avoid
    P = [np.linalg.inv(unpack(each.cov)) for each in (begun, *later)]
    h = [np.einsum("iab,ib->ia", p, each.mean) for p, each in zip(P, (begun, *later), strict=True)]
    for times, right in ((1, True), (0, False), (2, False)):
        precision, linear = P[1] + P[2] - times * P[0], h[1] + h[2] - times * h[0]
        mean = np.linalg.solve(precision, linear[..., None])[..., 0]
        assert np.allclose(mean, whole.mean, atol=ROUNDING) == right


def test_a_direction_that_lost_information_keeps_the_priors():
    """One posterior is wider than the prior along the first axis, and narrower along the second."""
    prior = RowGaussians(np.zeros((1, 2)), pack(np.eye(2)[None]))
    odd = RowGaussians(np.array([[3.0, 1.0]]), pack(np.diag([4.0, 0.5])[None]))
    found = product(prior, [odd, odd])  # P = diag(1/4 + 1/4 - 1, 2 + 2 - 1)
    np.testing.assert_allclose(unpack(found.cov)[0], np.diag([1.0, 1 / 3]))
    np.testing.assert_allclose(found.mean[0], [(3 + 3) / 4, 4 / 3])


def test_moments_are_those_of_a_mixture():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(4, 3)), gaussians(4, 3, seed=k).cov) for k in range(5)]
    moments = RowMoments(4, 3)
    for mean, cov in parts:
        moments.add(mean, cov)
    found = moments.result()
    means = np.array([mean for mean, _ in parts])
    np.testing.assert_allclose(found.mean, means.mean(axis=0))
    for i in range(4):
        expected = np.cov(means[:, i].T) + unpack(np.mean([cov[i] for _, cov in parts], axis=0))
        np.testing.assert_allclose(unpack(found.cov[i]), expected)
    one = RowMoments(4, 3)
    one.add(*parts[0])  # fewer draws than features: still a covariance
    assert (np.linalg.eigvalsh(unpack(one.result().cov)) > 0).all()


@pytest.mark.parametrize("name", ["no side", "no side, joint bias"])
def test_turning_changes_no_prediction_and_finds_the_way_back(name):
    model = VARIANTS[name]
    data = Data.of(small_ratings(30, 9), model)
    state = random_state(model, data)
    other = copy.deepcopy(state)
    Q, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(2, 2)))
    for side in (other.user, other.item):
        side.x[:, 1:3] = side.x[:, 1:3] @ Q
    back = turned(other, state)
    np.testing.assert_allclose(back.user.x, state.user.x, atol=ROUNDING)
    np.testing.assert_allclose(back.item.x, state.item.x, atol=ROUNDING)
    # the conditionals of a turned state are the conditionals, turned
    far = turned(state, other)
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
    exact = Gibbs(MODEL, sweeps=12, burn_in=2, seed=4, keep=5).fit(TRAIN)
    for name, values in exact.posterior.draws.items():
        np.testing.assert_array_equal(fit.posterior.draws[name], values)
    assert not fit.approximate
    assert "exact" in repr(fit)
    job = Job(MODEL, 0, TRAIN, TRAIN.mean, 4, 12, 2, 10)
    taus = exact.traces["noise precision"][0, 2:]
    np.testing.assert_array_equal(run_block(job).noise, 1 / taus)


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


def test_the_order_and_place_of_blocks_play_no_part(monkeypatch):
    sampler = Propagation(MODEL, grid=(2, 3), sweeps=8, burn_in=2, seed=1)
    plain = hashed(sampler.fit(TRAIN))
    assert plain == hashed(sampler.fit(TRAIN))
    assert plain != hashed(replace(sampler, seed=2).fit(TRAIN))

    def elsewhere(jobs):
        """In reverse, each job and result through a pickle, as another process would have it."""
        sent = [pickle.dumps(job) for job in jobs]
        done = [pickle.dumps(block.run_block(pickle.loads(job))) for job in sent[::-1]]
        return [pickle.loads(result) for result in done[::-1]]

    monkeypatch.setattr(propagation, "run_blocks", elsewhere)
    assert hashed(sampler.fit(TRAIN)) == plain


def parts():
    return bayesmf.split(world(120, 80, seed=3), "random", seed=0)


@pytest.mark.parametrize("order", ["dense", "even"])
def test_the_rotation_is_carried(order):
    """Predictions of a cut table are nearly as good as those of the whole; noise has variance 1/4.

    Blocks whose features were turned at random would predict no better than the biases do: the
    features' variance is 2.
    """
    train, test = parts()
    exact = Gibbs(MODEL, sweeps=60, burn_in=20, seed=0).fit(train).evaluate(test)
    fit = Propagation(MODEL, grid=(2, 2), order=order, sweeps=60, burn_in=20).fit(train, test)
    assert exact["rmse"] < 0.6
    assert fit.test_rmse < 1.06 * exact["rmse"]
    found = fit.evaluate(test)
    # 4 standard errors of a share of so many test ratings, and 2 points for the approximation
    for level in (0.5, 0.8, 0.95):
        slack = 4 * np.sqrt(level * (1 - level) / len(test)) + 0.02
        assert abs(found[f"coverage {level:g}"] - level) < slack


def test_without_the_priors_nothing_fits_together(monkeypatch):
    """The mistake that the test above is there for: blocks that know nothing of each other."""
    train, test = parts()
    right = block.run_block
    monkeypatch.setattr(propagation, "run_blocks", lambda jobs: [
        right(replace(job, user=None, item=None)) for job in jobs])  # fmt: skip
    fit = Propagation(MODEL, grid=(2, 2), sweeps=60, burn_in=20).fit(train, test)
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
    assert table["known"].to_pylist() == ["hot", "new user"]
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
        cov = np.linalg.inv(draws["user.precision"][k].astype(float))
        assert np.trace(cov) == pytest.approx(np.trace(np.cov(rows.T)), rel=0.5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": Model(rank=2)}, "no features='side'; choose features='user-item'"),
        ({"model": replace(MODEL, precision="robust")}, "choose precision='constant'"),
        ({"model": replace(MODEL, prior="student-t")}, "choose prior='gaussian'"),
        ({"grid": (0, 2)}, "grid=\\(0, 2\\): choose two numbers"),
        ({"grid": (300, 300)}, "at most 65536 blocks"),
        ({"order": "odd"}, "order='odd': choose one of dense, even"),
        ({"sweeps": 5, "burn_in": 4}, "keep at least two sweeps"),
        ({"keep": 1}, "draw 2 or more"),
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
