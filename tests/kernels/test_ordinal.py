"""Latent numbers within cells, also far out, and the log likelihood's derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr

from bayesmf.kernels.response import ordinal as kernels
from bayesmf.random.draws import Draws
from oracle.kernel_ordinal import log_mass

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
    centred = np.full(DRAWS, 1.0 if np.isfinite(a) and np.isfinite(b) else 0.0)
    cuts = np.array([[a, b]])
    if not np.isfinite(a):
        cuts = np.array([[b]])
    elif not np.isfinite(b):
        cuts, centred = np.array([[a]]), np.ones(DRAWS)
    out, user = np.empty(DRAWS), np.zeros(DRAWS, np.int32)
    kernels.draw_latent(
        user, centred, 0.0, 1.0, np.zeros(DRAWS), np.ones(DRAWS), cuts, Draws(1).counter(), out
    )
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


@pytest.mark.parametrize("name", CELLS)
def test_the_log_of_a_mass_and_its_slopes(name):
    a, b = CELLS[name]
    value, in_a, in_b, aa, bb, ab = kernels.log_mass(a, b)
    far = min(abs(a), abs(b)) > kernels.FAR  # there the first terms of a series are all there is
    assert value == pytest.approx(log_mass(a, b), rel=1e-4 if far else 1e-9)
    h = 1e-6
    for slope, end, low, high in ((in_a, a, (a - h, b), (a + h, b)),
                                  (in_b, b, (a, b - h), (a, b + h))):  # fmt: skip
        if np.isfinite(end) and not far:
            expected = (log_mass(*high) - log_mass(*low)) / (2 * h)
            assert slope == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert aa >= 0
    assert bb >= 0
    assert aa * bb >= ab**2 * (1 - 1e-6) - 1e-9 or not np.isfinite(a) or not np.isfinite(b)


def test_chances_add_up_to_one_wherever_f_is():
    f, cuts = np.array([-80.0, -3.0, 0.0, 2.5, 80.0]), np.array([[-1.0, 0.0, 1.5]])
    out = np.zeros((5, 4))
    kernels.cell_chances(np.zeros(5, np.int32), f, np.full(5, 0.7), cuts, out)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-15)
    assert (out >= 0).all()
    assert out[0, 0] == 1
    assert out[-1, -1] == 1
