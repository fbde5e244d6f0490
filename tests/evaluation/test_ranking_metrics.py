"""Scores of ranked lists: against a readable twin, against ranx's values, and through a fit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings
from bayesmf.cli.main import main
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.ranking import AVERAGED, cover, find_hits, rank_scores, score_lists

STORED = json.loads(Path(__file__).with_name("ranking_ranx.json").read_text())


def naive(items, liked, n):
    """The definitions, item by item."""
    items = items[:n]
    gains = [1.0 if item in liked else 0.0 for item in items]
    dcg = sum(gain / math.log2(k + 2) for k, gain in enumerate(gains))
    ideal = sum(1 / math.log2(k + 2) for k in range(min(n, len(liked))))
    first = next((k + 1 for k, gain in enumerate(gains) if gain), None)
    return {
        "ndcg": dcg / ideal,
        "recall": sum(gains) / len(liked),
        "precision": sum(gains) / n,
        "mrr": 0.0 if first is None else 1 / first,
        "hit_rate": float(first is not None),
    }


def arrays(lists, relevant, n):
    padded = np.array([(each[:n] + [-1] * n)[:n] for each in lists], np.int32)
    owner = np.repeat(np.arange(len(relevant)), [len(each) for each in relevant])
    return padded, owner, np.concatenate([np.array(each) for each in relevant])


@pytest.mark.parametrize("n", STORED["n"])
def test_scores_are_those_of_ranx_and_of_the_readable_twin(n):
    lists, owner, item = arrays(STORED["lists"], STORED["relevant"], n)
    found = score_lists(find_hits(lists, owner, item), np.bincount(owner))
    twin = [naive(*each, n) for each in zip(STORED["lists"], STORED["relevant"], strict=True)]
    for name in AVERAGED:
        assert found[name] == pytest.approx(STORED["ranx"]["scores"][str(n)][name], abs=1e-12)
        assert found[name] == pytest.approx([each[name] for each in twin], abs=1e-12)
        assert 0 < found[name].mean() < 1


def test_an_item_of_another_user_is_no_hit():
    """Codes of (user, item) must not meet those of a neighbour, and -1 must not be an item."""
    lists = np.array([[4, -1], [0, 3]], np.int32)
    assert not find_hits(lists, np.array([1, 0]), np.array([4, 0])).any()
    assert find_hits(lists, np.array([0, 1]), np.array([4, 3])).tolist() == [
        [True, False],
        [False, True],
    ]
    # an item beyond all lists, as one that a fit does not know, is a miss of its own user alone
    assert not find_hits(lists, np.array([0]), np.array([7])).any()


def test_coverage_and_novelty_by_hand():
    lists = np.array([[0, 1], [0, -1]], np.int32)
    raters = np.array([4, 1, 0, 2])
    owner, item = np.array([0, 1]), np.array([1, 2])
    found = rank_scores(lists, owner, item, raters, 4, FrequencyBins((3,), np.array([2, 9])))
    assert cover(lists, 4) == found["coverage"] == 0.5
    assert found["novelty"] == pytest.approx((0 + 2 + 0) / 3)  # -log2 of 1, 1/4 and 1
    few, many = found["by_user_frequency"]
    assert (few["user_ratings"], few["users"], few["hit_rate"]) == ("<=3", 1, 1.0)
    assert (many["coverage"], many["novelty"], many["recall"]) == (0.25, 0.0, 0.0)


@pytest.fixture(scope="module")
def parts(tiny_ratings):
    return tuple(bayesmf.split(bayesmf.load(tiny_ratings), "paper", seed=0))


@pytest.fixture(scope="module")
def fit(parts):
    return Gibbs(Model(2), sweeps=8, chains=1, threads=1).fit(*parts)


def test_a_fit_is_judged_by_the_lists_that_it_recommends(fit, parts):
    train, test = parts
    found = fit.evaluate_ranking(test, 7)
    assert found["relevant_from"] == 4.0
    rated = {(u, i) for u, i in zip(train.by_user.row_index, train.by_user.index, strict=True)}
    rows = test.by_user
    liked: dict[int, list[int]] = {}
    for user, item, value in zip(rows.row_index, rows.index, rows.values, strict=True):
        if value >= 4:
            liked.setdefault(int(user), []).append(int(item))
    table = fit.recommend(test.users.values[sorted(liked)], 7, seen=train).to_pylist()
    lists: dict[int, list[int]] = {}
    for row in table:
        user, item = int(fit.posterior.row_of("user", [row["user"]])[0]), row["item"]
        lists.setdefault(user, []).append(int(fit.posterior.row_of("item", [item])[0]))
    assert not any((u, i) in rated for u, items in lists.items() for i in items)
    twin = {user: naive(lists[user], liked[user], 7) for user in liked}
    assert found["users"] == len(twin)
    for name in AVERAGED:
        assert found[name] == pytest.approx(np.mean([one[name] for one in twin.values()]))
    assert found["coverage"] == len({i for each in lists.values() for i in each}) / train.n_items
    totals = train.by_user.counts + test.by_user.counts
    rows_of = found["by_user_frequency"]
    assert [row["user_ratings"] for row in rows_of] == [
        row["user_ratings"] for row in fit.evaluate(test)["by_user_frequency"]
    ]
    last = int(rows_of[-1]["user_ratings"].rstrip("+"))
    mine = [one["ndcg"] for user, one in twin.items() if totals[user] >= last]
    assert rows_of[-1]["ndcg"] == pytest.approx(np.mean(mine))
    assert sum(row["users"] for row in rows_of) == len(twin)


def test_what_was_in_training_is_not_asked_for_again(fit, parts):
    train, test = parts
    both = test.put(train)  # the training ratings among the test ratings
    assert len(both) > len(test)
    told = ("ndcg", "recall", "mrr", "users")
    found, again = fit.evaluate_ranking(test, 5), fit.evaluate_ranking(both, 5, bins=())
    assert [found[name] for name in told] == [again[name] for name in told]


def test_an_item_that_the_fit_does_not_know_is_missed(fit, parts):
    user = parts[1].users.values[0]
    one = Ratings.from_triplets(users=[user], items=["a new one"], ratings=[5])
    found = fit.evaluate_ranking(one, 3)
    assert (found["users"], found["recall"], found["ndcg"]) == (1, 0.0, 0.0)


def test_mistakes_are_told(fit, parts):
    with pytest.raises(DataError, match="no test rating is 6 or more.*choose a lower relevant="):
        fit.evaluate_ranking(parts[1], relevant=6)
    with pytest.raises(DataError, match="n=0: choose 1 or more"):
        fit.evaluate_ranking(parts[1], 0)


def test_the_command_says_what_is_wrong(tiny_fit, tiny_ratings):
    words = ["evaluate", str(tiny_fit), str(tiny_ratings), "--top", "5", "--relevant", "3"]
    wrong = CliRunner().invoke(main, words)  # all of these were in training
    assert wrong.exit_code == 2
    assert "of 3 or more were in training" in wrong.output
    alone = CliRunner().invoke(main, [*words[:3], "--relevant", "3"])
    assert alone.exit_code == 2
    assert "--top" in alone.output


def test_the_command_scores_lists(fit, parts, tmp_path):
    fit.save(tmp_path / "fit")
    bayesmf.write(parts[1], tmp_path / "test.csv")
    words = ["evaluate", str(tmp_path / "fit"), str(tmp_path / "test.csv"), "--top", "7"]
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["ranking"]
    assert found["ndcg"] == pytest.approx(fit.evaluate_ranking(parts[1], 7)["ndcg"], abs=1e-12)
    people = CliRunner().invoke(main, words, env={"COLUMNS": "120"}).output
    assert "lists of 7 items; relevant are ratings of 4 or more" in people
    assert f"{found['recall']:.4f}" in people
