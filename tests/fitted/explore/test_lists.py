"""Lists of items: which items may be in them, how different they are, and their intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bayesmf import DataError, Model
from bayesmf.data.pairs import Pairs
from bayesmf.fitted.explore import lists as module
from bayesmf.fitted.explore.lists import choose_apart
from oracle.explored import ATTRIBUTES, ITEMS, USERS, correlations, fitted, marginal_relevance

IDS = [f"i{k}" for k in range(ITEMS)]
NEW = "brand new"  # an item of which the attributes are all that is known


@pytest.fixture(scope="module")
def fit():
    more = pd.DataFrame({"item": [NEW], "genres": [["War"]], "year": [2001.0], "country": ["it"]})
    return fitted(item_attributes=pd.concat([ATTRIBUTES, more]), sweeps=12)


def allowed(fit, **options):
    """All items that a list may hold."""
    return set(fit.recommend("u1", 99, exclude_seen=False, **options)["item"].to_pylist())


WHERE = {
    "genres=Drama": lambda k: k % 3 < 2 and k < ITEMS - 1,
    "genres == War": lambda k: k % 3 == 1 and k < ITEMS - 1,
    "genres!=Drama": lambda k: k % 3 == 2 and k < ITEMS - 1,  # the last has none that is known
    "country = fr": lambda k: k % 2 == 1,
    "Country!=fr": lambda k: k % 2 == 0,
    "year>=1990": lambda k: 10 <= k < ITEMS - 1,
    "year > 1990": lambda k: 10 < k < ITEMS - 1,
    "year<=1982.5": lambda k: k < 3,
    "year<1981": lambda k: k < 1,
    "year=1990": lambda k: k == 10,
    "year!=1990": lambda k: k not in (10, ITEMS - 1),
}


@pytest.mark.parametrize("condition", WHERE)
def test_items_with_such_attributes(fit, condition):
    expected = {one for k, one in enumerate(IDS) if WHERE[condition](k)}
    assert allowed(fit, where=condition) == expected
    both = {one for k, one in enumerate(IDS) if WHERE[condition](k) and k % 2}
    assert allowed(fit, where=[condition, "country=fr"]) == both


def test_items_that_are_named_or_left_out(fit):
    some = ["i1", "i4", NEW, "unheard"]
    assert allowed(fit, items=some) == {"i1", "i4", NEW}
    assert allowed(fit, items=some, where="genres=War") == {"i1", "i4", NEW}
    assert allowed(fit, items=some, where="year>2000", exclude=["i1", "none"]) == {NEW}
    assert allowed(fit, exclude=IDS[2:]) == {"i0", "i1"}
    frame = pd.DataFrame({"film": IDS[:3], "title": "t"})
    assert allowed(fit, items=frame, exclude=frame["film"].head(1)) == {"i1", "i2"}
    assert len(fit.recommend("u1", items=["unheard"])) == 0
    assert len(fit.recommend("u1", exclude=IDS)) == 0
    similar = fit.similar(item="i0", n=99, where="country=it")["item"].to_pylist()
    assert set(similar) == set(IDS[2::2])


@pytest.mark.parametrize("condition", ["=Drama", "genres=", "", "year>=nan"])
def test_conditions_that_are_none_get_a_sentence(fit, condition):
    with pytest.raises(DataError, match="is no condition|is none"):
        fit.recommend("u1", where=condition)


def test_there_have_to_be_attributes():
    bare = fitted(sweeps=4)
    with pytest.raises(DataError, match="the model has none; fit one with item_attributes=TABLE"):
        bare.recommend("u1", where="genres=Drama")


@pytest.mark.parametrize("options", [{}, {"rank_by": "lower"}, {"rank_by": "thompson"}])
@pytest.mark.parametrize("diversity", [0.3, 1.0])
def test_a_list_of_different_items(fit, options, diversity, monkeypatch):
    """Against a loop over all that is left, and correlations of whole tables."""
    monkeypatch.setattr(module, "POOL", 2)
    monkeypatch.setattr(module, "LEAST_POOL", 1)
    similarity = correlations(fit.posterior, "item").mean(axis=0)
    for user in ("u1", "u5"):
        pool = fit.recommend(user, 8, **options).to_pydict()
        rows = fit.posterior.row_of("item", pool["item"])
        among = similarity[np.ix_(rows, rows)]
        expected = marginal_relevance(pool["score"], among, 4, diversity)
        found = fit.recommend(["u2", user], 4, diversify=diversity, **options).to_pydict()
        mine = [k for k, one in enumerate(found["user"]) if one == user]
        if options.get("rank_by") == "thompson":  # whose draw depends on the place in the list
            continue
        assert [found["item"][k] for k in mine] == [pool["item"][k] for k in expected]
        np.testing.assert_allclose(
            [found["score"][k] for k in mine], [pool["score"][k] for k in expected], rtol=1e-6
        )
        assert [found["rank"][k] for k in mine] == [1, 2, 3, 4]


def test_the_choice_of_different_items_against_its_twin():
    rng = np.random.default_rng(2)
    for count in (1, 2, 9):
        z = rng.normal(size=(count, 3))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        scores = np.append(rng.normal(size=count - 1), 7.0).astype(np.float32)
        for diversity in (0.0, 0.2, 0.9, 1.0):
            if count > 1:
                expected = marginal_relevance(scores.astype(float), z @ z.T, 5, diversity)
                assert choose_apart(scores, z @ z.T, 5, diversity) == expected
    assert choose_apart(np.ones(3, np.float32), np.eye(3, dtype=np.float32), 2, 0.5) == [0, 1]
    assert choose_apart(np.empty(0, np.float32), np.empty((0, 0), np.float32), 2, 0.5) == []


def test_without_diversity_nothing_changes_and_with_it_items_are_less_alike(fit):
    assert fit.recommend(n=5, diversify=0).equals(fit.recommend(n=5))
    similarity = correlations(fit.posterior, "item").mean(axis=0)

    def alike(table):
        rows = fit.posterior.row_of("item", table["item"])
        return np.mean([similarity[i, j] for i in rows for j in rows if i < j])

    plain, apart = (fit.recommend("u3", 5, diversify=d) for d in (0.0, 0.8))
    assert plain["item"][0] == apart["item"][0]
    assert alike(apart) < alike(plain) - 0.1


def test_a_new_item_can_be_in_a_list_of_different_ones(fit):
    found = fit.recommend("u1", 3, items=["i1", "i2", NEW], exclude_seen=False, diversify=0.7)
    assert set(found["item"].to_pylist()) == {"i1", "i2", NEW}


MODELS = {
    "gaussian": {},
    "ordinal": {"model": Model(2, likelihood="ordinal")},
    "time": {"model": Model(2, time="chain")},
    "vi": {"inference": "vi", "sweeps": 4},
}


@pytest.mark.filterwarnings("ignore::bayesmf.UnusedWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("at", [None, 86_400 * 300])
def test_intervals_are_those_of_predictions(name, at):
    fit = fitted(**{"sweeps": 8, **MODELS[name]})
    best = fit.recommend(["u1", "u7"], 4, at=at)
    pairs = list(zip(best["user"].to_pylist(), best["item"].to_pylist(), strict=True))
    table = fit.predict(pairs, at=at)
    for column in ("q05", "q95"):
        np.testing.assert_allclose(best[column], table[column], rtol=1e-6)
    np.testing.assert_allclose(best["score"], table["mean"], rtol=1e-4)
    assert np.all(best["q05"].to_numpy() <= best["q95"].to_numpy())


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_intervals_of_strangers_with_attributes(likelihood):
    """What is known of them is taken along; they have not chosen to rate the item."""
    ids = [*(f"u{k}" for k in range(USERS)), "new"]
    users = pd.DataFrame({"user": ids, "kind": np.arange(USERS + 1) % 2})
    tables = {"item_attributes": ATTRIBUTES, "user_attributes": users}
    fit = fitted(model=Model(2, likelihood=likelihood), sweeps=8, **tables)
    best = fit.recommend(["new", "nobody", "u1"], 3)
    silent = fit.posterior.without_selection()
    for k, row in enumerate(best.to_pylist()):
        found = silent.predictive(silent.cells(Pairs([row["user"]], [row["item"]])))
        assert row["q05"] == pytest.approx(found.quantile(0.05)[0], rel=1e-5), k
        assert row["score"] == pytest.approx(found.mean[0], rel=1e-4)
    assert len(best) == 9


def test_bad_lists_get_a_sentence(fit):
    for diversity in (-0.1, 1.5, float("nan")):
        with pytest.raises(DataError, match="diversify="):
            fit.recommend("u1", diversify=diversity)
    with pytest.raises(TypeError, match="diversify='x': give a number"):
        fit.recommend("u1", diversify="x")
    with pytest.raises(DataError, match="is no list of items; give one id, a list of ids"):
        fit.recommend("u1", exclude=[["i1"]])
    with pytest.raises(DataError, match="the item ids are text here but integers"):
        fit.recommend("u1", exclude=[1])
