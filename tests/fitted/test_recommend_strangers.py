"""Recommendations to users, and of items, that are known by their attributes alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import bayesmf
import bayesmf.fitted.store.scores as module
from bayesmf import Ratings
from bayesmf.cli.main import main
from bayesmf.data.pairs import Pairs
from bayesmf.fitted.recommend import CAUTION

EVEN, ODD, LATER, NOBODY = (
    100,
    101,
    102,
    999,
)  # users without a rating; nothing is known of the last
IDLE, NEW = 5, 70  # items without a rating: the model knows the id of the first
KINDS = np.array(["even", "odd"], object)


def table(ids):
    ids = np.asarray(ids)
    return pd.DataFrame({"id": ids, "kind": KINDS[ids % 2], "size": ids % 7})


def world():
    """Users and items are even or odd, and like those of their own kind."""
    rng = np.random.default_rng(4)
    user, item = np.nonzero(rng.random((60, 30)) < 0.4)
    values = 3 + (user % 2 == item % 2) + 0.5 * (item % 3) + 0.3 * rng.normal(size=len(user))
    everything = Ratings.from_triplets(users=user, items=item, ratings=values)
    return everything.select(everything.by_user.index != IDLE)


TRAIN = world()
ITEMS = TRAIN.items.values.tolist()


def fitted(inference="gibbs", **tables):
    tables = tables or {
        "user_attributes": table([*range(60), EVEN, ODD]),
        "item_attributes": table([*range(30), NEW]),
    }
    options = {"chains": 1} if inference == "gibbs" else {}
    return bayesmf.fit(TRAIN, rank=2, inference=inference, sweeps=20, **options, **tables)


@pytest.fixture(scope="module", params=["gibbs", "vi", "map", "items folded in"])
def fit(request):
    if request.param != "items folded in":
        return fitted(request.param)
    given = Ratings.from_triplets(users=[0, 1, 2, 8, 9], items=[44, 44, 44, 45, 45],
                                  ratings=[4, 3, 4, 3, 5])  # fmt: skip
    return fitted().fold_in(given, side="item")


def lists(fit, users, rank_by, **options):
    """The score of each item, by user."""
    found = fit.recommend(users, n=99, rank_by=rank_by, exclude_seen=False, **options).to_pylist()
    out = {user: {} for user in users}
    for row in found:
        out[row["user"]][row["item"]] = row["score"]
    return out


def draws_of(posterior, number):
    """One draw, as a posterior of its own."""
    one = {name: values[number : number + 1] for name, values in posterior.draws.items()}
    return replace(posterior, draws=one, centre=None)


# in one block, and in many; all draws of the items side by side, and where they lie
@pytest.mark.parametrize(("cells", "few"), [(module.CELLS, 0), (200, 0), (200, module.FEW)])
def test_scores_are_those_of_predictions_without_selection(fit, cells, few, monkeypatch):
    monkeypatch.setattr(module, "CELLS", cells)
    monkeypatch.setattr(module, "FEW", few)
    users, items = [EVEN, 3, ODD, NOBODY], [*fit.posterior.items.values.tolist(), NEW]
    known = fit.posterior.items.values.tolist()
    pairs = Pairs(*zip(*((user, item) for user in users for item in items), strict=True))
    plain = fit.posterior.without_selection()
    moments = plain.moments(plain.cells(pairs))
    for rank_by in ("mean", "lower"):
        expected = moments.mean - (rank_by == "lower") * CAUTION * np.sqrt(moments.doubt)
        expected = dict(zip(zip(pairs.user, pairs.item, strict=True), expected, strict=True))
        for named in (None, items):
            found = lists(fit, users, rank_by, items=named)
            for user in users:
                assert sorted(found[user]) == sorted(items if named else known)
                for item, score in found[user].items():
                    if user == 3 and item not in (IDLE, NEW) and rank_by == "lower":
                        continue  # elsewhere n - 1 makes a difference
                    # sums of single precision: an error of 1e-7 for each of about 100 terms
                    assert score == pytest.approx(expected[user, item], abs=1e-4)


@pytest.mark.parametrize("few", [0, module.FEW])
def test_a_draw_by_chance_is_a_draw_of_the_stranger(fit, few, monkeypatch):
    monkeypatch.setattr(module, "FEW", few)
    users = [EVEN, ODD, NOBODY]
    found = lists(fit, users, "thompson", items=[*ITEMS, NEW], seed=5)
    plain = fit.posterior.without_selection()
    each = [draws_of(plain, number) for number in range(len(plain))]
    for user in users:
        pairs = Pairs([user] * len(found[user]), list(found[user]))
        scores = list(found[user].values())
        assert len(scores) == len(ITEMS) + 1
        means = [one.moments(one.cells(pairs)).mean for one in each]
        assert any(np.allclose(scores, mean, atol=1e-4) for mean in means)


def test_attributes_decide_what_is_best(fit):
    """Even users like even items."""
    table = fit.recommend([EVEN, ODD], n=5, items=ITEMS).to_pydict()
    item = np.array(table["item"]).reshape(2, 5)
    assert (item[0] % 2 == 0).all()
    assert (item[1] % 2 == 1).all()


def test_strangers_of_whom_nothing_is_known_get_the_same_as_ever(fit):
    """Whoever is asked for beside them; and a value that training has not seen says nothing."""
    other = fit.with_attributes(user=pd.DataFrame({"id": [LATER], "kind": ["odder"], "size": None}))
    for rank_by in ("mean", "lower"):
        alone = lists(fit, [NOBODY], rank_by)[NOBODY]
        beside = lists(other, [EVEN, NOBODY, LATER], rank_by)
        assert beside[NOBODY] == pytest.approx(alone, abs=1e-6)
        assert beside[LATER] == beside[NOBODY]
        assert beside[EVEN] != beside[NOBODY]


def test_attributes_may_come_later_and_be_loaded(fit, tmp_path):
    frame = table([EVEN]).assign(id=[LATER])
    more = fit.with_attributes(user=frame, item=table([NEW]).assign(id=[80]))
    for rank_by in ("mean", "lower", "thompson"):
        mine, theirs = (lists(more, [who], rank_by)[who] for who in (LATER, EVEN))
        assert mine == theirs
    found = lists(more, [EVEN], "mean", items=[NEW, 80, 81])[EVEN]
    assert set(found) == {NEW, 80}
    assert found[NEW] == found[80]
    more.save(tmp_path / "model")
    again = bayesmf.load_model(tmp_path / "model")
    assert again.recommend([LATER, 4]).equals(more.recommend([LATER, 4]))


def test_new_items_that_were_seen_are_left_out(fit):
    seen = [(EVEN, NEW), (EVEN, 4), (3, NEW), (NOBODY, 12345)]
    table = fit.recommend([EVEN, ODD, 3], n=99, seen=seen, items=[NEW, 4, 8]).to_pylist()
    pairs = sorted((row["user"], row["item"]) for row in table)
    assert pairs == sorted([(EVEN, 8), (3, 4), (3, 8), (ODD, 4), (ODD, 8), (ODD, NEW)])


def test_ids_that_are_text():
    triplets = TRAIN.to_arrow().to_pydict()
    train = Ratings.from_triplets(users=[f"u{u}" for u in triplets["user"]],
                                  items=[f"i{i}" for i in triplets["item"]],
                                  ratings=triplets["rating"])  # fmt: skip
    names = [f"u{u}" for u in (*range(60), EVEN, ODD)]
    frame = table([*range(60), EVEN, ODD]).assign(id=names)
    fit = bayesmf.fit(train, rank=1, sweeps=6, chains=1, user_attributes=frame,
                      item_attributes=table([*range(30), NEW]).assign(
                          id=[f"i{i}" for i in (*range(30), NEW)]))  # fmt: skip
    table_of = fit.recommend([f"u{EVEN}", f"u{ODD}", "u3"], n=99, items=["i70", "i4", "x"])
    found = {(row["user"], row["item"]): row["score"] for row in table_of.to_pylist()}
    assert {item for _, item in found} == {"i4", "i70"}
    assert found["u100", "i4"] != found["u101", "i4"]


def test_on_the_command_line(tmp_path):
    fit = fitted(user_attributes=table(range(60)))
    fit.save(tmp_path / "model")
    table([EVEN, ODD]).to_csv(tmp_path / "new.csv", index=False)

    def run(*words):
        words = ["recommend", tmp_path / "model", "-n", 99, "--json", *words]
        ran = CliRunner().invoke(main, [str(word) for word in words])
        assert ran.exit_code == 0, ran.output
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        return {(row["user"], row["item"]): row["score"] for row in rows}, ran.stderr

    users = ["--user", EVEN, "--user", ODD, "--user", NOBODY]
    found, told = run(*users, "--user-attributes", tmp_path / "new.csv")
    more = fit.with_attributes(user=table([EVEN, ODD]))
    expected = lists(more, [EVEN, ODD, NOBODY], "mean")
    assert found == pytest.approx(
        {(user, item): score for user in expected for item, score in expected[user].items()}
    )
    assert told == (
        "user 100 was not in training, and gets what users with such attributes like\n"
        "user 101 was not in training, and gets what users with such attributes like\n"
        "user 999 was not in training, and gets what most users like\n"
    )
    without, told = run(*users)
    assert without[EVEN, 4] == without[NOBODY, 4]
    assert told.count("gets what most users like") == 3
