"""The cost model of benchmarks/scale.py: its bytes are the engine's, its schedule adds up."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from bayesmf.engines.ray.crew import alternate
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import RatedSet
from bayesmf.model.spec import Model
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep
from oracle.variants import small_ratings

FOLDER = Path(__file__).parents[2] / "benchmarks"
if not FOLDER.exists():
    pytest.skip("the benchmarks are not in this copy", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
from scale_model import (  # noqa: E402
    Cluster,
    Job,
    Step,
    dealt,
    driver_seconds,
    memory,
    on_threads,
    seconds,
    simulate,
    steps,
    wire,
)

FREE = dict.fromkeys(
    ("row", "driver_row", "driver_row_both", "message", "round_trip", "put_byte", "copy_byte",
     "return_byte", "join_byte"), 0.0,
)  # fmt: skip
FREE |= {"other_rows": [1, 10], "gram_rating": [0, 0], "offset_rating": [0, 0],
         "strip_rating": [0, 0]}  # fmt: skip


def nbytes(values):
    if isinstance(values, np.ndarray):
        return values.nbytes
    return sum(map(nbytes, values)) if isinstance(values, tuple) else 0


@dataclass(frozen=True)
class Counting(SideData):
    """A side that notes the bytes an engine would move."""

    seen: list = field(default_factory=list)

    def run(self, work, shared, by_row, *, reads=False):
        out = super().run(work, shared, by_row)
        self.seen.append((nbytes(shared), nbytes(by_row), nbytes(out)))
        return out

    def run_strips(self, number, work, shared, by_strip):
        out = super().run_strips(number, work, shared, by_strip)
        self.seen.append((nbytes(shared), nbytes(by_strip), nbytes(out)))
        return out


@pytest.mark.parametrize(("side_of", "joint"), [(None, False), ("user", False), ("item", True),
                                                ("both", True)])  # fmt: skip
@pytest.mark.parametrize("rank", [3, 20])
def test_the_bytes_of_the_formula_are_those_of_a_sweep(side_of, joint, rank):
    ratings = small_ratings(60, 50, seed=1)  # more for each row than columns
    sides = {"both": ("user", "item"), None: ()}.get(side_of, (side_of,))
    designs = {f"{side}_designs": (RatedSet(1.0),) if side in sides else ()
               for side in ("user", "item")}  # fmt: skip
    bias = "joint" if joint else "learned"
    model = Model.paper("side", "robust", rank, bias=bias, **designs)
    plain, seen = Data.of(ratings, model), []
    data = Data(*(Counting(**vars(side), seen=seen) for side in (plain.user, plain.item)),
                plain.mean, plain.size)  # fmt: skip
    state = random_start(model, data, 0)
    seen.clear()
    gibbs_sweep(model, data, state, Draws(0, 0, 1), "centred")
    job = Job(len(ratings), ratings.n_users, ratings.n_items, sides, rank, joint)
    assert seen == [(s.shared, s.own, s.back) for s in steps(job, Cluster(2), FREE)]


def step(parts, **more):
    given = {"ratings": 1000.0, "rows": parts, "shared": 0.0, "own": 0.0, "back": 0.0,
             "rating": 0.01, "row": 0.0, "most": 1.0}  # fmt: skip
    return Step("user rows", parts, **{**given, **more}, side="user")


def both_ways(one, cluster, ratings, constants=FREE):
    played = simulate(one, ratings, np.ones(len(ratings)), cluster, constants)
    assert sum(seconds(one, cluster, constants)) == pytest.approx(played, rel=1e-12)
    return played


@pytest.mark.parametrize(("machines", "cores"), [(1, 1), (1, 2), (5, 4)])
def test_equal_parts_without_overhead_take_work_over_cores(machines, cores):
    cluster = Cluster(machines, cores)
    workers = cluster.workers
    found = both_ways(step(workers), cluster, np.full(workers, 1000 / workers))
    assert found == pytest.approx(10 / workers, rel=1e-12)


@pytest.mark.parametrize(("machines", "rounds"), [(1, 1), (2, 2), (3, 2), (10, 4), (100, 7)])
def test_holders_of_what_is_shared_double_each_round(machines, rounds):
    one, cluster = step(2 * machines, shared=7.0, rating=0.0), Cluster(machines, 2, link=1.0)
    assert both_ways(one, cluster, np.ones(2 * machines)) == pytest.approx(7 * rounds, rel=1e-12)
    assert wire([one], cluster) == 7 * rounds


def test_if_nobody_passes_it_on_it_leaves_the_driver_once_for_each_machine():
    one, cluster = step(20, shared=7.0, rating=0.0), Cluster(10, 2, 1.0, passed_on=False)
    assert both_ways(one, cluster, np.ones(20)) == pytest.approx(70, rel=1e-12)
    assert wire([one], cluster) == 70


@pytest.mark.parametrize("machines", [1, 2, 5])
def test_indices_are_where_W_is_drawn_and_nowhere_else(machines):
    cluster, plain = Cluster(machines, 4), Job(10**6, 300, 200)
    held = memory(plain, cluster, FREE)
    assert held.first == held.machine
    side = Job(10**6, 300, 200, ("user", "item"))
    more = memory(side, cluster, FREE)
    assert more.machine - held.machine < 4 * 10**6 <= (more.first - more.machine) / 2
    places = alternate([[machine] * cluster.cores for machine in range(machines)])
    busiest = np.bincount(places[: side.strips], dealt(side.strips, cluster.workers)).max()
    assert busiest == dealt(side.strips, cluster.workers)[::machines].sum()


def test_a_step_costs_a_message_to_each_worker():
    one, dear = step(8, rating=0.0), FREE | {"message": 3.0, "round_trip": 2.0}
    assert both_ways(one, Cluster(4, 2), np.ones(8), dear) == pytest.approx(26, rel=1e-12)


def test_results_pass_the_drivers_link_one_after_the_other():
    found = both_ways(step(40, back=80.0), Cluster(10, 4, link=1.0), np.full(40, 25.0))
    assert found == pytest.approx(0.25 + 80, rel=1e-12)


def test_one_long_row_holds_up_a_step():
    ratings = np.full(8, 100 / 7)
    ratings[0] = 900
    assert both_ways(step(8, most=900), Cluster(4, 2), ratings) == pytest.approx(9.0, rel=1e-12)


def test_two_workers_draw_three_strips_in_the_time_of_two():
    job = Job(1000, 30, 20, ("user",))
    costs = FREE | {"strip_rating": [0.01, 0.01]}
    W = steps(job, Cluster(1, 2, float("inf")), costs)[0]
    assert job.strips == 3
    assert seconds(W, Cluster(1, 2, float("inf")), costs).compute == pytest.approx(20, rel=1e-12)


def test_threads_take_what_workers_take_whose_messages_are_free():
    job = Job(1000, 30, 20, ("user",), most=(500, 100))
    costs = FREE | {"row": 0.5, "driver_row": 0.2, "driver_row_both": 0.4,
                    "gram_rating": [0.01, 0.01], "offset_rating": [0.02, 0.02],
                    "strip_rating": [0.03, 0.03]}  # fmt: skip
    free = Cluster(1, 4, float("inf"))
    found = sum(sum(seconds(step, free, costs)) for step in steps(job, free, costs))
    assert on_threads(job, free, costs) == pytest.approx(driver_seconds(job, costs) + found)
