"""The time chain: exact small cases, naive twins, Geweke's test, and times that are refused."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
from scipy import stats

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings
from bayesmf.data.pairs import Cells
from bayesmf.kernels.response.chain import draw_chains, sum_steps
from bayesmf.model import time_chain
from bayesmf.model.data import Data
from bayesmf.model.time_chain import FIRST, THETA, VARIANCE, Steps, TimeChain, X, encode, table
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import BASE, small_ratings
from statistical import prior
from statistical.scores import bound

MINUTE = 60


def cells_of(users, items, times) -> Cells:
    return Cells(np.array(users, np.int32), np.array(items, np.int32), np.array(times, np.int64))


def covariance(times, theta, variance):
    """Of the moods of one user, in the order of time: products of rho between neighbours."""
    rho = table(theta)[encode(np.diff(times))]
    size = len(times)
    C = np.empty((size, size))
    for a in range(size):
        for b in range(size):
            C[a, b] = variance * np.prod(rho[min(a, b) : max(a, b)])
    return C


def posterior(times, y, w, theta, variance):
    """Mean and covariance of the moods given y, by the matrix of all of them."""
    P = np.linalg.inv(covariance(times, theta, variance)) + np.diag(w)
    return np.linalg.solve(P, w * y), np.linalg.inv(P)


@pytest.mark.parametrize("in_order", [True, False])
def test_ratings_are_sorted_by_user_time_and_item(in_order):
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((20, 15)) < 0.6)
    times = rng.choice([0, 7, 8, 10**9, time_chain.LATEST], len(user))
    if not in_order:
        mixed = rng.permutation(len(user))
        user, item, times = user[mixed], item[mixed], times[mixed]
    order = TimeChain().prepare(cells_of(user, item, times)).order
    keys = list(zip(user.tolist(), times.tolist(), item.tolist(), strict=True))
    assert [keys[k] for k in order] == sorted(keys)
    assert len(TimeChain().prepare(cells_of([], [], [])).order) == 0


TIMES = np.array([0, 5, 5, 300, 90_000]) * MINUTE
THETA_0, S2 = np.array([2.0, np.log(0.2)]), 0.5
Y, W = np.array([0.3, -1.0, 0.4, 0.8, -0.2]), np.array([1.0, 2.0, 0.5, 1.5, 3.0])


def draw(rounds=4000, y=Y, w=W, chain=None):
    chain = chain or TimeChain()
    # the user's ratings are not in the order of time
    order = np.array([3, 0, 4, 1, 2])
    train = chain.prepare(cells_of([0] * 5, np.arange(5), TIMES[order]))
    parameters = {X: np.zeros(5), THETA: THETA_0, VARIANCE: np.array([S2])}
    found = np.empty((rounds, 5))
    for k in range(rounds):
        new = chain.update(parameters, train, y[order], w[order], Draws(0, sweep=k), False)
        found[k, order] = new[X]
    return found


def z_of_moments(found):
    """Means and second moments of draws, less the exact ones, in standard errors."""
    # ties in time are in the order of items: of TIMES, item 3 is 1 and item 4 is 2
    mean, cov = posterior(TIMES, Y, W, THETA_0, S2)
    away = (found.mean(axis=0) - mean) / np.sqrt(np.diag(cov) / len(found))
    a, b = np.tril_indices(5)
    products = (found - mean)[:, a] * (found - mean)[:, b]
    se = products.std(axis=0) / np.sqrt(len(found))
    return np.concatenate([away, (products.mean(axis=0) - cov[a, b]) / se])


def test_moods_have_the_exact_posterior():
    z = z_of_moments(draw())
    assert np.abs(z).max() < bound(len(z)), z


def test_a_chain_of_three_by_quadrature():
    """The density on a grid of three moods, without any matrix algebra."""
    times, y, w = np.array([0, 10, 600]) * MINUTE, np.array([1.0, -0.5, 0.7]), np.array([2, 1, 4.0])
    rho = table(THETA_0)[encode(np.diff(times))]
    grid = np.linspace(-5, 5, 161)
    a, b, c = np.meshgrid(grid, grid, grid, indexing="ij")
    sd = np.sqrt(S2)
    log = stats.norm.logpdf(a, 0, sd) + stats.norm.logpdf(
        b, rho[0] * a, sd * np.sqrt(1 - rho[0] ** 2)
    )
    log = log + stats.norm.logpdf(c, rho[1] * b, sd * np.sqrt(1 - rho[1] ** 2))
    for x, value, weight in zip((a, b, c), y, w, strict=True):
        log = log - weight * (value - x) ** 2 / 2
    p = np.exp(log - log.max())
    p /= p.sum()
    exact = np.array([(p * x).sum() for x in (a, b, c)])
    chain = TimeChain()
    train = chain.prepare(cells_of([0] * 3, range(3), times))
    own = {X: np.zeros(3), THETA: THETA_0, VARIANCE: np.array([S2])}
    found = np.array(
        [chain.update(own, train, y, w, Draws(1, sweep=k), False)[X] for k in range(4000)]
    )
    se = found.std(axis=0) / np.sqrt(len(found))
    assert np.abs((found.mean(axis=0) - exact) / se).max() < bound(3)


@pytest.mark.parametrize("gap", [0, 3 * MINUTE, 500_000 * MINUTE])
def test_between_two_ratings_a_mood_is_what_the_chain_says(gap):
    """A pair that is asked about is a rating of the chain with no weight."""
    chain = TimeChain()
    times = np.array([0, 7 * MINUTE, 7 * MINUTE + 2 * gap])
    train = chain.prepare(cells_of([0, 0], [0, 2], times[[0, 2]]))
    own = {X: np.array([0.6, -0.3]), THETA: THETA_0, VARIANCE: np.array([S2])}
    asked = cells_of([0], [1], [times[1]])
    where = chain.locate(train, asked)
    C = covariance(times, THETA_0, S2)
    known = np.array([0, 2])
    gain = C[1, known] @ np.linalg.inv(C[np.ix_(known, known)])
    assert np.allclose(chain.contribution(own, where), gain @ own[X])
    assert np.allclose(chain.doubt(own, where), C[1, 1] - gain @ C[known, 1])


def test_a_pair_of_training_has_its_mood_and_one_without_neighbours_the_prior():
    chain = TimeChain()
    train = chain.prepare(cells_of([0, 0, 2], [3, 1, 1], [50, 20, 20]))
    own = {X: np.array([0.1, 0.2, 0.3]), THETA: THETA_0, VARIANCE: np.array([S2])}
    asked = cells_of([0, 2, 1, -1], [3, 1, 0, 0], [50, 20, 20, 20])
    where = chain.locate(train, asked)
    assert chain.contribution(own, where).tolist() == [0.1, 0.3, 0.0, 0.0]
    assert chain.doubt(own, where).tolist() == [0.0, 0.0, S2, S2]
    without = chain.locate(train, asked._replace(time=None))
    assert chain.contribution(own, without).tolist() == [0.0] * 4
    assert chain.doubt(own, without).tolist() == [S2] * 4


def many(users=40, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 30, users)
    user = np.repeat(np.arange(users), counts)
    item = np.concatenate([np.sort(rng.permutation(60)[:n]) for n in counts])
    return cells_of(user, item, rng.integers(0, 10**6, len(user))), rng


def test_kernels_are_the_same_on_one_and_two_threads_and_sums_are_plain_sums():
    cells, rng = many()
    chain = TimeChain()
    train = chain.prepare(cells)
    size = len(cells.user)
    y, w = rng.normal(size=size), rng.gamma(2, size=size)
    rho = table(THETA_0)
    found = []
    for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
        numba.set_num_threads(threads)
        x, sums = np.empty(size), np.zeros((7, FIRST + 1, 3))
        draw_chains(train.starts, train.order, train.codes, train.batches, rho, S2 * (1 - rho**2),
                    y, w, Draws(3).counter(), x)  # fmt: skip
        sum_steps(train.starts, train.order, train.codes, x, sums)
        found.append((x, sums))
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    x, sums = found[0]
    plain = np.zeros((FIRST + 1, 3))
    for i in np.unique(cells.user):
        mine = np.flatnonzero(cells.user == i)
        mine = mine[np.lexsort((cells.item[mine], cells.time[mine]))]
        gaps = np.diff(cells.time[mine])
        codes = [FIRST, *np.minimum(np.rint(16 * np.log1p(gaps / 60)), FIRST - 1).astype(int)]
        before = 0.0
        for code, value in zip(codes, x[mine], strict=True):
            plain[code] += value**2, value * before, before**2
            before = value
    assert np.allclose(sums.sum(axis=0), plain)


def test_what_moods_say_of_theta_is_their_density():
    """With s^2 integrated out by quadrature."""
    cells, rng = many(6, 2)
    chain = TimeChain(unit=1.3)
    train = chain.prepare(cells)
    x = rng.normal(size=len(cells.user))
    sums = np.zeros((1, FIRST + 1, 3))
    sum_steps(train.starts, train.order, train.codes, x, sums)
    rate = time_chain.RATE * 1.3**2
    steps = Steps(train.counts, sums[0], rate)
    precisions = np.exp(np.linspace(-6, 6, 4001))

    def plain(theta):
        total = stats.gamma.logpdf(precisions, 1.0, scale=1 / rate) + np.log(precisions)
        for i in np.unique(cells.user):
            mine = np.flatnonzero(cells.user == i)
            mine = mine[np.lexsort((cells.item[mine], cells.time[mine]))]
            C = covariance(cells.time[mine], theta, 1.0)
            _, logdet = np.linalg.slogdet(C)
            square = x[mine] @ np.linalg.solve(C, x[mine])
            total = total + 0.5 * (len(mine) * np.log(precisions) - logdet - precisions * square)
        own = stats.norm.logpdf(theta, time_chain.PRIOR_MEAN, time_chain.PRIOR_SD).sum()
        return np.log(np.sum(np.exp(total - total.max()))) + total.max() + own

    a, b = np.array([1.0, -2.0]), np.array([0.2, -1.0])
    assert np.isclose(steps.log_density(a) - steps.log_density(b), plain(a) - plain(b), atol=1e-6)


# Geweke's test of the whole sampler with a chain.
ROUNDS, REPLICATES = 4, 300
CHAIN = replace(BASE, time="chain", unit=1.0)
THETA_PRIOR = time_chain.PRIOR_MEAN.copy(), time_chain.PRIOR_SD.copy()  # before any mistake
RATE = time_chain.RATE


def with_times(ratings: Ratings) -> Ratings:
    rows = ratings.by_user
    times = np.random.default_rng(1).integers(0, 2000, len(ratings)) * MINUTE
    return Ratings.from_sorted(
        ratings.users, ratings.items, rows.row_index, rows.index, np.zeros(len(ratings)), times,
        ratings.scale,
    )  # fmt: skip


def draw_chain_prior(train, rng, effect):
    """Parameters from their prior; 1 / s^2 is Gamma(1, 0.04)."""
    theta = rng.normal(*THETA_PRIOR)
    variance = RATE * effect.unit**2 / rng.gamma(1.0)
    rho, x, before = table(theta), np.zeros(len(train.order)), 0.0
    for k, p in enumerate(train.order):
        r = rho[train.codes[k]]
        before = r * before + np.sqrt(variance * (1 - r**2)) * rng.normal()
        x[p] = before
    return {X: x, THETA: theta, VARIANCE: np.array([variance])}


def chain_statistics(model, state):
    own = state.effects[0]
    z, variance, x = (own[THETA] - THETA_PRIOR[0]) / THETA_PRIOR[1], own[VARIANCE][0], own[X]
    return {
        **prior.statistics(model, state),
        "rho": np.tanh(z[0]),
        "decay": np.tanh(z[1]),
        "rho^2": np.tanh(z[0]) ** 2,
        "decay^2": np.tanh(z[1]) ** 2,
        "s": np.tanh(np.log(variance)),
        "x": np.tanh(x).mean(),
        "x^2": np.tanh(x**2).mean(),
        "x x'": np.tanh(x[0] * x[1]),
    }


def z_scores(model: Model, seed: int = 0):
    rng = np.random.default_rng(seed)
    data = prior.uncentred(Data.of(with_times(small_ratings()), model))
    train, cells = data.response.prepared[0], data.response.cells
    found = []
    for replicate in range(REPLICATES):
        state = prior.draw_prior(model, data, rng)
        state.effects = [draw_chain_prior(train, rng, model.every_effect[0])]
        before = chain_statistics(model, state)
        for k in range(ROUNDS):
            x, y = state.user.x, state.item.x
            f = x[cells.user, 0] + y[cells.item, 0]
            f = f + (x[cells.user, 1:] * y[cells.item, 1:]).sum(axis=1) + state.effects[0][X]
            weight = state.tau * state.user.alpha[cells.user] * state.item.alpha[cells.item]
            data.response.centred[:] = f + rng.normal(size=len(f)) / np.sqrt(weight)
            gibbs_sweep(model, data, state, Draws(seed, sweep=replicate * ROUNDS + k), "centred")
        after = chain_statistics(model, state)
        found.append([after[key] - before[key] for key in before])
    d = np.array(found)
    sd = np.maximum(d.std(axis=0, ddof=1), 1e-300)
    z = np.where(d.std(axis=0) > 0, d.mean(axis=0) / sd * np.sqrt(len(d)), 0.0)
    return dict(zip(before, z, strict=True))


def test_geweke():
    z = z_scores(CHAIN)
    assert max(map(abs, z.values())) < bound(len(z)), z


MISTAKES = {
    "the prior of theta is left out": ("PRIOR_SD", np.array([1e3, 1e3])),
    "the prior of s^2 is another": ("SHAPE", 4.0),
    "its rate is another": ("RATE", 0.4),
    "rho is not that of the kernel": ("table", lambda theta: table(theta + np.array([1.0, 0.0]))),
}


SOON, *LATER = MISTAKES


@pytest.mark.parametrize(
    "name", [SOON, *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)]
)
def test_geweke_catches_a_mistake(name, monkeypatch):
    where, value = MISTAKES[name]
    if where == "table":  # in the steps alone
        monkeypatch.setattr(Steps, "squares", lambda self, rho: _squares(self, 0.5 * rho))
    else:
        monkeypatch.setattr(time_chain, where, value)
    z = z_scores(CHAIN)
    assert max(map(abs, z.values())) > bound(len(z)), z


_squares = Steps.squares


def test_a_wrong_weight_of_the_next_mood_is_caught():
    """The check of moments fails if the chain is drawn with the neighbours of another chain."""
    found = draw()
    found[:, 1] += 0.1
    z = z_of_moments(found)
    assert np.abs(z).max() > bound(len(z))


def moody(users=60, items=30, seed=0) -> Ratings:
    """Stars with moods that last: a session of each user is good or bad."""
    rng = np.random.default_rng(seed)
    user, item = np.nonzero(rng.random((users, items)) < 0.7)
    session = rng.integers(0, 4, len(user))
    mood = rng.normal(size=(users, 4))[user, session]
    times = session * 10**6 + rng.integers(0, 3600, len(user))
    values = np.clip(np.rint(3 + mood + 0.3 * rng.normal(size=len(user))), 1, 5)
    return Ratings.from_triplets(users=user, items=item, ratings=values, times=times)


@pytest.fixture(scope="module")
def fitted():
    train, test = bayesmf.split(moody(), "random", seed=0)
    fits = [
        Gibbs(Model(rank=1, time=time), sweeps=60, chains=1, seed=0, threads=1).fit(train, test)
        for time in ("none", "chain")
    ]
    return (*fits, train, test)


def test_moods_are_found_and_need_a_time(fitted):
    plain, chain, _, test = fitted
    assert chain.test_rmse < 0.7 * plain.test_rmse
    found = chain.evaluate(test)
    assert found["rmse"] == chain.test_rmse
    assert abs(found["coverage_80"] - 0.8) < 0.1  # 250 test ratings: four standard errors
    pairs = [(int(test.users[0]), int(test.items[0]))]
    when = int(test.by_user.times[0])
    known = chain.predict(pairs, at=when)
    assert known["sd"][0].as_py() < chain.predict(pairs)["sd"][0].as_py()
    far = chain.predict(pairs, at="2100-01-01")
    assert known["sd"][0].as_py() < far["sd"][0].as_py() <= chain.predict(pairs)["sd"][0].as_py()


def test_recommendations_at_a_time_have_the_scores_of_that_time(fitted):
    _, chain, train, _ = fitted
    user = int(train.users[5])
    when = int(train.by_user.times[train.by_user.starts[5]])
    plain, timed = chain.recommend([user], 3), chain.recommend([user], 3, at=when)
    assert timed["item"].equals(plain["item"])
    pairs = [(user, item) for item in timed["item"].to_pylist()]
    assert np.allclose(timed["score"], chain.predict(pairs, at=when)["mean"], atol=1e-5)
    assert not np.allclose(timed["score"], plain["score"], atol=0.01)
    lower = chain.recommend([user], 3, at=when, rank_by="lower")
    assert (lower["score"].to_numpy() < timed["score"].to_numpy().max()).all()


def test_a_chain_is_saved_with_its_ratings_and_forgets_moods_without_them(fitted, tmp_path):
    _, chain, _, test = fitted
    chain.save(tmp_path / "model")
    again = bayesmf.load_model(tmp_path / "model")
    assert again.posterior.model == chain.posterior.model
    assert again.predict(test).equals(chain.predict(test))
    chain.save(tmp_path / "small.zip", without_ratings=True)
    small = bayesmf.load_model(tmp_path / "small.zip")
    table = test.to_arrow().select(["user", "item"])
    assert np.allclose(small.predict(test)["mean"], chain.predict(table)["mean"])


def test_a_newcomer_has_moods_of_their_own_and_others_keep_theirs(fitted):
    _, chain, _, test = fitted
    new = Ratings.from_triplets(
        users=[99] * 8, items=range(8), ratings=[5, 5, 5, 5, 1, 1, 1, 1],
        times=[10, 20, 30, 40, 10**8, 10**8 + 10, 10**8 + 20, 10**8 + 30],
    )  # fmt: skip
    more = chain.fold_in(new)
    good, bad = more.predict([(99, 20)], at=25), more.predict([(99, 20)], at=10**8 + 15)
    assert good["mean"][0].as_py() > bad["mean"][0].as_py() + 1
    assert np.allclose(more.predict(test)["mean"], chain.predict(test)["mean"])
    items = Ratings.from_triplets(users=[1, 2, 3], items=[99] * 3, ratings=[3, 4, 3], times=[5] * 3)
    assert chain.fold_in(items, "item").predict([(1, 99)])["known"].to_pylist() == ["warm"]


def test_an_update_follows_new_moods_of_a_known_user(fitted):
    _, chain, train, test = fitted
    user = int(train.users[3])
    rated = set(train.items.values[train.by_user.index[train.by_user.row_index == 3]].tolist())
    left = [item for item in train.items.values.tolist() if item not in rated]
    new = Ratings.from_triplets(users=[user] * 3, items=left[:3], ratings=[5, 5, 5],
                                times=[10**8, 10**8 + 60, 10**8 + 120])  # fmt: skip
    more = chain.update(new)
    pair = [(user, left[4])]
    then = more.predict(pair, at=10**8 + 90)["mean"][0].as_py()
    assert then > chain.predict(pair, at=10**8 + 90)["mean"][0].as_py() + 0.5
    others = test.select(test.by_user.row_index != test.users.index([user])[0])
    assert np.allclose(more.predict(others)["mean"], chain.predict(others)["mean"])


def test_the_same_bits_on_two_threads_and_after_a_resume(fitted, tmp_path):
    _, _, train, test = fitted
    sampler = Gibbs(Model(rank=1, time="chain"), sweeps=12, chains=2, seed=0)
    whole = replace(sampler, threads=1).fit(train, test)
    two = replace(sampler, threads=min(2, numba.config.NUMBA_NUM_THREADS))
    two.fit(train, test, checkpoint=tmp_path / "run", every=0, callbacks=[lambda p: p.sweep == 5])
    again = two.fit(train, test, checkpoint=tmp_path / "run", every=0, resume=True)
    for name, values in whole.draws.arrays.items():
        assert np.array_equal(values, again.draws.arrays[name]), name


def test_ratings_in_other_units_have_predictions_in_other_units(fitted):
    _, _, train, test = fitted
    sampler = Gibbs(Model(rank=1, time="chain"), sweeps=15, chains=1, seed=0, threads=1)

    def scaled(part):
        rows = part.by_user
        values = 20 * np.asarray(rows.values, float) + 3
        return Ratings.from_sorted(part.users, part.items, rows.row_index, rows.index, values,
                                   rows.times, bayesmf.Scale(23, 103, 20))  # fmt: skip

    one, other = sampler.fit(train), sampler.fit(scaled(train))
    mean = one.predict(test)["mean"].to_numpy()
    # draws are kept in single precision, and moods in half of it
    assert np.allclose(20 * mean + 3, other.predict(test)["mean"].to_numpy(), atol=0.05)


BAD = {
    "none": (None, "give a column of times, or fit without the chain: time='none' of Model"),
    "negative": (-5, "the time -5 is before 1970"),
    "milliseconds": (978_300_760_000, "if times are milliseconds, divide them by 1,000"),
    "microseconds": (978_300_760_000_000, "if times are microseconds, divide them by 1,000,000"),
}


@pytest.mark.parametrize("name", BAD)
def test_times_that_cannot_be_are_refused(name):
    time, message = BAD[name]
    times = None if time is None else [0, 1, 2, time]
    ratings = Ratings.from_triplets(users=[1, 1, 2, 2], items=[1, 2, 1, 2], ratings=[1, 2, 3, 4],
                                    times=times)  # fmt: skip
    with pytest.raises(DataError, match=message):
        Gibbs(Model(rank=1, time="chain"), sweeps=2, chains=1).fit(ratings)


def test_what_is_no_time_and_what_cannot_have_one(fitted):
    _, chain, _, test = fitted
    with pytest.raises(DataError, match="at='tomorrow' is no time; write a date such as"):
        chain.predict([(1, 1)], at="tomorrow")
    with pytest.raises(DataError, match="the pairs have times of their own; leave at= out"):
        chain.predict(test, at=5)
    with pytest.raises(DataError, match="has no update for a time chain; sample the model"):
        bayesmf.Variational(Model(time="chain"))
    with pytest.raises(DataError, match="time='weekly': choose"):
        Model(time="weekly")
