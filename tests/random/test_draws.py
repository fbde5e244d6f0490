"""Random numbers: known vectors, uniformity, independence between neighbouring places."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from bayesmf import DataError
from bayesmf.machine import LANES
from bayesmf.model.distributions import TruncatedGamma
from bayesmf.random import philox
from bayesmf.random.draws import Draws, StackedDraws
from bayesmf.random.philox import Counter

LEVEL = 1e-4  # of a false alarm, in each test


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the test vectors that come with the generator's publication
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_known_vectors(counter, key, expected):
    words = philox.philox(*(np.uint64(c) for c in counter), *(np.uint64(k) for k in key))
    assert " ".join(f"{int(word):08x}" for word in words) == expected


def test_normal_quantile_is_the_inverse_of_the_normal_distribution():
    p = np.concatenate([np.logspace(-300, -1, 500), np.linspace(0.001, 0.999, 999),
                        1 - np.logspace(-15, -1, 100)])  # fmt: skip
    ours = np.array([philox.normal_quantile(x) for x in p])
    assert ours == pytest.approx(special.ndtri(p), rel=1e-13, abs=1e-15)


def test_uniforms_and_normals_have_their_distributions():
    draws = Draws(11, 2, 3, 4)
    assert stats.kstest(draws.uniforms(20_000, 5).ravel(), "uniform").pvalue > LEVEL
    assert stats.kstest(draws.normals(20_000, 5).ravel(), "norm").pvalue > LEVEL


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 400.0])
def test_gammas_have_their_distribution(shape):
    drawn = Draws(5).gammas(np.full(50_000, shape))
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > LEVEL


@pytest.mark.parametrize("shape", [np.nan, np.inf, -np.inf, 0.0, -2.5])
def test_a_shape_that_no_gamma_has_ends_at_once(shape):
    """A shape that is NaN once sent the kernel into a loop that nothing could end."""
    shapes, out = np.array([1.0, shape, 0.5]), np.empty(3)
    philox.gammas(Draws(0).counter(1), 0, shapes, out)
    assert np.isnan(out).tolist() == [False, True, False]
    with pytest.raises(ValueError, match=f"shape of Gamma draw 1 is {shape}: it must be positive"):
        Draws(0).gammas(shapes)


@pytest.mark.parametrize("shape", [5e-324, 1e-300, 1e-3, 1e15, 1.7e308])
def test_extreme_shapes_give_numbers(shape):
    assert np.isfinite(Draws(0).gammas(np.full(1000, shape))).all()


@pytest.mark.parametrize("what", ["row", "sweep", "parameter", "chain", "seed", "kind"])
def test_neighbours_are_independent(what):
    """Correlations of every lag between two neighbouring streams: 5 standard errors."""
    n = 4096
    base = {"seed": 1, "chain": 1, "sweep": 1, "parameter": 1}
    one = Draws(**base).normals(2 * n, 8)
    if what == "row":
        other, one = one[1::2], one[::2]
    elif what == "kind":
        other, one = special.ndtri(Draws(**base).uniforms(n, 8)), one[:n]
    else:
        other, one = Draws(**{**base, what: 2}).normals(n, 8), one[:n]
    a, b = one.ravel(), other.ravel()
    correlations = np.fft.irfft(np.fft.rfft(a) * np.conj(np.fft.rfft(b)), len(a)) / len(a)
    assert np.abs(correlations).max() < stats.norm.isf(LEVEL / len(a) / 2) / np.sqrt(len(a))
    assert len(np.intersect1d(a, b)) == 0


def test_no_place_shares_a_word_with_another():
    """Row 0 of sweep 1 is not row 1 of sweep 0, nor is any other pair of places."""
    words = set()
    count = 0
    for seed in (0, 1):
        for chain in range(3):
            for block in (0, 1, 255, 256, 257, 4095):
                for sweep in range(3):
                    counter = Counter(np.uint64(seed), chain, block, sweep)
                    for row in (0, 1, 2, 2**32, 2**32 + 1):
                        for number in (0, 1, 2, 2**20 - 1):
                            words.update(map(int, philox.bits(counter, row, number)))
                            count += 2
    assert len(words) == count


def test_places_out_of_range_are_refused():
    for wrong in ({"seed": -1}, {"seed": 2**64}, {"chain": 2**16}, {"parameter": 1024}):
        with pytest.raises(DataError, match="choose a whole number from 0"):
            Draws(**{"seed": 0, **wrong})


@pytest.mark.parametrize("first", [0, 3, 2**33])
def test_rows_from_the_middle_are_those_of_the_whole(first):
    begin = Draws(3, 1, 4, 1, first)
    rest = Draws(3, 1, 4, 1, first + 2)
    shapes = np.array([0.3, 2.0, 0.5, 7.0, 1.0])
    np.testing.assert_array_equal(begin.normals(5, 3)[2:], rest.normals(3, 3))
    np.testing.assert_array_equal(begin.uniforms(5, 3)[2:], rest.uniforms(3, 3))
    np.testing.assert_array_equal(begin.gammas(shapes)[2:], rest.gammas(shapes[2:]))
    far = TruncatedGamma(np.full(5, 400.0), np.full(5, 1.0), 0.5, 2.0)  # by rejection
    some = TruncatedGamma(np.full(3, 400.0), np.full(3, 1.0), 0.5, 2.0)
    np.testing.assert_array_equal(far.sample(begin)[2:], some.sample(rest))


def test_stacked_draws_are_those_of_chain_after_chain():
    stacked = StackedDraws(3, 7, 4, 1, 5, each=4)
    each = [Draws(3, 7 + k, 4, 1, 5) for k in range(3)]
    shapes = np.random.default_rng(0).gamma(2.0, size=12) + 0.1
    parts = shapes.reshape(3, 4)
    uniforms = np.concatenate([one.uniforms(4, 3) for one in each])
    np.testing.assert_array_equal(stacked.uniforms(12, 3), uniforms)
    np.testing.assert_array_equal(stacked.uniforms(6, 3), uniforms[:6])  # not a whole chain
    gammas = np.concatenate([one.gammas(part) for one, part in zip(each, parts, strict=True)])
    np.testing.assert_array_equal(stacked.gammas(shapes), gammas)
    far = TruncatedGamma(np.full(12, 400.0), np.full(12, 1.0), 0.5, 2.0)  # by rejection
    own = TruncatedGamma(np.full(4, 400.0), np.full(4, 1.0), 0.5, 2.0)
    right = np.concatenate([own.sample(one) for one in each])
    np.testing.assert_array_equal(far.sample(stacked), right)


@pytest.mark.parametrize("size", [1, 4, 21])
def test_normals_side_by_side_are_those_of_single_rows(size):
    """Enough of them that all parts of the distribution are met: the centre and both tails."""
    counter, each, right = Draws(3, 7, 4, 5).counter(), 5, np.empty(size)
    for first in range(0, 1000, LANES):
        rows, out = first + np.arange(LANES), np.empty((size, LANES))
        philox.fill_lanes(counter, rows, each, philox.lane_scratch(size), out)
        for lane, row in enumerate(rows):
            philox.fill_normal(counter._replace(chain=7 + row // each), row % each, right)
            np.testing.assert_allclose(out[:, lane], right, rtol=1e-14)
