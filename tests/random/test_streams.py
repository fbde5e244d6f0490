"""The table of streams: no two purposes that can meet share random numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import bayesmf
from bayesmf import Ratings
from bayesmf.data.ids import Ids
from bayesmf.fitted.fold_in import add_rows
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.variational.draws import draw_from_q
from bayesmf.model.data import Data
from bayesmf.model.designs import RatedSet
from bayesmf.model.state import random_start
from bayesmf.random import streams
from bayesmf.random.draws import LIMITS, Draws
from oracle.variants import BASE, VARIANTS, small_ratings
from oracle.variational import fitted


def every_number() -> list[int]:
    by_side = [numbers for sides in streams.BY_SIDE.values() for numbers in sides.values()]
    return list(itertools.chain(*by_side, *streams.SHARED.values()))


def test_no_number_is_used_twice():
    numbers = every_number()
    assert len(numbers) == len(set(numbers))
    assert 0 <= min(numbers) <= max(numbers) < LIMITS["parameter"]


def test_there_are_three_designs_on_a_side():
    for side in ("user", "item"):
        found = [streams.number(what, side, part) for part in range(3)
                 for what in ("W", "W_hyper", "W_free", "start_W", "q_W")]  # fmt: skip
        assert len(set(found)) == 15
    with pytest.raises(ValueError, match="W 3: there are random streams for 3 of these"):
        streams.number("W", "user", 3)


def test_a_stream_is_that_of_its_number():
    same = streams.stream(Draws(3, 1), "item", "hyper", 1).normals(4)
    np.testing.assert_array_equal(same, Draws(3, 1).of(20).normals(4))


@pytest.mark.parametrize("name", VARIANTS)
def test_draws_from_q_share_nothing_with_the_start(name, monkeypatch):
    """Item W's start once had the random numbers of the user rows' first draw."""
    model = VARIANTS[name]
    data = Data.of(small_ratings(), model)
    state, q = fitted(model, data, 1)
    right, used = Draws.counter, set()

    def counter(self, kind=3):
        used.add(right(self, kind))
        return right(self, kind)

    monkeypatch.setattr(Draws, "counter", counter)
    random_start(model, data, seed=0)
    start, used = used, set()
    draw_from_q(model, state, q.beliefs, q.tau, 2, seed=0)
    assert start
    assert used
    assert not start & used


@pytest.mark.parametrize("name", ["no side", "both sides, joint bias, robust, student-t"])
@pytest.mark.parametrize("side", ["user", "item", "both"])
def test_updates_with_one_seed_share_nothing(name, side, monkeypatch, tmp_path):
    """Also of newcomers, of rows that are folded in later, and of a fit that was saved."""
    ratings = small_ratings(9, 6)
    fit = Gibbs(VARIANTS[name], sweeps=4, keep=2, chains=1).fit(ratings)
    user, item = ratings.users.values[0], ratings.items.values[0]
    new = Ratings.from_triplets(users=[user, user, 500], items=[item, 500, item], ratings=[1, 2, 1])
    right, used = Draws.counter, []

    def counter(self, kind=3):
        used.append(right(self, kind))
        return right(self, kind)

    monkeypatch.setattr(Draws, "counter", counter)
    seen = set()
    for number in range(3):
        if number == 2:
            fit.save(tmp_path / "fit")
            fit = bayesmf.load_model(tmp_path / "fit")
        fit = fit.update(new, side)
        assert used
        assert not seen & set(used)
        seen |= set(used)
        used.clear()
    late = Ratings.from_triplets(users=[900], items=[item], ratings=[1])
    fit.fold_in(late if side == "user" else late.T, "user" if side == "user" else "item")
    assert used
    assert not seen & set(used)


def test_new_rows_have_weights_of_their_own_in_each_design():
    """W of new users, of whom an item's two rated sets know nothing yet, is drawn twice."""
    model = replace(BASE, item_designs=(RatedSet(0.5), RatedSet(1.0)))
    ratings = small_ratings(9, 6)
    old = Gibbs(model, sweeps=4, keep=2, chains=1).fit(ratings).posterior
    fresh = replace(ratings, users=Ids(np.arange(100, 109)))
    draws = add_rows(old, fresh).draws
    normals = []
    for after in ("", "_2"):
        Lambda = draws[f"item.Lambda_W{after}"][0][1:, 1:]
        W, mu = draws[f"item.W{after}"][0][9:, 1:], draws[f"item.mu_W{after}"][0][1:]
        normals.append((W - mu) @ np.linalg.inv(np.linalg.cholesky(np.linalg.inv(Lambda))).T)
    assert np.abs(normals[0] - normals[1]).min() > 1e-3  # of float32 draws, the same to 1e-5
