"""All draws of new rows at once: what a plain loop over the draws gives, measured only once."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import MAP, Gibbs, Model, Ratings, Variational
from bayesmf.fitted import fold_in, new_rows
from bayesmf.fitted.base import SavedFit
from bayesmf.fitted.fold_in import add_rows
from bayesmf.fitted.new_rows import NewRows
from bayesmf.fitted.newcomers import Newcomers
from bayesmf.fitted.settle import begin_draws
from bayesmf.model.spec import has_hidden_scales
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)
MODELS = {**VARIANTS, "default": Model(rank=5)}
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # draws are kept in single precision


def new_ratings(side: str) -> Ratings:
    """Of rows with 2, 3, 3, 4 and no ratings of who is known; one of them was there before."""
    known = TRAIN.items.values if side == "user" else TRAIN.users.values
    rng = np.random.default_rng(0)
    given = [(who, other) for who, count in ((500, 2), (1000, 3), (1001, 3), (1, 4))
             for other in rng.permutation(known)[:count]] + [(2000, 777)]  # fmt: skip
    rows, others = np.array(given).T
    values = rng.normal(size=len(rows))
    if side == "item":
        rows, others = others, rows
    return Ratings.from_triplets(users=rows, items=others, ratings=values, scale=(-9, 9))


def fold(posterior, side: str, seed: int = 3):
    return add_rows(posterior, new_ratings(side), side, replace_known=True, seed=seed)


def plain_loop(posterior, side: str, seed: int = 3):
    """The same, where every draw is updated by itself as one state."""
    whole = fold_in._Folding.fold_draws

    def loop(self, prior):
        each = [
            self.fold(self.old.draws, k, begin_draws(self.old, seed, k + 1), "draw", prior)
            for k in range(len(self.old))
        ]
        return {name: np.stack([new[name] for new in each]) for name in each[0]}

    fold_in._Folding.fold_draws = loop
    try:
        return fold(posterior, side, seed)
    finally:
        fold_in._Folding.fold_draws = whole


def compare(posterior, side: str) -> None:
    found, right = fold(posterior, side), plain_loop(posterior, side)
    assert list(found.draws) == list(right.draws)
    for name, values in right.draws.items():
        np.testing.assert_allclose(found.draws[name], values, err_msg=name, **CLOSE)


def sampled(name: str):
    fit = Gibbs(MODELS[name], sweeps=12, burn_in=2, keep=6, seed=3, chains=1).fit(TRAIN)
    return fit.posterior


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("name", MODELS)
def test_all_draws_at_once_are_those_of_a_loop(name, side):
    compare(sampled(name), side)


@pytest.mark.parametrize("side", ["user", "item"])
def test_weights_of_ratings_count_in_all_draws_at_once(side, monkeypatch):
    """As in a loop, and not as without them."""
    known, plain = sampled("default"), new_ratings(side)
    without = fold(known, side).draws[f"{side}.x"]
    weights = np.linspace(0.1, 9, len(plain))
    heavy = Ratings.from_sorted(
        plain.users, plain.items, plain.by_user.row_index, plain.by_user.index,
        plain.by_user.values, None, plain.scale, weights=weights,
    )  # fmt: skip
    monkeypatch.setitem(globals(), "new_ratings", lambda side: heavy)
    compare(known, side)
    assert np.abs(fold(known, side).draws[f"{side}.x"] - without).max() > 1e-2


@pytest.mark.parametrize("name", ["no side, robust", "no side, truncated", "two designs"])
def test_draws_from_q_at_once_are_those_of_a_loop(name):
    compare(Variational(MODELS[name], sweeps=4, keep=7).fit(TRAIN).posterior, "user")


def test_somebody_who_rated_nothing_that_is_known_is_at_the_prior():
    known = sampled("default")
    new = Ratings.from_triplets(users=[700, 700], items=[888, 999], ratings=[1.0, 2.0],
                                scale=(-9, 9))  # fmt: skip
    more = add_rows(known, new)
    found = more.draws["user.x"][:, more.row_of("user", [700])[0]]
    np.testing.assert_allclose(found, known.complete().draws["user.new_mean"], **CLOSE)


@pytest.mark.parametrize("most", [1, 5, 11])
def test_how_many_draws_go_together_makes_no_difference(monkeypatch, most):
    known = sampled("default")
    whole = fold(known, "user")
    monkeypatch.setattr(fold_in, "MOST_ROWS", most)
    parts = fold(known, "user")
    for name, values in whole.draws.items():
        np.testing.assert_allclose(parts.draws[name], values, err_msg=name, **CLOSE)


@pytest.mark.parametrize("most", [0, 2, 99])
def test_what_rows_share_is_the_same_whether_or_not_it_was_computed_before(monkeypatch, most):
    """For all draws at once or for each part of them, and with no room for those of all counts."""
    known = sampled("default")
    whole = fold(known, "user")
    monkeypatch.setattr(fold_in, "MOST_ROWS", 5)
    monkeypatch.setattr(new_rows, "MOST_PREPARED", most)
    monkeypatch.setattr(new_rows, "MOST_KEPT", 12)
    for posterior in (known, replace(known)):  # measured before, and measured again
        parts = fold(posterior, "user")
        for name, values in whole.draws.items():
            np.testing.assert_allclose(parts.draws[name], values, err_msg=name, **CLOSE)


def test_what_rows_share_is_computed_once_for_all_draws(monkeypatch):
    known, calls, invert = sampled("default"), [], NewRows._precision
    monkeypatch.setattr(NewRows, "_precision", lambda *a: calls.append(1) or invert(*a))
    monkeypatch.setattr(fold_in, "MOST_ROWS", 5)  # so that every draw is a part by itself
    fold(known, "user")
    assert len(calls) == 4  # for rows with 0, 2, 3 and 4 ratings
    fold(known, "user")
    assert len(calls) == 4


@pytest.mark.parametrize("mistake", ["rounds", "chain", "others"])
def test_a_mistake_is_noticed(monkeypatch, mistake):
    """The comparison fails: one round too few, one chain for all draws, others of the next draw."""
    known = sampled("default")
    assert has_hidden_scales(known.model)
    right = fold_in.draw_stacked_rows

    def wrong(model, side, rows, traces, draws, rounds):
        if mistake == "rounds":
            rounds -= 1
        elif mistake == "chain":
            draws = replace(draws, each=len(rows.linear))
        else:
            others = rows.others._replace(z=np.roll(rows.others.z, 1, axis=0))
            rows = replace(rows, others=others)
        return right(model, side, rows, traces, draws, rounds)

    monkeypatch.setattr(fold_in, "draw_stacked_rows", wrong)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compare(known, "user")


@pytest.mark.parametrize("algorithm", [
    Gibbs(MODELS["default"], sweeps=12, burn_in=2, keep=6, chains=1),
    Variational(MODELS["both sides"], sweeps=4), MAP(MODELS["both sides"], penalty=1.0),
    Gibbs(MODELS["two designs"], sweeps=12, burn_in=2, keep=6, chains=1),
])  # fmt: skip
@pytest.mark.parametrize("side", ["user", "item"])
def test_what_is_measured_once_is_what_would_be_measured_again(algorithm, side, monkeypatch):
    known, calls, measure = algorithm.fit(TRAIN).posterior, [], Newcomers.new_rows
    known = known.complete()

    def count(*args, **kwargs):
        calls.append(1)
        return measure(*args, **kwargs)

    monkeypatch.setattr(Newcomers, "new_rows", count)
    first = fold(known, side)
    measured = len(calls)
    assert measured == len(known) + (known.centre is not None)
    again, fresh = fold(known, side), fold(replace(known), side)
    assert len(calls) == 2 * measured  # only the fresh one has measured
    for name, values in first.draws.items():
        np.testing.assert_array_equal(again.draws[name], values)
        np.testing.assert_array_equal(fresh.draws[name], values)
    other = Ratings.from_triplets(users=[70, 70], items=[0, 1], ratings=[1.0, 2.0], scale=(-9, 9))
    add_rows(first, other if side == "user" else other.T, side)
    assert len(calls) == 2 * measured  # who was folded in does not tell what newcomers are like


@pytest.mark.parametrize("side", ["user", "item"])
def test_rows_that_join_later_are_asked_for_in_any_order(side):
    """Arrays are joined when they are asked for: also after more rows came, of either side."""
    known = sampled("both sides, joint bias, robust, student-t")
    more = Ratings.from_triplets(users=[3, 40, 40], items=[1, 1, 2], ratings=[1.0, 2.0, 0.0],
                                 scale=(-9, 9))  # fmt: skip

    def grow(look: bool):
        one = fold(known, side)
        if look:
            assert {name: values.shape for name, values in one.draws.items()}
        two = add_rows(one, more, replace_known=True)
        three = fold(two, "item" if side == "user" else "user")
        return two, three

    for late, early in zip(grow(False), grow(True), strict=True):
        assert list(late.draws) == list(early.draws)
        for name, values in early.draws.items():
            np.testing.assert_array_equal(late.draws[name], values, err_msg=name)
            assert late.draws[name].dtype == np.float32
        assert late.train == early.train
        assert (late.held_out is None) == (early.held_out is None)
    for name in ("user", "item"):
        assert late.draws[f"{name}.x"].shape[1] == len(late.ids(name))


def test_predictions_join_nothing_and_are_those_of_joined_draws():
    train = small_ratings(60, 50, seed=2)
    known = Gibbs(MODELS["default"], sweeps=12, burn_in=2, keep=6, chains=1).fit(train).posterior
    new = Ratings.from_triplets(users=[700, 700], items=train.items.values[:2], ratings=[1.0, 2.0],
                                scale=(-9, 9))  # fmt: skip
    late, early = (SavedFit(add_rows(known, new)) for _ in range(2))
    everything = dict(early.posterior.draws)
    early = SavedFit(replace(early.posterior, draws=everything))
    pairs = [(700, 1), (3, 2), (700, 999), (999, 2), (700, 0)]
    assert late.predict(pairs).equals(early.predict(pairs))
    assert late.recommend([700], n=5).equals(early.recommend([700], n=5))
    lower = [one.recommend([700, 2], n=5, rank_by="lower") for one in (late, early)]
    assert lower[0].equals(lower[1])
    assert late.posterior.draws.part("user.x") is not None  # still apart
    asked = [(user, item) for user in train.users.values for item in train.items.values[:3]]
    assert late.predict(asked).equals(early.predict(asked))  # so many that rows are not picked


def test_a_fit_with_rows_that_have_not_joined_yet_can_be_copied():
    more = fold(sampled("default"), "user")
    copy = pickle.loads(pickle.dumps(more))
    assert copy.train == more.train
    for name, values in more.draws.items():
        np.testing.assert_array_equal(copy.draws[name], values)
