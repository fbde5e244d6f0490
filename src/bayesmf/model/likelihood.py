"""Likelihoods: how a rating comes from its linear predictor f = gamma_i + eta_j + S_i'T_j.

The rows are drawn given a working response y_p with precision w_p = tau alpha_i beta_j. A
likelihood says what y_p is, how tau is updated, and what a prediction of f says of a rating.
Gaussian is the first; another one is a class with these methods that is passed to ``Model``. Its
ratings have levels then, and a prediction is a probability of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from bayesmf.model.designs import register
from bayesmf.model.distributions import LOG_2PI, Gamma
from bayesmf.model.effects import Parameters
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

    def below(self, ratings: Array) -> tuple[Array, Array]:
        """P(rating < r) and P(rating <= r) of one rating r for each pair."""

    def crps(self, ratings: Array) -> Array:
        """The continuous ranked probability score of one rating for each pair; less is better."""


class Observations(NamedTuple):
    """Ratings as a latent likelihood sees them, in by-user order."""

    user: NDArray[np.int32]  # whose rating
    centred: Array  # the rating less the model's centre
    f: Array  # its linear predictor
    weight: Array  # w = tau alpha_i beta_j
    root: Array  # the square root of the weight


@runtime_checkable
class Likelihood(Protocol):
    """What ``Model`` takes as a likelihood.

    A latent one draws the working response anew in every sweep, may have parameters of its own
    (see ``effects`` for the meaning of their names), and explains ratings that are one of
    ``levels``.
    """

    name: ClassVar[str]
    latent: ClassVar[bool]  # whether the working response is drawn anew in every sweep

    @property
    def levels(self) -> tuple[float, ...]:
        """The ratings that there are, in ascending order; none if it is not latent."""

    def settle(self, ratings: Any) -> Likelihood:
        """The same with what it has to know of the training ratings."""

    def check(self, ratings: Any) -> None:
        """Refuse, in a sentence, ratings that this likelihood cannot explain."""

    def centre(self, mean: float) -> float:
        """What is taken off the ratings, given their mean; linear predictors are about it."""

    def unit(self, sd: float) -> float:
        """The unit of the linear predictor, given the standard deviation of the ratings."""

    def start(self, users: int) -> Parameters:
        """First values of its parameters."""

    def begin(self, parameters: Parameters, users: int) -> Parameters:
        """The parameters for other users: what all share, and first values of the rest."""

    def update(
        self,
        parameters: Parameters,
        tau: float,
        hyper: Hyper,
        seen: Observations,
        draws: Draws,
        shared: bool,
    ) -> tuple[Parameters, float]:
        """Draw the parameters and tau anew, with the working response integrated out.

        Unless ``shared``, what all ratings share stays as it is.
        """

    def respond(self, parameters: Parameters, seen: Observations, draws: Draws) -> Array:
        """Draw the working response of each rating; only asked for if latent."""

    def tau(self, hyper: Hyper, size: int, total: float) -> Gamma | None:
        """The conditional of tau, given sum alpha_i beta_j (y - f)^2; None: tau stays 1."""

    def probabilities(
        self, parameters: Parameters, user: NDArray[np.int32], f: Moments, levels: Array
    ) -> Array:
        """P(rating = level) for every level of a scale with steps, given one draw's moments.

        ``user`` are the users' rows; -1 stands for somebody who is not known.
        """


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

    def below(self, ratings: Array) -> tuple[Array, Array]:
        """Phi(z) twice, z = (rating - mean) / sd."""
        share = ndtr((ratings - self.mean) / self.sd)
        return share, share

    def crps(self, ratings: Array) -> Array:
        """sd [ z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi) ],  z = (rating - mean) / sd."""
        z = (ratings - self.mean) / self.sd
        density = np.exp(-0.5 * (z**2 + LOG_2PI))
        return np.asarray(self.sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))


class Discrete:
    """A probability for each level, pair by pair."""

    def __init__(self, levels: Array, chances: Array) -> None:
        self.levels, self.chances = levels, chances
        self.mean = chances @ levels
        self.sd = np.sqrt(np.maximum(chances @ levels**2 - self.mean**2, 0.0))

    def quantile(self, level: float) -> Array:
        """The first level up to which lies a share ``level`` of the distribution."""
        below = np.cumsum(self.chances[:, :-1], axis=1) < level
        return np.asarray(self.levels[below.sum(axis=1)])

    def log_density(self, ratings: Array) -> Array:
        """log P(rating); ratings are levels."""
        below, upto = self.below(ratings)
        return np.log(np.maximum(upto - below, np.finfo(float).tiny))

    def below(self, ratings: Array) -> tuple[Array, Array]:
        """The sums of the probabilities of the levels below a rating, and up to it."""
        at = np.abs(ratings[:, None] - self.levels).argmin(axis=1)[:, None]
        upto = np.cumsum(self.chances, axis=1)
        below = upto - self.chances
        return tuple(np.take_along_axis(each, at, axis=1)[:, 0] for each in (below, upto))  # type: ignore[return-value]

    def crps(self, ratings: Array) -> Array:
        """The sum of (P(rating <= level) - [r <= level])^2 times the step to the next level."""
        upto = np.cumsum(self.chances[:, :-1], axis=1)
        reached = ratings[:, None] <= self.levels[:-1]
        return np.asarray((upto - reached) ** 2 @ np.diff(self.levels))


def round_to(levels: Array, mean: Array, sd: Array) -> Array:
    """P(level) of Gaussians that are rounded to levels; the ends take what lies beyond."""
    edges = (levels[1:] + levels[:-1]) / 2
    below = ndtr((edges - mean[:, None]) / sd[:, None])
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


class WithoutParameters:
    """What likelihoods without parameters of their own have in common."""

    def start(self, users: int) -> Parameters:
        """There are no parameters."""
        return {}

    def begin(self, parameters: Parameters, users: int) -> Parameters:
        """There are no parameters."""
        return {}

    def update(
        self,
        parameters: Parameters,
        tau: float,
        hyper: Hyper,
        seen: Observations,
        draws: Draws,
        shared: bool,
    ) -> tuple[Parameters, float]:
        """There is nothing to draw, and tau has a conditional or is fixed."""
        return parameters, tau


@register("likelihood")
@dataclass(frozen=True)
class Gaussian(WithoutParameters):
    """r = mean + f + N(0, 1 / (tau alpha_i beta_j)): the ratings are their own working response."""

    name: ClassVar[str] = "gaussian"
    latent: ClassVar[bool] = False

    def check(self, ratings: Any) -> None:
        """Every rating is a number."""

    @property
    def levels(self) -> tuple[float, ...]:
        """Any number may be a rating."""
        return ()

    def settle(self, ratings: Any) -> Gaussian:
        """Nothing has to be known of the ratings."""
        return self

    def centre(self, mean: float) -> float:
        """The mean rating."""
        return mean

    def unit(self, sd: float) -> float:
        """The standard deviation of the ratings."""
        return sd

    def respond(self, parameters: Parameters, seen: Observations, draws: Draws) -> Array:
        """The centred ratings themselves."""
        return seen.centred

    def tau(self, hyper: Hyper, size: int, total: float) -> Gamma:
        """tau ~ Gamma(a + |Omega| / 2, b + 1/2 sum alpha_i beta_j e_ij^2)."""
        shape, rate = hyper.noise_shape + size / 2, hyper.noise_rate + total / 2
        return Gamma(np.array([shape]), np.array([rate]))

    def probabilities(
        self, parameters: Parameters, user: NDArray[np.int32], f: Moments, levels: Array
    ) -> Array:
        """A rating is the level its Gaussian rounds to; the ends take what lies beyond."""
        return round_to(levels, f.mean, f.sd)
