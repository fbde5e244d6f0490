"""Fits as files: what is inside, and that it comes back as it was."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Gibbs, RatedSet, Ratings
from bayesmf.data.ids import Ids
from bayesmf.fitted.base import SavedFit
from bayesmf.fitted.posterior import Posterior, merge_ratings
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)
NAMES = ("no side", "both sides, joint bias, robust, student-t", "user side only",
         "no side, truncated", "biases")  # fmt: skip


def fitted(name: str = "no side", **settings):
    options = {"sweeps": 12, "burn_in": 2, "keep": 6, "seed": 3, "chains": 1, **settings}
    return Gibbs(VARIANTS[name], **options).fit(TRAIN)


def held_out_fit():
    """Nine ratings held out, five of them for a test and four for validation."""
    rest = np.arange(len(TRAIN)) % 4 != 1
    rest[np.flatnonzero(~rest)[9:]] = True
    train, test = TRAIN.select(rest), TRAIN.select(np.flatnonzero(~rest)[:5])
    validation = TRAIN.select(np.flatnonzero(~rest)[5:])
    fit = Gibbs(VARIANTS["no side"], sweeps=12, burn_in=2, keep=6, chains=1).fit(train)
    known = Posterior.of(fit.model, train, fit.posterior.draws, held_out=(test, None, validation))
    return SavedFit(known, dict(fit.traces))


@pytest.mark.parametrize("ending", ["", ".zip"])
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_fit_is_the_same_fit(name, ending, tmp_path):
    fit = fitted(name)
    path = tmp_path / f"model{ending}"
    fit.save(path)
    again = bayesmf.load_model(path)
    assert again.predict(TRAIN).equals(fit.predict(TRAIN))
    assert again.recommend().equals(fit.recommend())
    assert again.diagnostics().to_dict() == fit.diagnostics().to_dict()
    new = Ratings.from_triplets(users=[5000], items=[TRAIN.items.values[0]], ratings=[5])
    pair = [(5000, TRAIN.items.values[1])]
    assert again.fold_in(new).predict(pair).equals(fit.fold_in(new).predict(pair))
    with pytest.raises(DataError, match="exists already"):
        fit.save(path)
    fit.save(path, without_ratings=True, overwrite=True)
    with pytest.raises(DataError, match="not at hand"):
        bayesmf.load_model(path).recommend()


def test_the_ratings_are_inside_unless_left_out(tmp_path):
    fit = held_out_fit()
    fit.save(tmp_path / "a", without_ratings=True)
    fit.save(tmp_path / "b")
    bare, full = ({p.name for p in (tmp_path / name).iterdir()} for name in "ab")
    assert full - bare == {"ratings.parquet", "held_out.parquet"}
    again = bayesmf.load_model(tmp_path / "b").posterior
    assert again.train == fit.posterior.train
    assert again.held_out == fit.posterior.held_out
    assert again.train.users is again.users
    bare = bayesmf.load_model(tmp_path / "a")
    assert (bare.posterior.train, bare.posterior.held_out) == (None, None)
    user = int(TRAIN.users.values[0])
    assert bare.recommend([user], seen=[(user, 0)], n=9).num_rows == TRAIN.n_items - 1
    assert bare.recommend([user], exclude_seen=False, n=9).num_rows == TRAIN.n_items


@pytest.mark.parametrize("saved", [False, True])
def test_what_was_held_out_counts_as_seen(saved, tmp_path):
    fit = held_out_fit()
    if saved:
        fit.save(tmp_path / "model.zip")
        fit = bayesmf.load_model(tmp_path / "model.zip")
    train, held_out = fit.posterior.train, fit.posterior.held_out
    assert (len(train), len(held_out)) == (len(TRAIN) - 9, 9)
    found = fit.recommend(n=99).to_pydict()
    pairs = set(zip(found["user"], found["item"], strict=True))
    rated = TRAIN.to_arrow().to_pydict()
    assert not pairs & set(zip(rated["user"], rated["item"], strict=True))
    assert len(pairs) == TRAIN.n_users * TRAIN.n_items - len(TRAIN)
    explained = {one["item"] for one in fit.explain(0, 1, most=99)["ratings"]}
    assert explained == set(train.by_user.index[: train.by_user.starts[1]].tolist())


def test_parts_that_were_held_out_are_one():
    """A pair in two parts is there once, with the rating of the later one; times stay."""
    one = Ratings.from_triplets(users=[1, 2], items=[5, 5], ratings=[1, 2], times=[7, 8])
    two = Ratings.from_triplets(users=[0, 2], items=[6, 5], ratings=[4.5, 3], times=[9, 1 << 40])
    users, items = Ids(np.arange(3)), Ids(np.array([5, 6, 7]))
    both = merge_ratings([one, None, two], users, items)
    assert both.to_arrow().to_pydict() == {
        "user": [0, 1, 2], "item": [6, 5, 5], "rating": [4.5, 1, 3], "time": [9, 7, 1 << 40],
    }  # fmt: skip
    assert both.users is users
    none = one.select(np.zeros(2, bool))
    assert len(merge_ratings([none, none], users, items)) == 0
    assert merge_ratings([None], users, items) is None


@pytest.mark.parametrize("ending", ["", ".zip"])
def test_traces_keep_their_order(ending, tmp_path):
    fit = fitted("both sides, joint bias")
    fit.save(tmp_path / f"m{ending}")
    again = bayesmf.load_model(tmp_path / f"m{ending}")
    assert list(again.traces) == list(fit.traces)
    assert repr(again.diagnostics()) == repr(fit.diagnostics())
    assert list(again.traces) != sorted(again.traces)


def test_a_model_of_the_first_format_is_read():
    """A file that an earlier version wrote, and what that version predicted from it."""
    again = bayesmf.load_model(Path(__file__).parent / "format_1.zip")
    table = again.predict([(0, 0), (1, 2), (99, 0), (0, 99)])
    mean = [0.6207147522298845, 0.23532391983055598]
    sd = [0.9248227896118759, 0.749500847386508]
    # rounding of sums of a few terms, on whatever machine
    np.testing.assert_allclose(table["mean"].to_numpy()[:2], mean, rtol=1e-12)
    np.testing.assert_allclose(table["sd"].to_numpy()[:2], sd, rtol=1e-12)
    assert table["sd"].to_numpy()[2:].min() > max(sd) - 0.1  # strangers have another prior now
    best = again.recommend([0, 1], n=2, exclude_seen=False)
    assert best["item"].to_pylist() == [6, 0, 6, 1]
    assert again.posterior.model.user_designs == (RatedSet(0.5),)
    assert again.posterior.model.precision_prior == (6.0, 5.0)
    assert again.posterior.train is not None
    assert "noise precision" in again.traces


def test_the_test_error_is_saved(tmp_path):
    fit = fitted()
    fit.test_rmse = 0.8125
    fit.save(tmp_path / "m")
    again = bayesmf.load_model(tmp_path / "m")
    assert again.test_rmse == 0.8125
    assert repr(again).startswith("SavedFit(rank 2, constant precision; test RMSE 0.8125; ")
    new = Ratings.from_triplets(users=[5000], items=[0], ratings=[5])
    assert again.fold_in(new).test_rmse is None  # it is another fit


def test_tricks_in_an_archive_are_refused(tmp_path):
    fit = fitted()
    good = tmp_path / "good.zip"
    fit.save(good)
    for name in ("../evil.txt", "/etc/evil", "sub/model.json", "users.txt"):
        bad = tmp_path / "bad.zip"
        bad.write_bytes(good.read_bytes())
        with (
            zipfile.ZipFile(bad, "a") as archive,
            pytest.warns() if name == "users.txt" else (open("/dev/null")),
        ):
            archive.writestr(name, "boo")
        with pytest.raises(DataError, match="no part of a model"):
            bayesmf.load_model(bad)


def test_text_ids_survive(tmp_path):
    names = ["ann", 'b"ob', "c\u2028l", "dé\ttab", "e"]
    ratings = Ratings.from_triplets(users=names * 3, items=["x"] * 5 + ["y"] * 5 + ["z z"] * 5,
                                    ratings=[1, 2, 3, 4, 5] * 3)  # fmt: skip
    fit = Gibbs(VARIANTS["no side"], sweeps=4, burn_in=1, keep=2, chains=1).fit(ratings)
    fit.save(tmp_path / "m")
    again = bayesmf.load_model(tmp_path / "m")
    assert again.posterior.users == Ids(np.array(sorted(names), object))
    assert again.predict([("ann", "y"), ("zoe", "y")])["known"].to_pylist() == ["warm", "new user"]
    with pytest.raises(DataError, match="ids are text here but integer"):
        again.predict([(1, 2)])
