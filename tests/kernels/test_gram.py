"""The sums of products of rated rows against sums written out, for every layout of registers."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from bayesmf.engines.ray.crew import make_writable
from bayesmf.kernels import gram, llvm
from bayesmf.kernels.designs import strips
from bayesmf.kernels.rows import Observed, OtherSide, batches

LENGTHS = (0, 1, llvm.AHEAD, llvm.AHEAD + 1, gram.PANEL, gram.PANEL + 1, 3 * gram.PANEL - 1)
MEAN, OTHERS = 2.5, 40


@pytest.fixture(params=[(8, 8, 3), (4, 4, 3)], ids=["32 registers of 8", "16 registers of 4"])
def layout(request, monkeypatch):
    for name, value in zip(("W", "MR", "NB"), request.param, strict=True):
        monkeypatch.setattr(llvm, name, value)


def products():
    """The kernel, compiled anew for the layout that is set."""
    add = llvm.add_products

    @njit(fastmath={"contract"})
    def sums_of(z, index, values, mean, first, rows, sums, width):
        add(z, index, values, mean, first, rows, sums, width)

    return sums_of


def known_of(rank: int) -> tuple[np.ndarray, np.ndarray, OtherSide]:
    rng = np.random.default_rng(rank)
    x = np.zeros((OTHERS, gram.padded(rank + 2)))
    x[:, : rank + 1] = rng.normal(size=(OTHERS, rank + 1))
    noise = rng.gamma(2.0, size=OTHERS)
    return x, noise, OtherSide.of(x, noise, np.empty((0, 0)))


@pytest.mark.parametrize(
    ("rank", "kind"), [(1, np.int8), (6, np.float32), (7, np.float64), (20, np.int8), (40, np.int8)]
)
def test_the_products_are_those_written_out(rank, kind, layout):
    x, noise, known = known_of(rank)
    columns = x.shape[1]
    rng = np.random.default_rng(0)
    index = rng.integers(OTHERS, size=5 + max(LENGTHS)).astype(np.int32)
    values = rng.integers(1, 6, size=len(index)).astype(kind)
    add, first = products(), 5
    for length in LENGTHS:
        rated, ratings = index[first : first + length], values[first : first + length]
        y = x[rated]
        y[:, 0], y[:, -1] = 1.0, ratings - MEAN - x[rated, 0]
        before = rng.normal(size=(columns, columns))
        expected = before + np.einsum("k,ka,kb->ab", noise[rated], y, y)
        sums = before.copy()
        add(known.z, index, values, MEAN, first, length, sums, (0,) * (columns // 8))
        lower = np.tril_indices(columns)
        assert sums[lower] == pytest.approx(expected[lower], rel=1e-12, abs=1e-12)


def test_every_block_is_summed_once(layout):
    for columns in range(8, 97, 8):
        passes = llvm.in_passes(columns)
        found = [(block, v) for tiles in passes for block, vectors in tiles for v in vectors]
        wanted = {(a // llvm.MR, b // llvm.W) for a in range(columns) for b in range(a + 1)}
        assert sorted(found) == sorted(wanted)
        assert all(sum(len(vectors) for _, vectors in tiles) <= llvm.NB for tiles in passes)


def test_rows_that_do_not_lie_side_by_side_are_refused():
    z, index, values = np.ones((8, 8)), np.zeros(3, np.int32), np.ones(3)
    with pytest.raises(TypingError, match="side by side"):
        products()(z.T, index, values, MEAN, 0, 3, np.zeros((8, 8)), (0,))


def test_rows_and_strips_begin_with_a_cache_line():
    for rank in (1, 20):
        x, _, known = known_of(rank)
        for made in (known.z, strips(x), make_writable(x), make_writable(x[1:])):
            assert made.ctypes.data % 64 == 0
            assert made.flags.c_contiguous


def test_strips_are_columns_by_eights_with_zeros_behind():
    x = np.random.default_rng(0).normal(size=(5, 21))
    cut = strips(x)
    assert cut.shape == (3, 5, 8)
    assert (np.concatenate(cut, axis=1) == np.pad(x, ((0, 0), (0, 3)))).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_a_weight_of_two_is_the_rating_twice(length):
    """To rounding; a weight of 4, whose root is exact, multiplies the sums exactly."""
    x, _, known = known_of(6)
    rng = np.random.default_rng(1)
    index = rng.integers(OTHERS, size=length).astype(np.int32)
    values, weights = rng.integers(1, 6, size=length).astype(np.int8), rng.integers(1, 4, length)
    width = (0,) * x.shape[1]

    def sums_of(index, values, weights):
        starts = np.array([0, len(index)])
        observed = Observed(starts, index, values, MEAN, batches(np.diff(starts)), 0, weights)
        sums = np.empty((len(width), len(width)))
        gram.gram(observed, 0, known.z, sums, width)
        return np.tril(sums)

    weighted = sums_of(index, values, weights.astype(float))
    repeated = sums_of(np.repeat(index, weights), np.repeat(values, weights), np.empty(0))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(
        sums_of(index, values, np.full(length, 4.0)), 4 * sums_of(index, values, np.empty(0))
    )
