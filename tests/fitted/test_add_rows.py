"""Users and items that join a fit: how they are known, what they have seen, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from bayesmf import MAP, DataError, Gibbs, Ratings, Variational
from bayesmf.data.pairs import Cells
from bayesmf.data.split import cold_start
from bayesmf.fitted.base import SavedFit
from bayesmf.model.state import from_arrays
from oracle.new_rows import ones, plain_new_rows
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)


def fitted(name: str = "no side", **settings):
    options = {"sweeps": 12, "burn_in": 2, "keep": 6, "seed": 3, "chains": 1, **settings}
    return Gibbs(VARIANTS[name], **options).fit(TRAIN)


@pytest.mark.parametrize("name", [n for n in VARIANTS if "item side only" not in n])
@pytest.mark.parametrize("side", ["user", "item"])
def test_folded_in_rows_join_the_others(name, side):
    fit = fitted(name)
    new = Ratings.from_triplets(users=[500, 500, 1000, 1000], items=[*TRAIN.items.values[:2]] * 2,
                                ratings=[1, 5, 4, 2])  # fmt: skip
    if side == "item":
        users, items = [*TRAIN.users.values[:2]] * 2, [500, 500, 1000, 1000]
        new = Ratings.from_triplets(users=users, items=items, ratings=[1, 5, 4, 2])
    more = fit.fold_in(new, side)
    ids = more.posterior.ids(side)
    assert list(ids.values) == sorted({*TRAIN.users.values, 500, 1000} if side == "user"
                                      else {*TRAIN.items.values, 500, 1000})  # fmt: skip
    old = fit.predict(TRAIN)
    assert more.predict(TRAIN).equals(old)  # those who were there are as they were
    pairs = [(500, TRAIN.items.values[1])] if side == "user" else [(TRAIN.users.values[1], 500)]
    assert more.predict(pairs)["known"].to_pylist() == ["warm"]
    assert np.isfinite(more.predict(pairs)["sd"].to_numpy()).all()
    with pytest.raises(DataError, match=f"the {side} 500 is known already"):
        more.fold_in(new, side)
    again = more.fold_in(new, side, replace_known=True)
    assert len(again.posterior.ids(side)) == len(ids)


def test_only_those_who_rated_are_folded_in():
    """The parts of a split carry the ids of everybody."""
    cut = cold_start(small_ratings(30, 12, seed=2), 0, 0.3, 2)
    fit = Gibbs(VARIANTS["no side"], sweeps=6, burn_in=2, seed=0, chains=1).fit(cut.train)
    more = fit.fold_in(cut.given)  # they have ids in training, but no ratings there
    new = cut.given.by_user.counts > 0
    np.testing.assert_array_equal(
        more.posterior.user_counts, np.where(new, cut.given.by_user.counts,
                                             cut.train.by_user.counts))  # fmt: skip
    old = cut.train.select(cut.train.by_user.row_index == np.flatnonzero(~new)[0])
    again = more.fold_in(old, replace_known=True)
    assert again.posterior.user_counts.tolist() == more.posterior.user_counts.tolist()


def test_a_rating_moves_a_new_user_towards_it():
    fit = fitted("no side", sweeps=60, keep=40)
    item = TRAIN.items.values[0]
    means = []
    for value in (-4, 4):
        new = Ratings.from_triplets(users=[5000], items=[item], ratings=[value], scale=(-9, 9))
        means.append(fit.fold_in(new).predict([(5000, item)])["mean"][0].as_py())
    assert means[0] < fit.predict([(5000, item)])["mean"][0].as_py() < means[1]


@pytest.mark.parametrize("algorithm", [
    Gibbs(VARIANTS["no side"], sweeps=60, burn_in=10, keep=40, chains=1),
    Variational(VARIANTS["no side"], sweeps=6), MAP(VARIANTS["no side"], penalty=1.0),
])  # fmt: skip
def test_replacing_what_is_known_moves_the_mean(algorithm):
    fit = algorithm.fit(TRAIN)
    user, items = TRAIN.users.values[1], TRAIN.items.values[:3]
    new = Ratings.from_triplets(users=[user] * 3, items=items, ratings=[-9, -9, -9], scale=(-9, 9))
    pair = [(user, items[0])]
    before, after = (f.predict(pair)["mean"][0].as_py()
                     for f in (fit, fit.fold_in(new, replace_known=True)))  # fmt: skip
    assert after < before - 1


def test_users_folded_into_q_are_as_unsure_as_they_should_be():
    """One rating leaves a user about whom less is known than about those with many."""
    fit = Variational(VARIANTS["no side"], sweeps=6, keep=400).fit(TRAIN)
    item = TRAIN.items.values[1]
    new = Ratings.from_triplets(users=[700], items=TRAIN.items.values[:1], ratings=[1])
    more = fit.fold_in(new).posterior
    j = more.row_of("item", [item])
    one = more.moments(Cells(more.row_of("user", [700]), j)).doubt[0]
    most = TRAIN.users.values[np.argmax(TRAIN.by_user.counts)]
    assert one > more.moments(Cells(more.row_of("user", [most]), j)).doubt[0]


def mean_of(model, shape: float, rate: float) -> float:
    """Of a Gamma, or of one that is cut to the model's bounds."""
    if model.precision != "truncated":
        return shape / rate
    low, high = model.bounds
    top = np.clip((shape - 1) / rate, low, high)

    def density(x: float) -> float:
        return np.exp((shape - 1) * np.log(x / top) - rate * (x - top))

    whole = integrate.quad(density, low, high)[0]
    return integrate.quad(lambda x: x * density(x), low, high)[0] / whole


def plain_mean_field(model, state, prior, mean: float, items, values) -> tuple[np.ndarray, float]:
    """The means of a new user's row and precision, by updates of one after the other."""
    size, n = model.size, len(items)
    z = ones(state.item.x[items, :size])
    y = np.array(values) - mean - state.item.x[items, 0]
    beta, alpha = state.item.alpha[items], 1.0
    P, centre = np.linalg.inv(prior.R(n)), prior.a(n + 1, prior.Q[items].sum(axis=0))
    for _ in range(200):
        precision = P + state.tau * alpha * np.einsum("k,ka,kb->ab", beta, z, z)
        C = np.linalg.inv(precision)
        x = C @ (P @ centre + state.tau * alpha * (beta * y) @ z)
        squares = sum(beta[k] * ((y[k] - z[k] @ x) ** 2 + z[k] @ C @ z[k]) for k in range(n))
        if model.precision != "constant":
            shape, rate = (
                model.precision_prior[0] + n / 2,
                model.precision_prior[1] + state.tau / 2 * squares,
            )
            alpha = mean_of(model, shape, rate)
    return x, alpha


@pytest.mark.parametrize("name", ["no side, robust", "no side, truncated", "no side, student-t",
                                  "both sides, joint bias, robust, student-t",
                                  "both sides only, truncated"])  # fmt: skip
def test_the_centre_of_a_new_user_under_q_is_a_mean_field_s(name):
    """Ratings of items that vary much weigh less, and so do those of a user who varies much."""
    model = VARIANTS[name]
    known = Variational(model, sweeps=6).fit(TRAIN).posterior
    centre = {key: values.copy() for key, values in known.centre.items()}
    if model.precision != "constant":  # far from 1, so that their weights make a difference
        centre["item.alpha"] = np.linspace(0.55, 1.9, TRAIN.n_items).astype(np.float32)
    known = replace(known, centre=centre)
    fit = SavedFit(known)
    values = [4.0, -5.0, 1.0, -2.0]
    new = Ratings.from_triplets(users=[700] * 4, items=TRAIN.items.values[:4], ratings=values,
                                scale=(-9, 9))  # fmt: skip
    more = fit.fold_in(new).posterior
    every = [plain_new_rows(known, known.draws, k, "user").C_S for k in range(len(known))]
    one = {key: array[None] for key, array in centre.items()}
    prior = plain_new_rows(known, one, 0, "user", np.mean(every, axis=0))
    state = from_arrays(centre)
    x, alpha = plain_mean_field(model, state, prior, known.mean, np.arange(4), values)
    row = int(more.row_of("user", [700])[0])
    np.testing.assert_allclose(more.centre["user.x"][row], x, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(more.centre["user.alpha"][row], alpha, rtol=1e-4)


def test_one_draw_of_a_chain_is_no_estimate():
    """A new user of a fit that kept one draw is drawn, with a precision of their own."""
    fit = fitted("no side, robust", keep=1)
    new = Ratings.from_triplets(users=[700, 700], items=TRAIN.items.values[:2], ratings=[3, -3])
    one, other = (fit.fold_in(new, seed=seed).posterior for seed in (1, 2))
    row = int(one.row_of("user", [700])[0])
    assert (one.draws["user.noise"][0, row] != other.draws["user.noise"][0, row]).all()
    assert one.draws["user.alpha"][0, row] != 1.0


def rated_pairs(ratings) -> set:
    return {(row["user"], row["item"]) for row in ratings.to_arrow().to_pylist()}


def test_a_fit_still_knows_what_was_rated_after_new_users_join():
    fit = fitted()
    new = Ratings.from_triplets(users=[-5, -5, 500], items=[0, 1, 2], ratings=[1, 5, 2])
    more = fit.fold_in(new)
    train = more.posterior.train
    assert train.users == more.posterior.users
    assert train.to_arrow().to_pydict()["rating"][:2] == [1, 5]  # by the new numbers: -5 is first
    assert rated_pairs(train) == rated_pairs(TRAIN) | rated_pairs(new)
    expected = fit.recommend(n=9).to_pydict()
    found = more.recommend(TRAIN.users.values, n=9).to_pydict()
    assert found == expected
    mine = set(more.recommend([-5], n=9)["item"].to_pylist())
    assert mine == set(TRAIN.items.values) - {0, 1}
    assert len(more.explain(-5, 3)["ratings"]) == 2
    user = int(TRAIN.users.values[0])
    assert more.explain(user, 3) == fit.explain(user, 3)


def test_what_a_user_rated_before_is_seen_but_no_longer_counts():
    fit = fitted("user side")
    user = int(TRAIN.users.values[0])  # has rated all items that have ratings
    new = Ratings.from_triplets(users=[user], items=[1], ratings=[2])
    more = fit.fold_in(new, replace_known=True)
    assert rated_pairs(more.posterior.train) == (
        {pair for pair in rated_pairs(TRAIN) if pair[0] != user} | {(user, 1)}
    )
    assert more.recommend([user], n=9)["item"].equals(fit.recommend([user], n=9)["item"])
    assert [one["item"] for one in more.explain(user, 2)["ratings"]] == [1]


def test_new_items_are_seen_by_those_who_rated_them():
    """And explanations of users rest on the ratings that their rows were learned from."""
    fit = fitted("user side")
    user = int(TRAIN.users.values[0])
    new = Ratings.from_triplets(users=[user, 1], items=[500, 500], ratings=[5, 1])
    more = fit.fold_in(new, "item")
    assert 500 not in more.recommend([user], n=99)["item"].to_pylist()
    assert 500 in more.recommend([2], n=99)["item"].to_pylist()
    assert more.explain(user, 2)["parts"] == fit.explain(user, 2)["parts"]


def test_without_training_ratings_nothing_is_known_of_the_others():
    fit = SavedFit(replace(fitted().posterior, train=None))
    more = fit.fold_in(Ratings.from_triplets(users=[500], items=[0], ratings=[1]))
    assert more.posterior.train is None
    with pytest.raises(DataError, match="not at hand"):
        more.recommend([500])


def test_ratings_off_the_scale_are_refused():
    stars = TRAIN.to_arrow().to_pydict()
    values = np.clip(np.round(np.array(stars["rating"]) + 3), 1, 5)
    train = Ratings.from_triplets(users=stars["user"], items=stars["item"], ratings=values,
                                  scale=(1, 5, 1))  # fmt: skip
    fit = Gibbs(VARIANTS["no side"], sweeps=6, burn_in=2, keep=2, chains=1).fit(train)
    for bad in (50, 0, 3.3):
        new = Ratings.from_triplets(users=[500, 500], items=[0, 1], ratings=[3, bad])
        told = (f"the rating {bad:g} of item 1 by user 500 is not on the scale 1..5 by 1 of "
                "this fit; correct it, or fit with a wider scale")  # fmt: skip
        with pytest.raises(DataError, match=told):
            fit.fold_in(new)
        with pytest.raises(DataError, match=told):
            fit.evaluate(new)
    # the ends of a scale without steps may be no more than what was seen
    wide = Ratings.from_triplets(users=[500], items=[0], ratings=[9.25])
    fitted().fold_in(wide)
    with pytest.raises(DataError, match="rating 50 of item 0"):
        fitted().fold_in(Ratings.from_triplets(users=[500], items=[0], ratings=[50]))


def test_a_side_that_there_is_not():
    new = Ratings.from_triplets(users=[500], items=[0], ratings=[1])
    with pytest.raises(DataError, match="side='users': choose one of user, item"):
        fitted().fold_in(new, "users")
