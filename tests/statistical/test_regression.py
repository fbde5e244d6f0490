"""With one side and every precision held, rows and side features are one linear regression."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data
from bayesmf.model.designs import RatedSet
from bayesmf.model.likelihood import Gaussian
from bayesmf.model.spec import Model
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep import sweep as sweeping
from bayesmf.sweep.rows import row_prior
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import VARIANTS, random_state, small_ratings

from . import mistakes
from .scores import bound, standard_error

WITH_OWN = [name for name, m in VARIANTS.items() if m.has_own("user")]
WITH_SIDE = [name for name, m in VARIANTS.items() if m.designs("user")]
FORMS = ["centred", "non-centred", "interwoven"]


def regression(model: Model, ratings, state, joint: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the users' unknowns given the items, by stacking one design matrix.

    The unknowns are the rows x_i = (gamma_i, S_i) given W or, if ``joint``, the own parts
    (gamma_i, U_i) of all users followed by every W_k.
    """
    me, items = state.user, state.item
    size, first, users = me.size, model.first_shifted, ratings.n_users
    free = size if model.has_own("user") else first
    designs = matrices(model, ratings)
    shares = np.concatenate([np.zeros((users, 0)), *designs], axis=1)
    dims = users * free + (shares.shape[1] * (size - first) if joint else 0)
    user, item = ratings.by_user.row_index, ratings.by_user.index
    X, y = np.zeros((len(user), dims)), np.zeros(len(user))
    weight = state.tau * me.alpha[user] * items.alpha[item]
    for row, (i, j, r) in enumerate(zip(user, item, ratings.values, strict=True)):
        z = np.array([1.0, *items.x[j, 1:size]])
        X[row, i * free : (i + 1) * free] = z[:free]
        y[row] = r - ratings.mean - items.x[j, 0]
        if joint:
            X[row, users * free :] = np.outer(shares[i], z[first:]).ravel()
    P, mean = np.zeros((dims, dims)), np.zeros(dims)
    for i in range(users):
        at = slice(i * free, (i + 1) * free)
        scale = np.full(size, me.scale[i])
        if model.bias != "joint":
            scale[0] = 1.0  # the bias has a prior of its own
        P[at, at] = (np.sqrt(np.outer(scale, scale)) * me.Lambda)[:free, :free]
        mean[at] = me.mu[:free]
        if not joint:
            mean[at] += sum(x[i] @ s.W for x, s in zip(designs, me.shifts, strict=True))
    end = users * free
    for shift in me.shifts if joint else ():
        for _ in shift.W:
            at, end = slice(end, end + size - first), end + size - first
            P[at, at], mean[at] = shift.Lambda[first:, first:], shift.mu[first:]
    covariance = np.linalg.inv(P + X.T @ (weight[:, None] * X))
    return covariance @ (P @ mean + X.T @ (weight * y)), covariance


def matrices(model: Model, ratings) -> list[np.ndarray]:
    """The matrices X of the users' designs, from their definitions."""
    user, item = ratings.by_user.row_index, ratings.by_user.index
    n = np.bincount(user, minlength=ratings.n_users)
    out = []
    for design in model.user_designs:
        if isinstance(design, RatedSet):
            out.append(np.zeros((ratings.n_users, ratings.n_items)))
            out[-1][user, item] = 1 / n[user] ** design.power
        else:
            c, v = design.numbers(ratings.users.values)
            out.append(c[:, None] * v)
    return out


def unknowns(model: Model, state, joint: bool) -> np.ndarray:
    """What ``regression`` is about, in its order."""
    me = state.user
    if not joint:
        return me.x[:, : me.size].ravel().copy()
    first = model.first_shifted
    own = me.own if model.has_own("user") else me.x[:, :first]
    return np.concatenate([own.ravel(), *(shift.W[:, first:].ravel() for shift in me.shifts)])


def hold(monkeypatch, state) -> None:
    """Hyper-parameters, Student-t scales and precisions stay as they are in ``state``."""

    class Held:
        def __init__(self, value):
            self.sample = lambda draws: copy.copy(value)

    kept = copy.deepcopy(state)

    def hyper(group, own, weights, cov):  # of W: the rows' own are not drawn at all
        pairs = zip(state.user.shifts + state.item.shifts, kept.user.shifts + kept.item.shifts,
                    strict=True)  # fmt: skip
        (shift,) = [before for now, before in pairs if now.W is own]
        columns = slice(group.first, group.end)
        return Held((shift.mu[columns], shift.Lambda[columns, columns]))

    def alpha(model, counts, errors, tau):
        return Held((kept.user if len(counts) == len(kept.user.x) else kept.item).alpha)

    for moving in ("update_hyper", "move_features", "move_scales", "draw_tau"):
        monkeypatch.setattr(sweeping, moving, lambda *a: None)
    monkeypatch.setattr(conditionals, "hyper", hyper)
    monkeypatch.setattr(conditionals, "alpha", alpha)
    monkeypatch.setattr(Gaussian, "tau", lambda *a: Held(np.array([kept.tau])))


def held_draws(model: Model, ratings, state, form: str, sweeps: int, joint: bool) -> np.ndarray:
    """The users' unknowns over sweeps that begin with the same items every time."""
    data = Data.of(ratings, model)
    kept = copy.deepcopy(state.item)
    out = []
    for k in range(sweeps):
        state.item.x[:] = kept.x
        for shift, before in zip(state.item.shifts, kept.shifts, strict=True):
            shift.W[:], shift.offset[:] = before.W, before.offset
        gibbs_sweep(model, data, state, Draws(2, sweep=k), form)
        out.append(unknowns(model, state, joint))
    return np.array(out[100:] if joint else out)  # without W the draws are independent


def regression_scores(draws: np.ndarray, mean, covariance) -> np.ndarray:
    """z scores of all means and (co)variances, in coordinates where these should be 0 and I."""
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    a, b = np.tril_indices(len(white))
    traces = np.concatenate([white, white[a] * white[b] - (a == b)[:, None]])
    return np.array([t.mean() / standard_error(t) for t in traces])


@pytest.mark.parametrize("name", WITH_OWN)
def test_rows_are_a_linear_regression(name):
    """The kernel's means, and the spread of its draws, for every user at once."""
    model, ratings = VARIANTS[name], small_ratings(9, 6)
    data = Data.of(ratings, model)
    state = random_state(model, data)
    mean, covariance = regression(model, ratings, state, joint=False)
    me, items = state.user, state.item
    known = OtherSide.of(items.x, items.alpha, POINTS)
    inputs = (data.user.observed, known, state.tau * me.alpha, row_prior(model, data.user, me))
    outputs = (me.x, np.empty(0), POINTS, np.empty(0), state.width())
    counter = stream(Draws(0), "user", "rows").counter()
    draw_rows(*inputs, counter, False, *outputs)
    assert unknowns(model, state, joint=False) == pytest.approx(mean, rel=1e-9, abs=1e-9)
    draws = np.empty((1500, len(mean)))
    for k in range(len(draws)):
        counter = stream(Draws(1, sweep=k), "user", "rows").counter()
        draw_rows(*inputs, counter, True, *outputs)
        draws[k] = unknowns(model, state, joint=False)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    n, size = len(draws), len(mean)
    limit = bound((size + size * (size + 1) // 2) * len(WITH_OWN))
    assert np.abs(white.mean(axis=1)).max() < limit / np.sqrt(n)
    # A squared standard normal has a heavier tail than a normal; its mean has a known one.
    squares = (white**2).sum(axis=1)
    tail = stats.norm.sf(limit)
    assert (stats.chi2(n).ppf(tail) < squares).all()
    assert (squares < stats.chi2(n).isf(tail)).all()
    a, b = np.tril_indices(size, -1)
    assert np.abs((white[a] * white[b]).mean(axis=1)).max() < limit / np.sqrt(n)


def held_scores(name: str, form: str, sweeps: int, joint: bool, monkeypatch) -> np.ndarray:
    """z scores of whole sweeps in which all but the users' unknowns is held."""
    model, ratings = VARIANTS[name], small_ratings()
    state = random_state(model, Data.of(ratings, model))
    mean, covariance = regression(model, ratings, state, joint)
    hold(monkeypatch, state)
    draws = held_draws(model, ratings, state, form, sweeps, joint)
    return regression_scores(draws, mean, covariance)


@pytest.mark.parametrize("name", ["no side, joint bias", "no side, robust"])
def test_sweeps_draw_a_linear_regression(name, monkeypatch):
    """The same through whole sweeps, with the items put back before each."""
    z = held_scores(name, "centred", 600, False, monkeypatch)
    assert np.abs(z).max() < bound(2 * len(z))


@pytest.mark.parametrize(
    "mistake", [mistakes.no_prior_mean, mistakes.noise_forgotten, mistakes.loud_rows]
)
def test_mistakes_in_rows_are_caught(mistake, monkeypatch):
    mistake(monkeypatch)
    z = held_scores("no side, robust", "centred", 600, False, monkeypatch)
    assert np.abs(z).max() > bound(2 * len(z))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WITH_SIDE)
def test_side_features_and_rows_are_one_linear_regression(name, form, monkeypatch):
    """Rows and W drawn in turn, in each form, have the joint posterior of all of them."""
    if form != "interwoven" and not VARIANTS[name].has_own("user"):
        pytest.skip("one form only")
    z = held_scores(name, form, 4000, True, monkeypatch)
    assert np.abs(z).max() < bound(len(z) * len(FORMS) * len(WITH_SIDE)), z


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "options", "name", "form"),
    [
        (mistakes.n_for_n_squared, {}, "user side", "centred"),
        (mistakes.n_for_n_squared, {"kernel": "draw_non_centred"}, "user side", "non-centred"),
        (mistakes.quiet_side_features, {}, "both sides, joint bias", "centred"),
        (mistakes.offset_left_out, {}, "user side, robust", "interwoven"),
        (mistakes.second_design_left_out, {}, "two designs", "interwoven"),
        (mistakes.values_forgotten, {}, "user design", "centred"),
        (mistakes.values_forgotten, {"kernel": "draw_non_centred"}, "user design", "non-centred"),
    ],
    ids=["centred", "non-centred", "quiet", "offset", "second", "values", "values, non-centred"],
)
def test_mistakes_in_side_features_are_caught(mistake, options, name, form, monkeypatch):
    mistake(monkeypatch, **options)
    z = held_scores(name, form, 4000, True, monkeypatch)
    assert np.abs(z).max() > bound(len(z) * len(FORMS) * len(WITH_SIDE)), z
