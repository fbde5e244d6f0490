"""Fits with attributes: what they are good for, and that nothing of them is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesmf
from bayesmf import Attributes, AttributesWarning, DataError, Gibbs, Model, RatedSet, Ratings
from bayesmf.data.ids import Ids
from bayesmf.data.scale import Scale
from bayesmf.fitted.store.checked import SUMS, sums_of

N_USERS, N_ITEMS = 60, 90
RNG = np.random.default_rng(5)
GENRE = RNG.integers(0, 3, N_ITEMS)
MOVIES = pd.DataFrame({"movie": np.arange(N_ITEMS), "genre": np.array(["A", "B", "C"])[GENRE],
                       "year": 1950 + np.arange(N_ITEMS) % 7})  # fmt: skip
USERS = pd.DataFrame({"user": np.arange(N_USERS), "age": 20 + np.arange(N_USERS) % 11})
SMALL = {"sweeps": 40, "chains": 1, "seed": 1}


def world() -> tuple[Ratings, Ratings]:
    """Users like genres; the last thirty items have two training ratings each."""
    taste = RNG.choice([-1.0, 1.0], (N_USERS, 3))
    user, item = (grid.ravel() for grid in np.mgrid[:N_USERS, :N_ITEMS])
    values = taste[user, GENRE[item]] + RNG.normal(0, 0.5, len(user))
    rare = item >= 60
    train = np.where(rare, RNG.random(len(user)) < 2 / N_USERS, RNG.random(len(user)) < 0.5)
    test = rare & ~train

    def cut(mask) -> Ratings:
        return Ratings.from_sorted(
            Ids(np.arange(N_USERS)), Ids(np.arange(N_ITEMS)), user[mask].astype(np.int32),
            item[mask].astype(np.int32), values[mask], None, Scale(-9, 9),
        )  # fmt: skip

    return cut(train), cut(test)


TRAIN, TEST = world()
ITEMS = Attributes.from_frame(MOVIES)
BOTH = Model(2, user_designs=(RatedSet(), Attributes.from_frame(USERS)),
             item_designs=(RatedSet(), ITEMS))  # fmt: skip


@pytest.fixture(scope="module")
def fit():
    return Gibbs(BOTH, **SMALL).fit(TRAIN, TEST)


@pytest.mark.parametrize("inference", ["gibbs", "vi", "map"])
def test_rare_items_are_predicted_by_what_they_are_like(inference):
    """By their two ratings alone they are not: the genre decides. The noise alone has 0.5."""
    settings = {"chains": 1} if inference == "gibbs" else {}
    options = {"inference": inference, "sweeps": 20, "seed": 1, **settings}
    model = Model.paper("no-side", rank=2)
    with_genre = bayesmf.fit(TRAIN, model, item_attributes=MOVIES[["movie", "genre"]], **options)
    without = bayesmf.fit(TRAIN, model, **options)
    error, before = (one.evaluate(TEST)["rmse"] for one in (with_genre, without))
    assert error < 0.65
    assert before > 0.7


def test_frames_paths_and_attributes_are_one_model(tmp_path):
    MOVIES.to_csv(tmp_path / "movies.csv", index=False)
    options = {"rank": 1, "sweeps": 2, "chains": 1}
    fits = [
        bayesmf.fit(TRAIN, item_attributes=given, user_attributes=USERS, **options)
        for given in (MOVIES, tmp_path / "movies.csv", ITEMS)
    ]
    designs = (RatedSet(0.5), ITEMS)
    assert {one.posterior.model.item_designs for one in fits} == {designs}
    assert fits[0].predict(TEST).equals(fits[1].predict(TEST))
    with pytest.raises(DataError, match=r"kinds=\{'title': 'none'\} of Attributes.from_frame, or"):
        bayesmf.fit(TRAIN, item_attributes=MOVIES.assign(title=MOVIES.movie.map("film {}".format)))


def test_threads_do_not_change_a_bit():
    script = """
import test_attributes_fit as t
fits = (t.Gibbs(t.BOTH, sweeps=4, chains=1, threads=n).fit(t.TRAIN) for n in (1, 2))
one, two = (fit.posterior.draws for fit in fits)
assert "item.W_2" in one and all((one[name] == two[name]).all() for name in one)
"""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    env = {**os.environ, "NUMBA_NUM_THREADS": "2", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", script], check=True, env=env)


@pytest.mark.parametrize("name", ["model", "model.zip"])
def test_a_saved_fit_comes_back_with_its_tables(fit, name, tmp_path):
    fit.save(tmp_path / name)
    again = bayesmf.load_model(tmp_path / name)
    assert again.posterior.model == fit.posterior.model
    assert again.predict(TEST).equals(fit.predict(TEST))
    assert again.explain(3, 70) == fit.explain(3, 70)
    mine, theirs = (one.posterior.model.item_designs[1] for one in (fit, again))
    later = pd.DataFrame({"year": [1951.0, None], "genre": ["B", "D"]})
    assert np.array_equal(mine.encode(later).toarray(), theirs.encode(later).toarray())
    again.save(tmp_path / "again")
    assert bayesmf.load_model(tmp_path / "again").posterior.model == fit.posterior.model


def test_the_table_is_a_file_of_its_own(fit, tmp_path):
    fit.save(tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"user_attributes_2.parquet", "item_attributes_2.parquet"} < names
    table = pd.read_parquet(tmp_path / "model" / "item_attributes_2.parquet")
    assert table.equals(MOVIES[["movie", "genre", "year"]].astype({"year": float}))
    described = json.loads((tmp_path / "model" / "model.json").read_text())["model"]
    assert "table" not in described["item_designs"][1]
    fit.save(tmp_path / "model", overwrite=True)
    with pytest.raises(DataError, match="table of the attributes is not here; load the whole"):
        Model.from_dict(described)


def forge(fit, path, change) -> None:
    """Save a fit as a zip whose model.json and files ``change`` has changed, with right sums."""
    fit.save(path, overwrite=True)
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(files["model.json"])
    change(document, files)
    files["model.json"] = json.dumps(document).encode()
    del files[SUMS]
    files[SUMS] = sums_of(files)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def other_table(document, files):
    files["item_attributes_2.parquet"] = files["user_attributes_2.parquet"]


def lost_table(document, files):
    del files["item_attributes_2.parquet"]


def damaged_table(document, files):
    files["item_attributes_2.parquet"] = files["item_attributes_2.parquet"][:-9]


def other_mean(document, files):
    document["model"]["item_designs"][1]["columns"][1]["mean"] = 7.0


def no_sd(document, files):
    document["model"]["item_designs"][1]["columns"][1]["sd"] = 0.0


def other_values(document, files):
    document["model"]["item_designs"][1]["columns"][0]["values"] = ["A", "A", "C"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other_table, "the table of the attributes has other columns"),
        (lost_table, "the table of the attributes is not here"),
        (damaged_table, "does not fit its arrays"),
        (other_mean, "the table of the attributes is not what was saved"),
        (no_sd, "the attribute 'year' is described by impossible values"),
        (other_values, "the attribute 'genre' is described by impossible values"),
    ],
)
def test_a_forged_table_is_refused(fit, change, told, tmp_path):
    forge(fit, tmp_path / "model.zip", change)
    with pytest.raises(DataError, match=told):
        bayesmf.load_model(tmp_path / "model.zip")


def test_an_explanation_tells_what_attributes_add(fit):
    """By hand: X_jk (W_k0 + S_i'W_k), averaged over the draws."""
    user, item = 3, 70
    told = fit.explain(user, item, most=10)
    found = {(part["side"], part["attribute"]): part for part in told["attributes"]}
    assert set(found) == {("user", "age"), ("item", "genre"), ("item", "year")}
    draws = fit.posterior.draws
    z = draws["user.x"][:, user, :3].astype(float)
    z[:, 0] = 1.0
    W = draws["item.W_2"][:, GENRE[item]].astype(float)
    genre = found["item", "genre"]
    assert genre["value"] == "ABC"[GENRE[item]]
    assert genre["adds"] == pytest.approx(float((z * W).sum(axis=1).mean()), abs=1e-9)
    assert found["user", "age"]["value"] == pytest.approx(23)
    sizes = [abs(part["adds"]) for part in told["attributes"]]
    assert sizes == sorted(sizes, reverse=True)
    assert fit.explain(user, item, most=1)["attributes"] == told["attributes"][:1]


def test_a_newcomer_has_the_attributes_of_the_table(fit):
    """The table may have rows of users that are not in training."""
    users = Attributes.from_frame(pd.DataFrame({"user": range(62), "age": [*USERS.age, 90, 20]}))
    model = Model(2, user_designs=(users,), item_designs=())
    found = Gibbs(model, **SMALL).fit(TRAIN)
    new = Ratings.from_triplets(users=[60, 61, 62], items=[1, 1, 1], ratings=[1, 1, 1])
    rows = found.fold_in(new).posterior.draws["user.x"][:, 60:].mean(axis=0)
    assert not np.allclose(rows[0], rows[1], atol=1e-3)


def test_the_fit_says_who_has_no_row():
    with pytest.warns(AttributesWarning, match="^28 of 88 items have no row in the item attri"):
        # two have no ratings either
        bayesmf.fit(TRAIN, rank=1, item_attributes=MOVIES[:60], sweeps=1, chains=1)


def test_a_run_goes_on_only_with_the_same_table(tmp_path):
    sampler = Gibbs(replace(BOTH, rank=1), sweeps=4, chains=1, seed=1)
    whole = sampler.fit(TRAIN)
    half = replace(sampler, sweeps=4)
    half.fit(TRAIN, checkpoint=tmp_path / "run", callbacks=[lambda progress: progress.sweep == 2])
    other = replace(BOTH, rank=1, item_designs=(RatedSet(), Attributes.from_frame(MOVIES[::-1])))
    assert other == replace(BOTH, rank=1)  # the order of the rows means nothing
    changed = Attributes.from_frame(MOVIES.assign(year=MOVIES.year**2))
    with pytest.raises(DataError, match="a run with (model.item_designs=|another model.item_des)"):
        replace(half, model=replace(other, item_designs=(RatedSet(), changed))).fit(
            TRAIN, checkpoint=tmp_path / "run", resume=True
        )
    resumed = half.fit(TRAIN, checkpoint=tmp_path / "run", resume=True)
    assert resumed.predict(TEST).equals(whole.predict(TEST))


def test_scikit_learn_takes_attributes():
    from sklearn.base import clone

    from bayesmf.sklearn import MatrixFactorization

    X = np.column_stack([TRAIN.by_user.row_index, TRAIN.by_user.index])
    estimator = MatrixFactorization(1, item_attributes=ITEMS, user_attributes=USERS, sweeps=3)
    found = clone(estimator).fit(X, TRAIN.by_user.values).fit_
    assert found.posterior.model.item_designs == (RatedSet(0.5), ITEMS)
    assert found.posterior.model.user_designs[1] == BOTH.user_designs[1]
