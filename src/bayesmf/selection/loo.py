"""Leave-one-out scores from the draws of a fit, without a test set: PSIS-LOO.

Vehtari, Gelman and Gabry (2017): if draw s explains rating i with the density p(r_i | s), then the
weights 1 / p(r_i | s) make of draws that know the rating draws that do not. The largest weights are
smoothed by a generalised Pareto distribution, whose shape k says how far they can be trusted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from bayesmf.errors import DataError
from bayesmf.evaluation.diagnostics import load_stats
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store.kept import take_rows
from bayesmf.model.designs import SIDES
from bayesmf.model.likelihood import Moments, Normal, round_to
from bayesmf.model.state import LIKELIHOOD

Array = NDArray[np.float64]
FEW = 25  # draws, of which the tail of the weights has the five that it takes to fit it
TRUSTED = 0.7  # the largest k at which enough draws give a weighted mean that can be trusted


class LeftOut(NamedTuple):
    """What is known of ratings that are left out, one number for each."""

    score: Array  # the log probability, or density, of the rating given all others
    k: Array  # the shape of the tail of its weights


def largest_k(draws: int) -> float:
    """The k up to which so many draws can be trusted: min(1 - 1 / log10 S, 0.7)."""
    return min(1 - 1 / math.log10(max(draws, 11)), TRUSTED)


def check_draws(posterior: Posterior, name: str) -> None:
    """Refuse a fit whose draws cannot leave a rating out."""
    why = ""
    if posterior.train is None:
        why = "does not hold its training ratings"
    elif posterior.is_point:
        why = "is one point, and has no draws to weight"
    elif len(posterior) < FEW:
        why = f"keeps {len(posterior)} draws, and weighing them takes {FEW} or more"
    elif posterior.model.every_effect:
        why = "has an effect of every single rating, such as a time chain"
    if why:
        raise DataError(f"{name} {why}; compare on test ratings instead, which no fit has seen")


def leave_one_out(posterior: Posterior, chosen: NDArray[np.intp]) -> LeftOut:
    """Score training ratings, by their positions, as if the fit had not seen them.

    On a scale with steps the score is the log probability of the rating, and else the log density.
    """
    assert posterior.train is not None
    rows = posterior.train.by_user
    cells = rows.row_index[chosen], rows.index[chosen], rows.values[chosen].astype(float)
    density, score = log_likelihoods(posterior, cells)
    weights, k = load_stats().psislw(density.T, axis=-1)  # arviz takes the log likelihood
    weights = weights - logsumexp(weights, axis=1, keepdims=True)
    return LeftOut(np.asarray(logsumexp(weights + score.T, axis=1)), np.asarray(k, float))


def log_likelihoods(
    posterior: Posterior, cells: tuple[NDArray[np.int32], NDArray[np.int32], Array]
) -> tuple[Array, Array]:
    """log p(r_i | draw) of the ratings (user, item, value), by draw, twice.

    The first is what the draws were made with. The second is the log probability on the levels of a
    scale with steps, so that a Gaussian can be compared with an ordinal likelihood.
    """
    user, item, values = cells
    rows = dict(zip(SIDES, (user, item), strict=True))
    draws, likelihood = posterior.draws, posterior.model.likelihood
    density = np.empty((len(posterior), len(values)))
    score = np.empty_like(density)
    levels = posterior.levels if posterior.has_levels else None
    if levels is not None:
        level = np.abs(values[:, None] - levels).argmin(axis=1)[:, None]
    for number in range(len(posterior)):
        x = {}
        variance = np.full(len(values), 1 / float(draws["tau"][number][0]))
        for name in SIDES:
            x[name] = take_rows(draws, f"{name}.x", rows[name], number).astype(float)
            if f"{name}.noise" in draws:
                x[name] += take_rows(draws, f"{name}.noise", rows[name], number)
            variance /= draws[f"{name}.alpha"][number][rows[name]]
        u, v = x["user"], x["item"]
        f = posterior.mean + u[:, 0] + v[:, 0] + np.sum(u[:, 1:] * v[:, 1:], axis=1)
        if likelihood.latent:
            own = {
                name.removeprefix(LIKELIHOOD): draws[name][number].astype(float)
                for name in draws
                if name.startswith(LIKELIHOOD)
            }
            moments = Moments(f, np.zeros(len(f)), variance)
            chances = likelihood.probabilities(own, user, moments, posterior.levels)
        else:
            density[number] = Normal(f, np.sqrt(variance)).log_density(values)
            score[number] = density[number]
            if levels is None:
                continue
            chances = round_to(levels, f, np.sqrt(variance))
        mine = np.take_along_axis(chances, level, axis=1)[:, 0]
        score[number] = np.log(np.maximum(mine, np.finfo(float).tiny))
        if likelihood.latent:
            density[number] = score[number]
    return density, score
