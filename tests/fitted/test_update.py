"""New ratings of users and items that a fit knows: what changes, what stays, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bayesmf import MAP, DataError, Gibbs, Ratings, Variational, load_model
from bayesmf.data.ratings import Ratings as Table
from bayesmf.fitted.base import SavedFit
from bayesmf.fitted.newcomers import POWER
from oracle.new_rows import ones, plain_new_rows
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)
RATED = {(row["user"], row["item"]): row["rating"] for row in TRAIN.to_arrow().to_pylist()}
ABSENT = [(int(u), int(i)) for u in TRAIN.users.values for i in TRAIN.items.values
          if (u, i) not in RATED and TRAIN.by_user.counts[TRAIN.users.index([u])[0]] > 1
          and TRAIN.by_item.counts[TRAIN.items.index([i])[0]] > 1]  # fmt: skip
USER, ITEM = ABSENT[0]
SEEDS = 100
SOME = ["no side", "no side, truncated", "both sides, joint bias, robust, student-t"]


def fitted(name: str = "no side", **settings):
    options = {"sweeps": 12, "burn_in": 2, "keep": 6, "seed": 3, "chains": 1, **settings}
    return Gibbs(VARIANTS[name], **options).fit(TRAIN)


def rating_of(*triplets) -> Ratings:
    users, items, values = zip(*triplets, strict=True)
    return Ratings.from_triplets(users=users, items=items, ratings=values, scale=(-9, 9))


def plain_row(known, number: int, name: str, own, merged: dict) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a row given its ratings {other: value}, precisions constant."""
    draws, other_name = known.draws, "item" if name == "user" else "user"
    size, row = known.model.size, int(known.row_of(name, [own])[0])
    prior = plain_new_rows(known, draws, number, name, power=POWER)
    others = known.row_of(other_name, list(merged))
    before = {item if name == "user" else user for user, item in RATED
              if own == (user if name == "user" else item)}  # fmt: skip
    total = len(before) * prior.q[row]
    for other, k in zip(merged, others, strict=True):
        if other not in before:
            total = total + prior.Q[k]
    T = draws[f"{other_name}.x"][number][others, :size].astype(float)
    z, y = ones(T), np.array(list(merged.values())) - known.mean - T[:, 0]
    P = np.linalg.inv(prior.R(len(merged)))
    tau = float(draws["tau"][number][0])
    C = np.linalg.inv(P + tau * z.T @ z)
    return C @ (P @ prior.a(len(merged), total) + tau * y @ z), C


def ratings_of(name: str, own) -> dict:
    side = 0 if name == "user" else 1
    return {pair[1 - side]: value for pair, value in RATED.items() if pair[side] == own}


@pytest.mark.parametrize(("name", "own", "other"), [("user", USER, ITEM), ("item", ITEM, USER)])
def test_a_point_moves_to_the_mean_of_its_conditional(name, own, other):
    known = MAP(VARIANTS["no side"], penalty=1.0).fit(TRAIN).posterior
    more = SavedFit(known).update(rating_of((USER, ITEM, 4.0)), name).posterior
    x, _ = plain_row(known, 0, name, own, ratings_of(name, own) | {other: 4.0})
    row = known.row_of(name, [own])[0]
    np.testing.assert_allclose(more.draws[f"{name}.x"][0, row], x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(more.centre[f"{name}.x"][row], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["user", "both"])
def test_draws_have_the_mean_and_covariance_of_their_conditional(side):
    """Five standard errors of the means and variances over the seeds; of the user with both."""
    known = fitted().posterior
    fit, new = SavedFit(known), rating_of((USER, ITEM, 4.0))
    row = known.row_of("user", [USER])[0]
    rows = np.array([fit.update(new, side, seed=seed).posterior.draws["user.x"][:, row]
                     for seed in range(SEEDS)])  # fmt: skip
    for number in range(len(known)):
        x, C = plain_row(known, number, "user", USER, ratings_of("user", USER) | {ITEM: 4.0})
        sd = np.sqrt(np.diag(C))
        assert (abs(rows[:, number].mean(axis=0) - x) < 5 * sd / np.sqrt(SEEDS)).all()
        share = rows[:, number].var(axis=0) / sd**2
        assert (abs(share - 1) < 5 * np.sqrt(2 / SEEDS)).all()


def test_items_are_drawn_given_the_new_users():
    """With both sides; five standard errors of the mean given what was drawn for the user.

    The prior is that of the fit, and the likelihood that of the new users.
    """
    known = fitted().posterior
    fit, new = SavedFit(known), rating_of((USER, ITEM, 8.0))
    row, merged = known.row_of("item", [ITEM])[0], ratings_of("item", ITEM)
    prior = plain_new_rows(known, known.draws, 0, "item", power=POWER)
    total = len(merged) * prior.q[row] + prior.Q[known.row_of("user", [USER])[0]]
    merged |= {USER: 8.0}
    P, tau = np.linalg.inv(prior.R(len(merged))), float(known.draws["tau"][0][0])
    errors = []
    for seed in range(40):
        more = fit.update(new, "both", seed=seed).posterior
        given = fit.update(new, seed=seed).posterior.draws["user.x"]
        np.testing.assert_array_equal(more.draws["user.x"], given)
        T = given[0][known.row_of("user", list(merged)), : known.model.size].astype(float)
        z, y = ones(T), np.array(list(merged.values())) - known.mean - T[:, 0]
        C = np.linalg.inv(P + tau * z.T @ z)
        x = C @ (P @ prior.a(len(merged), total) + tau * y @ z)
        errors.append((more.draws["item.x"][0, row] - x) / np.sqrt(np.diag(C)))
    assert (abs(np.mean(errors, axis=0)) < 5 / np.sqrt(len(errors))).all()


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("side", ["user", "item", "both"])
def test_the_others_keep_their_bits(name, side):
    fit = fitted(name)
    old = fit.posterior
    before = {key: values.copy() for key, values in old.draws.items()}
    more = fit.update(rating_of((USER, ITEM, 4.0)), side).posterior
    assert more.users == old.users
    assert more.items == old.items
    for key, values in before.items():
        np.testing.assert_array_equal(old.draws[key], values)  # the fit itself does not change
        changed = np.argwhere((more.draws[key] != values).reshape(*values.shape[:2], -1).any(-1)
                              if values.ndim > 1 else more.draws[key] != values)  # fmt: skip
        own, _, part = key.partition(".")
        if own in (side, "user" if side == "both" else "", "item" if side == "both" else "") and (
            part in ("x", "alpha")
        ):
            row = old.row_of(own, [USER if own == "user" else ITEM])[0]
            assert set(changed[:, 1]) <= {row}
            assert part == "alpha" or len(changed) == len(old)
        else:
            assert len(changed) == 0


def test_a_changed_rating_replaces_the_old_one():
    fit = fitted(sweeps=60, keep=40)
    user, item = next(iter(RATED))
    low, high = (fit.update(rating_of((user, item, value))) for value in (-9.0, 9.0))
    for more, value in ((low, -9.0), (high, 9.0)):
        train = {(row["user"], row["item"]): row["rating"]
                 for row in more.posterior.train.to_arrow().to_pylist()}  # fmt: skip
        assert train == RATED | {(user, item): value}
        np.testing.assert_array_equal(more.posterior.user_counts, TRAIN.by_user.counts)
    pair = [(user, item)]
    assert low.predict(pair)["mean"][0].as_py() < high.predict(pair)["mean"][0].as_py() - 1


def test_nothing_new_draws_the_given_users_again_under_the_same_conditional():
    known = fitted().posterior
    user, item = next(iter(RATED))
    same = rating_of((user, item, RATED[user, item]))
    rows = [SavedFit(known).update(same, seed=seed).posterior for seed in range(SEEDS)]
    assert rows[0].train == known.train
    row = known.row_of("user", [user])[0]
    x, C = plain_row(known, 0, "user", user, ratings_of("user", user))
    mean = np.mean([one.draws["user.x"][0, row] for one in rows], axis=0)
    assert (abs(mean - x) < 5 * np.sqrt(np.diag(C) / SEEDS)).all()


def test_two_updates_know_all_ratings_and_count_them():
    other = next(item for user, item in ABSENT[1:] if user == USER or item != ITEM)
    whose = next(user for user, item in ABSENT[1:] if item == other)
    fit = fitted()
    one = fit.update(rating_of((USER, ITEM, 4.0)))
    two = one.update(rating_of((whose, other, -2.0)))
    at_once = fit.update(rating_of((USER, ITEM, 4.0), (whose, other, -2.0)))
    assert two.posterior.train == at_once.posterior.train
    np.testing.assert_array_equal(two.posterior.user_counts, at_once.posterior.user_counts)
    assert two.posterior.user_counts.sum() == len(TRAIN) + 2
    measured = [one.posterior.newcomers.known_rows for one in (fit, two)]
    assert measured[0] is measured[1]  # once
    assert ITEM not in two.recommend([USER], n=99)["item"].to_pylist()


def test_what_was_measured_is_not_told_what_has_been_rated_since():
    """A second update of one user sees the first rating among those since, not twice."""
    other = next((item for user, item in ABSENT[1:] if user == USER), None)
    known = MAP(VARIANTS["no side"], penalty=1.0).fit(TRAIN).posterior
    row = known.row_of("user", [USER])[0]
    values = {ITEM: 4.0} if other is None else {ITEM: 4.0, other: -2.0}
    fit = SavedFit(known)
    for item, value in values.items():
        fit = fit.update(rating_of((USER, item, value)))
    x, _ = plain_row(known, 0, "user", USER, ratings_of("user", USER) | values)
    np.testing.assert_allclose(fit.posterior.draws["user.x"][0, row], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", [
    Gibbs(VARIANTS["both sides, joint bias, robust, student-t"], sweeps=12, keep=6, chains=1),
    Variational(VARIANTS["no side, robust"], sweeps=6), MAP(VARIANTS["no side"], penalty=1.0),
])  # fmt: skip
@pytest.mark.parametrize("side", ["user", "both"])
def test_an_updated_fit_is_saved_and_loaded(algorithm, side, tmp_path):
    fit = algorithm.fit(TRAIN)
    more = fit.update(rating_of((USER, ITEM, -8.0)), side)
    pair = [(USER, ITEM)]
    assert more.predict(pair)["mean"][0].as_py() < fit.predict(pair)["mean"][0].as_py()
    more.save(tmp_path / "fit")
    again = load_model(tmp_path / "fit")
    assert again.predict(TRAIN).equals(more.predict(TRAIN))
    assert again.posterior.train == more.posterior.train
    fit.save(tmp_path / "first")
    first = load_model(tmp_path / "first").update(rating_of((USER, ITEM, -8.0)), side)
    assert first.predict(TRAIN).equals(more.predict(TRAIN))


def test_an_update_without_news_is_another_draw(tmp_path):
    new = rating_of((USER, ITEM, 4.0))
    one = fitted().update(new)
    one.save(tmp_path / "fit")
    assert load_model(tmp_path / "fit").posterior.updates == 1
    two = one.update(new).posterior
    row = two.row_of("user", [USER])[0]
    assert (two.draws["user.x"][:, row] != one.posterior.draws["user.x"][:, row]).all()
    np.testing.assert_array_equal(two.draws["item.x"], one.posterior.draws["item.x"])


def test_users_and_items_that_the_fit_does_not_know():
    fit = fitted()
    new = rating_of((USER, ITEM, 4.0), (USER, 800, 1.0), (700, ITEM, 3.0), (700, 800, 2.0))
    more = fit.update(new).posterior  # of item 800 nothing is known
    assert 700 in more.users.values
    assert 800 not in more.items.values
    assert len(more.train) == len(TRAIN) + 2
    folded = fit.fold_in(rating_of((700, ITEM, 3.0))).posterior
    for part in ("x", "noise", "newness"):  # as fold_in does
        found, expected = (one.draws[f"user.{part}"][:, one.row_of("user", [700])[0]]
                           for one in (more, folded))  # fmt: skip
        np.testing.assert_array_equal(found, expected)
    assert (more.draws["user.newness"][:, more.row_of("user", [USER])[0]] == 0).all()
    both = fit.update(new, "both").posterior
    assert 800 in both.items.values
    assert both.warm_row_of("item", [800])[0] >= 0
    assert len(both.train) == len(TRAIN) + 4
    items = fit.update(new, "item").posterior
    assert 700 not in items.users.values
    assert 800 in items.items.values


def test_who_rated_only_what_nobody_knows_is_taken_in_as_fold_in_does():
    fit, one, two = fitted(), (700, 800, 2.0), (701, ITEM, 3.0)
    for given in ([one], [one, two]):
        more = fit.update(rating_of(*given)).posterior
        folded = fit.fold_in(rating_of(*given)).posterior
        np.testing.assert_array_equal(more.users.values, folded.users.values)
        for part in ("x", "noise", "newness"):
            np.testing.assert_array_equal(more.draws[f"user.{part}"], folded.draws[f"user.{part}"])
    both = fit.update(rating_of(one), "both").posterior
    assert len(both.train) == len(TRAIN) + 1


@pytest.mark.parametrize("side", ["user", "item"])
def test_who_was_folded_in_is_folded_in_again_by_all_of_their_ratings(side):
    fit = fitted()
    pairs = [
        (700, int(i), v) for i, v in zip(TRAIN.items.values[:3], (3.0, -2.0, 1.0), strict=True)
    ]
    if side == "item":
        users = TRAIN.users.values[:3]
        pairs = [(int(u), 700, v) for u, v in zip(users, (3.0, -2.0, 1.0), strict=True)]
    first = fit.fold_in(rating_of(*pairs[:2]), side)
    more = first.update(rating_of(pairs[2]), side).posterior
    again = first.fold_in(rating_of(*pairs), side, replace_known=True).posterior
    for part in ("x", "noise", "newness"):
        np.testing.assert_array_equal(more.draws[f"{side}.{part}"], again.draws[f"{side}.{part}"])
    assert more.counts(side)[more.row_of(side, [700])[0]] == 3


def test_what_is_refused():
    fit = fitted()
    with pytest.raises(DataError, match="rating 50 of item"):
        fit.update(Ratings.from_triplets(users=[USER], items=[ITEM], ratings=[50]))
    with pytest.raises(DataError, match="side='users': choose one of user, item, both"):
        fit.update(rating_of((USER, ITEM, 1.0)), "users")
    bare = SavedFit(replace(fit.posterior, train=None))
    with pytest.raises(DataError, match="are not at hand; update a model that was saved with its"):
        bare.update(rating_of((USER, ITEM, 1.0)))


def test_many_draws_of_many_rows_are_drawn_in_parts(monkeypatch):
    """Parts of the draws have random numbers of their own; the means do not depend on parts."""
    from bayesmf.fitted import update as module

    known = MAP(VARIANTS["no side"], penalty=1.0).fit(TRAIN).posterior
    draws = {key: np.concatenate([values] * 3) for key, values in known.draws.items()}
    fit = SavedFit(replace(known, draws=draws, centre=None))
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    rows = fit.update(rating_of((USER, ITEM, 4.0))).posterior.draws["user.x"]
    row = known.row_of("user", [USER])[0]
    assert len({tuple(one) for one in rows[:, row]}) == 3


def test_ratings_are_put_among_others():
    random = np.random.default_rng(0)
    for _ in range(20):
        cells = [dict(zip(random.integers(0, 30, n).tolist(), random.integers(1, 6, n).tolist(),
                          strict=True)) for n in (12, 9)]  # fmt: skip
        one, two = (Table.from_triplets(users=[k // 6 for k in c], items=[k % 6 for k in c],
                                        ratings=list(c.values()), scale=(1, 5, 1))
                    for c in cells)  # fmt: skip
        both = cells[0] | cells[1]
        every = Table.from_triplets(users=[k // 6 for k in both], items=[k % 6 for k in both],
                                    ratings=list(both.values()), scale=(1, 5, 1))  # fmt: skip
        found = one.onto(every.users, every.items).put(two.onto(every.users, every.items))
        assert found == every
        assert found.T == every.T
