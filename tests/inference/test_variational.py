"""Mean-field variational inference: the bound, its moments, exact evidences, and running it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bayesmf import DataError, Model, load, split
from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.errors import OverfittingWarning
from bayesmf.inference.loop import Progress
from bayesmf.inference.map.descent import residuals
from bayesmf.inference.map.fit import MAP
from bayesmf.inference.variational import fit as variational
from bayesmf.inference.variational.fit import MeanField, Variational, expected_total, map_driven
from bayesmf.kernels.designs import expected_errors, squared_errors, store_grams
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS, unpack
from bayesmf.model.data import Data
from bayesmf.model.distributions import Gamma
from bayesmf.model.state import random_start, refresh_offsets
from bayesmf.sweep import designs, rows
from bayesmf.sweep import sweep as sweeping
from bayesmf.sweep.rows import row_prior, update_rows
from bayesmf.sweep.sweep import sweep
from oracle import conditionals as readable
from oracle import naive
from oracle.conditionals import rated, row_precision, weighed
from oracle.variants import BASE, VARIANTS, WEIGHTED, random_state, small_ratings
from oracle.variational import bound_of, fitted, watched, z_score
from statistical import prior
from statistical.test_quadrature import RATING, SMALLEST, noise_nodes, pair_nodes

SINGLE = 1e-6  # of an error of predictions that were made in float32: parameters are good to 6e-8
STANDARD_ERRORS = 4.0  # one in 16,000 by chance, and the draws are fixed


# The bound


@pytest.mark.parametrize("name", VARIANTS)
def test_the_bound_never_falls(name):
    """Not after any single block, whatever the variant."""
    model = VARIANTS[name]
    q = watched(model, Data.of(small_ratings(12, 9), model))
    assert len(q.seen) > 9
    assert q.falls() == []
    assert q.seen[-1][1] > q.seen[0][1]


@pytest.mark.parametrize("name", [*VARIANTS, *WEIGHTED])
def test_a_sweep_returns_the_expected_errors(name):
    """What rows leave behind on the way is the sum over all ratings of alpha beta E_ij."""
    model = (VARIANTS | WEIGHTED)[name]
    data = Data.of(small_ratings(12, 9, weighted=name in WEIGHTED), model)
    state, q = fitted(model, data, 2)
    total = sweep(model, data, state, q)
    assert total == pytest.approx(expected_total(data, state, q), rel=1e-10)
    slow = 0.0
    for i in range(len(data.user.counts)):
        C = unpack(q.beliefs["user"].cov.total[i])
        for j, r, given in weighed(data.user, i):
            x, y = state.user.x[i, : model.size], state.item.x[j, : model.size]
            one = naive.expected_error(r, x, C, y, unpack(q.beliefs["item"].cov.total[j]))
            slow += state.user.alpha[i] * state.item.alpha[j] * given * one
    assert total == pytest.approx(slow, rel=1e-10)


def tiny(model: Model, weighted: bool = False) -> Data:
    return Data.of(small_ratings(4, 4, weighted=weighted), model)


@pytest.mark.parametrize("name", [*VARIANTS, *WEIGHTED])
def test_the_bound_is_the_mean_of_draws(name):
    """E_Q[log p(R, theta) - log Q(theta)] with every constant, from draws of theta."""
    model = (VARIANTS | WEIGHTED)[name]
    data = tiny(model, name in WEIGHTED)
    assert abs(z_score(model, data, *fitted(model, data, 30))) < STANDARD_ERRORS


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_bound_is_the_mean_of_many_draws(name):
    """The same with a fifth of the standard error."""
    model = VARIANTS[name]
    data = tiny(model)
    assert abs(z_score(model, data, *fitted(model, data, 30), 3000)) < STANDARD_ERRORS


# Mistakes that the bound must notice


def no_covariance_in_hyper(monkeypatch) -> None:
    right = conditionals.hyper
    monkeypatch.setattr(conditionals, "hyper", lambda g, x, w, cov: right(g, x, w))


def no_variance_in_errors(monkeypatch) -> None:
    """Precisions see the squared errors at the means."""
    right = sweeping.update_rows

    def wrong(model, data, me, others, state, algorithm):
        right(model, data, me, others, state, algorithm)
        return residuals(data, me, others, others.alpha)[1]

    monkeypatch.setattr(sweeping, "update_rows", wrong)


def no_covariance_of_the_other_side(monkeypatch) -> None:
    """Rows are fitted to the other side's means."""
    right = rows.draw_rows
    monkeypatch.setattr(
        rows, "draw_rows", lambda o, known, *a: right(o, known._replace(cov=POINTS), *a)
    )


def no_doubt_about_mu(monkeypatch) -> None:
    right = conditionals.student_scale
    monkeypatch.setattr(
        conditionals, "student_scale", lambda m, s, g, cov, doubt: right(m, s, g, cov)
    )


def n_for_n_squared(monkeypatch) -> None:
    """The offset's covariance is sum c_i Cov[W_k], with c_i for its square."""
    right = designs.refresh_offset_cov

    def wrong(data, cov):
        matrices = [replace(one, scale=np.sqrt(one.scale)) for one in data.matrices]
        right(replace(data, matrices=tuple(matrices)), cov)

    monkeypatch.setattr(designs, "refresh_offset_cov", wrong)


def no_covariance_of_side_features(monkeypatch) -> None:
    """Cov[S] = Cov[U]: that of W is left out."""
    monkeypatch.setattr(designs, "refresh_offset_cov", lambda data, cov: cov.offset.fill(0.0))


@pytest.mark.parametrize(
    ("mistake", "name", "block"),
    [
        (no_covariance_in_hyper, "no side", "user hyper"),
        (no_covariance_in_hyper, "user side", "user W hyper"),
        (no_variance_in_errors, "no side, robust", "user alpha"),
        (no_variance_in_errors, "no side", "tau"),
        (no_covariance_of_the_other_side, "no side", "user rows"),
        (no_doubt_about_mu, "no side, student-t", "user scale"),
    ],
)
def test_mistakes_make_the_bound_fall(mistake, name, block, monkeypatch):
    """Where Q is nearly the best, a block that is updated wrongly makes it worse."""
    model = VARIANTS[name]
    data = Data.of(small_ratings(12, 9), model)
    q = watched(model, data, 100, 1, lambda: mistake(monkeypatch))
    assert block in {what for what, _ in q.falls()}


def no_variance_in_total(monkeypatch) -> None:
    """The ratings' term of the bound with the errors at the means."""

    def wrong(data, state, q):
        errors = residuals(data.user, state.user, state.item, state.item.alpha)[1]
        return float(state.user.alpha @ errors)

    monkeypatch.setattr("oracle.variational.expected_total", wrong)


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (no_covariance_of_side_features, "both sides, joint bias"),
        (n_for_n_squared, "both sides"),
        (no_variance_in_total, "no side"),
    ],
)
def test_mistakes_are_seen_by_draws(mistake, name, monkeypatch):
    """A bound and updates that agree with each other, but not with the model."""
    model = VARIANTS[name]
    data = Data.of(small_ratings(8, 6), model)
    mistake(monkeypatch)
    assert abs(z_score(model, data, *fitted(model, data, 30))) > 1.5 * STANDARD_ERRORS


# Kernels that take and leave moments


def random_covariances(rows: int, size: int, seed: int) -> np.ndarray:
    """Lower triangles of positive definite matrices."""
    root = np.random.default_rng(seed).normal(0, 0.5, (rows, size, size))
    full = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)
    return np.ascontiguousarray(full[:, *np.tril_indices(size)])


@pytest.mark.parametrize("name", ["no side, joint bias", "no side, robust", "both sides",
                                  "both sides, joint bias, robust, student-t"])  # fmt: skip
def test_rows_in_moments(name):
    """Means, covariances, log determinants and expected errors, against loops."""
    model, size = VARIANTS[name], VARIANTS[name].size
    data = Data.of(small_ratings(21, 13), model)
    state = random_state(model, data)
    me, items = state.user, state.item
    cov = random_covariances(len(items.x), size, 1)
    offset = random_covariances(len(me.x), size, 2) if len(me.offset) else POINTS
    known = OtherSide.of(items.x, items.alpha, cov)
    own, logdet, errors = np.empty((len(me.x), size * (size + 1) // 2)), np.empty(21), np.empty(21)
    draw_rows(data.user.observed, known, state.tau * me.alpha,
              row_prior(model, data.user, me, offset), variational.NO_DRAWS, False, me.x,
              errors, own, logdet, state.width())  # fmt: skip
    grams = np.empty((21, state.item.x.shape[1], state.item.x.shape[1]))
    store_grams(data.user.observed, known, size, state.width(), grams)
    again, once_more = np.empty(21), np.empty(21)
    total = own + offset if len(offset) else own
    squared_errors(grams, me.x, total, size, again)
    expected_errors(data.user.observed, me.x, total, known, size, state.width(), once_more)
    D = [unpack(c) for c in cov]
    for i in range(21):
        A = naive.expected_gram(data.user, i, items, D)
        pick = [*range(size), -1]
        assert grams[i][np.ix_(pick, pick)] == pytest.approx(A, rel=1e-11, abs=1e-11)
        weight, P = state.tau * me.alpha[i], row_precision(me, i, model, data.user)
        precision = P + weight * A[:size, :size]
        shift = me.offset[i] if len(me.offset) else 0.0
        mean = np.linalg.solve(precision, P @ (me.mu + shift) + weight * A[size, :size])
        assert me.x[i, :size] == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert unpack(own[i]) == pytest.approx(np.linalg.inv(precision), rel=1e-9, abs=1e-9)
        assert logdet[i] == pytest.approx(-np.linalg.slogdet(precision)[1], rel=1e-9)
        E = sum(
            items.alpha[j]
            * naive.expected_error(r, mean, unpack(total[i]), items.x[j, :size], D[j])
            for j, r in rated(data.user, i)
        )
        found = (errors[i], again[i], once_more[i])
        assert found == pytest.approx((E, E, E), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["user side", "both sides, joint bias", "user side only"])
def test_side_features_in_moments(name):
    """The covariance of W_k is the inverse of prior + sum_i c_i^2 weight_i A_i; Cov[S] follows."""
    model, first = VARIANTS[name], VARIANTS[name].first_shifted
    data = Data.of(small_ratings(9, 7), model)
    state, q = fitted(model, data, 3)
    me, items, cov = state.user, state.item, q.beliefs["user"].cov
    c = data.user.matrices[0].scale
    precision = me.shifts[0].Lambda[first:, first:].copy()
    D = [unpack(c) for c in q.beliefs["item"].cov.total]
    designs.update_design(model, data.user, me, items, 0, state, q)
    inverses = []
    for k in range(7):
        P = precision.copy()
        for i, _ in rated(data.item, k):
            A = naive.expected_gram(data.user, i, items, D)[first : model.size, first : model.size]
            P += c[i] ** 2 * state.tau * me.alpha[i] * A
        inverses.append(np.zeros((model.size, model.size)))
        inverses[-1][first:, first:] = np.linalg.inv(P)
        assert unpack(cov.W[0][k]) == pytest.approx(inverses[-1], rel=1e-9, abs=1e-12)
        assert cov.W_logdet[0][k] == pytest.approx(-np.linalg.slogdet(P)[1], rel=1e-9)
    for i in range(9):
        shared = sum(c[i] ** 2 * inverses[j] for j, _ in rated(data.user, i))
        right = unpack(cov.own[i]) + shared
        assert unpack(cov.total[i]) == pytest.approx(right, rel=1e-9, abs=1e-12)


def joint_mean(model: Model, data: Data, state, D: list[np.ndarray]) -> np.ndarray:
    """The mean of all W given the rows' own part, from one dense system."""
    me, first, size = state.user, model.first_shifted, model.size - model.first_shifted
    count = len(me.shifts[0].W)
    prior_precision = me.shifts[0].Lambda[first:, first:]
    H = np.kron(np.eye(count), prior_precision).reshape(count, size, count, size)
    right = np.tile(prior_precision @ me.shifts[0].mu[first:], (count, 1))
    for i in range(len(me.x)):
        A = naive.expected_gram(data.user, i, state.item, D)
        c, weight = data.user.matrices[0].scale[i], state.tau * me.alpha[i]
        pull = (A[-1, :-1] - A[:-1, :-1] @ me.own[i])[first:]
        for k, _ in rated(data.user, i):
            right[k] += c * weight * pull
            for other, _ in rated(data.user, i):
                H[k, :, other] += c * c * weight * A[first:-1, first:-1]
    flat = np.linalg.solve(H.reshape(count * size, count * size), right.ravel())
    return flat.reshape(count, size)


def side_means(name: str) -> tuple[np.ndarray, np.ndarray, float]:
    """W as found from a start far away, as it should be, and how far the own part moved."""
    model = VARIANTS[name]
    data = Data.of(small_ratings(9, 7), model)
    state, q = fitted(model, data, 3)
    D = [unpack(c) for c in q.beliefs["item"].cov.total]
    own = state.user.own.copy()
    state.user.shifts[0].W[:, model.first_shifted :] += 1.0
    refresh_offsets(state.user, data.user)
    state.user.x[:, : model.size] = own + state.user.offset
    right = joint_mean(model, data, state, D)
    for _ in range(2):  # each to 1e-5 of the way
        designs.update_design(model, data.user, state.user, state.item, 0, state, q)
    moved = float(np.abs(state.user.own - own).max())
    return state.user.shifts[0].W[:, model.first_shifted :], right, moved


@pytest.mark.parametrize("name", ["user side", "both sides, joint bias", "user side only"])
def test_means_of_side_features(name):
    """All at once, they solve one linear system; the rows' own part stays."""
    found, right, moved = side_means(name)
    assert found == pytest.approx(right, abs=1e-7)
    assert moved < 1e-12


@pytest.mark.parametrize("name", ["user side", "user side only"])
def test_a_wrong_normalisation_of_side_features_is_noticed(name, monkeypatch):
    right = designs.move_to_mean
    monkeypatch.setattr(
        designs, "move_to_mean", lambda patterns, c, *a: right(patterns, c**0.9, *a)
    )
    found, exact, _ = side_means(name)
    assert np.abs(found - exact).max() > 1e-3
    with pytest.raises(AssertionError):
        test_side_features_in_moments(name)


# Exact evidences

SURE = 1e9  # the shape of a Gamma that is almost a point: E log x is that of a point to 1 / 2e9


def without_ratings(data: Data) -> Data:
    """The same users and items, and no rating."""

    def empty(side):
        starts = np.zeros_like(side.observed.starts)
        starts.flags.writeable = False  # as those of ratings: the kernels are compiled once
        observed = side.observed._replace(starts=starts)
        return replace(side, observed=observed, counts=np.zeros_like(side.counts))

    return replace(data, user=empty(data.user), item=empty(data.item), size=0)


def log_evidence(model: Model, data: Data, state) -> float:
    """log p(R) with only the users' rows unknown: ratings of a user are jointly Gaussian."""
    total, me, items = 0.0, state.user, state.item
    for i in range(len(me.x)):
        pairs = rated(data.user, i)
        if pairs:
            j = np.array([j for j, _ in pairs])
            y = np.array([r for _, r in pairs]) - items.x[j, 0]
            X = items.x[j, : model.size].copy()
            X[:, 0] = 1.0
            noise = 1 / (state.tau * me.alpha[i] * items.alpha[j])
            prior_cov = np.linalg.inv(row_precision(me, i, model, data.user))
            total += stats.multivariate_normal.logpdf(
                y, X @ me.mu, X @ prior_cov @ X.T + np.diag(noise)
            )
    return total


@pytest.mark.parametrize(
    "name",
    ["biases, fixed prior", "no side", "no side, joint bias", "no side, robust",
     "no side, student-t"],
)  # fmt: skip
def test_the_bound_is_the_evidence_where_q_is_the_posterior(name):
    """Items and precisions known, hyper-parameters held: what the ratings add to the bound.

    The bound with the ratings less that without them is log p(R), since every other term is the
    same in both. The tolerance is that of almost certain precisions.
    """
    model = VARIANTS[name]
    data = Data.of(small_ratings(9, 7), model)
    state, q = fitted(model, data, 5)
    q.tau = Gamma(np.full(1, SURE), np.full(1, SURE / state.tau))
    q.beliefs["item"].cov.own[:] = 0.0
    for side in ("user", "item") if model.precision != "constant" else ():
        alpha = state.sides(side)[0].alpha
        q.beliefs[side].alpha = Gamma(np.full(len(alpha), SURE), SURE / alpha)
    bounds = []
    for ratings in (data, without_ratings(data)):
        update_rows(model, ratings.user, state.user, state.item, state, q)
        bounds.append(bound_of(model, ratings, state, q))
    right = log_evidence(model, data, state)
    assert bounds[0] - bounds[1] == pytest.approx(right, abs=1e-5)
    assert abs(right) > 10


@pytest.mark.parametrize("name", SMALLEST)
def test_the_bound_is_below_the_evidence(name):
    """One user, one item, one rating, rank 1: the evidence by quadrature over all unknowns."""
    model = SMALLEST[name]
    S, V, weight = pair_nodes(model, 41)
    variance = 2 / model.hyper.bias_precision
    fit = 2 * model.hyper.bias_mean + S * V
    evidence = sum(
        share * (weight @ stats.norm.pdf(RATING, fit, np.sqrt(variance + 1 / w)))
        for _, w, share in zip(*noise_nodes(model, 8), strict=True)
    )
    one = Ratings.from_sorted(
        Ids(np.arange(1)), Ids(np.arange(1)), np.zeros(1, np.int32), np.zeros(1, np.int32),
        np.array([RATING]), None, Scale(-9, 9),
    )  # fmt: skip
    data = prior.uncentred(Data.of(one, model))
    bound = bound_of(model, data, *fitted(model, data, 200))
    # the gap is the price of independence: 0.7 to 1.0 here
    assert np.log(evidence) - 1.2 < bound < np.log(evidence)


# Running it


HASH = """
import hashlib, sys
import bayesmf
from bayesmf import Model, Variational
train, test = bayesmf.split(bayesmf.load("demo"), "paper")
method = Variational(Model(3), sweeps=3, threads=int(sys.argv[1]))
fit = method.fit(train, test, start="random")
W = fit.state.item.shifts[0].W
parts = [fit.state.user.x, W, fit.q.beliefs["user"].cov.total, fit.predictions]
print(hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest(), fit.trace["bound"][-1])
"""


def digest(fit) -> str:
    parts = (fit.state.user.x, fit.state.item.x, fit.q.beliefs["user"].cov.total)
    return hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest()


@pytest.mark.slow
def test_the_same_bits_on_1_and_2_threads():
    found = set()
    for threads in ("1", "2"):
        done = subprocess.run([sys.executable, "-c", HASH, threads], capture_output=True, text=True,
                              check=True, env={**os.environ, "NUMBA_NUM_THREADS": "2"})  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_contract(name):
    """Every variant runs from either start, repeats itself, and ends when the bound settles."""
    train = small_ratings(30, 20)
    method = Variational(VARIANTS[name], sweeps=400, tolerance=1e-5)
    one, two = (method.fit(train, train, start="random") for _ in range(2))
    assert digest(one) == digest(two)
    assert one.trace == two.trace
    assert one.stopped == "the bound has settled"
    assert one.sweeps == one.best == len(one.trace["bound"]) < 400
    assert (np.diff(one.trace["bound"]) > -1e-10 * abs(one.trace["bound"][-1])).all()
    last = one.trace["bound"][-2:]
    assert last[1] - last[0] <= 1e-5 * abs(last[1])
    short = replace(method, sweeps=3).fit(train, train)
    assert (short.sweeps, short.stopped) == (3, "")
    assert np.isfinite(short.test_rmse)
    assert short.test_rmse == pytest.approx(short.trace["test rmse"][-1], abs=SINGLE)


def test_the_bound_of_the_training_ratings_is_their_test_bound():
    """The test bound has the test ratings in the place of the training ratings."""
    train = small_ratings(30, 20)
    fit = Variational(VARIANTS["no side, robust"], sweeps=4).fit(train, train, start="random")
    assert fit.trace["test bound"] == pytest.approx(fit.trace["bound"], rel=1e-10)


def test_early_stopping_returns_the_best_update_and_warns():
    train, validation = split(load("demo"), "paper", seed=0)
    method = Variational(Model.paper("no-side", rank=6), sweeps=60, prior="map-driven")
    with pytest.warns(OverfittingWarning, match="the lower bound still rises"):
        fit = method.fit(train, validation, validation=validation, patience=4)
    errors = fit.trace["validation rmse"]
    assert fit.stopped == "the validation error has stopped falling"
    assert fit.best == int(np.argmin(errors)) + 1 == fit.sweeps - 4
    assert fit.test_rmse == pytest.approx(errors[fit.best - 1], abs=SINGLE)
    assert fit.test_rmse < errors[-1]
    again = replace(method, sweeps=fit.best).fit(train, validation=validation, patience=99)
    assert digest(again) == digest(fit)


def test_reasons_to_stop():
    train = small_ratings(30, 20)
    method = Variational(BASE, sweeps=50)
    seen: list[Progress] = []

    def third(progress: Progress) -> bool:
        seen.append(progress)
        return progress.sweep == 3

    fit = method.fit(train, train, start="random", callbacks=[third])
    assert (fit.sweeps, fit.stopped) == (3, "a callback ended it")
    assert [p.rmse for p in seen] == fit.trace["test rmse"]
    assert method.fit(train, start="random", budget=0.0).stopped == "the time was up"

    def interrupt(progress: Progress) -> None:
        if progress.sweep == 2:
            raise KeyboardInterrupt

    fit = method.fit(train, start="random", callbacks=[interrupt])
    assert (fit.sweeps, fit.stopped) == (2, "interrupted")


def test_a_given_start_is_not_changed():
    train = small_ratings(30, 20)
    maximum = MAP(BASE, penalty=5.0).fit(train)
    before = maximum.state.user.x.copy()
    fit = Variational(BASE, sweeps=3).fit(train, start=maximum.state)
    assert np.array_equal(maximum.state.user.x, before)
    assert not np.array_equal(fit.state.user.x, before)


def test_the_prior_scale_from_a_map_estimate():
    """scale_0^-1 = 1/2 diag(sum U U') + 1/2 diag(sum V V'), for U, V and W alike."""
    model = VARIANTS["user side"]
    train = small_ratings(30, 20)
    state = random_start(model, Data.of(train, model), 3)
    U, V = state.user.own[:, 1:], state.item.own[:, 1:]
    right = 0.5 * np.diag(U.T @ U) + 0.5 * np.diag(V.T @ V)
    found = map_driven(model, state)
    for group in (found.groups("user")[1], found.groups("item")[1]):
        assert group.hyper.inverse_scale == pytest.approx(np.diag(right))
    fit = Variational(model, sweeps=2, prior="map-driven").fit(train, start=state)
    assert fit.model == found
    assert Variational(model, sweeps=2).fit(train, start=state).model == model
    none = VARIANTS["biases"]
    assert map_driven(none, random_start(none, Data.of(train, none), 3)) == none


def test_first_moments_only():
    """Every update sees the others' means alone, so it is the update of coordinates at points."""
    model = VARIANTS["no side"]
    data = Data.of(small_ratings(12, 9), model)
    state, q = random_start(model, data, 0), MeanField(model, data, moments="first")
    for _ in range(3):
        sweep(model, data, state, q)
    me = state.item
    points = conditionals.hyper(model.groups("item")[1], me.own, me.scale)
    kept = me.x.copy()
    sweeping.update_hyper(model, data.item, me, q)
    assert q.beliefs["item"].hyper[1].inverse_scale == pytest.approx(points.inverse_scale)
    update_rows(model, data.item, me, state.user, state, q)
    assert not np.array_equal(me.x, kept)
    for j in range(9):
        right = readable.row(state, data.item, j, model)
        assert me.x[j, : me.size] == pytest.approx(right.mean(), rel=1e-9)
        assert unpack(q.beliefs["item"].cov.own[j]) == pytest.approx(np.linalg.inv(right.precision))
    fit = Variational(model, sweeps=30, moments="first").fit(small_ratings(12, 9), start="random")
    assert fit.sweeps == 30  # its bound is no bound of its updates, so nothing settles
    assert min(np.diff(fit.trace["bound"])) < 0


def test_clamped_precisions():
    """shape / rate cut to the bounds, in place of the mean of the truncated Gamma."""
    model = VARIANTS["no side, truncated"]
    train = small_ratings(30, 20)
    fit = Variational(model, sweeps=5, clamp=True).fit(train, start="random")
    exact = Variational(model, sweeps=5).fit(train, start="random")
    q = fit.q.beliefs["user"].alpha
    assert np.array_equal(fit.state.user.alpha, np.clip(q.shape / q.rate, 0.5, 2.0))
    assert np.array_equal(exact.state.user.alpha, exact.q.beliefs["user"].alpha.mean())
    assert not np.allclose(fit.state.user.alpha, q.mean(), rtol=1e-3)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"prior": "flat"}, "prior='flat': choose one of default, map-driven"),
        ({"moments": "third"}, "moments='third': choose one of second, first"),
        ({"sweeps": 0}, "sweeps=0: choose 1 or more"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_settings_that_make_no_sense(wrong, match):
    with pytest.raises(DataError, match=match):
        Variational(BASE, **wrong)
