"""Parameters of single ratings follow ratings, and who reads less of a draw says the same."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf import Gibbs, Model, Ratings
from bayesmf.fitted import fold_in
from bayesmf.fitted.by_rating import follow, positions

NAME = "effect 0.rating.x"


def some(rng, kept) -> Ratings:
    cells = np.argwhere(kept)
    return Ratings.from_triplets(users=cells[:, 0], items=cells[:, 1],
                                 ratings=rng.integers(1, 6, len(cells)))  # fmt: skip


@pytest.mark.parametrize(("gone", "new"), [(0, 1), (1, 0), (5, 20), (20, 5), (0, 0), (30, 0)])
def test_each_value_stays_with_its_rating_and_new_ones_are_zero(gone, new):
    rng = np.random.default_rng(gone + 100 * new)
    kept = rng.random((9, 7)) < 0.5
    kept[0, 0] = True
    before = some(rng, kept)
    there, free = np.argwhere(kept)[1:], np.argwhere(~kept)
    kept[tuple(rng.permutation(there)[:gone].T)] = False
    kept[tuple(rng.permutation(free)[:new].T)] = True
    after = some(rng, kept)
    values = rng.normal(size=(3, len(before))).astype(np.float16)
    found = follow({NAME: values, "tau": np.ones((3, 1), np.float32)}, before, after)
    naive = np.zeros((3, len(after)), np.float16)
    for k, place in enumerate(positions(before, after)):
        if place >= 0:
            naive[:, place] = values[:, k]
    assert np.array_equal(found[NAME], naive)
    assert found[NAME].dtype == np.float16
    assert not np.shares_memory(found[NAME], values)


KINDS = {
    "ordinal": {"likelihood": "ordinal"},
    "time": {"time": "chain"},
    "both": {"likelihood": "ordinal", "time": "chain"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_who_gathers_what_was_rated_draws_what_all_items_give(kind, monkeypatch):
    rng = np.random.default_rng(4)
    users, items = np.nonzero(rng.random((25, 30)) < 0.4)
    data = Ratings.from_triplets(users=users, items=items, ratings=rng.integers(1, 6, len(users)),
                                 times=rng.integers(0, 10**6, len(users)))  # fmt: skip
    model = Model(rank=2, **KINDS[kind])
    fit = Gibbs(model, sweeps=6, burn_in=3, chains=1, seed=0, threads=1).fit(data)
    given = Ratings.from_triplets(users=[90, 90, 91, 91], items=[3, 8, 11, 3], ratings=[5, 1, 2, 4],
                                  times=[60, 600, 60, 30])  # fmt: skip
    found = fit.fold_in(given)

    def with_all(self, old, side, given, rated, seed):
        others = old.ids("item")
        given = given.onto(given.users, others)
        begin(self, old, side, given, np.arange(len(others), dtype=np.int32), seed)

    begin = fold_in._Folding.__init__
    monkeypatch.setattr(fold_in._Folding, "__init__", with_all)
    expected = fit.fold_in(given)
    for name, values in expected.posterior.draws.items():
        assert np.array_equal(found.posterior.draws[name], values), name
