"""The cost model of benchmarks/scale.py: its bytes are the engine's, its schedule adds up."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from bayesmf.inference.sweep import gibbs_sweep
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, SideData, random_start
from bayesmf.prob.draws import Draws
from variants import small_ratings

FOLDER = Path(__file__).parent.parent / "benchmarks"
if not FOLDER.exists():
    pytest.skip("the benchmarks are not in this copy", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
from scale_model import Cluster, Job, Step, rounds, seconds, simulate, steps  # noqa: E402

FREE = dict.fromkeys(
    ("row", "cut_row", "driver_row", "driver_row_both", "task", "round_trip", "put_byte",
     "copy_byte", "return_byte", "join_byte"), 0.0,
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

    def run(self, work, shared, by_row):
        out = super().run(work, shared, by_row)
        self.seen.append((nbytes(shared), nbytes(by_row), nbytes(out)))
        return out

    def run_strips(self, work, shared, by_strip):
        out = super().run_strips(work, shared, by_strip)
        self.seen.append((nbytes(shared), nbytes(by_strip), nbytes(out)))
        return out


@pytest.mark.parametrize(("side_of", "joint"), [(None, False), ("user", False), ("item", True),
                                                ("both", True)])  # fmt: skip
@pytest.mark.parametrize("rank", [3, 20])
def test_the_bytes_of_the_formula_are_those_of_a_sweep(side_of, joint, rank):
    ratings = small_ratings(30, 20, seed=1)
    model = Model(
        rank, "side" if side_of else "user-item", side_of or "user", precision="robust",
        bias="joint" if joint else "learned",
    )  # fmt: skip
    sides = {"both": ("user", "item"), None: ()}.get(side_of, (side_of,))
    plain, seen = Data.of(ratings, model), []
    data = Data(*(Counting(**vars(side), seen=seen) for side in (plain.user, plain.item)),
                plain.mean, plain.size)  # fmt: skip
    state = random_start(model, data, 0)
    seen.clear()
    gibbs_sweep(model, data, state, Draws(0, 0, 1), "centred")
    job = Job(len(ratings), ratings.n_users, ratings.n_items, sides, rank, joint)
    assert seen == [(s.shared, s.own, s.back) for s in steps(job, Cluster(2), FREE)]


def step(tasks, machines, **more):
    given = {"ratings": 1000.0, "rows": tasks, "shared": 0.0, "own": 0.0, "back": 0.0,
             "rating": 0.01, "row": 0.0, "task": 0.0, "most": 1.0}  # fmt: skip
    return Step("user rows", tasks, machines, **{**given, **more}, side="user")


@pytest.mark.parametrize(("machines", "cores", "each"), [(1, 1, 1), (1, 2, 8), (5, 4, 3)])
def test_equal_blocks_without_overhead_take_work_over_cores(machines, cores, each):
    cluster = Cluster(machines, cores, a_core=each)
    tasks = cluster.blocks
    one = step(tasks, machines)
    found = simulate(one, np.full(tasks, 1000 / tasks), np.ones(tasks), cluster, FREE)
    assert found == pytest.approx(10 / (machines * cores), rel=1e-12)
    assert seconds(one, cluster, FREE).total == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("machines", [1, 2, 3, 10, 100])
def test_a_broadcast_doubles_its_holders(machines):
    cluster = Cluster(machines, 1, link=1.0, a_core=1)
    one = step(machines, machines, shared=7.0, rating=0.0)
    found = simulate(one, np.ones(machines), np.ones(machines), cluster, FREE)
    assert found == 7 * rounds(machines)


def test_results_pass_the_drivers_link_one_after_the_other():
    cluster = Cluster(10, 4, link=1.0, a_core=1)
    one = step(40, 10, back=80.0)
    found = simulate(one, np.full(40, 25.0), np.ones(40), cluster, FREE)
    assert found == pytest.approx(0.25 + 80, rel=1e-12)


def test_one_long_row_holds_up_a_step():
    cluster = Cluster(4, 2, a_core=4)
    ratings = np.full(32, 100 / 31)
    ratings[0] = 900
    one = step(32, 4, most=900)
    assert simulate(one, ratings, np.ones(32), cluster, FREE) == pytest.approx(9.0, rel=1e-12)
    assert seconds(one, cluster, FREE).total == pytest.approx(9.0, rel=1e-12)
