"""The prior of rows that training has not seen: against plain loops, and what it is good for."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import sparse

import bayesmf
from bayesmf import MAP, DataError, Gibbs, RatedSet, Ratings, Variational, load_model
from bayesmf.cli.main import main
from bayesmf.data.pairs import Cells, Pairs
from bayesmf.data.split import cold_start
from bayesmf.data.synthetic import World, generate
from bayesmf.fitted import new_rows
from bayesmf.fitted.base import SavedFit
from bayesmf.fitted.new_rows import NewRows
from bayesmf.fitted.newcomers import drawn_rows
from bayesmf.kernels.designs import Sparse
from bayesmf.model.conditionals import unpack
from bayesmf.model.spec import Model
from oracle.new_rows import PlainNewRows, ones, plain_new_rows, regress
from oracle.variants import VARIANTS

TRAIN = generate(World(30, 25, 260, rank=2), seed=5)[0]
FIT = Gibbs(VARIANTS["both sides, joint bias"], sweeps=12, burn_in=2, keep=4, chains=1).fit(TRAIN)
POSTERIOR = FIT.posterior
NOBODY = 10**6


@pytest.mark.parametrize("name", ["user", "item"])
@pytest.mark.parametrize("number", [0, 3])
def test_a_draw_is_measured_as_it_is_defined(name, number):
    plain = plain_new_rows(POSTERIOR, POSTERIOR.draws, number, name)
    found = POSTERIOR.newcomers.new_rows(POSTERIOR.draws, number, name)
    close = {"rtol": 1e-7, "atol": 1e-10}
    np.testing.assert_allclose(found.mean, plain.mean, **close)
    np.testing.assert_allclose(found.raters, plain.Q, **close)
    np.testing.assert_allclose(found.told, plain.q, **close)
    np.testing.assert_allclose(found.within, plain.C_w, **close)
    np.testing.assert_allclose(found.cross, plain.C_sq, **close)
    np.testing.assert_allclose(found.between, plain.C_q, rtol=1e-6, atol=1e-9)
    for g in (0, 1, 4, 200):
        np.testing.assert_allclose(found.gain(g), plain.H(g), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.remainder(g), plain.R(g), rtol=1e-6, atol=1e-8)
        assert np.linalg.eigvalsh(found.remainder(g)).min() > 0
        inverse = np.linalg.inv(plain.R(g))
        np.testing.assert_allclose(found.precision(g), inverse, rtol=1e-6, atol=1e-6)
    other = "item" if name == "user" else "user"
    others = POSTERIOR.draws[f"{other}.x"][number].astype(float)
    np.testing.assert_allclose(found.query(others), plain.b(others), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.stranger, plain.mean - plain.H(1) @ plain.qbar, rtol=1e-6)


class Emptied(dict):
    """What another thread empties as soon as something is put into it."""

    def __setitem__(self, key, value):
        self.clear()


def test_another_thread_may_empty_what_is_kept_of_new_rows():
    found = POSTERIOR.newcomers.new_rows(POSTERIOR.draws, 0, "user")
    expected = found.gain(7)
    vars(found)["_kept"] = Emptied()
    np.testing.assert_array_equal(found.gain(7), expected)


def test_the_priors_of_rows_are_those_of_what_they_rated():
    plain = plain_new_rows(POSTERIOR, POSTERIOR.draws, 0, "user")
    found = POSTERIOR.newcomers.new_rows(POSTERIOR.draws, 0, "user")
    rated = [[0, 3, 4], [], [7]]
    index = np.array([k for each in rated for k in each], np.int32)
    by_row = Sparse(np.cumsum([0, *map(len, rated)]), index)
    for array in by_row:
        array.flags.writeable = False
    everything, added = np.arange(TRAIN.n_items, dtype=np.int32), np.arange(9.0).reshape(1, 3, 3)
    priors, moved = (
        NewRows.stack([found]).priors(by_row, everything, more) for more in (None, added)
    )
    for i, what in enumerate(rated):
        g, s = len(what), sum((plain.Q[k] for k in what), np.zeros(3))
        P = np.linalg.inv(plain.R(g))
        precision = unpack(priors.precision)[0, priors.group[i]]
        np.testing.assert_allclose(precision, P, rtol=1e-5, atol=1e-6)
        mean, other = (np.linalg.solve(P, one.linear[0, i]) for one in (priors, moved))
        np.testing.assert_allclose(mean, plain.a(g + 1, s), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, mean + added[0, i], rtol=1e-5, atol=1e-6)
    nothing = np.zeros((TRAIN.n_users, 3))
    known = found.known_priors(TRAIN.by_user.counts, found.told_sums(), nothing)
    for i in (0, 11):
        g = int(TRAIN.by_user.counts[i])
        mean = np.linalg.solve(unpack(known.precision)[i], known.linear[i])
        np.testing.assert_allclose(mean, plain.a(g, g * plain.q[i]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", [
    MAP(VARIANTS["no side"], penalty=2.0), MAP(VARIANTS["both sides"], penalty=2.0),
    MAP(replace(VARIANTS["user side"], precision="robust"), penalty=2.0),
])  # fmt: skip
def test_a_user_folded_into_an_estimate_is_where_ratings_and_prior_agree(algorithm):
    """Ridge regression on the items about the mean a_{g+1}, and what asking says, by hand."""
    fit = algorithm.fit(TRAIN)
    values = [5, 1, 4]
    new = Ratings.from_triplets(users=[NOBODY] * 3, items=TRAIN.items.values[:3], ratings=values)
    posterior, size = fit.posterior, fit.posterior.model.size
    plain = plain_new_rows(posterior, posterior.draws, 0, "user")
    y, tau = posterior.draws["item.x"][0].astype(float), float(posterior.draws["tau"][0, 0])
    z, left = ones(y), np.array(values) - posterior.mean - y[:3, 0]
    prior, s = np.linalg.inv(plain.R(3)), plain.Q[:3].sum(axis=0)
    P = prior + tau * z[:3].T @ z[:3]
    x = np.linalg.solve(P, prior @ plain.a(4, s) + tau * z[:3].T @ left)
    newness = plain.newness(3, np.linalg.inv(P), y, TRAIN.by_item.counts)
    expected = posterior.mean + y[:, 0] + z @ x + newness * plain.b(y)
    rated = TRAIN.by_item.counts > 0
    pairs = [(NOBODY, item) for item in TRAIN.items.values]
    found = fit.fold_in(new).predict(pairs)["mean"].to_numpy()
    assert size == 3
    np.testing.assert_allclose(found[rated], expected[rated], rtol=1e-4, atol=1e-4)


def test_a_stranger_is_the_mean_row_asked_about_the_item():
    moments = POSTERIOR.moments(Cells(np.array([-1], np.int32), np.array([4], np.int32)))
    f, doubt = [], []
    for k in range(len(POSTERIOR)):
        plain = plain_new_rows(POSTERIOR, POSTERIOR.draws, k, "user")
        y = POSTERIOR.draws["item.x"][k].astype(float)
        z = ones(y)[4]
        x = plain.a(1, plain.Q[4])  # the query term is exact for a stranger
        f.append(POSTERIOR.mean + y[4, 0] + z @ x)
        doubt.append(z @ plain.C_S @ z)
    assert moments.mean[0] == pytest.approx(np.mean(f), rel=1e-4)
    assert moments.doubt[0] == pytest.approx(np.var(f, ddof=1) + np.mean(doubt), rel=1e-3)


def test_a_stranger_to_everything():
    nobody = np.array([-1], np.int32)
    moments = POSTERIOR.moments(Cells(nobody, nobody))
    f = []
    for k in range(len(POSTERIOR)):
        a, b = (plain_new_rows(POSTERIOR, POSTERIOR.draws, k, name) for name in ("user", "item"))
        x, y = (each.a(1, np.zeros(3)) for each in (a, b))
        f.append(POSTERIOR.mean + x[0] + y[0] + x[1:] @ y[1:])
    assert moments.mean[0] == pytest.approx(np.mean(f), rel=1e-4)


def test_noise_is_what_a_draw_adds_to_a_row():
    """The variance of predictions over draws of one row's noise is that of its conditional."""
    new = Ratings.from_triplets(users=[NOBODY] * 2, items=TRAIN.items.values[:2], ratings=[5, 1])
    size, squares, means = POSTERIOR.model.size, [], []
    for seed in range(400):
        more = FIT.fold_in(new, seed=seed).posterior
        row = int(more.row_of("user", [NOBODY])[0])
        squares.append(more.draws["user.noise"][0, row])
        means.append(more.draws["user.x"][0, row])
    assert np.ptp(means, axis=0).max() == 0.0  # constant precisions: nothing else is random
    plain = plain_new_rows(POSTERIOR, POSTERIOR.draws, 0, "user")
    z = ones(POSTERIOR.draws["item.x"][0])[:2]
    tau = float(POSTERIOR.draws["tau"][0, 0])
    expected = np.linalg.inv(np.linalg.inv(plain.R(2)) + tau * z.T @ z)
    found = np.cov(np.array(squares).T)
    # a variance of 400 draws has a relative standard error of sqrt(2 / 400); 5 of these
    assert np.abs(np.diag(found) / np.diag(expected) - 1).max() < 5 * np.sqrt(2 / 400)
    assert size == 3


@pytest.mark.parametrize("algorithm", [
    Gibbs(Model(rank=2), sweeps=12, burn_in=2, keep=4, chains=1),
    Variational(Model(rank=2), sweeps=4), MAP(Model(rank=2), penalty=5.0),
    Gibbs(Model.paper("side-only", rank=2), sweeps=12, burn_in=2, keep=4, chains=1),
    Gibbs(Model.paper("none"), sweeps=12, burn_in=2, keep=4, chains=1),
])  # fmt: skip
def test_what_is_known_of_newcomers_is_saved(algorithm, tmp_path):
    fit = algorithm.fit(TRAIN)
    users, items = TRAIN.users.values[:2], TRAIN.items.values[:2]
    pairs = [(NOBODY, items[0]), (users[0], NOBODY), (NOBODY, NOBODY), (users[1], items[1])]
    new = Ratings.from_triplets(users=[NOBODY] * 2, items=items, ratings=[5, 1])
    before, more = fit.predict(pairs), fit.fold_in(new).predict(pairs)
    fit.save(tmp_path / "with")
    fit.save(tmp_path / "without", without_ratings=True)
    for name in ("with", "without"):
        assert load_model(tmp_path / name).predict(pairs).equals(before)
    again = load_model(tmp_path / "with").fold_in(new)
    assert again.predict(pairs).equals(more)
    again.save(tmp_path / "folded")
    assert load_model(tmp_path / "folded").predict(pairs).equals(more)
    # where training is not at hand, what was rated says nothing besides the ratings
    blind = load_model(tmp_path / "without").fold_in(new).predict(pairs)
    assert np.isfinite(blind["mean"].to_numpy()).all()


def test_one_user_and_one_item_leave_a_finite_and_wide_prior():
    train = Ratings.from_triplets(users=[1, 1, 2], items=[1, 2, 1], ratings=[1, 5, 4])
    fit = Gibbs(Model(rank=3), sweeps=10, burn_in=2, chains=1, keep=4).fit(train)
    table = fit.predict([(NOBODY, 1), (1, NOBODY), (1, 1)])
    assert np.isfinite(table["mean"].to_numpy()).all()
    assert table["sd"].to_numpy()[:2].min() > 0.3


@pytest.mark.parametrize(
    "rated",
    [[(k, k) for k in range(6)], [(k, 1) for k in range(5)]],
    ids=["nobody rates the same", "all rate one item"],
)
def test_where_who_rates_what_says_nothing_newcomers_are_at_the_mean(rated):
    """Covariances that are zero but for rounding are told from small ones."""
    users, items = zip(*rated, strict=True)
    values = [1, 2, 3, 4, 5, 1][: len(rated)]
    train = Ratings.from_triplets(users=users, items=items, ratings=values, scale="1:5:1")
    fit = Gibbs(Model(rank=2), sweeps=5, burn_in=1, keep=3, seed=3, chains=1).fit(train)
    one = {"ratings": [3], "scale": "1:5:1"}
    more = fit.fold_in(Ratings.from_triplets(users=[NOBODY], items=[1], **one))
    more = more.fold_in(Ratings.from_triplets(users=[0], items=[NOBODY], **one), "item")
    again = more.update(Ratings.from_triplets(users=[0], items=[1], **one), "both")
    for known in (fit, more, again):
        table = known.predict([(NOBODY + 1, 1), (NOBODY, 1), (0, NOBODY)])
        assert np.abs(table["mean"].to_numpy() - 3).max() < 4
        assert table["sd"].to_numpy().max() < 10


def test_where_raters_tell_hardly_anything_a_newcomer_is_no_further_than_a_stranger():
    """Newness is a ratio then of two numbers near 0, and was -1993 here in one draw."""
    rng = np.random.default_rng(2)
    users, items = np.nonzero(rng.random((60, 40)) < 0.5)
    values = 3 + rng.normal(0, 0.6, 60)[users] + rng.normal(0, 0.6, 40)[items]
    values = np.clip(np.rint(values + rng.normal(0, 0.7, len(users))), 1, 5)
    train = Ratings.from_triplets(users=users, items=items, ratings=values)
    fit = Gibbs(Model(rank=2), sweeps=60, chains=2).fit(train)
    some = Ratings.from_triplets(users=[NOBODY] * 4, items=[1, 2, 3, 4], ratings=[5, 4, 3, 2])
    more = fit.fold_in(some)
    newness = more.posterior.draws["user.newness"]
    assert newness.min() >= 0
    assert newness.max() <= 1
    asked = [(NOBODY, item) for item in range(5, 40)]
    known, unknown = (each.predict(asked)["sd"].to_numpy().max() for each in (more, fit))
    assert known < 1.2 * unknown


def test_who_rates_what_helps_newcomers():
    """Users choose what they like: with the new prior the first ratings say more."""
    cut = cold_start(generate(World(400, 60, 9000, rank=2, influence=2.0), seed=1)[0], 0, 0.2, 2)
    fit = Gibbs(Model(rank=2), sweeps=60, burn_in=20, keep=20, chains=1).fit(cut.train)
    error = {}
    for name, train in (("new", fit.posterior.train), ("blind", None)):
        one = SavedFit(replace(fit.posterior, train=train))
        error[name] = one.fold_in(cut.given).evaluate(cut.test)["rmse"]
    assert error["new"] < error["blind"]


def test_measuring_needs_no_ratings_of_some_rows():
    rows = np.random.default_rng(0).normal(size=(4, 2))
    rated = POSTERIOR.newcomers.rated["user"]
    starts = np.array([0, 2, 2, 3, 3])
    starts.flags.writeable = False
    some = replace(rated, by_row=Sparse(starts, rated.by_row.index[:3]), counts=np.diff(starts))
    other = np.zeros(TRAIN.n_items + 1, np.int64)
    other.flags.writeable = False
    some = replace(some, by_other=Sparse(other, rated.by_other.index[:0]))
    found = NewRows.of(rows, some, np.ones((TRAIN.n_items, 2)), np.eye(2))
    np.testing.assert_allclose(found.mean, (2 * rows[0] + rows[2]) / 3)


def with_kinds():
    """Ratings that depend on a kind of item and of user, and the tables that say which."""
    rng = np.random.default_rng(4)
    users, items = np.arange(80), np.arange(40)
    user, item = np.nonzero(rng.random((80, 40)) < 0.4)
    values = 3 + 1.2 * (item % 2) - 0.8 * (user % 2) + 0.3 * rng.normal(size=len(user))
    ratings = Ratings.from_triplets(users=user, items=item, ratings=values)
    kind = np.array(["even", "odd"], object)
    tables = [
        pd.DataFrame({"id": ids, "kind": kind[ids % 2]}) for ids in (users, items)
    ]  # fmt: skip
    return ratings, *tables


def held_out(ratings, users, items):
    rows = ratings.by_user
    new = np.isin(rows.row_index, users) | np.isin(rows.index, items)
    return ratings.select(~new).drop_unused(), ratings.select(new)


@pytest.mark.parametrize("inference", ["gibbs", "vi", "map"])
def test_strangers_have_the_attributes_of_the_table(inference):
    ratings, users, items = with_kinds()
    train, _ = held_out(ratings, [2, 3], [4, 5])
    fit = bayesmf.fit(train, rank=1, inference=inference, user_attributes=users,
                      item_attributes=items, sweeps=30,
                      **({"chains": 1} if inference == "gibbs" else {}))  # fmt: skip
    pairs = [(2, 0), (3, 0), (0, 4), (0, 5), (3, 4), (2, 5), (0, 999), (999, 0)]
    table = fit.predict(pairs).to_pydict()
    assert table["known"] == ["new user"] * 2 + ["new item"] * 2 + ["new"] * 2 + [
        "new item", "new user"
    ]  # fmt: skip
    even, odd, down, up, low, high, nobody, somebody = table["mean"]
    assert even - odd > 0.4
    assert up - down > 0.6
    assert high - low > 1.2
    assert down < nobody < up  # like one of the others, nobody knows which
    assert odd < somebody < even
    sd = dict(zip(pairs, table["sd"], strict=True))
    assert sd[0, 999] > sd[0, 4]  # what is known makes it sharper
    assert sd[999, 0] > sd[2, 0]


def test_newcomers_with_ratings_have_their_attributes_too(tmp_path):
    ratings, users, _ = with_kinds()
    train, rest = held_out(ratings, [2, 3], [])
    fit = bayesmf.fit(train, rank=1, sweeps=30, chains=1, user_attributes=users)
    given = Ratings.from_triplets(users=[2, 3], items=[0, 0], ratings=[3, 3])
    more = fit.fold_in(given)
    mean = more.predict([(2, 6), (3, 6)])["mean"].to_numpy()
    assert mean[0] - mean[1] > 0.1  # the same rating, other kinds
    more.save(tmp_path / "model")
    assert load_model(tmp_path / "model").predict(rest).equals(more.predict(rest))
    assert fit.evaluate(rest)["rmse"] < 0.8


def test_many_columns_of_given_designs_are_regressed_on_alike(monkeypatch):
    rng = np.random.default_rng(3)
    rows, counts = rng.normal(size=(40, 2)), rng.integers(0, 9, 40)
    X = sparse.random_array((40, 6), density=0.4, rng=rng, format="csr")
    weight = counts / counts.sum()
    for dense in (6, 5):
        monkeypatch.setattr(new_rows, "DENSE", dense)
        found = new_rows._regress(X, rows, weight, int((counts > 0).sum()))
        np.testing.assert_allclose(found, regress(rows, X.toarray(), counts), rtol=1e-5)


def test_the_means_of_strangers_with_attributes_by_hand():
    ratings, users, _ = with_kinds()
    train, _ = held_out(ratings, [2, 3], [])
    model = Model(rank=1, user_designs=(RatedSet(0.5), bayesmf.Attributes.from_frame(users)))
    posterior = Gibbs(model, sweeps=6, burn_in=2, keep=2, chains=1).fit(train).posterior
    f = []
    for k in range(len(posterior)):
        rows = drawn_rows(posterior.draws, k, "user")
        W = regress(rows, np.eye(2)[train.users.values % 2], train.by_user.counts)
        rows = rows - W[train.users.values % 2]
        plain = PlainNewRows(
            rows, list(zip(train.by_user.row_index, train.by_user.index, strict=True)),
            train.n_items, np.linalg.inv(posterior.draws["user.Lambda"][k].astype(float)),
        )  # fmt: skip
        y = posterior.draws["item.x"][k].astype(float)
        x = plain.a(1, plain.Q[7]) + W[1]
        f.append(posterior.mean + y[7, 0] + ones(y)[7] @ x)
    item = train.items.values[7]
    found = posterior.moments(posterior.cells(Pairs([3], [item]))).mean[0]
    assert found == pytest.approx(np.mean(f), rel=1e-4)


def test_attributes_that_come_later(tmp_path):
    """Of ids that the table did not have: in predictions, in folding in, in files."""
    ratings, users, items = with_kinds()
    train, _ = held_out(ratings, [2, 3], [4, 5])
    first = [users[~users["id"].isin([2, 3])], items[~items["id"].isin([4, 5])]]
    fit = bayesmf.fit(train, rank=1, sweeps=20, chains=1, user_attributes=first[0],
                      item_attributes=first[1])  # fmt: skip
    whole = bayesmf.fit(train, rank=1, sweeps=20, chains=1, user_attributes=users,
                        item_attributes=items)  # fmt: skip
    pairs = [(2, 0), (3, 0), (0, 4), (3, 5), (1, 1)]
    more = fit.with_attributes(user=users[users["id"].isin([2, 3])], item=items)
    np.testing.assert_allclose(more.predict(pairs)["mean"], whole.predict(pairs)["mean"], rtol=1e-6)
    assert fit.predict(pairs)["mean"][0] == fit.predict(pairs)["mean"][1]  # nothing is known there
    given = Ratings.from_triplets(users=[2, 3], items=[0, 0], ratings=[3, 3])
    one, two = (each.fold_in(given).predict([(2, 6)])["mean"][0].as_py() for each in (more, whole))
    assert one == pytest.approx(two, rel=1e-6)
    more.save(tmp_path / "model")
    assert load_model(tmp_path / "model").predict(pairs).equals(more.predict(pairs))
    unknown = pd.DataFrame({"id": [2], "kind": ["else"]})
    table = fit.with_attributes(user=unknown).predict([(2, 0)])
    assert table["mean"][0] == fit.predict([(2, 0)])["mean"][0]
    with pytest.raises(DataError, match="no column 'kind', which the model has"):
        fit.with_attributes(user=pd.DataFrame({"id": [2]}))
    with pytest.raises(DataError, match="another type than those of the model"):
        fit.with_attributes(user=pd.DataFrame({"id": ["x"], "kind": ["odd"]}))
    with pytest.raises(DataError, match="the model has no attributes of users"):
        FIT.with_attributes(user=users)


def test_attributes_of_new_rows_on_the_command_line(tmp_path):
    ratings, users, _ = with_kinds()
    train, _ = held_out(ratings, [2, 3], [])
    fit = bayesmf.fit(
        train, rank=1, sweeps=20, chains=1, user_attributes=users[~users["id"].isin([2, 3])]
    )
    fit.save(tmp_path / "model")
    users[users["id"].isin([2, 3])].to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "pairs.csv").write_text("user,item\n2,0\n3,0\nnobody,0\n")
    words = ["predict", tmp_path / "model", tmp_path / "pairs.csv", "--json"]
    told = [*words, "--user-attributes", tmp_path / "new.csv"]
    ran = CliRunner().invoke(main, [str(word) for word in told])
    assert ran.exit_code == 0, ran.output
    mean = [json.loads(line)["mean"] for line in ran.stdout.splitlines()]
    assert mean[0] - mean[1] > 0.3
    assert mean[1] < mean[2] < mean[0]
