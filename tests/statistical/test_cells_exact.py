"""Ordinal and binary ratings in cases so small that everything can be added up.

The ratings lie on given predictors. What is drawn then has two or three dimensions, and its
expectations are sums over a fine grid.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, ndtr

from bayesmf.model.likelihood import Observations
from bayesmf.model.ordinal import Binary, Ordinal
from bayesmf.model.spec import Hyper
from bayesmf.random.draws import Draws

from .scores import bound, standard_error

HYPER = Hyper(noise_shape=3.0, noise_rate=2.0)
TIMES = 4  # that the five ratings come, so that they say something of tau
F = np.tile([-0.4, 0.9, 0.1, 1.3, -1.1], TIMES)
OWN = np.tile([1.0, 0.5, 2.0, 1.5, 0.8], TIMES)  # alpha_i beta_j
DRAWS = 3000


def exact(log_density, *axes: np.ndarray) -> dict[str, float]:
    """Means and mean squares of all coordinates, and their product, under a density on a grid."""
    at = np.meshgrid(*axes, indexing="ij")
    log_p = log_density(*at)
    p = np.exp(log_p - logsumexp(log_p))
    for axis in range(len(axes)):  # nothing is cut off
        ends = np.moveaxis(p, axis, 0)
        assert ends[[0, -1]].sum() < 1e-4
    return {name: float((p * values).sum()) for name, values in statistics(*at).items()}


def statistics(*at: np.ndarray) -> dict[str, np.ndarray]:
    out = {f"mean {k}": one for k, one in enumerate(at)}
    out |= {f"square {k}": one**2 for k, one in enumerate(at)}
    return out | {"product": at[0] * at[1]}


def disagreement(traces: list[np.ndarray], expected: dict[str, float]) -> dict[str, float]:
    found = statistics(*np.transpose(traces))
    return {
        name: (trace.mean() - expected[name]) / standard_error(trace)
        for name, trace in found.items()
    }


def log_chances(cuts: np.ndarray, cell: np.ndarray, log_tau: np.ndarray) -> np.ndarray:
    """log P(cells | predictors): the cuts have their own axis at the end."""
    total = np.zeros(np.broadcast_shapes(cuts.shape[:-1], log_tau.shape))
    for f, own, k in zip(F, OWN, cell, strict=True):
        root = np.sqrt(np.exp(log_tau) * own)
        below = ndtr(root * (cuts[..., k - 1] - f)) if k else 0.0
        above = ndtr(root * (cuts[..., k] - f)) if k < cuts.shape[-1] else 1.0
        with np.errstate(divide="ignore"):  # far out there is no chance
            total = total + np.log(above - below)
    return total


def run(model: Ordinal, cell: np.ndarray, parameters: dict, read) -> list[np.ndarray]:
    centred, user = np.array(model.levels)[cell] - model.origin, np.zeros(len(cell), np.int32)
    tau, found = 1.0, []
    for number in range(DRAWS):
        weight = tau * OWN
        seen = Observations(user, centred, F, weight, np.sqrt(weight))
        draws = Draws(3, sweep=2 * number)  # what all share is moved in every other sweep
        parameters, tau = model.update(parameters, tau, HYPER, seen, draws, True)
        found.append(read(parameters, tau))
    return found


def test_cuts_that_all_share():
    """Of four cells, the middle ones with widths p and 1 - p: tau and p are drawn together."""
    model = Ordinal((1.0, 2.0, 3.0, 4.0), 2.4, "global")
    cell = np.tile([1, 3, 2, 2, 0], TIMES)

    def log_density(log_tau, logit):
        p = 1 / (1 + np.exp(-logit))
        first = 2.5 - 1.0 - model.origin  # the gaps add up to two steps
        cuts = np.stack([first + 0 * p, first + 2 * p, first + 2 + 0 * p], axis=-1)
        log_prior = 3.0 * log_tau - 2.0 * np.exp(log_tau) + 2 * np.log(p) + 2 * np.log1p(-p)
        return log_prior + log_chances(cuts, cell, log_tau)

    expected = exact(log_density, np.linspace(-5, 3.5, 300), np.linspace(-7, 7, 300))
    found = run(
        model, cell, {"mean": np.zeros(2)},
        lambda own, tau: [np.log(tau), own["mean"][0] - own["mean"][1]],
    )  # fmt: skip
    z = disagreement(found, expected)
    assert max(map(abs, z.values())) < bound(3 * len(z)), z


@pytest.mark.slow
def test_the_gap_of_one_user():
    """Of three cells, the middle one of a width that is the user's own."""
    model = Ordinal((1.0, 2.0, 3.0), 2.2, "users")
    cell = np.tile([0, 2, 1, 2, 1], TIMES)

    def log_density(log_tau, gap, log_variance):
        half = np.exp(gap) / 2
        middle = 2.0 - model.origin
        cuts = np.stack([middle - half, middle + half], axis=-1)
        log_prior = 3.0 * log_tau - 2.0 * np.exp(log_tau)
        log_prior = log_prior - log_variance - 0.05 * np.exp(-log_variance)
        log_prior = log_prior - log_variance / 2 - gap**2 / 2 * np.exp(-log_variance)
        return log_prior + log_chances(cuts, cell, log_tau)

    axes = np.linspace(-5, 3.5, 80), np.linspace(-12, 9, 211), np.linspace(-6.5, 9, 120)
    expected = exact(log_density, *axes)
    start = model.start(1)
    found = run(
        model, cell, start,
        lambda own, tau: [np.log(tau), own["user.gaps"][0, 0], np.log(own["variance"][0])],
    )  # fmt: skip
    z = disagreement(found, expected)
    assert max(map(abs, z.values())) < bound(3 * len(z)), z


@pytest.mark.parametrize("ratings", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_two_thumbs(ratings):
    """f of two ratings, which it shares but for 0.7, drawn in turn with what they stand for."""
    model = Binary((0.0, 1.0), 0.3)
    added, variance = np.array([0.0, 0.7]), 1.6
    f, signs = np.linspace(-9, 9, 4001), 2 * np.array(ratings) - 1
    p = stats.norm.pdf(f, 0, np.sqrt(variance))
    for sign, plus in zip(signs, added, strict=True):
        p = p * ndtr(sign * (f + plus + model.origin))
    expected = (p @ f / p.sum(), p @ f**2 / p.sum())
    at, user, centred = 0.0, np.zeros(2, np.int32), np.array(ratings) - model.origin
    rng, found = np.random.default_rng(0), []
    for number in range(DRAWS):
        seen = Observations(user, centred, at + added, np.ones(2), np.ones(2))
        z = model.respond({}, seen, Draws(5, sweep=number))
        precision = 1 / variance + 2
        at = (z - added).sum() / precision + rng.normal() / np.sqrt(precision)
        found.append([at, at**2])
    for trace, mean in zip(np.transpose(found), expected, strict=True):
        assert abs(trace.mean() - mean) < bound(8) * standard_error(trace)
