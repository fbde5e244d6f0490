"""Explanations of newcomers, of users drawn again, of strangers with attributes, and at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_recommend_strangers import EVEN, IDLE, LATER, NEW, NOBODY, TRAIN, fitted, table

from bayesmf import DataError, Gibbs, Model, Ratings
from bayesmf.fitted.base import SavedFit
from bayesmf.model.attributes import Attributes, with_attributes
from toys.weekday import Weekday

DAY = 86_400
PAPER = Model(rank=2, user_designs=(), item_designs=(), redraw=False)


def means_of(told):
    """The means of the parts."""
    return {name: part["mean"] for name, part in told["parts"].items()}


def adds_up(fit, user, item, **at):
    """The explanation of a pair, whose parts add up to its prediction."""
    told = fit.explain(user, item, most=99, **at)
    predicted = fit.predict([(user, item)], **at)["mean"][0].as_py()
    assert told["prediction"] == pytest.approx(predicted, rel=1e-5)
    assert sum(means_of(told).values()) == pytest.approx(predicted, rel=1e-5)
    return told


def sampled(model=PAPER, **tables):
    tables = {side: Attributes.from_frame(given) for side, given in tables.items()}
    return Gibbs(with_attributes(model, **tables), sweeps=15, chains=1, seed=2).fit(TRAIN)


def expected(fit, side, one, other_row, W):
    """What attributes of one id add, by hand: X_k (W_k0 + W_k'z), averaged over the draws."""
    draws = fit.posterior.draws
    other = "item" if side == "user" else "user"
    z = draws[f"{other}.x"][:, other_row].astype(float)
    z[:, 0] = 1.0
    design = next(d for d in fit.posterior.model.designs(side) if isinstance(d, Attributes))
    row = design.encode(table([one])).toarray()[0]
    return {
        column.name: row[k] * (W[:, k] * z).sum(axis=1).mean()
        for k, (column, _) in enumerate(design.labels())
        if row[k]
    }


def told_adds(told, side):
    return {p["attribute"]: p["adds"] for p in told["attributes"] if p["side"] == side}


@pytest.mark.parametrize("redraw", [False, True])
def test_the_weights_are_those_that_made_the_row(redraw):
    """W of the model in rows of its chain, the weights of newcomers where these were taken."""
    fit = sampled(replace(PAPER, redraw=redraw), user=table(range(63)))
    new = Ratings.from_triplets(users=[62] * 3, items=[1, 3, 4], ratings=[1, 5, 2])
    more = fit.fold_in(new)
    draws, items = more.posterior.draws, more.posterior.items
    j = int(items.index([7])[0])
    for user, key in ((4, "user.new_W" if redraw else "user.W"), (62, "user.new_W")):
        told = adds_up(more, user, 7)
        right = expected(more, "user", user, j, draws[key].astype(float))
        assert told_adds(told, "user") == pytest.approx(right, rel=1e-4)
        assert told["parts"]["designs"]["mean"] == pytest.approx(sum(right.values()), rel=1e-4)
        wrong = draws["user.W" if key == "user.new_W" else "user.new_W"].astype(float)
        assert told_adds(told, "user") != pytest.approx(
            expected(more, "user", user, j, wrong), rel=1e-2
        )


def test_new_items_have_weights_of_their_own():
    fit = sampled(item=table(range(31)))
    new = Ratings.from_triplets(users=[1, 2, 3], items=[30] * 3, ratings=[1, 5, 2])
    more = fit.fold_in(new, "item")
    for item, key in ((30, "item.new_W"), (3, "item.W")):
        told = adds_up(more, 1, item)
        right = expected(more, "item", item, 1, more.posterior.draws[key].astype(float))
        assert told_adds(told, "item") == pytest.approx(right, rel=1e-4)


def test_the_weights_are_known_without_the_ratings(tmp_path):
    """What was rated is not at hand, but the prior of newcomers does not ask for it."""
    fit = sampled(replace(PAPER, redraw=True), user=table(range(60)))
    fit.save(tmp_path / "bare", without_ratings=True)
    from bayesmf import load_model

    bare = load_model(tmp_path / "bare")
    told = adds_up(bare, 4, 7)
    assert means_of(told) == pytest.approx(means_of(fit.explain(4, 7)), rel=1e-4)
    assert "ratings" not in told


@pytest.mark.parametrize("inference", ["gibbs", "vi", "map"])
def test_strangers_with_attributes_are_explained(inference):
    fit = fitted(inference)
    for user, item in ((EVEN, 3), (EVEN, NEW), (4, NEW), (4, IDLE)):
        told = adds_up(fit, user, item)
        sides = {part["side"] for part in told["attributes"]}
        assert sides == {"user", "item"}
        assert ("ratings" in told) == (user == 4)
        if user == EVEN:
            mine = sum(told_adds(told, "user").values())
            assert told["parts"]["designs"]["mean"] == pytest.approx(mine, rel=1e-4)
    for user, item in ((NOBODY, 3), (4, 999), (NOBODY, NEW)):
        with pytest.raises(DataError, match="was not in training; fold it in"):
            fit.explain(user, item)
    bare = SavedFit(replace(fit.posterior.complete(), train=None))
    assert means_of(bare.explain(EVEN, NEW)) == pytest.approx(means_of(fit.explain(EVEN, NEW)))


def test_attributes_may_be_told_later():
    fit = fitted()
    with pytest.raises(DataError, match="the user 102 was not in training; fold it in"):
        fit.explain(LATER, 3)
    told = adds_up(fit.with_attributes(user=table([LATER])), LATER, 3)
    assert {"kind", "size"} == set(told_adds(told, "user"))


def timed_ratings():
    """Users with moods that hold for a day."""
    rng = np.random.default_rng(0)
    log = pd.DataFrame({"user": rng.integers(0, 30, 700), "item": rng.integers(0, 40, 700)})
    log["time"] = rng.integers(0, 6, 700) * DAY + rng.integers(0, 3600, 700)
    mood = rng.normal(size=(30, 6))[log["user"], log["time"] // DAY]
    log["rating"] = 3 + mood + 0.3 * rng.normal(size=700)
    return Ratings.from_frame(log, duplicates="last")


TIMED = timed_ratings()


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_the_mood_is_a_part_of_its_own(likelihood):
    ratings = TIMED
    if likelihood == "ordinal":
        frame = TIMED.to_arrow().to_pandas()
        frame["rating"] = np.clip(np.rint(frame["rating"]), 1, 5)
        ratings = Ratings.from_frame(frame)
    model = Model(rank=1, time="chain", likelihood=likelihood)
    fit = Gibbs(model, sweeps=20, chains=1, seed=0).fit(ratings)
    plain, moods = fit.explain(4, 5), []
    for at in (1800, 2 * DAY + 60, "1970-01-05"):
        told = fit.explain(4, 5, at=at)
        predicted = fit.predict([(4, 5)], at=at)["mean"][0].as_py()
        assert told.get("expected", told["prediction"]) == pytest.approx(predicted, rel=1e-5)
        parts = means_of(told)
        assert sum(parts.values()) == pytest.approx(told["prediction"], rel=1e-5)
        moods.append(parts.pop("mood"))
        assert parts == pytest.approx(means_of(plain))
    assert np.ptp(moods) > 0.05
    assert "mood" not in plain["parts"]
    predicted = fit.predict([(4, 5)])["mean"][0].as_py()
    assert plain.get("expected", plain["prediction"]) == pytest.approx(predicted, rel=1e-5)
    with pytest.raises(DataError, match="at='never' is no time"):
        fit.explain(4, 5, at="never")


def test_without_a_chain_a_time_changes_nothing():
    fit = sampled()
    assert fit.explain(4, 6, at="now") == fit.explain(4, 6)
    with pytest.raises(DataError, match="at='never' is no time"):
        fit.explain(4, 6, at="never")


def test_an_effect_of_ones_own_is_called_by_its_name():
    fit = Gibbs(Model(rank=1, effects=(Weekday(),)), sweeps=8, chains=1).fit(TIMED)
    assert adds_up(fit, 4, 5, at=2 * DAY)["parts"]["weekday"]["mean"] != 0
    assert "weekday" not in adds_up(fit, 4, 5)["parts"]


def test_a_stranger_has_no_mood():
    model = with_attributes(Model(rank=1, time="chain"), user=table(range(31)))
    fit = Gibbs(model, sweeps=8, chains=1).fit(TIMED)
    told = adds_up(fit, 30, 5, at=DAY)
    assert told["parts"]["mood"] == {"mean": 0.0, "sd": 0.0}
