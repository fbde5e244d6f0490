"""The same sampler on Ray: the bits of the threads, whoever does the work and whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import bayesmf
from bayesmf import DataError, Gibbs, Model, Propagation, Ratings, write
from bayesmf.cli.main import main
from bayesmf.data.io.shards import Shards, part, shard, spans
from bayesmf.data.scale import Scale
from bayesmf.engines.ray.cluster import Ray
from bayesmf.engines.ray.crew import alternate
from bayesmf.model.designs import Matrix, RatedSet
from bayesmf.model.ordinal import Binary, Ordinal
from bayesmf.model.state import to_arrays
from oracle.variants import VARIANTS, small_ratings

ray = pytest.importorskip("ray")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
TRAIN = small_ratings(60, 40, seed=1)
ROWS = TRAIN.by_user
TRAIN = Ratings.from_sorted(TRAIN.users, TRAIN.items, ROWS.row_index, ROWS.index, ROWS.values,
                            np.arange(len(TRAIN)) * 50, TRAIN.scale)  # fmt: skip
ON_RAY = {name: model for name, model in VARIANTS.items() if model.own_features}
ON_RAY["default"] = Model(rank=2)
ON_RAY["time chain"] = Model(rank=2, time="chain")


def same(one, other):
    for a, b in zip(one.states, other.states, strict=True):
        found, expected = to_arrays(a), to_arrays(b)
        assert found.keys() == expected.keys()
        for name in found:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def fitted(model, engine="threads", train=TRAIN, test=None, sweeps=4, **options):
    sampler = Gibbs(model, sweeps=sweeps, burn_in=2, seed=5, engine=engine, chains=1)
    return sampler.fit(train, test, **options)


SOON = {"default", "time chain", "two designs"}
"""Models that are always tried."""


@pytest.mark.parametrize(
    "name", [n if n in SOON else pytest.param(n, marks=pytest.mark.slow) for n in ON_RAY]
)
def test_every_model_has_the_bits_of_the_threads(name, cluster):
    same(fitted(ON_RAY[name], Ray(blocks=5)), fitted(ON_RAY[name]))


@pytest.mark.parametrize("name", ["two designs", "time chain"])
def test_rows_with_few_ratings_have_the_bits_of_the_threads(name, cluster):
    """Their scales are moved, which takes sums over the ratings, or over the working response."""
    train = TRAIN.select(np.arange(0, len(TRAIN), 15))
    assert len(train) < 3 * min(train.n_users, train.n_items)
    same(fitted(ON_RAY[name], Ray(blocks=5), train), fitted(ON_RAY[name], train=train))


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [Ordinal(), Ordinal(cuts="global"), Binary()], ids=repr)
def test_latent_ratings_have_the_bits_of_the_threads(likelihood, cluster):
    """With a chain in time, so that the working response has more than one part."""
    levels = 2 if isinstance(likelihood, Binary) else 5
    values = np.digitize(ROWS.values, np.quantile(ROWS.values, np.arange(1, levels) / levels))
    train = Ratings.from_sorted(TRAIN.users, TRAIN.items, ROWS.row_index, ROWS.index, values,
                                TRAIN.by_user.times, Scale(0, levels - 1, 1))  # fmt: skip
    model = Model(rank=2, likelihood=likelihood, time="chain")
    same(fitted(model, Ray(blocks=5), train), fitted(model, train=train))


@pytest.mark.parametrize("name", ["both sides, joint bias, robust, student-t", "two designs"])
@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.slow), 7,
                                    pytest.param(1000, marks=pytest.mark.slow)])  # fmt: skip
def test_the_blocks_do_not_matter(blocks, name, cluster):
    same(fitted(VARIANTS[name], Ray(blocks=blocks)), fitted(VARIANTS[name]))


class Ages:
    """A design given by a sparse matrix: empty rows, an empty column, values of both signs."""

    name = "ages"

    def matrix(self, side):
        rng = np.random.default_rng(len(side.ids))
        v = sparse.random_array((len(side.ids), 25), density=0.2, rng=rng, format="lil")
        v[:, 7], v[3:4] = 0.0, 0.0  # there may be fewer rows
        return Matrix.from_sparse(v - 0.4 * (v > 0.5))


@pytest.mark.slow
def test_any_sparse_matrix_is_a_design_on_ray(cluster):
    """On both sides, wide enough for two strips of W, in blocks of a few rows."""
    model = Model(rank=9, user_designs=(Ages(), RatedSet(0.5)), item_designs=(Ages(),))
    one, other = fitted(model, Ray(blocks=9)), fitted(model)
    same(one, other)
    assert other.states[0].user.shifts[0].W.shape == (25, 10)
    assert (other.states[0].user.shifts[0].offset[3] == 0).all()
    assert np.ptp(other.states[0].item.shifts[0].offset) > 0


def test_predictions_traces_and_draws_are_the_same(cluster):
    train, test = bayesmf.split(TRAIN, "random", seed=0)
    model = VARIANTS["user side, robust"]
    one, other = (fitted(model, engine, train, test) for engine in ("threads", "ray"))
    assert one.test_rmse == other.test_rmse
    assert one.predict(test).equals(other.predict(test))
    assert one.recommend().equals(other.recommend())
    for name, trace in one.traces.items():
        np.testing.assert_array_equal(trace, other.traces[name])


def test_propagated_blocks_have_the_bits_of_the_threads(cluster):
    ratings = small_ratings(60, 50, seed=3)
    one, other = (
        Propagation(Model.paper("no-side", rank=2), grid=(2, 2), sweeps=6, burn_in=2, keep=3,
                    engine=engine).fit(ratings).posterior.draws
        for engine in ("threads", "ray")
    )  # fmt: skip
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


def test_ratings_with_weights_and_their_shards_have_the_bits_of_the_threads(cluster, tmp_path):
    train = small_ratings(60, 40, seed=1, weighted=True)
    model = VARIANTS["both sides, joint bias, robust, student-t"]
    shards, right = shard(train, tmp_path / "shards", blocks=3), fitted(model, train=train)
    same(fitted(model, Ray(blocks=5), train), right)
    same(fitted(model, "ray", shards), right)


@pytest.mark.parametrize("name", [
    pytest.param("both sides, joint bias, robust, student-t", marks=pytest.mark.slow),
    "two designs",
])  # fmt: skip
def test_shards_have_the_bits_of_the_ratings(name, cluster, tmp_path):
    shards = shard(TRAIN, tmp_path / "shards", blocks=3)
    model = VARIANTS[name]
    one, other = fitted(model, "ray", shards), fitted(model)
    same(one, other)
    pairs = [(u, i) for u in TRAIN.users.values[:3] for i in TRAIN.items.values[:3]]
    assert one.predict(pairs).equals(other.predict(pairs))
    assert one.posterior.train is None
    with pytest.raises(DataError, match="engine='ray'"):
        fitted(model, "threads", shards)
    with pytest.raises(DataError, match="start='map'"):
        fitted(model, "ray", shards, start="map")


def test_a_run_stopped_on_ray_goes_on_anywhere(cluster, tmp_path):
    model = VARIANTS["user side, robust"]
    whole = fitted(model, sweeps=8)
    for number, engines in enumerate((("ray", "threads"), ("threads", Ray(blocks=3)))):
        folder = tmp_path / str(number)
        first = fitted(model, engines[0], sweeps=8, checkpoint=folder,
                       callbacks=[lambda p: p.sweep == 3])  # fmt: skip
        assert first.stopped
        same(fitted(model, engines[1], sweeps=8, checkpoint=folder, resume=True), whole)


def workers():
    """The processes of Ray's workers that this process has started and that have begun a task."""
    words = ["ps", "-eo", "pid=,ppid=,args="]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    parents = {int(pid): int(parent) for pid, parent, _ in (line.split(None, 2) for line in lines)}

    def is_ours(pid):
        while pid and pid != os.getpid():
            pid = parents.get(pid, 0)
        return bool(pid)

    found = [int(line.split()[0]) for line in lines if "ray::Worker" in line]
    return [pid for pid in found if is_ours(pid)]


def test_a_worker_may_die_in_mid_sweep(cluster):
    ratings = small_ratings(400, 300, seed=2)
    model = Model(rank=6)
    whole = fitted(model, train=ratings, sweeps=30)
    killed = []

    def kill(progress):
        if progress.sweep in (5, 12):

            def strike():
                for _ in range(200):
                    for pid in workers()[:1]:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                        return
                    time.sleep(0.005)

            threading.Thread(target=strike).start()

    same(fitted(model, "ray", ratings, sweeps=30, callbacks=[kill]), whole)
    assert killed


def _deadly(block, shared, rows):
    os._exit(1)


@pytest.mark.slow
def test_a_step_that_kills_its_workers_is_not_tried_for_ever(cluster):
    with Ray().place(TRAIN, Model(rank=2)) as data:
        counts = data.user.counts.astype(float)
        with pytest.raises(DataError, match="workers died 5 times in the same step"):
            data.user.run(_deadly, (counts,), (counts,))
        (again,) = data.user.run(_plus, (counts,), (counts,))  # others have come
    np.testing.assert_array_equal(again, counts + counts.sum())


def _plus(block, shared, rows):
    return (rows + shared.sum(),)


def test_workers_are_spread_over_the_machines():
    assert alternate([["a", "a", "a"], ["b"], [], ["c", "c"]]) == ["a", "b", "c", "a", "c", "a"]


def test_what_goes_wrong_in_a_worker_is_raised_here(cluster):
    with (
        Ray().place(TRAIN, Model(rank=2)) as data,
        pytest.raises(ZeroDivisionError),
    ):
        data.user.run(_wrong, (), (data.user.counts,))


def _wrong(block, rows):
    return 1 // 0


def run(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_line(cluster, tmp_path):
    write(TRAIN, tmp_path / "r.csv")
    options = ("--paper", "side", "--rank", 2, "--sweeps", 4, "--burn-in", 2, "--quiet")
    told = run("shard", tmp_path / "r.csv", "--blocks", 3, "--out", tmp_path / "shards")
    assert "in 3 blocks of users and 3 of items" in told
    for data, engine in (("r.csv", "threads"), ("r.csv", "ray"), ("shards", "ray")):
        out = tmp_path / f"{data}-{engine}"
        run("fit", tmp_path / data, *options, "--engine", engine, "--out", out)
    models = [bayesmf.load_model(tmp_path / name).posterior.draws
              for name in ("r.csv-threads", "r.csv-ray", "shards-ray")]  # fmt: skip
    for other in models[1:]:
        for name, values in models[0].items():
            if not name.endswith((".new_mean", ".new_cov", ".query")):  # which take all ratings
                np.testing.assert_array_equal(values, other[name])
    for words, told in (
        (("shards", "--engine", "ray", "--holdout", "paper"), "leave --holdout"),
        (("shards", *options), "fit them with --engine ray"),
        (("r.csv", "--workers", 2), "--workers is for --engine ray"),
        (("r.csv", "--engine", "ray", "--inference", "vi"), "--engine is for --inference gibbs"),
    ):
        assert told in run("fit", tmp_path / words[0], *words[1:], code=2)


def test_rows_are_cut_by_their_cost():
    counts = np.array([100, 0, 0, 0, 50, 50, 3, 3, 3, 91])
    cut = spans(counts, 3, 3)
    assert [begin for begin, _ in cut] == [0, *(end for _, end in cut[:-1])]
    assert cut[-1][1] == len(counts)
    costs = [sum(counts[b:e] + 1) for b, e in cut]
    assert max(costs) <= 310 / 3 + 101  # a third, and at most one row too much
    rows = TRAIN.by_user
    for begin, end in spans(rows.counts, 3, 4):
        some = part(rows, begin, end)
        assert some.starts[0] == 0
        np.testing.assert_array_equal(some.counts, rows.counts[begin:end])
        np.testing.assert_array_equal(some.index, rows.index[rows.starts[begin] : rows.starts[end]])


def test_shards_that_cannot_be_read_are_one_sentence(tmp_path):
    with pytest.raises(DataError, match="no folder of shards"):
        Shards.open(tmp_path)
    shards = shard(TRAIN, tmp_path / "shards", blocks=2)
    assert len(shards) == len(TRAIN)
    assert shards.fingerprint() == TRAIN.fingerprint()
    block = shards.folder / "user-0001.parquet"
    block.write_bytes(block.read_bytes()[:-20])
    with pytest.raises(DataError, match="user-0001.parquet: a shard that cannot be read"):
        shards.rows("user", 1)
    (shards.folder / "item-0000.parquet").write_bytes(
        (shards.folder / "item-0001.parquet").read_bytes()
    )
    with pytest.raises(DataError, match="write it anew"):
        shards.rows("item", 0)
    with pytest.raises(DataError, match="blocks=0"):
        shard(TRAIN, tmp_path / "none", blocks=0)


def test_what_cannot_be_done_is_said_in_one_sentence():
    with pytest.raises(DataError, match="engine='spark'"):
        Gibbs(engine="spark")
    with pytest.raises(DataError, match="choose engine='threads'"):
        Gibbs(VARIANTS["user side only"], engine="ray")
    with pytest.raises(DataError, match="choose engine='threads'"):
        Gibbs(VARIANTS["user side, robust"], form="interwoven", engine="ray")
    with pytest.raises(DataError, match="workers=0"):
        Ray(workers=0)
    with pytest.raises(DataError, match="workers=2"):
        Ray(address="here:1", workers=2)
    with pytest.raises(DataError, match="blocks=0"):
        Ray(blocks=0)
    with pytest.raises(DataError, match="without ray://"):
        Ray(address="ray://here:1")


def test_without_ray_one_sentence_says_how_to_get_it():
    code = ("import sys; sys.modules['ray'] = None\n"
            "import bayesmf\n"
            "bayesmf.Gibbs(engine='ray').fit(bayesmf.load('demo'))\n")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: Ray is not installed; run pip install 'bayesmf[ray]'" in done.stderr
