"""Single requests: what they read, what they leave alone, and that others beside do not matter."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from bayesmf import MAP, Gibbs, Model, Ratings
from bayesmf.fitted import fold_in
from bayesmf.fitted.store import coarse, kept, linear, scores
from bayesmf.fitted.store.coarse import Coarse
from bayesmf.fitted.store.pending import Pending
from bayesmf.model.time_chain import TimeChain

RNG = np.random.default_rng(0)
PLACE = RNG.choice(30 * 20, 260, replace=False)
TRAIN = Ratings.from_triplets(
    users=10 + PLACE // 20, items=100 + PLACE % 20, ratings=RNG.integers(1, 6, 260),
    times=1_000_000_000 + RNG.integers(0, 10**6, 260), scale="1:5:1",
)  # fmt: skip
MODELS = {
    "default": Model(rank=2),
    "time": Model(rank=2, time="chain"),
    "ordinal": Model(rank=2, likelihood="ordinal"),
}
PAIRS = [(12, 103), (13, 110), (12, 117), (5, 103), (14, 99), (5, 99)]  # known, and strangers
VISITOR = 1000


@lru_cache
def fitted(name: str = "default"):
    return Gibbs(MODELS[name], sweeps=12, burn_in=2, keep=7, seed=3, chains=1).fit(TRAIN)


def given(user: int, *items: int) -> Ratings:
    return Ratings.from_triplets(users=[user] * len(items), items=items, ratings=[4] * len(items),
                                 times=[1_000_000_500] * len(items), scale="1:5:1")  # fmt: skip


@pytest.mark.filterwarnings("ignore::bayesmf.UnusedWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_prediction_does_not_depend_on_the_others(name, monkeypatch):
    fit = fitted(name)
    ask = fit.probabilities if name == "ordinal" else fit.predict
    together = ask(PAIRS, at=1_000_000_000).to_pylist()
    assert [ask([pair], at=1_000_000_000).to_pylist()[0] for pair in PAIRS] == together
    monkeypatch.setattr(linear, "TOGETHER", 3 * len(PAIRS))  # draws in blocks, the last not full
    assert ask(PAIRS, at=1_000_000_000).to_pylist() == together


def test_only_the_rows_that_are_asked_for_are_read(monkeypatch):
    read = []

    def watch(draws, name, rows, numbers=slice(None)):
        read.append((name, len(rows)))
        return kept.take_rows(draws, name, rows, numbers)

    monkeypatch.setattr(linear, "take_rows", watch)
    fitted().predict([(12, 103), (12, 104), (13, 103)])
    assert {name for name, _ in read} >= {"user.x", "item.x", "user.alpha"}
    assert max(rows for _, rows in read) == 2


def test_moods_of_other_ratings_are_not_read(monkeypatch):
    fit = fitted("time")
    pairs = [(12, 103), (13, 110)]
    expected = fit.predict(pairs, at=1_000_300_000)
    seen = []
    right = TimeChain.contribution

    def watch(self, parameters, where):
        seen.append(len(parameters["rating.x"]))
        return right(self, parameters, where)

    monkeypatch.setattr(TimeChain, "contribution", watch)
    assert fit.predict(pairs, at=1_000_300_000).equals(expected)
    assert max(seen) <= 2 * len(pairs)
    monkeypatch.delattr(TimeChain, "narrow")  # which an effect need not have
    assert fit.predict(pairs, at=1_000_300_000).equals(expected)
    assert seen[-1] == len(TRAIN)


def test_ratings_are_not_joined_for_a_visitor(monkeypatch):
    def never(*given):
        raise AssertionError

    for name in ("_join_train", "_join_held_out"):
        monkeypatch.setattr(fold_in, name, never)
    fit = fitted()
    fit = fit.fold_in(given(VISITOR, 103, 104)).fold_in(given(VISITOR + 1, 105))
    assert np.isfinite(fit.predict([(VISITOR, 110)])["mean"].to_numpy()).all()
    for user, rated in ((VISITOR, {103, 104}), (VISITOR + 1, {105})):
        best = set(fit.recommend(user, n=99)["item"].to_pylist())
        assert best == set(TRAIN.items.values.tolist()) - rated


def test_ratings_are_not_joined_for_an_update(monkeypatch):
    def never(self):
        raise AssertionError

    free = sorted({100 + k for k in range(20)} - set(PLACE[PLACE // 20 == 2] % 20 + 100))
    with monkeypatch.context() as patched:
        patched.setattr(Pending, "__call__", never)
        fit = fitted()
        for item in (*free[:2], free[0]):  # the last is rated again
            fit = fit.update(given(12, item))
        assert not set(free[:2]) & set(fit.recommend(12, n=99)["item"].to_pylist())
    one = fitted().update(given(12, free[0]))
    assert len(one.posterior.train) == len(TRAIN) + 1  # joined, and further updates begin there
    again = one.update(given(12, free[1])).update(given(12, free[0]))
    assert len(again.posterior.train) == len(TRAIN) + 2
    assert again.posterior.train == fit.posterior.train
    rows = (kept.take_rows(each.posterior.draws, "user.x", [2]) for each in (fit, again))
    np.testing.assert_array_equal(*rows)


def test_what_was_seen_before_many_visits_is_left_out():
    fit, items = fitted(), TRAIN.items.values[: fold_in.MOST_PARTS + 3].tolist()
    for number, item in enumerate(items):
        fit = fit.fold_in(given(VISITOR + number, item))
    assert len(fit.posterior.seen) <= fold_in.MOST_PARTS
    users = [VISITOR + number for number in range(len(items))]
    table = fit.recommend([*users, 12], n=99).to_pylist()
    for user, item in zip(users, items, strict=True):
        assert item not in {row["item"] for row in table if row["user"] == user}
    mine = TRAIN.by_user.index[slice(*TRAIN.by_user.starts[2:4])]  # user 12
    left = set(TRAIN.items.values.tolist()) - set(TRAIN.items.values[mine].tolist())
    assert {row["item"] for row in table if row["user"] == 12} == left


def test_coarse_scores_are_as_wrong_as_they_say():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(8, 5)), rng.normal(size=(8, 30, 5)).astype(np.float32)
    y[3, :, 2] = 0.0
    found, doubt = Coarse.of(y).sum_products(x.astype(np.float32))
    assert np.abs(found - np.einsum("ka,kja->j", x, y.astype(float))).max() <= doubt
    y = ((rng.integers(-126, 126, y.shape) + 0.49) / 127).astype(np.float32)  # all rounded down
    y[:, 0] = 1.0
    found, doubt = Coarse.of(y).sum_products(np.ones((8, 5), np.float32))
    wrong = y.sum(axis=(0, 2), dtype=float) - found
    assert 0.8 * doubt < wrong[1:].min()
    assert wrong.max() <= doubt


def test_a_list_by_coarse_scores_is_the_same(monkeypatch):
    used = []

    def watch(y):
        found = coarse.find_coarse(y)
        used.append(found is not None)
        return found

    monkeypatch.setattr(scores, "find_coarse", watch)
    fit = fitted().fold_in(given(VISITOR, 103, 104))
    asked = [*TRAIN.users.values.tolist(), VISITOR, 5]  # 5 is a stranger
    for n in (1, 4, 15, 20):
        plain = [fit.recommend(user, n=n) for user in asked]
        assert not any(used)
        with monkeypatch.context() as patched:
            patched.setattr(coarse, "LEAST", 0)
            fit.recommend(12, n=n)  # who asks once does not wait for the copy
            found = [fit.recommend(user, n=n) for user in asked]
        for right, one in zip(plain, found, strict=True):
            assert one["item"].equals(right["item"])
            np.testing.assert_allclose(one["score"], right["score"], rtol=1e-6)  # single precision
        assert any(used) == (n < 20)
        used.clear()


def test_a_coarse_copy_goes_with_its_array(monkeypatch):
    monkeypatch.setattr(coarse, "LEAST", 0)
    y = np.ones((2, 3, 4), np.float32)
    assert coarse.find_coarse(y) is None
    assert coarse.find_coarse(y) is coarse.find_coarse(y)
    before = len(coarse._found)
    del y
    assert len(coarse._found) == before - 1


def test_draws_in_a_folder_have_no_copy_in_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(coarse, "LEAST", 0)
    y = np.memmap(tmp_path / "y", np.float32, "w+", shape=(2, 3, 4))
    assert coarse.find_coarse(y) is coarse.find_coarse(y) is None


def test_an_update_keeps_the_rows_of_others_where_they_are():
    fit = fitted()
    before = fit.posterior.draws["user.x"]
    copy = before.copy()
    again = fit
    for item in (103, 104, 105):
        again = again.update(given(12, item))
    again = again.update(given(13, 104))
    part = again.posterior.draws.part("user.x")
    assert part.base is before
    assert part.rows().shape[1] == 2  # of each user the last rows alone
    after = kept.take_rows(again.posterior.draws, "user.x", slice(None))
    changed = (after != copy).any(axis=(0, 2))
    assert TRAIN.users.values[changed].tolist() == [12, 13]
    np.testing.assert_array_equal(before, copy)


def test_an_update_of_a_point_leaves_the_precisions():
    fit = MAP(Model(rank=2), seed=0, sweeps=20).fit(TRAIN)
    fit.posterior.draws["user.alpha"][:] = 2.0  # other than those that the update takes
    before = fit.predict([(12, 110)])
    updated = fit.update(given(12, 103))
    assert fit.predict([(12, 110)]).equals(before)
    assert updated.predict([(12, 110)])["sd"].equals(before["sd"])


def test_a_posterior_without_ratings_has_seen_nothing():
    known = replace(fitted().posterior, train=None)
    assert known.seen is None
