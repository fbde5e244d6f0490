"""Latent numbers within cells, also far out, and the log likelihood's derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr

from bayesmf.kernels.response import ordinal as kernels
from bayesmf.random.draws import Draws
from oracle.kernel_ordinal import log_mass, without_ends

CELLS = {
    "below": (-np.inf, 0.3),
    "above": (0.3, np.inf),
    "around": (-0.4, 1.1),
    "right of f": (1.5, 2.0),
    "left of f": (-2.0, -1.5),
    "narrow": (0.5, 0.5001),
    "wide": (-9.0, 9.0),
    "far right": (20.0, 20.1),
    "far left": (-np.inf, -20.0),
    "beyond doubles": (45.0, np.inf),
    "beyond doubles, narrow": (-45.01, -45.0),
}
DRAWS = 4000


def draws_in(a: float, b: float) -> np.ndarray:
    """z of many ratings of the middle of three cells, whose cuts are a and b, with f = 0."""
    ends = [end for end in (a, b) if np.isfinite(end)]
    cuts, centred = np.array([[-np.inf, *ends, np.inf]]), np.full(DRAWS, float(np.isfinite(a)))
    out, user = np.empty(DRAWS), np.zeros(DRAWS, np.int32)
    cells = kernels.Cells(user, centred, 0.0, 1.0, np.zeros(DRAWS), np.ones(DRAWS))
    kernels.draw_latent(cells, cuts, Draws(1).counter(), out)
    return out


@pytest.mark.parametrize("name", CELLS)
def test_latent_numbers_are_truncated_normals(name):
    a, b = CELLS[name]
    z = draws_in(a, b)
    assert ((z >= a) & (z <= b)).all()
    if b < 0:
        z, a, b = -z, -b, -a
    if a < 36:
        share = stats.truncnorm.cdf(z, a, b)
    else:  # log(1 - F) = log Q(z) - log Q(a), with the end at b
        gone = np.exp(log_ndtr(-z) - log_ndtr(-a))
        share = (1 - gone) / (1 - np.exp(log_ndtr(-b) - log_ndtr(-a)))
    assert stats.kstest(share, "uniform").pvalue > 1e-3 / len(CELLS)


def measured(cuts: list[float], cell: int) -> np.ndarray:
    """The row of one rating in this cell, with f = 0 and weight 1."""
    one, user = np.ones(1), np.zeros(1, np.int32)
    cells = kernels.Cells(user, cell * one, 0.0, 1.0, 0 * one, one)
    row = np.zeros((1, kernels.width_of(len(cuts) + 2)))
    kernels.measure(cells, np.array([0, 1]), 1.0, np.array([[-np.inf, *cuts, np.inf]]), row)
    return without_ends(row)[0]


@pytest.mark.parametrize("name", CELLS)
def test_the_log_likelihood_and_its_slopes(name):
    """By differences of what SciPy computes; beyond doubles the first terms of a series are all."""
    a, b = CELLS[name]
    cuts = [end for end in (a, b) if np.isfinite(end)]
    row = measured(cuts, int(np.isfinite(a)))
    far = min(abs(a), abs(b)) > kernels.FAR
    assert row[0] == pytest.approx(log_mass(a, b), rel=1e-3 if far else 1e-9, abs=1e-11)
    h = 1e-6
    for k, end in enumerate(cuts):
        low, high = ([e + d * (e == end) for e in (a, b)] for d in (-h, h))
        expected = (log_mass(*high) - log_mass(*low)) / (2 * h)
        if not far:
            assert row[1 + k] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    scaled = [log_mass(a * s, b * s) for s in (np.exp(-h / 2), np.exp(h / 2))]
    if not far:
        assert row[1 + len(cuts)] == pytest.approx((scaled[1] - scaled[0]) / (2 * h), rel=1e-3,
                                                   abs=1e-6)  # fmt: skip


def test_chances_add_up_to_one_wherever_f_is():
    f, cuts = np.array([-80.0, -3.0, 0.0, 2.5, 80.0]), np.array([[-np.inf, -1.0, 0.0, 1.5, np.inf]])
    out = np.empty((5, 4))
    kernels.cell_chances(np.zeros(5, np.int32), f, np.full(5, 0.7), cuts, out)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-12)
    assert (out >= 0).all()
    assert out[0, 0] == 1
    assert out[-1, -1] == 1
