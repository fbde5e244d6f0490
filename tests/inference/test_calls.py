"""How algorithms are called: wrong calls fail at once, burn-in follows sweeps, one test error."""

from __future__ import annotations

import signal

import numpy as np
import pandas as pd
import pytest

from bayesmf import MAP, DataError, Gibbs, Model, Propagation, Variational, load_model
from bayesmf.data.io.shards import shard
from bayesmf.data.split import carve
from bayesmf.inference.map import fit as maximum
from bayesmf.inference.variational import fit as variational
from oracle.variants import BASE, VARIANTS, small_ratings

ALGORITHMS = [Gibbs, Variational, MAP, Propagation]
FAST = {
    "gibbs": Gibbs(VARIANTS["both sides, joint bias, robust, student-t"], sweeps=12, chains=2),
    "gibbs, few kept": Gibbs(VARIANTS["user design"], sweeps=12, keep=2, chains=1),
    "vi": Variational(VARIANTS["both sides, joint bias"], sweeps=6),
    "vi, robust": Variational(VARIANTS["no side, robust"], sweeps=6),
    "map": MAP(VARIANTS["user side"], sweeps=6),
    "map, momentum": MAP(VARIANTS["no side"], method="momentum", penalty=5.0, sweeps=6),
    "propagation": Propagation(BASE, grid=(2, 2), sweeps=8),
    "propagation, exact": Propagation(BASE, grid=(1, 1), sweeps=8),
}
ALL = small_ratings(60, 40, seed=1)
ROWS = ALL.by_user
HELD = (np.arange(len(ALL)) % 4 == 0) | (ROWS.row_index == 3) | (ROWS.index == 5)
TRAIN, TEST = ALL.select(~HELD), ALL.select(HELD)  # the test ratings are of strangers, too


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_a_table_is_not_ratings(kind):
    table = pd.DataFrame({"user": [1, 2], "item": [1, 1], "rating": [3.0, 4.0]})
    told = (
        r"train is of type DataFrame; give Ratings, such as Ratings\.from_frame\(table\), or fit a "
    )
    with pytest.raises(TypeError, match=told + r"table with bayesmf\.fit\(table\)"):
        kind().fit(table)
    with pytest.raises(TypeError, match="test is of type DataFrame; give Ratings"):
        kind().fit(TRAIN, table)
    with pytest.raises(TypeError, match="train is of type str"):
        kind().fit("ratings.csv")


@pytest.mark.parametrize("kind", [Variational, MAP, Propagation])
def test_shards_are_for_sampling(kind, tmp_path):
    shards = shard(TRAIN, tmp_path / "shards", blocks=2)
    with pytest.raises(DataError, match=r"shards holds shards; fit them with Gibbs.*engine='ray'"):
        kind(BASE).fit(shards)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_a_number_is_no_model(kind):
    with pytest.raises(
        TypeError, match=rf"model is of type int; give a Model, such as {kind.__name__}"
    ):
        kind(20)
    with pytest.raises(TypeError, match="positional argument"):
        kind(Model.paper("no-side"), 20)


def test_burn_in_follows_sweeps():
    assert Gibbs(sweeps=12, chains=1).burn_in == 6
    assert Gibbs(sweeps=1, chains=1).burn_in == 0
    assert [Gibbs(sweeps=n, chains=1).burn_in for n in (39, 40, 41, 400)] == [19, 20, 20, 20]
    assert Gibbs(chains=1).burn_in == 20
    assert Gibbs(sweeps=12, burn_in=11, chains=1).burn_in == 11
    assert Gibbs(sweeps=400, burn_in=0, chains=1).burn_in == 0
    assert [Propagation(sweeps=n).burn_in for n in (3, 12, 99, 100, 400)] == [1, 6, 49, 50, 50]
    assert Propagation(sweeps=12, burn_in=3).burn_in == 3
    fit = Gibbs(BASE, sweeps=12, chains=1).fit(TRAIN, TEST)
    assert fit.burn_in == 6
    assert fit.predictions.count == 6


@pytest.mark.parametrize("name", FAST)
def test_there_is_one_test_error(name, tmp_path):
    """That of the fit, of evaluate and of predict, to the last bit, also after it was saved."""
    assert TRAIN.by_user.counts[3] == TRAIN.by_item.counts[5] == 0
    fit = FAST[name].fit(TRAIN, TEST)
    fit.save(tmp_path / "fit")
    back = load_model(tmp_path / "fit")
    for one in (fit, back):
        found = one.predict(TEST)["mean"].to_numpy()
        error = float(np.sqrt(np.mean((found - np.asarray(TEST.values, float)) ** 2)))
        assert one.test_rmse == one.evaluate(TEST)["rmse"] == error
    assert back.test_rmse == fit.test_rmse
    assert FAST[name].fit(TRAIN).test_rmse is None


@pytest.mark.filterwarnings("ignore::bayesmf.OverfittingWarning")
@pytest.mark.parametrize("name", FAST)
def test_what_was_held_out_counts_as_seen(name, tmp_path):
    train, judge = carve(TRAIN, 0.2)
    parts, options = [train, TEST], {}
    if not name.startswith("propagation"):
        parts, options = [train, TEST, judge], {"validation": judge}
    fit = FAST[name].fit(train, TEST, **options)
    fit.save(tmp_path / "fit")
    rated = {pair for part in parts for pair in pairs(part)}
    for one in (fit, load_model(tmp_path / "fit")):
        table = one.recommend(n=train.n_items)
        found = set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
        assert not found & rated
        assert len(found) + len(rated) == train.n_users * train.n_items  # and nothing else is
    alone = FAST[name].fit(train).recommend(n=train.n_items)
    assert len(alone) == train.n_users * train.n_items - len(train)


def pairs(ratings):
    rows = ratings.by_user
    users, items = ratings.users.values[rows.row_index], ratings.items.values[rows.index]
    return zip(users.tolist(), items.tolist(), strict=True)


# The loop that all of them share

RUNS = {
    "gibbs": ("bayesmf.inference.engine.gibbs_sweep", Gibbs(BASE, sweeps=5, keep=0, chains=1), {}),
    "vi": (f"{variational.__name__}.sweep", Variational(BASE, sweeps=5), {"start": "random"}),
    "map": (f"{maximum.__name__}.coordinate_sweep", MAP(BASE, penalty=5.0, sweeps=5),
            {"validation": TEST, "patience": 9}),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_callbacks_see_every_update_the_last_one_too(name):
    _, algorithm, options = RUNS[name]
    seen = []
    fit = algorithm.fit(TRAIN, TEST, callbacks=[seen.append], **options)
    assert [progress.sweep for progress in seen] == [1, 2, 3, 4, 5]
    assert {progress.sweeps for progress in seen} == {5}
    assert (fit.sweeps, fit.stopped) == (5, "")
    curve = fit.rmse_by_sweep if name == "gibbs" else fit.trace["test rmse"]
    assert [progress.rmse for progress in seen] == curve
    last = algorithm.fit(TRAIN, TEST, callbacks=[lambda p: p.sweep == 5], **options)
    assert (last.sweeps, last.stopped) == (5, "a callback ended it")


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("name", RUNS)
def test_ctrl_c_waits_for_the_end_of_an_update(name, monkeypatch):
    """Whichever it is: the fit is that of a run which was asked to end there."""
    where, algorithm, options = RUNS[name]
    expected = algorithm.fit(TRAIN, TEST, callbacks=[lambda p: p.sweep == 3], **options)
    module, _, function = where.rpartition(".")
    right, calls = getattr(__import__(module, fromlist=[function]), function), []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)  # in the middle of an update
        return right(*given)

    monkeypatch.setattr(where, interrupted)
    fit = algorithm.fit(TRAIN, TEST, **options)
    assert (fit.sweeps, fit.stopped) == (3, "interrupted")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    one, other = (f.states[0] if name == "gibbs" else f.state for f in (fit, expected))
    np.testing.assert_array_equal(one.user.x, other.user.x)
    np.testing.assert_array_equal(one.item.x, other.item.x)
    assert fit.test_rmse == expected.test_rmse
