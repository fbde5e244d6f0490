"""Chains that take turns until they have converged: when they end, what is dropped and kept."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings
from bayesmf.cli.fit_run import describe_progress
from bayesmf.cli.main import main
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES, Targets, endless_error
from bayesmf.fitted.store.kept import Kept
from bayesmf.inference import chains, convergence
from bayesmf.inference.convergence import Check, check, choose_evenly, is_check, step_between
from bayesmf.inference.engine import Threads
from bayesmf.inference.loop import Progress
from bayesmf.inference.target import watch_pairs
from bayesmf.model.data import Data
from bayesmf.model.state import random_start, start_sd, to_arrays
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.checkpoints import TEST, TRAIN, Stop, content
from oracle.variants import BASE, VARIANTS, small_ratings
from toys.weekday import DAY, Weekday

TARGETS, EASY = Targets(), Targets(r_hat=1.6, ess=10, share=0.5)
NEVER = Targets(ess=1e9)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Checks begin after 12 sweeps; and nothing here has to survive a power failure."""
    monkeypatch.setattr(convergence, "FIRST", 12)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def sampler(name: str = "no side", **others) -> Gibbs:
    given = {"until": "converged", "sweeps": 30, "chains": 2, "keep": 3, "seed": 3,
             "targets": EASY, **others}  # fmt: skip
    return Gibbs(VARIANTS[name], **given)


class BadStart(Threads):
    """The noise precision of the first sweeps is far off."""

    def __init__(self, sweeps: int) -> None:
        self.sweeps = sweeps

    def sweep(self, model, data, state, draws, form):
        super().sweep(model, data, state, draws, form)
        if state.sweep <= self.sweeps:
            state.tau *= 100.0


def with_times(ratings):
    rows, times = ratings.by_user, DAY * np.arange(len(ratings))
    return Ratings.from_sorted(ratings.users, ratings.items, rows.row_index, rows.index,
                               rows.values, times, ratings.scale)  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [
        VARIANTS["no side"],
        VARIANTS["both sides, joint bias, robust, student-t"],
        Model(rank=2, effects=(Weekday(),)),  # whose working response all chains share
    ],
)
def test_chains_in_turn_are_those_that_run_alone(model):
    train = with_times(TRAIN)
    fit = Gibbs(model, sweeps=5, burn_in=1, chains=3, seed=8).fit(train)
    model = model.settle(train)
    data = Data.of(train, model)
    for chain, found in enumerate(fit.states):
        alone, taus = random_start(model, data, 8, chain, start_sd(chain)), []
        for sweep in range(1, 6):
            gibbs_sweep(model, data, alone, Draws(8, chain, sweep), "centred")
            taus.append(alone.tau)
        for key, values in to_arrays(alone).items():
            np.testing.assert_array_equal(to_arrays(found)[key], values, err_msg=key)
        assert fit.traces["noise precision"][chain].tolist() == taus


def test_the_traces_are_what_they_say():
    model = VARIANTS["both sides, joint bias, robust, student-t"]
    fit = Gibbs(model, sweeps=3, burn_in=1, chains=2).fit(TRAIN)
    assert list(fit.traces) == [*SUMMARIES, PREDICTIONS]
    pairs = watch_pairs(TRAIN.by_user.counts, TRAIN.by_item.counts)
    for chain, state in enumerate(fit.states):
        rows = TRAIN.by_user
        logs = np.log(state.user.alpha)[rows.row_index] + np.log(state.item.alpha)[rows.index]
        x, y = state.user.x[pairs.user], state.item.x[pairs.item]
        f = TRAIN.mean + x[:, 0] + y[:, 0] + (x[:, 1:] * y[:, 1:]).sum(axis=1)
        expected = [state.tau, np.log(state.tau) + logs.mean(), f.var()]
        found = [fit.traces[name][chain, -1] for name in SUMMARIES]
        assert found == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(fit.traces[PREDICTIONS][chain, -1], f, rtol=1e-6)


def test_watched_pairs_are_of_rare_and_frequent_users():
    ratings = bayesmf.load("demo")
    users, items = ratings.by_user.counts, ratings.by_item.counts
    pairs = watch_pairs(users, items)
    assert len(pairs.user) == len(set(pairs.user.tolist())) == 256
    quantiles = (np.arange(256) + 0.5) / 256
    expected = np.quantile(users[users > 0], quantiles, method="inverted_cdf")
    np.testing.assert_array_equal(users[pairs.user], expected)
    # items in proportion to their ratings: the mean count of the item of a rating, within 2 %
    assert items[pairs.item].mean() == pytest.approx((items**2).sum() / items.sum(), rel=0.02)
    ranks = [np.argsort(np.argsort(side)) for side in (users[pairs.user], items[pairs.item])]
    assert abs(np.corrcoef(ranks)[0, 1]) < 0.1
    few = watch_pairs(np.array([0, 2, 1, 0]), np.array([0, 3, 0]))
    assert few.user.tolist() == [2, 1]
    assert few.item.tolist() == [1, 1]
    assert len(watch_pairs(np.array([0, 500]), np.ones(500, np.int64)).user) == 256


def test_checks_are_further_and_further_apart(monkeypatch):
    monkeypatch.setattr(convergence, "FIRST", 40)
    at = [sweep for sweep in range(1, 2001) if is_check(sweep)]
    assert at[:4] == [40, 46, 53, 61]
    assert len(at) == 26


def test_draws_are_kept_without_knowing_how_many_sweeps_there_will_be():
    for keep in (1, 3, 10):
        kept = []
        for sweep in range(1, 200):
            step = step_between(sweep, keep)
            kept = [k for k in [*kept, sweep] if k % step == 0]
            assert len(kept) <= 2 * keep
            assert len(kept) >= min(keep, sweep)
            assert set(np.diff(kept).tolist()) <= {step}
    assert choose_evenly(range(1, 11), 3) == [3, 6, 10]
    assert choose_evenly([4, 8], 3) == [4, 8]


def autoregression(shape, phi=0.2, seed=0):
    noise = np.random.default_rng(seed).normal(size=shape)
    out = noise.copy()
    for t in range(1, shape[1]):
        out[:, t] = phi * out[:, t - 1] + noise[:, t]
    return out


def test_a_check_looks_at_the_summaries_first():
    summaries, pairs = autoregression((4, 400, 3)), autoregression((4, 400, 20), seed=1)

    def look(some, predictions=pairs, targets=TARGETS):
        traces = {name: some[..., k] for k, name in enumerate(SUMMARIES)}
        return check({**traces, PREDICTIONS: predictions.astype(np.float32)}, targets)

    good = look(summaries)
    assert good.reached
    assert good.share == 1.0
    assert good.sweep == 400
    far = summaries.copy()
    far[:, :60, 1] += np.linspace(20, 5, 60)  # a bad start of one of them
    found = look(far)
    assert 50 <= found.warm_up <= 90
    assert found.reached
    found = look(summaries + np.arange(4)[:, None, None] * [0, 0, 0.5])
    assert not found.reached
    assert found.r_hat > 1.05
    assert found.share is None
    pairs[:, :, :2] += np.arange(4)[:, None, None]  # 10 % of the predictions have not arrived
    found = look(summaries)
    assert (found.share, found.reached) == (0.9, False)
    assert look(summaries, targets=Targets(share=0.9)).reached
    still = look(np.ones((4, 40, 3)), pairs[:, :40])
    assert (still.ess, still.reached) == (0.0, False)


def test_targets_that_are_reached_end_the_run():
    one = sampler().fit(TRAIN, TEST)
    assert one.stopped == "the targets were reached"
    rounds = one.sweeps // 2
    assert one.sweeps < 60
    assert is_check(rounds)
    assert content(one) == content(sampler().fit(TRAIN, TEST))
    assert one.burn_in <= rounds // 2
    alone = sampler().fit(TRAIN)  # what is tested on does not matter
    assert alone.sweeps == one.sweeps
    longer = sampler(targets=NEVER).fit(TRAIN, TEST)
    assert (longer.sweeps, longer.stopped) == (60, "the targets were not reached")
    first = longer.traces["noise precision"][:, :rounds]
    np.testing.assert_array_equal(first, one.traces["noise precision"])


def test_a_run_that_did_not_converge_goes_on_with_more_sweeps(tmp_path):
    short = sampler(targets=NEVER, sweeps=15).fit(TRAIN, TEST, checkpoint=tmp_path)
    assert short.stopped == "the targets were not reached"
    longer = sampler(targets=NEVER, sweeps=25)
    found = longer.fit(TRAIN, TEST, checkpoint=tmp_path, resume=True)
    assert content(found) == content(longer.fit(TRAIN, TEST))


@pytest.mark.parametrize("name", ["no side", "both sides, joint bias, robust, student-t"])
def test_kept_draws_are_from_after_the_warm_up(name, tmp_path):
    gibbs = sampler(name, targets=NEVER, engine=BadStart(8))
    memory, disk = gibbs.fit(TRAIN), gibbs.fit(TRAIN, keep_in=tmp_path / "draws")
    assert 8 <= memory.burn_in <= 15
    for chain in (0, 1):
        sweeps = [sweep for number, sweep in memory.draws.keys if number == chain]
        assert sweeps[-1] == 30
        assert sweeps[0] > memory.burn_in
        assert len(sweeps) == 3
        assert max(np.diff(sweeps)) <= 2 * min(np.diff(sweeps))
    again = Kept.open(tmp_path / "draws")
    assert memory.draws.keys == disk.draws.keys == again.keys
    assert [state.sweep for state in map(again.__getitem__, range(6))] == [s for _, s in again.keys]
    for key, values in memory.draws.arrays.items():
        assert len(values) == 6
        np.testing.assert_array_equal(values, disk.draws.arrays[key])
        np.testing.assert_array_equal(values, again.arrays[key])
    last = to_arrays(memory.states[1])
    for key, values in memory.draws.take((1, 30)).items():
        np.testing.assert_array_equal(values, last[key].astype(np.float32))


def test_averages_begin_again_after_the_warm_up(monkeypatch):
    """Where it ends later than they began; one state predicts as the next, so count them."""
    fit = sampler(targets=NEVER, engine=BadStart(8)).fit(TRAIN, TEST)
    begun = 30 - fit.predictions.counts[0]
    assert begun >= fit.burn_in >= 8
    assert is_check(begun)
    assert fit.predictions.counts.tolist() == [30 - begun] * 2
    assert fit.predictions.count == 2 * (30 - begun)
    found = endless_error(fit.predictions.means, np.asarray(TEST.by_user.values, float))
    assert fit.endless_rmse == found[0]
    assert fit.endless_rmse_error is None  # it takes three chains
    np.testing.assert_allclose(fit.predictions.means.mean(axis=0), fit.predictions.mean)
    # targets that are reached have to wait until half of the sweeps since the warm-up are averaged
    here = Check(12, 6, 1.0, 999.0, 1.0, True)
    monkeypatch.setattr(
        chains, "check", lambda traces, _: here._replace(sweep=traces[PREDICTIONS].shape[1])
    )
    fit = sampler().fit(TRAIN, TEST)
    assert (fit.sweeps, fit.burn_in, fit.stopped) == (36, 6, "the targets were reached")
    assert fit.predictions.count == 12


def test_an_early_end_finds_the_warm_up_of_what_there_is():
    fit = sampler(targets=NEVER, engine=BadStart(5)).fit(TRAIN, TEST, callbacks=[Stop(21, "ask")])
    assert fit.traces["noise precision"].shape == (2, 10)
    assert fit.burn_in <= 2  # of 10 sweeps, 8 are the fewest that can be measured
    assert fit.draws.keys[-1] == (1, 10)
    assert (0, 11) in fit.draws.keys
    fit = sampler(targets=NEVER, engine=BadStart(6)).fit(TRAIN, TEST, callbacks=[Stop(44, "ask")])
    assert 6 <= fit.burn_in <= 11
    assert min(sweep for _, sweep in fit.draws.keys) > fit.burn_in


FEW = {"targets": NEVER, "chains": 3, "keep": 2, "sweeps": 20}
MANY = "both sides, joint bias, robust, student-t"
ALSO = [pytest.param(*each, marks=pytest.mark.slow)
        for each in (("no side", {}), (MANY, {}), (MANY, FEW))]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), [("no side", FEW), *ALSO])
def test_killed_at_any_sweep_it_goes_on_to_the_same_bits(name, options, tmp_path):
    gibbs = sampler(name, engine=BadStart(5), **options)
    whole = gibbs.fit(TRAIN, TEST)
    for at in (1, 2, 7, 23, 24, 25, 30, whole.sweeps - 1):
        given = {"checkpoint": tmp_path / str(at), "every": 0}
        with pytest.raises(RuntimeError):
            gibbs.fit(TRAIN, TEST, callbacks=[Stop(at, "fail")], **given)
        rest = Stop(-1, "ask")
        found = gibbs.fit(TRAIN, TEST, resume=True, callbacks=[rest], **given)
        assert len(rest.seen) == whole.sweeps - at + 1
        assert content(found) == content(whole)
    seen = Stop(-1, "ask")
    again = gibbs.fit(TRAIN, TEST, resume=True, callbacks=[seen], **given)
    assert seen.seen == []
    assert content(again) == content(whole)
    files = sorted(path.name for path in (tmp_path / "1").glob("draw-*"))
    assert len(files) <= gibbs.chains * 2 * gibbs.keep  # those that were dropped are gone


def test_patience_ends_a_run_that_has_not_converged(tmp_path):
    gibbs = sampler(targets=NEVER, sweeps=60)
    given = {"validation": small_ratings(30, 20).select(np.arange(0, 300, 7)), "patience": 4}
    whole = gibbs.fit(TRAIN, **given)
    assert whole.stopped == "the validation error has stopped falling"
    assert 12 < whole.sweeps // 2 == len(whole.validation_by_sweep) < 60
    for calls in range(2):
        options = {"checkpoint": tmp_path, "every": 0, "resume": calls > 0}
        stop = [Stop(27, "ask")] if calls == 0 else []
        found = gibbs.fit(TRAIN, **given, **options, callbacks=stop)
    assert content(found) == content(whole)


def test_how_long_a_run_is_to_be():
    assert (Gibbs().until, Gibbs().chains, Gibbs().sweeps) == ("converged", 4, 2000)
    assert Gibbs().burn_in is None
    assert (Gibbs(sweeps=400).until, Gibbs(sweeps=400).chains) == ("sweeps", 4)
    assert (Gibbs(burn_in=5).until, Gibbs(burn_in=5).sweeps) == ("sweeps", 400)
    assert (Gibbs(chains=1).until, Gibbs(chains=1).sweeps) == ("sweeps", 400)
    assert Gibbs(until="converged", sweeps=90).sweeps == 90
    assert Gibbs(until="sweeps").sweeps == 400
    assert replace(Gibbs(), seed=1).until == "converged"
    assert replace(Gibbs(sweeps=9), seed=1).until == "sweeps"
    fit = bayesmf.fit(TRAIN, BASE, sweeps=3, chains=2)
    assert (fit.sweeps, len(fit.states)) == (6, 2)
    fit = bayesmf.fit(TRAIN, BASE, sweeps=3, chains=2, until="converged")
    assert (fit.sweeps, fit.stopped) == (6, "the targets were not reached")
    with pytest.raises(DataError, match="chains is for inference='gibbs', not 'map'"):
        bayesmf.fit(TRAIN, BASE, inference="map", chains=2)


@pytest.mark.parametrize(("wrong", "told"), [
    ({"until": "converged", "chains": 1}, "choose chains=2 or more, or until='sweeps'"),
    ({"until": "converged", "burn_in": 9}, "burn_in=9 is for until='sweeps'"),
    ({"until": "bored"}, "until='bored': choose one of converged, sweeps"),
    ({"until": "converged", "sweeps": 5, "keep": 6}, "keep=6: choose 0 to 5"),
])  # fmt: skip
def test_settings_that_are_refused(wrong, told):
    with pytest.raises(DataError, match=told):
        Gibbs(BASE, **wrong)


@pytest.mark.parametrize(("wrong", "told"), [
    ({"r_hat": 1.0}, "r_hat=1.0: choose a finite number above 1"),
    ({"share": 1.5}, "share=1.5: choose a number above 0, up to 1"),
    ({"ess": 0}, "ess=0: choose a finite number above 0"),
])  # fmt: skip
def test_targets_that_are_refused(wrong, told):
    with pytest.raises(DataError, match=told):
        Targets(**wrong)


def test_targets_of_another_type():
    with pytest.raises(TypeError, match="targets is of type float; give Targets"):
        Gibbs(targets=1.01)


@pytest.mark.parametrize(("words", "told"), [
    (["--until", "converged", "--chains", "1"], "choose --chains 2 or more, or --until sweeps"),
    (["--until", "converged", "--burn-in", "9"], "--burn-in 9 is for --until sweeps"),
    (["--until", "sweeps", "--r-hat", "1.1"], "--r-hat is for --until converged"),
    (["--chains", "1", "--ess", "50"], "choose --chains 2 or more, or --until sweeps"),
    (["--inference", "vi", "--until", "sweeps"], "--until is for --inference gibbs"),
])  # fmt: skip
def test_commands_that_are_refused(words, told):
    done = CliRunner().invoke(main, ["fit", "demo", *words])
    assert done.exit_code == 2
    assert told in done.output


def test_progress_shows_the_targets_being_approached():
    at = Progress(1, 4, 340, 2000, 9.0, None, targets=Targets(1.01, 400))
    assert describe_progress(at) == "sweep 340 of at most 2000"
    at = replace(at, check=Check(318, 40, 1.0244, 310.2, None, False))
    told = "sweep 340 of at most 2000 · R-hat 1.024 (1.01) · effective draws 310 (400)"
    assert describe_progress(at) == told
    at = replace(at, check=Check(318, 40, 1.0044, 510.2, 0.9, False))
    assert describe_progress(at).endswith("· effective draws 510 (400) · predictions 90% (95%)")
    assert describe_progress(Progress(0, 4, 7, 9, 9.0, None)) == "7/9 sweeps of 4 chains"
    assert describe_progress(Progress(0, 1, 7, 9, 9.0, None)) == "7/9 sweeps"
    seen = []
    sampler().fit(TRAIN, callbacks=[seen.append])
    assert [progress.check is not None for progress in seen[20:24]] == [False] * 3 + [True]
    assert {progress.targets for progress in seen} == {EASY}
    assert [progress.chain for progress in seen] == [0, 1] * (len(seen) // 2)


def test_memory_for_draws_counts_all_that_are_held():
    train = small_ratings(30, 20)
    assert Gibbs(Model(rank=2)).draws_kept(train) == 25
    assert Gibbs(Model(rank=2)).room_for(25) == 51
    assert Gibbs(Model(rank=2), sweeps=400).draws_kept(train) == 25
    assert Gibbs(Model(rank=2), sweeps=400).room_for(25) == 25
    assert Gibbs(Model(rank=2)).room_for(0) == 0
