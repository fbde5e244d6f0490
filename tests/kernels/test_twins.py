"""Every kernel against its naive twin, on one thread and on two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

import oracle.kernel_ordinal
import oracle.kernel_response
import oracle.kernel_rows  # noqa: F401, their cases too
from bayesmf.kernels import designs
from oracle.twins import CASES, random_design, sparse_of

ROUNDING = 1e-9  # sums of 40 terms, and systems of condition below 1e5, in doubles


def compare(name: str) -> list[bytes]:
    """Compares a kernel with its twin; returns the bytes that the kernel gave."""
    pairs = CASES[name]()
    assert pairs
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=ROUNDING, atol=ROUNDING)
    return [np.ascontiguousarray(found).tobytes() for found, _ in pairs]


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_its_twin(name):
    compare(name)


@pytest.mark.parametrize(
    "names",
    [
        ["ordinal_likelihood", "chain_draws", "chain_between"],
        pytest.param(list(CASES), marks=pytest.mark.slow),
    ],
    ids=["sums of two products", "all"],
)
def test_two_threads_give_the_bits_of_one(names):
    """Kernels are compiled twice, and the compiler must not fuse other products the second time."""
    script = (
        "import numba; from kernels import test_twins as t\n"
        f"for name in {names}:\n"
        "    numba.set_num_threads(2); two = t.compare(name)\n"
        "    numba.set_num_threads(1); assert t.compare(name) == two, name\n"
        "print('same')"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_NUM_THREADS": "2", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "same", done.stderr


def test_values_that_the_intrinsics_cannot_read_are_refused():
    matrix = sparse_of(random_design(6, 5, True), True)
    for values in (matrix.values.astype(np.float32), np.repeat(matrix.values, 2)[::2]):
        with pytest.raises(TypingError, match=r"float64|contiguous"):
            designs.offsets(
                matrix._replace(values=values), np.ones((5, 2)), np.ones(6), np.empty((6, 2))
            )
