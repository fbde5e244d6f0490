"""Likelihoods: how a rating comes from its linear predictor f = gamma_i + eta_j + S_i'T_j.

The rows are drawn given a working response y_p with precision w_p = tau alpha_i beta_j. A
likelihood says what y_p is, how tau is updated, and what a prediction of f says of a rating.
Gaussian is the first; another one is a class with these methods that is passed to ``Model``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from bayesmf.model.designs import register
from bayesmf.model.distributions import LOG_2PI, Gamma
from bayesmf.random.draws import Draws

if TYPE_CHECKING:
    from bayesmf.model.spec import Hyper

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """What is known of the linear predictors of some pairs, pair by pair."""

    mean: Array
    doubt: Array  # the variance of f: how little is known of the user and the item
    noise_variance: Array  # 1 / w: the variance of the working response about f

    @property
    def sd(self) -> Array:
        """Of the working response: doubt and noise together."""
        return np.sqrt(self.doubt + self.noise_variance)


class Predictive(Protocol):
    """The predictive distribution of ratings, pair by pair."""

    mean: Array  # the expected rating
    sd: Array

    def quantile(self, level: float) -> Array:
        """The rating below which lies a share ``level`` of the distribution."""

    def log_density(self, ratings: Array) -> Array:
        """The log density, or log probability, of one rating for each pair."""


@runtime_checkable
class Likelihood(Protocol):
    """What ``Model`` takes as a likelihood."""

    name: ClassVar[str]
    latent: ClassVar[bool]  # whether the working response is drawn anew in every sweep

    def check(self, ratings: Any) -> None:
        """Refuse, in a sentence, ratings that this likelihood cannot explain."""

    def centre(self, mean: float) -> float:
        """What is taken off the ratings, given their mean; linear predictors are about it."""

    def respond(self, centred: Array, f: Array, weight: Array, draws: Draws) -> Array:
        """Draw the working response of each rating, given f and w; only asked for if latent."""

    def tau(self, hyper: Hyper, size: int, total: float) -> Gamma | None:
        """The conditional of tau, given sum alpha_i beta_j (y - f)^2; None: tau stays 1."""

    def predictive(self, f: Moments) -> Predictive:
        """What is known of a rating."""

    def probabilities(self, f: Moments, levels: Array) -> Array:
        """P(rating = level) for every level of a scale with steps, given one draw's moments."""


class Normal:
    """A Gaussian for each pair."""

    def __init__(self, mean: Array, sd: Array) -> None:
        self.mean, self.sd = mean, sd

    def quantile(self, level: float) -> Array:
        """mean + sd Phi^-1(level)."""
        return np.asarray(self.mean + ndtri(level) * self.sd)

    def log_density(self, ratings: Array) -> Array:
        """log N(rating | mean, sd)."""
        z = (ratings - self.mean) / self.sd
        return np.asarray(-0.5 * (z**2 + LOG_2PI) - np.log(self.sd))


@register("likelihood")
@dataclass(frozen=True)
class Gaussian:
    """r = mean + f + N(0, 1 / (tau alpha_i beta_j)): the ratings are their own working response."""

    name: ClassVar[str] = "gaussian"
    latent: ClassVar[bool] = False

    def check(self, ratings: Any) -> None:
        """Every rating is a number."""

    def centre(self, mean: float) -> float:
        """The mean rating."""
        return mean

    def respond(self, centred: Array, f: Array, weight: Array, draws: Draws) -> Array:
        """The centred ratings themselves."""
        return centred

    def tau(self, hyper: Hyper, size: int, total: float) -> Gamma:
        """tau ~ Gamma(a + |Omega| / 2, b + 1/2 sum alpha_i beta_j e_ij^2)."""
        shape, rate = hyper.noise_shape + size / 2, hyper.noise_rate + total / 2
        return Gamma(np.array([shape]), np.array([rate]))

    def predictive(self, f: Moments) -> Normal:
        """A Gaussian with the variance of f and of the noise."""
        return Normal(f.mean, f.sd)

    def probabilities(self, f: Moments, levels: Array) -> Array:
        """A rating is the level its Gaussian rounds to; the ends take what lies beyond."""
        edges = (levels[1:] + levels[:-1]) / 2
        below = ndtr((edges - f.mean[:, None]) / f.sd[:, None])
        return np.diff(below, axis=1, prepend=0.0, append=1.0)
