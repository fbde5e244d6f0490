"""The innermost loops: LLVM's form against the plain one, and the choice between the two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from bayesmf.kernels import inner, llvm, plain
from bayesmf.machine import LANES

FIT = """
import json, sys
import numpy as np
import bayesmf
rng = np.random.default_rng(0)
user, item = np.nonzero(rng.random((40, 25)) < 0.4)
ratings = rng.integers(1, 6, len(user))
train = bayesmf.Ratings.from_triplets(users=user, items=item, ratings=ratings)
fit = bayesmf.Gibbs(bayesmf.Model(rank=3), sweeps=6, burn_in=2, seed=1, chains=1).fit(train)
found = fit.predict(list(zip(user.tolist(), item.tolist())))
"""

FACTORISE = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from bayesmf.kernels import inner, lanes
    from bayesmf.kernels import designs, rows  # the choice is made once for all
root = np.random.default_rng(0).normal(size=(5, 7, 8))
A = np.einsum("akl,bkl->abl", root, root)
Q = A.copy()
lanes.cholesky(Q, 5)
for lane in range(8):
    np.testing.assert_allclose(np.tril(Q[:, :, lane]), np.linalg.cholesky(A[:, :, lane]))
hits, misses = (sum(n.values()) for n in lanes.cholesky.stats[1:])
print(inner.FORM, hits, misses, *(str(warning.message) for warning in seen))
"""

BREAK_LLVM = """
import llvmlite.ir
def broken(*rest):
    raise NotImplementedError("vectors are gone")
llvmlite.ir.VectorType = broken
"""


def run(script: str, **variables: str) -> str:
    """What a script prints in a process of its own."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def entries() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    index = rng.permutation(30)[:20].astype(np.int32)
    return index, rng.normal(size=20), rng.gamma(2.0, size=30), rng.normal(size=(30, LANES))


@pytest.mark.parametrize(
    "name", ["add_rows", "add_valued_rows", "subtract_from_rows", "subtract_from_valued_rows"]
)
def test_loops_over_entries_are_the_same_in_both_forms(name):
    loop, (index, values, weight, rows) = getattr(llvm, name), entries()

    @njit(fastmath={"contract"})
    def fast(index, values, begin, end, weight, rows, total):
        loop(index, values, begin, end, weight, rows, total)

    total = np.random.default_rng(1).normal(size=LANES)
    both = [(rows.copy(), total.copy()) for _ in range(2)]
    for run_loop, (its_rows, its_total) in zip((fast, getattr(plain, name)), both, strict=True):
        run_loop(index, values, 3, 17, weight, its_rows, its_total)
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)  # 14 terms of order 1
    assert not (np.array_equal(both[0][0], rows) and np.array_equal(both[0][1], total))


@pytest.mark.parametrize("count", [1, 4])
def test_factors_are_the_same_in_both_forms(count):
    loop, Q = (
        getattr(llvm, f"subtract_{count}"),
        np.random.default_rng(2).normal(size=(9, 6, LANES)),
    )

    @njit(fastmath={"contract"})
    def fast(Q, i, j, first, end, n):
        loop(Q, i, j, first, end, n)

    both = Q.copy(), Q.copy()
    fast(both[0], 4, 2, 1, 4, 5)
    getattr(plain, f"subtract_{count}")(both[1], 4, 2, 1, 4, 5)
    np.testing.assert_allclose(*both, rtol=1e-13, atol=1e-13)
    changed = (both[0] != Q).any(axis=2)
    assert changed[4 : 4 + count, 5].all()
    assert changed.sum() == count


WORK = {
    "multiply_4": (4, 2, 1, 4, 5),
    "pivot_column": (2, 6),
    "divide_cell": (4, 2),
    "step_back": (3, 7),
    "normalise_row": (4, 1),
}
CHANGED = {  # (row, column) of every cell that is written
    "multiply_4": [(4, 5), (5, 5), (6, 5), (7, 5)],
    "pivot_column": [(2, 2), (3, 2), (4, 2), (5, 2)],
    "divide_cell": [(4, 2)],
    "step_back": [(7, 0), (7, 1), (7, 2), (7, 3)],
    "normalise_row": [(4, 1), (4, 2), (4, 3), (4, 4)],
}


@pytest.mark.parametrize("name", WORK)
def test_work_on_cells_is_the_same_in_both_forms(name):
    work, Q = getattr(llvm, name), np.random.default_rng(3).gamma(2.0, size=(9, 6, LANES))
    both, numbers = (Q.copy(), Q.copy()), WORK[name]
    names = ", ".join("abcde"[: len(numbers)])
    made = {"work": work}
    exec(f"def fast(Q, {names}):\n    work(Q, {names})", made)  # an intrinsic has no *args
    njit(made["fast"], fastmath={"contract"})(both[0], *numbers)
    getattr(plain, name)(both[1], *numbers)
    np.testing.assert_allclose(*both, rtol=1e-13, atol=1e-13)
    assert list(zip(*np.nonzero((both[0] != Q).any(axis=2)), strict=True)) == CHANGED[name]


def test_lanes_are_added_in_the_same_way_in_both_forms():
    add = llvm.add_lanes
    Q, factor = np.random.default_rng(3).normal(size=54 * LANES), np.arange(1.0, LANES + 1)

    @njit(fastmath={"contract"})
    def fast(flat, factor):
        add(flat, 7, flat, 20, flat, 33, factor, 4)

    both = Q.copy(), Q.copy()
    fast(both[0], factor)
    plain.add_lanes(both[1], 7, both[1], 20, both[1], 33, factor, 4)
    np.testing.assert_allclose(*both, rtol=1e-13, atol=1e-13)
    right = Q[20 * LANES : 24 * LANES] + Q[33 * LANES : 37 * LANES] * np.tile(factor, 4)
    np.testing.assert_allclose(both[0][7 * LANES : 11 * LANES], right, rtol=1e-13, atol=1e-13)
    assert (both[0] != Q).sum() == 4 * LANES


@pytest.mark.slow  # every kernel compiled once more
def test_plain_kernels_are_their_twins_too():
    script = (
        "from kernels import test_twins as t; from bayesmf.kernels.inner import FORM\n"
        "for name in t.CASES: t.compare(name)\n"
        "print(FORM, len(t.CASES))"
    )
    form, count = run(script, BAYESMF_PLAIN_KERNELS="1", NUMBA_NUM_THREADS="2").split()
    assert form == "plain"
    assert int(count) > 10


@pytest.mark.slow
def test_a_fit_is_the_same_in_both_forms():
    """A few sweeps amplify rounding, some 1e-16, but not to 1e-6."""
    show = "print(json.dumps([found[name].to_pylist() for name in ('mean', 'sd')]))"
    one = np.array(json.loads(run(FIT + show, BAYESMF_PLAIN_KERNELS="1")))
    two = np.array(json.loads(run(FIT + show, BAYESMF_PLAIN_KERNELS="0")))
    assert inner.FORM == "llvm"
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_what_cannot_be_compiled_is_replaced_with_one_warning(tmp_path):
    found = run(BREAK_LLVM + FACTORISE, NUMBA_CACHE_DIR=str(tmp_path)).split(maxsplit=3)
    assert found[0] == "plain"
    assert found[3].count("cannot be compiled") == 1
    assert "vectors are gone" in found[3]
    assert "Set BAYESMF_PLAIN_KERNELS=1" in found[3]
    asked = run(BREAK_LLVM + FACTORISE, NUMBA_CACHE_DIR=str(tmp_path), BAYESMF_PLAIN_KERNELS="1")
    assert asked == "plain 1 0"  # no warning, and the code that was kept


@pytest.mark.slow
def test_the_forms_do_not_share_compiled_code(tmp_path):
    """Numba does not see the switch: without a name of its own one form would run the other's."""
    found = [
        run(FACTORISE, NUMBA_CACHE_DIR=str(tmp_path), BAYESMF_PLAIN_KERNELS=flag)
        for flag in ("0", "1", "0", "1")
    ]
    assert found == ["llvm 0 1", "plain 0 1", "llvm 1 0", "plain 1 0"]
