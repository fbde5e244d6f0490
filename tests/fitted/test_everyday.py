"""What a fit is kept for: predictions, recommendations, new users, files; against plain loops."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

import bayesmf
from bayesmf import MAP, DataError, Gibbs, Variational
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.base import Fitted, SavedFit
from bayesmf.fitted.explain import AskedPair, explain, parts_of, shares
from bayesmf.model.data import Data
from bayesmf.model.state import refresh_offsets
from oracle import conditionals as readable
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)
NAMES = ("no side", "both sides, joint bias, robust, student-t", "user side only",
         "no side, truncated", "biases")  # fmt: skip


def cell(user, item):
    return Cells(np.array([user], np.int32), np.array([item], np.int32))


def pair_of(posterior, user, item):
    return AskedPair(posterior, cell(user, item))


def fitted(name: str = "no side", **settings):
    options = {"sweeps": 12, "burn_in": 2, "keep": 6, "seed": 3, "chains": 1, **settings}
    return Gibbs(VARIANTS[name], **options).fit(TRAIN)


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_the_mean_over_draws(name):
    fit = fitted(name)
    pairs = [(u, i) for u in TRAIN.users.values[:4] for i in TRAIN.items.values[:3]]
    table = fit.predict(pairs).to_pydict()
    for k, (u, i) in enumerate(itertools.product(range(4), range(3))):
        each, noise = [], []
        for number in range(len(fit.draws)):
            s = fit.draws[number]
            x, y = s.user.x[u], s.item.x[i]
            size = s.user.size
            each.append(TRAIN.mean + x[0] + y[0] + x[1:size] @ y[1:size])
            noise.append(1 / (s.tau * s.user.alpha[u] * s.item.alpha[i]))
        assert np.isclose(table["mean"][k], np.mean(each), rtol=1e-5)
        sd = np.sqrt(np.var(each, ddof=1) + np.mean(noise))
        assert np.isclose(table["sd"][k], sd, rtol=1e-4)
        assert np.isclose(table["q95"][k], np.mean(each) + stats.norm.ppf(0.95) * sd, rtol=1e-4)
    assert table["known"] == ["warm"] * len(pairs)


@pytest.mark.parametrize("name", ["user side, robust", "no side, truncated"])
def test_the_noise_of_strangers_is_that_of_the_precisions_prior(name):
    """Of two strangers: the mean of 1 / (alpha beta tau), alpha and beta from their prior."""
    model, fit = VARIANTS[name], fitted(name)
    rng, (shape, rate) = np.random.default_rng(0), model.precision_prior
    alpha = rng.gamma(shape, 1 / rate, 400_000)
    if model.precision == "truncated":
        alpha = alpha[(alpha > model.bounds[0]) & (alpha < model.bounds[1])]
    tau = np.mean([1 / fit.draws[number].tau for number in range(len(fit.draws))])
    nobody = np.array([-1], np.int32)
    noise = fit.posterior.moments(Cells(nobody, nobody)).noise_variance[0]
    # 1 / alpha has a sd of at most its mean, so its mean here one of 1 / sqrt(100,000) at most
    assert abs(noise / (tau * np.mean(1 / alpha) ** 2) - 1) < 4 * 2 / np.sqrt(100_000)


def test_unknown_rows_are_wider_than_known_ones():
    fit = fitted("user side, robust")
    user, item = TRAIN.users.values[0], TRAIN.items.values[0]
    sd = fit.predict([(user, item), (777, item), (user, 777), (777, 777)])["sd"].to_numpy()
    assert sd[0] < min(sd[1:])
    assert np.isfinite(sd).all()


def test_frames_come_back_in_kind():
    fit = fitted()
    columns = {"user": TRAIN.users.values[:2], "item": TRAIN.items.values[:2]}
    assert isinstance(fit.predict(pd.DataFrame(columns)), pd.DataFrame)
    assert isinstance(fit.predict(pl.DataFrame(columns)), pl.DataFrame)
    assert isinstance(fit.predict(pa.table(columns)), pa.Table)
    assert isinstance(fit.predict(TRAIN), pa.Table)
    array = np.column_stack([columns["user"], columns["item"]])
    expected = fit.predict(pd.DataFrame(columns))["mean"].to_numpy()
    np.testing.assert_array_equal(fit.predict(array)["mean"].to_numpy(), expected)
    named = pd.DataFrame({"movieId": columns["item"], "userId": columns["user"]})
    np.testing.assert_array_equal(fit.predict(named)["mean"].to_numpy(), expected)


INDEXES = {
    "shuffled": [7, 3, 5, 1],
    "duplicated": ["a", "b", "a", "a"],
    "multi": pd.MultiIndex.from_tuples([(1, "x"), (0, "y"), (1, "y"), (0, "x")], names=["k", "l"]),
    "dates": pd.date_range("2020-01-01", periods=4),
}


@pytest.mark.parametrize("kind", INDEXES)
def test_a_pandas_frame_keeps_its_index(kind):
    """So that a column of the answer can be put beside the columns of the question."""
    fit = fitted("no side, robust")
    fit.known = replace(fit.posterior, scale=bayesmf.Scale(-1, 1, 0.5))
    pairs = [(0, 1), (3, 2), (1, 1), (2, 0)]
    frame = pd.DataFrame(pairs, columns=["user", "item"]).set_index(pd.Index(INDEXES[kind]))
    if kind == "multi":
        frame.index = INDEXES[kind]
    expected = fit.predict(pairs)["mean"].to_numpy()
    table = fit.predict(frame)
    assert table.index.equals(frame.index)
    assert list(table.index.names) == list(frame.index.names)
    if kind != "duplicated":  # pandas itself refuses to line up labels that are not unique
        frame["p"] = table["mean"]
        np.testing.assert_array_equal(frame["p"].to_numpy(), expected)
    np.testing.assert_array_equal(table["mean"].to_numpy(), expected)
    assert fit.probabilities(frame).index.equals(frame.index)
    best = fit.recommend(frame, 2)  # several rows for each of the frame
    assert list(best.index) == list(range(len(best)))
    assert list(fit.predict(frame.iloc[:0]).index) == []


def test_what_is_no_frame_gives_a_table():
    fit = fitted()
    for pairs in ([(0, 1)], np.array([(0, 1)]), TRAIN, iter([(0, 1)])):
        assert isinstance(fit.predict(pairs), pa.Table)
    for users in (0, [0, 1], np.array([0, 1]), None, pa.array([0])):
        assert isinstance(fit.recommend(users, 1), pa.Table)


def test_probabilities_add_up_and_follow_the_mixture():
    fit = fitted("no side, robust")
    fit.known = replace(fit.posterior, scale=bayesmf.Scale(-1, 1, 0.5))
    user, item = TRAIN.users.values[1], TRAIN.items.values[0]
    table = fit.probabilities([(user, item), (555, 555)]).to_pydict()
    levels = fit.posterior.levels
    total = np.sum([table[f"p{level:g}"] for level in levels], axis=0)
    np.testing.assert_allclose(total, 1, rtol=1e-9)
    expected = 0.0
    for number in range(len(fit.draws)):
        s = fit.draws[number]
        mean = TRAIN.mean + s.user.x[1, 0] + s.item.x[0, 0] + s.user.x[1, 1:3] @ s.item.x[0, 1:3]
        sd = 1 / np.sqrt(s.tau * s.user.alpha[1] * s.item.alpha[0])
        expected += stats.norm.cdf((levels[0] + levels[1]) / 2, mean, sd)
    first = table[f"p{levels[0]:g}"][0]
    assert np.isclose(first, expected / len(fit.draws), rtol=1e-4)


def unselected(fit):
    """The fit without what it says that somebody rates an item, which no ranking contains."""
    whole = fit.posterior.complete()
    nothing = {key: 0 * values for key, values in whole.draws.items() if key.endswith(".query")}
    return SavedFit(replace(whole, draws={**whole.draws, **nothing}))


@pytest.mark.parametrize("name", ["no side", "both sides, joint bias"])
def test_recommendations_are_the_best_by_plain_loops(name, monkeypatch):
    import bayesmf.fitted.store.scores as module

    fit = fitted(name)
    everyone = [(u, i) for u in TRAIN.users.values for i in TRAIN.items.values]
    mean = (
        unselected(fit).predict(everyone)["mean"].to_numpy().reshape(TRAIN.n_users, TRAIN.n_items)
    )
    rated = TRAIN.to_sparse().toarray() != 0
    # in one block, and in many; all draws of the items side by side, and where they lie
    for cells, few in ((module.CELLS, 0), (20, 0), (20, TRAIN.n_users)):
        monkeypatch.setattr(module, "CELLS", cells)
        monkeypatch.setattr(module, "FEW", few)
        table = fit.recommend(n=3).to_pydict()
        for place, user in enumerate(TRAIN.users.values):
            score = np.where(rated[place], -np.inf, mean[place])
            best = [i for i in np.argsort(-score, kind="stable")[:3] if np.isfinite(score[i])]
            mine = [k for k, u in enumerate(table["user"]) if u == user]
            assert [table["item"][k] for k in mine] == list(TRAIN.items.values[best])
            assert [table["rank"][k] for k in mine] == list(range(1, len(best) + 1))
            found = [table["score"][k] for k in mine]
            np.testing.assert_allclose(found, mean[place, best], rtol=1e-4, atol=1e-6)


def test_recommendations_by_caution_and_by_chance():
    fit = fitted("no side")
    draws = []
    for number in range(len(fit.draws)):
        s = fit.draws[number]
        draws.append(TRAIN.mean + s.user.x[:, :1] + s.item.x[:, 0]
                     + s.user.x[:, 1:3] @ s.item.x[:, 1:3].T)  # fmt: skip
    rated = TRAIN.by_user.counts > 0, TRAIN.by_item.counts > 0  # the others are strangers
    users, items = (ids.values[few] for ids, few in zip((TRAIN.users, TRAIN.items), rated,
                                                        strict=True))  # fmt: skip
    draws = [d[rated[0]][:, rated[1]] for d in draws]
    lower = np.mean(draws, axis=0) - np.std(draws, axis=0)
    options = {"exclude_seen": False, "items": items}
    table = fit.recommend(users, n=1, rank_by="lower", **options).to_pydict()
    assert table["item"] == list(items[lower.argmax(axis=1)])
    one = fit.recommend(users, n=len(items), rank_by="thompson", seed=1, **options).to_pydict()
    again = fit.recommend(users, n=len(items), rank_by="thompson", seed=1, **options).to_pydict()
    assert one == again
    best = np.array(one["score"]).reshape(len(users), len(items))
    for place in range(len(users)):  # each user's scores are those of one draw
        matches = [np.allclose(np.sort(d[place])[::-1], best[place], rtol=1e-4) for d in draws]
        assert any(matches)
    with pytest.raises(DataError, match="rank_by='luck'"):
        fit.recommend(rank_by="luck")


def test_caution_knows_how_little_is_known_of_strangers():
    fit = fitted()
    posterior = fit.posterior
    counts = posterior.item_counts.copy()
    counts[2] = 0  # an item that has an id but no rating
    fit.known = replace(posterior, item_counts=counts)
    items, ids = np.arange(TRAIN.n_items), TRAIN.items.values
    for user in (4242, int(TRAIN.users.values[0])):
        table = fit.recommend([user], n=9, rank_by="lower", exclude_seen=False).to_pydict()
        row = np.full(len(ids), posterior.row_of("user", [user])[0], np.int32)
        cells = Cells(row, np.where(counts > 0, items, -1).astype(np.int32))
        moments = unselected(fit).posterior.moments(cells)
        expected = moments.mean - np.sqrt(moments.doubt)
        found = dict(zip(table["item"], table["score"], strict=True))
        strange = items[(counts == 0) | (user == 4242)]  # elsewhere n - 1 makes a difference
        np.testing.assert_allclose([found[ids[k]] for k in strange], expected[strange], rtol=1e-4)


def test_a_user_nobody_knows_gets_what_most_like():
    fit = fitted()
    table = fit.recommend([4242], n=2).to_pydict()
    pairs = [(4242, i) for i in TRAIN.items.values]
    mean = unselected(fit).predict(pairs)["mean"].to_numpy()
    assert table["item"] == list(TRAIN.items.values[np.argsort(-mean)[:2]])
    some = fit.recommend([4242], n=9, items=TRAIN.items.values[:2]).to_pydict()
    assert sorted(some["item"]) == sorted(TRAIN.items.values[:2])


def test_what_a_stranger_has_seen_is_left_out():
    """Who is not known at all, and who is known by id alone, as those who have ratings."""
    fit = fitted()
    items, empty = TRAIN.items.values, int(TRAIN.users.values[-1])
    pairs = [(4242, items[0]), (4242, items[3]), (empty, items[1]), (4242, 31337), (0, items[2])]
    seen = Ratings.from_triplets(users=[u for u, _ in pairs], items=[i for _, i in pairs],
                                 ratings=[1] * 5)  # fmt: skip
    for rank_by in ("mean", "lower", "thompson"):
        everything = fit.recommend([4242, empty, 0, 777], n=9, rank_by=rank_by, exclude_seen=False)
        expected = [(row["user"], row["item"]) for row in everything.to_pylist()]
        expected = [pair for pair in expected if pair not in pairs]
        for given in (seen, pairs, pd.DataFrame(pairs, columns=["user", "item"])):
            found = fit.recommend([4242, empty, 0, 777], n=9, rank_by=rank_by, seen=given)
            assert [(row["user"], row["item"]) for row in found.to_pylist()] == expected
    assert fit.recommend([4242], n=9, seen=[]).num_rows == len(items)


@pytest.mark.parametrize(
    "algorithm",
    [
        Gibbs(VARIANTS["no side"], sweeps=12, burn_in=2, chains=1),
        MAP(VARIANTS["no side"]),
        Variational(VARIANTS["user side"], sweeps=4),
    ],
)
def test_one_error_from_one_definition(algorithm):
    """Whatever ids the test ratings come with, and however they are predicted."""
    keep = np.arange(len(TRAIN)) % 3 > 0
    train, test = TRAIN.select(keep), TRAIN.select(~keep)
    fit = algorithm.fit(train)
    facts = fit.evaluate(test)
    error = fit.predict(test)["mean"].to_numpy() - test.values
    assert facts["rmse"] == np.sqrt(np.mean(error**2))
    assert facts == fit.evaluate(test)
    again = Ratings.from_frame(test.to_arrow(), scale=test.scale)  # with ids of its own
    assert again.users != test.users
    assert fit.evaluate(again) == facts
    assert fit.evaluate(test.to_arrow().to_pandas()) == facts


def test_bins_that_do_not_rise_are_refused():
    fit = fitted()
    for bad in ([100, 10], [10, 10], [2.5], ["10"], "10", [True]):
        with pytest.raises(DataError, match="give whole numbers that rise"):
            fit.evaluate(TRAIN, bins=bad)


def test_evaluate_by_hand():
    fit = fitted()
    facts = fit.evaluate(TRAIN)
    table = fit.predict(TRAIN)
    error = table["mean"].to_numpy() - TRAIN.by_user.values
    assert np.isclose(facts["rmse"], np.sqrt(np.mean(error**2)))
    assert np.isclose(facts["mae"], np.mean(np.abs(error)))
    inside = np.abs(error) <= stats.norm.ppf(0.9) * table["sd"].to_numpy()
    assert np.isclose(facts["coverage_80"], inside.mean())
    groups = fit.evaluate(TRAIN, bins=[8])["by_user_frequency"]
    totals = 2 * TRAIN.by_user.counts[TRAIN.by_user.row_index]  # in training and in the test
    rare = totals <= 8
    assert [g["test_ratings"] for g in groups] == [rare.sum(), (~rare).sum()]
    assert np.isclose(groups[0]["rmse"], np.sqrt(np.mean(error[rare] ** 2)))


@pytest.mark.parametrize("name", ["no side", "user side", "both sides, joint bias",
                                  "user side only", "user side, robust", "biases"])  # fmt: skip
def test_the_parts_of_a_prediction_add_up(name):
    fit = fitted(name)
    user, item = TRAIN.users.values[0], TRAIN.items.values[1]
    told = fit.explain(user, item)
    predicted = fit.predict([(user, item)])["mean"][0].as_py()
    assert np.isclose(told["prediction"], predicted, rtol=1e-5)
    assert np.isclose(sum(p["mean"] for p in told["parts"].values()), predicted, rtol=1e-5)
    has_design = bool(fit.posterior.model.user_designs)
    assert (told["parts"]["designs"]["mean"] != 0) == has_design
    assert set(told["ratings"][0]) == {"item", "rating", "adds"}


@pytest.mark.parametrize("name", ["user side", "user design", "two designs", "user side only"])
def test_the_part_of_the_designs_is_that_of_the_offsets(name):
    posterior = fitted(name).posterior
    data, size = Data.of(TRAIN, posterior.model, posterior.mean).user, posterior.model.size
    expected = []
    for number in range(len(posterior)):
        state = posterior.state(number)
        refresh_offsets(state.user, data)
        offset, y = state.user.offset[0], state.item.x[1, :size]
        expected.append(offset[0] + offset[1:] @ y[1:])
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(
        parts_of(pair_of(posterior, 0, 1), TRAIN)["designs"], expected, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["no side", "user side", "both sides, joint bias", "biases",
                                  "user side, robust", "user side only"])  # fmt: skip
def test_shares_are_what_a_rating_adds_to_the_conditional_mean(name):
    """Ratings' shares and the prior's part make up the mean of the user's conditional."""
    model, fit = VARIANTS[name], fitted(name, keep=1)
    state = fit.draws[0]
    data = Data.of(TRAIN, model)
    refresh_offsets(state.user, data.user)
    z = state.item.x[2, : model.size].copy()
    z[0] = 1.0
    found = shares(pair_of(fit.posterior, 0, 2), TRAIN)
    if model.has_own("user"):
        gaussian = readable.row(state, data.user, 0, model)
        free = slice(0, model.size)
        prior = readable.row_precision(state.user, 0, model, data.user)
        own = prior @ state.user.mu
        P = gaussian.precision[free, free]
        mean = z[free] @ np.linalg.solve(P, gaussian.linear[free])
        rest = z[free] @ np.linalg.solve(P, own[free])
    else:  # the features are the offset, the bias given it is free
        weight = state.tau * state.user.alpha[0] * state.item.alpha
        rated = [j for j, _ in readable.rated(data.user, 0)]
        lam, mu = state.user.Lambda[0, 0], state.user.mu[0]
        P = lam + weight[rated].sum()
        offset = state.user.offset[0]
        linear = sum(weight[j] * (r - state.item.x[j, 0] - state.item.x[j, 1:3] @ offset[1:])
                     for j, r in readable.rated(data.user, 0))  # fmt: skip
        mean = (lam * mu + linear) / P + offset[1:] @ z[1:]
        rest = lam * mu / P
    assert np.isclose(found.sum(), mean - rest, rtol=1e-3, atol=1e-5)


def test_explaining_without_ratings_at_hand():
    fit = fitted()
    bare = SavedFit(replace(fit.posterior.complete(), train=None))
    told = bare.explain(TRAIN.users.values[0], TRAIN.items.values[0])
    assert "ratings" not in told
    with pytest.raises(DataError, match="not at hand"):
        bare.recommend()
    assert bare.recommend(seen=TRAIN).equals(fit.recommend())
    with pytest.raises(DataError, match="was not in training; fold it in"):
        fit.explain(31337, TRAIN.items.values[0])


@pytest.mark.parametrize("algorithm", [
    Variational(VARIANTS["user side, robust"], sweeps=4), MAP(VARIANTS["user side, robust"]),
])  # fmt: skip
def test_every_algorithm_s_fit_can_do_it(algorithm, tmp_path):
    fit = algorithm.fit(TRAIN)
    x, y = fit.state.user.x[0], fit.state.item.x[1]
    size = fit.state.user.size
    pair = [(TRAIN.users.values[0], TRAIN.items.values[1])]
    expected = TRAIN.mean + x[0] + y[0] + x[1:size] @ y[1:size]
    table = fit.predict(pair)
    assert np.isclose(table["mean"][0].as_py(), expected, rtol=1e-5)
    assert fit.recommend(n=2).num_rows > 0
    assert fit.evaluate(TRAIN)["rmse"] > 0
    fit.save(tmp_path / "m")
    again = bayesmf.load_model(tmp_path / "m")
    assert again.predict(pair).equals(table)
    new = Ratings.from_triplets(users=[5000], items=[TRAIN.items.values[0]], ratings=[5])
    assert np.isfinite(again.fold_in(new).predict([(5000, 5000)])["sd"].to_numpy()).all()


def test_variances_of_variational_draws_are_those_of_q():
    from bayesmf.inference.variational.draws import noise_variance, prediction_variance

    fit = Variational(VARIANTS["both sides, joint bias"], sweeps=4, keep=4000).fit(TRAIN)
    user, item = np.array([0, 2], np.int32), np.array([1, 3], np.int32)
    cov = fit.q.covariances("user"), fit.q.covariances("item")
    expected = prediction_variance(fit.state, *cov, user, item)
    found = fit.posterior.moments(Cells(user, item))
    np.testing.assert_allclose(found.doubt, expected, rtol=0.12)  # 5 sds of a variance of 4,000
    noise = noise_variance(fit.state, user, item)
    np.testing.assert_allclose(found.noise_variance, noise, rtol=0.2)


def test_fits_without_draws_say_so():
    fit = Gibbs(VARIANTS["no side"], sweeps=4, burn_in=1, keep=0, chains=1).fit(TRAIN)
    with pytest.raises(DataError, match="keep=100"):
        fit.predict(TRAIN)


def test_bad_pairs_get_a_sentence():
    fit = fitted()
    frame = pd.DataFrame({"a": [1], "b": [2]})
    cases = (
        (42, "42 holds no pairs"), ("ab", "'ab' holds no pairs"), (["ab", "cd"], "the list holds"),
        ({"user": [1], "item": [2]}, "holds no pairs"), (np.zeros((2, 3)), "two columns"),
        ([(1, 2, 3)], "the list holds no pairs"), (frame, "no column for the user"),
    )  # fmt: skip
    for bad, message in cases:
        with pytest.raises(DataError, match=message):
            fit.predict(bad)
    with pytest.raises(DataError, match="between 0 and 1"):
        fit.predict(TRAIN, quantiles=[5])
    with pytest.raises(DataError, match=r"quantiles=0.5: give a list, such as \[0.5\]"):
        fit.predict(TRAIN, quantiles=0.5)


def test_bad_requests_get_a_sentence():
    fit = fitted()
    for n in (0, -1):
        with pytest.raises(DataError, match=f"n={n}: choose 1 or more"):
            fit.recommend(n=n)
    for n in (1.5, "3", True, None):
        with pytest.raises(TypeError, match="give a whole number"):
            fit.recommend(n=n)
    for users in (1.5, [[1, 2]]):
        with pytest.raises(DataError, match="is no list of users"):
            fit.recommend(users)
    with pytest.raises(DataError, match="most=0: choose 1 or more"):
        fit.explain(0, 1, most=0)
    with pytest.raises(TypeError, match="give one user, not a list"):
        fit.explain([0], 1)
    with pytest.raises(DataError, match="the item 31337 was not in training"):
        fit.explain(0, 31337)
    empty = int(TRAIN.users.values[-1])  # has an id and no rating
    with pytest.raises(DataError, match=f"the user {empty} was not in training"):
        fit.explain(empty, 1)
    with pytest.raises(DataError, match="is not a dataframe"):
        fit.evaluate(42)


def test_a_fit_shows_itself_in_one_line():
    fit = fitted()
    assert repr(SavedFit(fit.posterior)) == "SavedFit(rank 2, constant precision)"
    told = Fitted.__repr__(fit)
    doubt = "convergence cannot be judged"
    assert told == f"GibbsFit(rank 2, constant precision; {doubt})"
    fit.test_rmse = 0.5
    told = f"GibbsFit(rank 2, constant precision; test RMSE 0.5000; {doubt})"
    assert Fitted.__repr__(fit) == told
    made = Variational(VARIANTS["no side, robust"], sweeps=2).fit(TRAIN)
    assert Fitted.__repr__(made) == "VariationalFit(rank 2, robust precision)"
    assert "posterior" not in vars(made)  # it was not made for this


def test_explain_takes_the_posterior_alone():
    fit = fitted()
    assert "prediction" in explain(fit.posterior, cell(0, 0), None)


def test_users_by_series_and_frame():
    fit = fitted()
    ids = TRAIN.users.values[:2]
    expected = fit.recommend(ids, 2)["item"].to_pylist()
    assert isinstance(fit.recommend(pd.Series(ids), 2), pd.DataFrame)
    assert isinstance(fit.recommend(pl.Series(ids), 2), pl.DataFrame)
    assert isinstance(fit.recommend(pl.DataFrame({"userId": ids}), 2), pl.DataFrame)
    for asked in (pd.Series(ids), pd.DataFrame({"user": ids, "x": [1, 2]}), pa.array(ids)):
        assert list(fit.recommend(asked, 2)["item"].to_numpy()) == expected


def test_quantiles_have_names_of_their_own():
    names = fitted().predict(TRAIN, quantiles=[0.02, 0.025, 0.5, 0.995, 0.999]).column_names
    assert names[4:-1] == ["q02", "q2.5", "q50", "q99.5", "q99.9"]


def test_an_id_without_ratings_is_a_stranger():
    fit = fitted("user side")
    empty = TRAIN.users.values[-1]  # has an id and no rating
    table = fit.predict([(empty, TRAIN.items.values[0]), (777, TRAIN.items.values[0])])
    assert table["known"].to_pylist() == ["new user"] * 2
    assert table["sd"][0] == table["sd"][1]


def test_explaining_a_mean_field_explains_its_prediction():
    fit = Variational(VARIANTS["user side"], sweeps=5).fit(TRAIN)
    user, item = TRAIN.users.values[0], TRAIN.items.values[1]
    predicted = fit.predict([(user, item)])["mean"][0].as_py()
    assert np.isclose(fit.explain(user, item)["prediction"], predicted, rtol=1e-5)
