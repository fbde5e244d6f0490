"""Users who stay with their ratings: the same draws, on Ray and in this process, whatever dies."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import bayesmf
from bayesmf import DataError, Gibbs
from bayesmf.data.io.shards import shard
from bayesmf.engines.ray import cluster as engine
from bayesmf.engines.ray.cluster import Ray
from bayesmf.engines.ray.resident import OnRay
from bayesmf.evaluation.diagnostics import SUMMARIES
from bayesmf.kernels.rows import OtherSide, draw_from_grams, pack_grams
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data
from bayesmf.model.state import Side, to_arrays
from bayesmf.random.draws import Draws
from bayesmf.random.philox import normals
from bayesmf.sweep import sweep
from bayesmf.sweep.rows import row_prior
from oracle import conditionals as readable
from oracle.resident import RESIDENT, ROBUST, TEST, TRAIN, InProcess, fitted, same, sparse
from oracle.variants import VARIANTS, random_state, small_ratings

pytest.importorskip("ray")


@pytest.mark.parametrize("name", RESIDENT)
def test_rows_from_grams_are_those_of_the_conditional(name):
    model, data = RESIDENT[name], Data.of(TRAIN, RESIDENT[name])
    state = random_state(model, data)
    user, item = state.user, state.item
    cells = (item.size + 1) * (item.size + 2) // 2
    grams, errors = np.empty((len(item.x), cells)), np.empty(len(item.x))
    known = OtherSide.of(user.x, user.alpha, POINTS)
    pack_grams(data.item.observed, known, item.size, state.width(), grams)
    counter, x = Draws(1).counter(), np.zeros_like(item.x)
    draw_from_grams(grams, state.tau * item.alpha, row_prior(model, data.item, item), counter, x,
                    errors)  # fmt: skip
    noise = np.empty((len(x), item.size))
    normals(counter, 0, noise)
    for j in range(len(x)):
        expected = readable.row(state, data.item, j, model).sample(noise[j])
        np.testing.assert_allclose(x[j, : item.size], expected, rtol=1e-9, atol=1e-11)
        e = [r - x[j, 0] - user.x[i, 0] - user.x[i, 1:] @ x[j, 1:]
             for i, r in readable.rated(data.item, j)]  # fmt: skip
        weights = [user.alpha[i] for i, _ in readable.rated(data.item, j)]
        np.testing.assert_allclose(errors[j], np.sum(np.array(weights) * np.square(e)), rtol=1e-8)


HEAVY = bayesmf.split(small_ratings(60, 40, seed=1, weighted=True), "random", seed=0).train


@pytest.mark.parametrize(
    ("name", "blocks", "train"),
    [*((name, blocks, TRAIN) for name in RESIDENT for blocks in (1, 5, 1000)),
     ("no side, robust", 5, HEAVY)],
)  # fmt: skip
def test_the_draws_are_those_of_the_ordinary_sweep(name, blocks, train, monkeypatch):
    """Two sweeps amplify rounding, some 1e-15 of sums of order 1, by a few powers of ten.

    Only the move of tau with the users' precisions, which needs all users in one place, is missing.
    """
    right = sweep.draw_tau
    monkeypatch.setattr(sweep, "draw_tau", lambda model, mine, *rest: (
        right(model, mine, *rest) if mine.name == "item" else None))  # fmt: skip
    one, other = (fitted(RESIDENT[name], where, train, sweeps=2, blocks=blocks, keep=1)
                  for where in (InProcess, "threads"))  # fmt: skip
    found, expected = to_arrays(one.states[0]), to_arrays(other.states[0])
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-8, atol=1e-10, err_msg=key)
    for key, trace in other.traces.items():
        rtol = 1e-8 if trace.dtype == float else 1e-6  # predictions are kept in single precision
        np.testing.assert_allclose(one.traces[key], trace, rtol=rtol, atol=1e-10, err_msg=key)
    found, expected = one.predictions, other.predictions
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.noise_variance, expected.noise_variance, rtol=1e-8)


@pytest.mark.parametrize("where", [InProcess, "threads"])
def test_a_prediction_is_of_its_user_and_item(where):
    fit = fitted(ROBUST, where, sweeps=1, keep=0)
    state, rows = fit.states[0], TEST.by_user
    user, item = rows.row_index, rows.index
    noise = 1 / (state.tau * state.user.alpha[user] * state.item.alpha[item])
    np.testing.assert_allclose(fit.predictions.noise_variance, noise, rtol=1e-12)
    x, y = state.user.x[user], state.item.x[item]
    mean = TRAIN.mean + x[:, 0] + y[:, 0] + (x[:, 1:] * y[:, 1:]).sum(1)
    np.testing.assert_allclose(fit.predictions.mean, mean, rtol=1e-12, atol=1e-12)


def test_the_posterior_is_the_same():
    """Independent chains: means of traces within 5 standard errors, by 20 batches each."""
    model = VARIANTS["no side, robust"]
    one, other = (fitted(model, where, sweeps=600, seed=seed, keep=0)
                  for where, seed in ((InProcess, 1), ("threads", 2)))  # fmt: skip
    traces = [{**fit.traces, "a prediction": fit.traces["predictions"][..., 30]}
              for fit in (one, other)]  # fmt: skip
    for name in (*SUMMARIES, "a prediction"):
        batches = np.array([trace[name][0, 100:].reshape(20, -1).mean(1) for trace in traces])
        error = np.sqrt((batches.var(1, ddof=1) / 20).sum())
        assert abs(np.diff(batches.mean(1))[0]) < 5 * error, name
    assert abs(one.test_rmse - other.test_rmse) < 0.01 * other.test_rmse


@pytest.mark.parametrize("name", RESIDENT)
def test_ray_has_the_bits_of_this_process(name, cluster):
    options = {"chains": 2} if name == "no side, robust" else {}
    same(fitted(RESIDENT[name], Ray, **options), fitted(RESIDENT[name], **options))


def test_shards_and_a_given_start(cluster, tmp_path):
    model = RESIDENT["no side, student-t"]
    shards = shard(TRAIN, tmp_path / "shards", blocks=5, rank=model.rank)
    one, other = (fitted(model, Ray, train, None) for train in (shards, TRAIN))
    for number, (a, b) in enumerate(zip(one.states, other.states, strict=True)):
        for name, values in to_arrays(a).items():
            np.testing.assert_array_equal(values, to_arrays(b)[name], err_msg=f"{number} {name}")
    start = one.states[0]
    before = {name: values.copy() for name, values in to_arrays(start).items()}
    same(fitted(model, Ray, start=start), fitted(model, start=start))
    for name, values in to_arrays(start).items():
        np.testing.assert_array_equal(values, before[name])


def test_a_run_that_was_stopped_goes_on_anywhere(cluster, tmp_path):
    model = RESIDENT["no side, robust"]
    whole = fitted(model, sweeps=8)
    for number, (first, then) in enumerate(((Ray, InProcess), (InProcess, Ray))):
        folder = tmp_path / str(number)
        cut = fitted(model, first, sweeps=8, checkpoint=folder, every=0,
                     callbacks=[lambda p: p.sweep == 5])  # fmt: skip
        assert cut.stopped
        assert type(cut.states[0].user) is Side
        with pytest.raises(DataError, match="users in other blocks"):
            fitted(model, blocks=3, sweeps=8, checkpoint=folder, resume=True)
        with pytest.raises(DataError, match="users in other blocks"):
            fitted(model, "threads", sweeps=8, checkpoint=folder, resume=True)
        same(fitted(model, then, sweeps=8, checkpoint=folder, resume=True), whole)


def test_a_worker_may_die_in_mid_sweep(cluster):
    ratings = sparse(12_000, each=10)
    whole = fitted(ROBUST, train=ratings, test=None, sweeps=20)
    killed = []

    def strike():
        for _ in range(400):
            listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True)
            for line in listed.stdout.splitlines():
                if "ray::resident step" in line:
                    killed.append(int(line.split()[0]))
                    os.kill(killed[-1], signal.SIGKILL)
                    return

    def kill(progress):
        if progress.sweep in (5, 12):
            threading.Thread(target=strike).start()

    same(fitted(ROBUST, Ray, ratings, None, sweeps=20, callbacks=[kill]), whole)
    assert len(killed) == 2


def moved(monkeypatch, users, sweeps):
    """Bytes that the driver put, sent with tasks and fetched, until each sweep."""
    import ray

    total, at = [0], []

    def size(value):
        return 0 if isinstance(value, ray.ObjectRef) else len(pickle.dumps(value))

    class Counting(OnRay):
        def put(self, value):
            total[0] += size(value)
            return super().put(value)

        def call(self, work, *values):
            total[0] += sum(map(size, values))
            return super().call(work, *values)

        def step(self, work, *values):
            total[0] += sum(map(size, values))
            return super().step(work, *values)

        def get(self, handles):
            found = super().get(handles)
            total[0] += size(found)
            return found

    monkeypatch.setattr(engine, "OnRay", Counting)
    fitted(ROBUST, Ray, sparse(users), None, sweeps=sweeps, blocks=4, keep=0,
           callbacks=[lambda p: at.append(total[0])])  # fmt: skip
    return np.diff(at[1:-1])  # the last sweep fetches all


def test_traffic_does_not_grow_with_users(cluster, monkeypatch):
    """Of 50 items: 15 sums and 9 numbers each, 8 bytes; of 256 users 9; the rest within 12 kB."""
    few, many = moved(monkeypatch, 6000, 6), moved(monkeypatch, 24_000, 6)
    assert few.max() < 50 * (15 + 9) * 8 + 256 * (9 + 1) * 8 + 12 * 1024
    assert many.max() <= 1.03 * few.min()


def test_the_object_store_does_not_fill(cluster):
    """What a sweep sends, 180 kB here, goes when the sweep is over: 40 sweeps, 7 MB if not.

    A block's rows take more than the 100 kB up to which Ray sends results to the driver at once.
    """
    used = []

    def look(progress):
        if progress.sweep in (5, 45):
            time.sleep(1.5)  # until Ray has counted
            all_of, free = cluster.cluster_resources(), cluster.available_resources()
            used.append(all_of["object_store_memory"] - free.get("object_store_memory", 0))

    fitted(ROBUST, Ray, sparse(4000, 2500), None, sweeps=46, blocks=2, keep=0, callbacks=[look])
    assert used[1] - used[0] < 2e6


@pytest.mark.parametrize("name", ["user side", "item side, truncated, student-t"])
def test_side_features_are_refused(name):
    with pytest.raises(DataError, match="Ray\\(resident=False\\)"):
        Gibbs(VARIANTS[name], engine=Ray(resident=True))
