from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayesmf import DataError, Ratings, kfold, load, load_split, save_split, split
from bayesmf.choices import Protocol
from bayesmf.data import split as splits


@pytest.fixture(scope="module")
def demo() -> Ratings:
    return load("demo")


@st.composite
def some_ratings(draw) -> Ratings:
    cells = st.tuples(st.integers(0, 12), st.integers(0, 8))
    pairs = draw(st.lists(cells, min_size=2, max_size=60, unique=True))
    ids = draw(st.sampled_from([int, lambda k: f"u{k}", lambda k: str(k)]))
    values = draw(st.lists(st.integers(1, 5), min_size=len(pairs), max_size=len(pairs)))
    return Ratings.from_triplets(
        users=[ids(p[0]) for p in pairs], items=[p[1] for p in pairs], ratings=values
    )


def pairs(ratings: Ratings) -> set[tuple]:
    rows = ratings.by_user
    return {
        (ratings.users[i], ratings.items[j], r)
        for i, j, r in zip(rows.row_index, rows.index, rows.values, strict=True)
    }


@given(some_ratings(), st.integers(0, 2**64 - 1))
def test_the_papers_protocol_covers_everyone(ratings, seed):
    kept = ratings.select(ratings.by_item.counts[ratings.by_user.index] >= 2).drop_unused()
    try:
        made = splits.paper(ratings, seed, min_item_ratings=2)
    except DataError as error:
        assert "no item has 2 ratings" in str(error) or "too few" in str(error)  # noqa: PT017
        return
    train, test = made
    assert (train.users, train.items) == (test.users, test.items) == (kept.users, kept.items)
    assert pairs(train) | pairs(test) == pairs(kept)
    assert len(train) + len(test) == len(kept)
    assert (train.by_user.counts > 0).all()
    assert (train.by_item.counts > 0).all()
    # 70 %, unless covering every user and item takes more than that
    assert len(train) == round(0.7 * len(kept)) or len(train) <= kept.n_users + kept.n_items
    assert len(train) >= round(0.7 * len(kept))


def test_the_papers_protocol_on_the_demo_data(demo):
    made = split(demo, "paper", seed=0)
    facts = made.describe()
    assert facts["train_share"] == pytest.approx(0.7, abs=1e-5)
    assert facts["test_users_not_in_train"] == facts["test_items_not_in_train"] == 0
    assert facts["options"]["min_item_ratings"] == 3
    again, other = split(demo, "paper", seed=0), split(demo, "paper", seed=1)
    assert made.train == again.train
    assert made.test == again.test
    assert made.train != other.train


def test_the_papers_split_never_changes(demo):
    # A published number must stay reproducible, so the split of a seed is fixed for good.
    assert split(demo, "paper", seed=0).train.fingerprint() == GOLDEN


GOLDEN = "5bc55132c9307734a9ac3cbc4268bb2695ac304674952b66b5298a0f9e47981e"


def test_beyond_the_cover_training_is_random(demo):
    """Of the ratings of frequent users and items 70 % are in training, and seeds are independent.

    A share over n ratings has standard error sqrt(0.7 0.3 / n); the bound is 5 of them.
    """
    busy = (demo.by_user.counts[demo.by_user.row_index] > 100) & (
        demo.by_item.counts[demo.by_user.index] > 100
    )
    one, two = (_in_training(demo, seed) for seed in (0, 1))
    n = busy.sum()
    assert abs(one[busy].mean() - 0.7) < 0.005
    both = (one & two)[busy].mean()
    assert abs(both - one[busy].mean() * two[busy].mean()) < 5 * np.sqrt(0.49 * 0.51 / n)


def _in_training(ratings: Ratings, seed: int) -> np.ndarray:
    train = split(ratings, "paper", seed=seed, min_item_ratings=1).train
    key = ratings.by_user.row_index.astype(np.int64) * ratings.n_items + ratings.by_user.index
    chosen = train.by_user.row_index.astype(np.int64) * ratings.n_items + train.by_user.index
    return np.isin(key, chosen)


def test_epinions_keeps_all_items_by_default():
    users, items = [1, 1, 2, 2, 3, 3, 4, 4, 4], [1, 2, 1, 2, 1, 2, 1, 2, 3]
    rare = Ratings.from_triplets(users=users, items=items, ratings=[1] * 9)
    assert splits.paper(rare).train.n_items == 2
    assert splits.paper(replace(rare, name="epinions")).train.n_items == 3


def test_random_and_kfold_take_each_rating_once(demo):
    made = split(demo, "random", seed=3, test_fraction=0.2)
    assert len(made.test) == round(0.2 * len(demo))
    assert pairs(made.train) | pairs(made.test) == pairs(demo)
    folds = splits.kfold(demo, seed=3, folds=4)
    assert sum(len(fold.test) for fold in folds) == len(demo)
    assert set.union(*(pairs(fold.test) for fold in folds)) == pairs(demo)
    for fold in folds:  # random, not every fourth: the items are as in all the ratings
        counts = fold.test.by_item.counts / len(fold.test)
        assert np.corrcoef(counts, demo.by_item.counts)[0, 1] > 0.9
        assert len(np.unique(np.diff(fold.test.by_user.index[:50]))) > 5
    assert pairs(folds[0].test) != pairs(splits.kfold(demo, seed=4, folds=4)[0].test)
    sizes = [len(fold.test) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


def test_cold_start_gives_a_few_ratings_of_each_held_out_user(demo):
    made = split(demo, "cold-start", seed=1, user_fraction=0.2, given=5)
    held = made.test.by_user.counts > 0
    able = (demo.by_user.counts > 5).sum()
    assert held.sum() == round(0.2 * able)
    assert (made.given.by_user.counts[held] == 5).all()
    assert (made.given.by_user.counts[~held] == 0).all()
    assert (made.train.by_user.counts[held] == 0).all()
    assert len(made.train) + len(made.given) + len(made.test) == len(demo)
    assert (made.train.by_user.counts[~held] == demo.by_user.counts[~held]).all()


def test_by_time_tests_on_the_latest():
    rng = np.random.default_rng(0)
    n = 500
    ratings = Ratings.from_triplets(
        users=np.arange(n) % 20,
        items=np.arange(n) // 20,
        ratings=np.ones(n),
        times=rng.integers(0, 10**9, n),
    )
    made = split(ratings, "time", test_fraction=0.2)
    assert made.train.by_user.times.max() <= made.test.by_user.times.min()
    assert len(made.test) == 100
    each = split(ratings, "time", test_fraction=0.2, per_user=True)
    assert (each.test.by_user.counts == 5).all()
    for user in range(20):
        early, late = (part.by_user.times[part.by_user.row_index == user] for part in each)
        assert early.max() <= late.min()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ratings=some_ratings(), ending=st.sampled_from([".csv", ".tsv", ".parquet", ".csv.gz"]))
def test_saved_and_loaded_back_equal(ratings, ending, tmp_path):
    made = splits.random(ratings, 5, 0.4)
    save_split(made, tmp_path / "split", ending, overwrite=True)
    back = load_split(tmp_path / "split")
    assert (back.train, back.test) == (made.train, made.test)
    assert (back.protocol, back.seed, back.options) == ("random", 5, {"test_fraction": 0.4})


def test_cold_start_and_folds_are_saved_too(demo, tmp_path):
    made = split(demo, "cold-start", seed=1)
    save_split(made, tmp_path / "cold")
    back = load_split(tmp_path / "cold")
    assert (back.train, back.given, back.test) == (made.train, made.given, made.test)
    folds = splits.kfold(demo, folds=2)
    save_split(folds, tmp_path / "folds")
    assert load_split(tmp_path / "folds" / "fold-2").test == folds[1].test


def test_twice_the_same_bytes(demo, tmp_path):
    def digest(name: str) -> list[str]:
        save_split(split(demo, "paper", seed=0), tmp_path / name)
        files = sorted((tmp_path / name).iterdir())
        return [f.name + hashlib.sha256(f.read_bytes()).hexdigest() for f in files]

    assert digest("one") == digest("two")


def test_an_existing_folder_is_left_alone_unless_told(demo, tmp_path):
    made = split(demo, "paper")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="exists already"):
        save_split(made, tmp_path / "out")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"
    with pytest.raises(DataError, match="holds other files, which overwrite=True does not delete"):
        save_split(made, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "out" / "thesis.tex").unlink()
    save_split(split(demo, "paper", seed=1), tmp_path / "out")
    save_split(made, tmp_path / "out", overwrite=True)
    assert load_split(tmp_path / "out").train == made.train
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == [
        "split.json",
        "test.csv",
        "train.csv",
    ]
    assert [f.name for f in tmp_path.iterdir()] == ["out"]
    (tmp_path / "file.csv").write_text("1,2,3")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for name in ("file.csv", "link"):
        with pytest.raises(DataError, match="exists and is not a folder"):
            save_split(made, tmp_path / name, overwrite=True)
    folds = splits.kfold(demo, folds=2)
    save_split(folds, tmp_path / "folds")
    save_split(folds, tmp_path / "folds", overwrite=True)


def test_a_changed_file_is_noticed(demo, tmp_path):
    save_split(split(demo, "paper"), tmp_path / "out")
    file = tmp_path / "out" / "test.csv"
    before = file.read_text()
    lines = before.splitlines()
    lines[1] = lines[1][:-1] + ("1" if lines[1][-1] != "1" else "2")
    file.write_text("\n".join(lines))
    with pytest.raises(DataError, match="test.csv: its ratings are not those that were saved"):
        load_split(tmp_path / "out")
    file.write_text(before)
    for part in ("train", "given"):
        cold = split(demo, "cold-start")
        save_split(cold, tmp_path / part)
        file = tmp_path / part / f"{part}.csv"
        file.write_text("\n".join(file.read_text().splitlines()[:-1]))
        with pytest.raises(DataError, match=f"{part}.csv: its ratings are not"):
            load_split(tmp_path / part)
    file.unlink()
    with pytest.raises(DataError, match="given.csv: not a file"):
        load_split(tmp_path / "given")
    facts = tmp_path / "out" / "split.json"
    facts.write_text(json.dumps({"protocol": "paper"}))
    with pytest.raises(DataError, match="not a split's description"):
        load_split(tmp_path / "out")
    with pytest.raises(DataError, match="no such file; give a folder written by"):
        load_split(tmp_path)


@pytest.mark.parametrize(
    ("protocol", "options", "match"),
    [
        ("paper", {"test_fraction": 1.5}, "test_fraction=1.5"),
        ("paper", {"min_item_ratings": 10**6}, "no item has 1000000 ratings"),
        ("paper", {"seed": -1}, "seed=-1"),
        ("random", {"test_fraction": 1e-9}, "one part would be empty"),
        ("cold-start", {"given": 0}, "given=0"),
        ("cold-start", {"given": 10**6}, "no way to hold out 0 of 1500 users"),
        ("time", {}, "needs times"),
        ("pepper", {}, "no protocol 'pepper'; there are paper, random, cold-start, time"),
    ],
)
def test_impossible_splits_say_why(demo, protocol, options, match):
    with pytest.raises(DataError, match=match):
        split(demo, protocol, **options)


def test_every_user_keeps_a_rating_when_cut_by_time():
    ratings = Ratings.from_triplets(
        users=[1, 2, 2, 2], items=[1, 1, 2, 3], ratings=[1, 2, 3, 4], times=[5, 6, 7, 8]
    )
    made = split(ratings, "time", test_fraction=0.9, per_user=True)
    assert made.train.by_user.counts.tolist() == [1, 1]


def test_means_between_the_steps_are_kept(tmp_path):
    ratings = Ratings.from_triplets(
        users=[1, 1, 2, 3],
        items=[1, 1, 1, 1],
        ratings=[3, 4, 5, 5],
        scale="1:5:1",
        duplicates="mean",
    )
    assert str(ratings.scale) == "1..5"
    made = splits.random(ratings, 0, 0.4)
    save_split(made, tmp_path / "s")
    assert load_split(tmp_path / "s").train == made.train


def test_impossible_folds_say_why(demo):
    with pytest.raises(DataError, match="1 folds of"):
        splits.kfold(demo, folds=1)


def test_what_the_papers_protocol_drops_is_counted(demo, tmp_path):
    """Items rated fewer than 3 times go, and with them users who rated nothing else."""
    common = [(user, item) for user in range(5) for item in range(4)]
    rare = [(0, 90), (1, 90), (7, 91), (8, 91), (8, 92)]
    users, items = zip(*common, *rare, strict=True)
    ratings = Ratings.from_triplets(users=users, items=items, ratings=[1] * 25)
    made = split(ratings)
    assert (made.dropped_ratings, made.dropped_items, made.dropped_users) == (5, 3, 2)
    assert len(made.train) + len(made.test) == 20
    facts = made.describe()
    assert [facts[f"dropped_{what}"] for what in ("ratings", "items", "users")] == [5, 3, 2]
    save_split(made, tmp_path / "split")
    assert load_split(tmp_path / "split").describe() == facts
    unused = ratings.select(ratings.by_user.index < 4)  # items without a rating are not dropped
    assert split(unused).describe()["dropped_items"] == 0
    assert split(unused).train == made.train
    for protocol in ("random", "cold-start"):
        assert split(demo, protocol).dropped_ratings == 0


def test_a_split_saved_before_drops_were_counted_is_read(demo, tmp_path):
    save_split(split(demo, "random"), tmp_path / "split")
    path = tmp_path / "split" / "split.json"
    facts = {k: v for k, v in json.loads(path.read_text()).items() if not k.startswith("dropped")}
    path.write_text(json.dumps(facts))
    assert load_split(tmp_path / "split").dropped_items == 0


def test_the_protocols_are_written_once(demo):
    assert tuple(splits.PROTOCOLS) == get_args(Protocol)
    with pytest.raises(DataError, match="no protocol 'kfold'; .* for folds call bayesmf.kfold$"):
        split(demo, "kfold")
    with pytest.raises(TypeError, match="'random' has no option 'folds'; it has test_fraction"):
        split(demo, "random", folds=3)
    assert kfold is splits.kfold
