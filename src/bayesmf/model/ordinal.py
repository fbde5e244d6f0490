"""Ratings on a scale with steps: a rating is the cell of a latent number between cut points.

    z_p ~ N(f_p, 1 / w_p),   rating k of K if c_{k-1} < z_p <= c_k

The K - 1 cuts lie about the middle of the scale, c = middle + A g with K - 2 gaps g between them.
With G = K - 2 and gaps in steps of the scale, the mean log gaps m and those of user i have

    exp(m) / G ~ Dirichlet(2, ..., 2),   log g_i ~ N(m, diag s^2),   1 / s_k^2 ~ Gamma(1, 0.05)

so the gaps exp(m) add up to G steps, and tau is free. If all users share the cuts, log g = m.
Everything is drawn with z integrated out: tau and m together, where the users' gaps follow m; the
gaps of each user; m once more, given these; s^2. A step of Metropolis and Hastings proposes from
the Gaussian at the end of a Newton step, so there is no step size to choose. Two levels leave one
cut and no gaps: that is a probit, with tau = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, helmert
from scipy.special import log_softmax, ndtri

from bayesmf.checks import check_choice
from bayesmf.choices import CUTS, Cuts
from bayesmf.errors import DataError, Option
from bayesmf.kernels.response import ordinal as kernels
from bayesmf.model import distributions
from bayesmf.model.designs import register
from bayesmf.model.distributions import Gamma
from bayesmf.model.effects import Parameters
from bayesmf.model.likelihood import (
    Gaussian,
    Likelihood,
    Moments,
    Observations,
    WithoutParameters,
)
from bayesmf.random.draws import Draws

if TYPE_CHECKING:
    from bayesmf.model.spec import Hyper

Array = NDArray[np.float64]
FEW_LEVELS = 11  # up to so many, a scale with steps is ordinal if nobody says otherwise
MOST_LEVELS = 50  # of an ordinal scale
CONCENTRATION = 2.0  # of the Dirichlet prior of the mean gaps
SPREAD_SHAPE, SPREAD_RATE = 1.0, 0.05  # of the precision of users' log gaps
AFTER = 2  # rows of random numbers that one step uses


class Curve(NamedTuple):
    """A log density at one point: its value, its slope, and a precision like its curvature."""

    value: float
    slope: Array
    precision: Array

    def log_proposal(self, at: Array, to: Array) -> float:
        """The log density, but for a constant, of a proposal from the point.

        From where rounding has left no precision, far out in a tail, nothing is proposed.
        """
        try:
            lower = np.linalg.cholesky(self.precision)
        except np.linalg.LinAlgError:
            return -np.inf
        e = lower.T @ (to - at - np.linalg.solve(self.precision, self.slope))
        return float(np.log(np.diag(lower)).sum() + kernels.log_student(e @ e, len(e)))


def newton_step(at: Array, curve: Callable[[Array], Curve], draws: Draws) -> tuple[Array, bool]:
    """Move from one point of a density to another; returns it, and whether it is another.

    The proposal is a Student's t at the end of a Newton step, whose tails bring a chain back from
    wherever it begins (Metropolis and Hastings).
    """
    here, normals, uniforms = (
        curve(at),
        draws.normals(1, len(at))[0],
        draws.uniforms(2, kernels.DEGREES // 2),
    )
    Newton = distributions.Gaussian(here.precision, here.precision @ at + here.slope)
    to = Newton.mean() + kernels.student_scale(uniforms[0]) * (
        Newton.sample(normals) - Newton.mean()
    )
    there = curve(to)
    gain = there.value - here.value + there.log_proposal(to, at) - here.log_proposal(at, to)
    accepted = bool(np.log(uniforms[1, 0]) < gain)
    return (to if accepted else at), accepted


@dataclass(frozen=True)
class Cells:
    """What all ratings with levels have in common."""

    levels: tuple[float, ...] = ()  # of the training ratings if none
    origin: float = 0.0  # what is taken off the ratings
    name: ClassVar[str]
    latent: ClassVar[bool] = True

    @property
    def step(self) -> float:
        """From one level to the next."""
        return (self.levels[-1] - self.levels[0]) / (len(self.levels) - 1)

    def check(self, ratings: Any) -> None:
        """Refuse ratings that are none of the levels."""
        values = np.asarray(ratings.values, float)
        at = (values - self.levels[0]) / self.step
        off = (np.abs(at - np.round(at)) > 1e-6) | (at < -0.5) | (at > len(self.levels) - 0.5)
        if off.any():
            told = [f"{level:g}" for level in self.levels]
            if len(told) > 3:
                told[2:-1] = ["..."]
            raise DataError(
                f"the rating {values[np.argmax(off)]:g} is none of {', '.join(told)}, which is "
                f"what the {self.name} likelihood knows; correct it, or choose "
                f"{Option('likelihood', 'gaussian')}"
            )

    def centre(self, mean: float) -> float:
        """What was taken off the training ratings."""
        return self.origin

    def cut_points(self, parameters: Parameters) -> Array:
        """The cuts of each user, or in one row those of all, with minus and plus infinity."""
        raise NotImplementedError

    def cells(self, seen: Observations) -> kernels.Cells:
        """The ratings as the kernels take them."""
        first = self.levels[0] - self.origin
        return kernels.Cells(seen.user, seen.centred, first, 1 / self.step, seen.f, seen.root)

    def respond(self, parameters: Parameters, seen: Observations, draws: Draws) -> Array:
        """Draw z of every rating between the cuts of its cell."""
        cuts, out = self.cut_points(parameters) - self.origin, np.empty(len(seen.f))
        kernels.draw_latent(self.cells(seen), cuts, draws.counter(), out)
        return out

    def probabilities(
        self, parameters: Parameters, user: NDArray[np.int32], f: Moments, levels: Array
    ) -> Array:
        """P(level) = Phi((c_k - f) / sd) - Phi((c_{k-1} - f) / sd), by the cuts of each user.

        Somebody who is not known has the mean over a draw of their gaps and its mirror image.
        """
        cuts, out = self.cut_points(parameters), np.zeros((len(user), len(self.levels)))
        if "user.gaps" not in parameters:
            kernels.cell_chances(np.zeros_like(user), f.mean, f.sd, cuts, out)
            return out
        unknown = user < 0
        if not unknown.any():
            kernels.cell_chances(user, f.mean, f.sd, cuts, out)
            return out
        mean, drawn = parameters["mean"], parameters["newcomer"]
        pair = {"user.gaps": np.array([drawn, 2 * mean - drawn])}
        cuts = np.concatenate([cuts, self.cut_points(pair)])
        count = len(cuts) - 2
        kernels.cell_chances(np.where(unknown, count, user), f.mean, f.sd, cuts, out)
        other = np.zeros((int(unknown.sum()), len(self.levels)))
        row = np.full(len(other), count + 1, user.dtype)
        kernels.cell_chances(row, f.mean[unknown], f.sd[unknown], cuts, other)
        out[unknown] = (out[unknown] + other) / 2
        return out


@register("likelihood")
@dataclass(frozen=True)
class Binary(WithoutParameters, Cells):
    """The upper of two ratings where z ~ N(f, 1 / (alpha_i beta_j)) is above 0; tau stays 1.

    What is taken off f is the probit of the share of upper ratings.
    """

    name: ClassVar[str] = "binary"

    def settle(self, ratings: Any) -> Binary:
        """The levels are the two values of the training ratings, or the ends of their scale."""
        if self.levels:
            return self
        values = _distinct(ratings)
        if len(values) > 2:
            raise DataError(
                f"the binary likelihood is for ratings of two values, and these have {len(values)};"
                f" choose {Option('likelihood', 'ordinal')} or {Option('likelihood', 'gaussian')}"
            )
        ends = (ratings.scale.low, ratings.scale.high) if len(values) == 1 else tuple(values)
        if ends[0] == ends[1]:
            raise DataError(_only_one(values[0]))
        up = float(np.sum(np.asarray(ratings.values, float) == ends[1]))
        return replace(
            self, levels=(float(ends[0]), float(ends[1])),
            origin=float(ndtri((up + 0.5) / (len(ratings) + 1))),
        )  # fmt: skip

    def unit(self, sd: float) -> float:
        """The noise of z is the unit."""
        return 1.0

    def cut_points(self, parameters: Parameters) -> Array:
        """One cut at 0."""
        return np.array([[-np.inf, 0.0, np.inf]])

    def tau(self, hyper: Hyper, size: int, total: float) -> Gamma | None:
        """The scale of z is fixed."""
        return None


@register("likelihood")
@dataclass(frozen=True)
class Ordinal(Cells):
    """A rating is the cell of z ~ N(f, 1 / w) between cut points, of each user or of all."""

    cuts: Cuts = "users"  # whether every user has cut points of their own
    name: ClassVar[str] = "ordinal"

    def __post_init__(self) -> None:
        check_choice("cuts", self.cuts, CUTS)

    def settle(self, ratings: Any) -> Likelihood:
        """The levels are those of the training ratings' scale, f is about their mean.

        Two levels are binary.
        """
        if self.levels:
            return self
        levels = find_levels(ratings)
        if len(levels) == 2:
            return Binary().settle(ratings)
        if len(levels) == 1:
            raise DataError(_only_one(levels[0]))
        if not levels:
            raise DataError(
                f"the ratings on the scale {ratings.scale} have no steps, or more than "
                f"{MOST_LEVELS - 1}; choose {Option('likelihood', 'gaussian')}"
            )
        return replace(self, levels=levels, origin=float(ratings.mean))

    def unit(self, sd: float) -> float:
        """The standard deviation of the ratings."""
        return sd

    @property
    def _gaps(self) -> int:
        return len(self.levels) - 2

    def cut_points(self, parameters: Parameters) -> Array:
        """middle - sum of gaps / 2, and the gaps added one by one."""
        theta = parameters["user.gaps"] if "user.gaps" in parameters else parameters["mean"][None]
        return self._cut_at(self.step * np.exp(theta))

    def _cut_at(self, gaps: Array) -> Array:
        first = (self.levels[0] + self.levels[-1]) / 2 - gaps.sum(axis=1, keepdims=True) / 2
        end = np.full(first.shape, np.inf)
        return np.hstack([-end, first, first + np.cumsum(gaps, axis=1), end])

    def start(self, users: int) -> Parameters:
        """All gaps are one step; those of users differ by a fifth."""
        shared: Parameters = {"mean": np.zeros(self._gaps)}
        if self.cuts == "users":
            shared["variance"] = np.full(self._gaps, SPREAD_RATE)
            shared["newcomer"] = np.zeros(self._gaps)
        return self.begin(shared, users)

    def begin(self, parameters: Parameters, users: int) -> Parameters:
        """Other users' gaps begin at the mean."""
        if self.cuts == "global":
            return parameters
        return {**parameters, "user.gaps": np.tile(parameters["mean"], (users, 1))}

    def update(
        self,
        parameters: Parameters,
        tau: float,
        hyper: Hyper,
        seen: Observations,
        draws: Draws,
        shared: bool,
    ) -> tuple[Parameters, float]:
        """Draw tau and the gaps, with z integrated out; not ``shared``, the gaps of users alone.

        What all share is moved in every other sweep.
        """
        steps = _Steps(self, parameters, tau, seen)
        if shared and draws.sweep % 2 == 0:  # which costs as much as all else here
            tau = steps.move_all(hyper, draws)
        if self.cuts == "users":
            steps.move_users(draws)
            if shared:
                steps.move_population(draws)
        return steps.parameters, tau

    def tau(self, hyper: Hyper, size: int, total: float) -> Gamma:
        """tau ~ Gamma(a + |Omega| / 2, b + 1/2 sum alpha_i beta_j (z - f)^2)."""
        return Gaussian().tau(hyper, size, total)


@cache
def _find_contrasts(size: int) -> Array:
    """Return an orthonormal basis, in columns, of log gaps that add up to a constant."""
    return np.asarray(helmert(size).T)


class _Steps:
    """The steps of one update; the likelihood of every user, once measured, is kept for the next.

    ``rows`` are those of the kernel ``measure``, at the present gaps and tau.
    """

    def __init__(self, model: Ordinal, given: Parameters, tau: float, seen: Observations) -> None:
        self.model, self.parameters, self.tau = model, dict(given), tau
        self.cells, self.factor = model.cells(seen), 1.0
        self.own, self.size = model.cuts == "users", len(given["mean"])
        self.theta = given["user.gaps"].copy() if self.own else given["mean"][None].copy()
        count = len(self.theta) if self.own else len(seen.f)
        step = kernels.BLOCK if self.own else kernels.PART
        self.parts = np.append(np.arange(0, count, step), count)
        if self.own:
            self.parts = np.searchsorted(seen.user, self.parts.astype(seen.user.dtype))
        self.rows: Array | None = None
        self.contrasts = _find_contrasts(self.size)

    def measure(self, theta: Array, factor: float | None = None) -> tuple[Array, Array]:
        """The likelihood of every user at other gaps, and the gaps; factor^2 multiplies tau."""
        gaps = self.model.step * np.exp(theta)
        cuts = self.model._cut_at(gaps) - self.model.origin
        count = len(theta) if self.own else len(self.parts) - 1
        rows = np.zeros((count, kernels.width_of(cuts.shape[1])))
        kernels.measure(self.cells, self.parts, factor or self.factor, cuts, rows)
        return (rows if self.own else rows.sum(axis=0, keepdims=True)), gaps

    def mean_at(self, u: Array) -> tuple[Array, Array]:
        """m = log G + log softmax(B u), and its derivatives in u."""
        m = np.log(self.size) + log_softmax(self.contrasts @ u)
        p = np.exp(m) / self.size
        return m, self.contrasts - p @ self.contrasts

    def move_all(self, hyper: Hyper, draws: Draws) -> float:
        """Draw tau, m and log s, which the gaps of all users follow; returns tau."""
        apart, start, found = self.theta - self.parameters["mean"], np.log(self.tau), []
        G, spreads = self.size, self.size if self.own else 0
        variance = self.parameters.get("variance", np.zeros(0))

        def curve(x: Array) -> Curve:
            s, (m, D), grown = x[0], self.mean_at(x[1:G]), np.exp(x[G:])
            away = apart * grown if self.own else apart
            rows, gaps = self.measure(away + m, float(np.exp((s - start) / 2)))
            found.append(rows)
            slope = np.empty(1 + G + spreads)
            precision = np.empty((len(slope), len(slope)))
            value = kernels.add_up(rows, gaps, away, slope, precision)
            rate, pull = hyper.noise_rate * np.exp(s), SPREAD_RATE / (variance * grown**2)
            value += hyper.noise_shape * s - rate + CONCENTRATION * m.sum()
            value -= (2 * SPREAD_SHAPE * x[G:] + pull).sum()
            slope += np.repeat([hyper.noise_shape - rate, CONCENTRATION, 0.0], (1, G, spreads))
            slope[1 + G :] += 2 * (pull - SPREAD_SHAPE)
            T = block_diag(1.0, D, np.eye(spreads))
            firm = (hyper.noise_shape, CONCENTRATION, 4 * SPREAD_SHAPE)
            prior = np.diag(np.repeat(firm, (1, G - 1, spreads)))
            return Curve(value, T.T @ slope, T.T @ precision @ T + prior)

        at = np.concatenate(
            [[start], self.contrasts.T @ self.parameters["mean"], np.zeros(spreads)]
        )
        at, accepted = newton_step(at, curve, draws)
        self.rows = found[accepted]
        mean, grown = self.mean_at(at[1:G])[0], np.exp(at[G:])
        self.theta = (apart * grown if self.own else apart) + mean
        self.parameters["mean"] = mean
        if self.own:
            self.parameters["variance"] = variance * grown**2
        self.factor = float(np.exp((at[0] - start) / 2))
        return float(np.exp(at[0]))

    def move_users(self, draws: Draws) -> None:
        """Draw the gaps of every user."""
        mean, precision = self.parameters["mean"], 1 / self.parameters["variance"]
        rows, gaps = (
            (self.rows, self.model.step * np.exp(self.theta))
            if self.rows is not None
            else self.measure(self.theta)
        )
        to, forward, counter = np.empty_like(gaps), np.empty(len(gaps)), draws.counter()
        kernels.propose(rows, self.theta, gaps, mean, precision, counter, to, forward)
        kernels.accept(rows, self.theta, *self.measure(to), to, mean, precision, counter, forward)
        self.parameters["user.gaps"] = self.theta

    def move_population(self, draws: Draws) -> None:
        """Draw m and s^2 given the gaps of the users, and the gaps of a newcomer."""
        count, total = len(self.theta), self.theta.sum(axis=0)
        precision = 1 / self.parameters["variance"]

        def curve(u: Array) -> Curve:
            m, D = self.mean_at(u)
            value = float(precision @ (total * m - count * m**2 / 2)) + CONCENTRATION * m.sum()
            slope = precision * (total - count * m) + CONCENTRATION
            prior = CONCENTRATION * np.eye(self.size - 1)
            return Curve(value, D.T @ slope, D.T @ np.diag(count * precision) @ D + prior)

        u = self.contrasts.T @ self.parameters["mean"]
        mean = self.mean_at(newton_step(u, curve, replace(draws, first=AFTER))[0])[0]
        squares = ((self.theta - mean) ** 2).sum(axis=0)
        shape = np.full(self.size, SPREAD_SHAPE + count / 2)
        variance = (SPREAD_RATE + squares / 2) / draws.gammas(shape)
        normals = replace(draws, first=2 * AFTER).normals(1, self.size)[0]
        newcomer = mean + np.sqrt(variance) * normals
        self.parameters |= {"mean": mean, "variance": variance, "newcomer": newcomer}


@register("likelihood")
@dataclass(frozen=True)
class Auto(Gaussian):
    """Binary, ordinal or Gaussian, as the scale of the training ratings has it.

    Ratings of two values are binary. Ratings with steps and at most 11 levels are ordinal, and all
    others Gaussian.
    """

    name: ClassVar[str] = "auto"

    def settle(self, ratings: Any) -> Likelihood:  # type: ignore[override]
        """Choose; ratings in shards, which nobody holds all of, are Gaussian."""
        if not hasattr(ratings, "values"):
            return Gaussian()
        count = len(find_levels(ratings))
        if 2 <= count <= FEW_LEVELS:
            return Ordinal().settle(ratings)
        return Gaussian()


def find_levels(ratings: Any) -> tuple[float, ...]:
    """The levels of ratings: evenly spaced, and at most 50; none if there are none.

    They are those of the scale, if it has steps and at most 11 levels. A scale with more may have
    been told from the ratings, whose step may be a wider one: the least difference of two.
    Ratings that are all at one of the two ends have no other level.
    """
    scale, values = ratings.scale, _distinct(ratings)
    if len(values) == 2 and values[0] == scale.low and values[1] == scale.high:
        return float(values[0]), float(values[1])
    steps = [] if scale.step is None else [scale.step]
    if len(values) > 1 and (not steps or scale.high - scale.low > (FEW_LEVELS - 0.5) * steps[0]):
        steps.insert(0, float(np.diff(values).min()))
    for step in steps:
        at = (values - scale.low) / step
        count = round((scale.high - scale.low) / step) + 1
        if count <= MOST_LEVELS and np.abs(at - np.round(at)).max() < 1e-6:
            return tuple(float(scale.low + step * k) for k in range(count))
    return ()


def _distinct(ratings: Any) -> Array:
    """The values that ratings have."""
    if not hasattr(ratings, "values"):
        raise DataError(
            f"{ratings.folder} holds shards, and ordinal or binary ratings have to be in memory; "
            f"fit the ratings themselves, or choose {Option('likelihood', 'gaussian')}"
        )
    return np.unique(np.asarray(ratings.values, float))


def _only_one(value: float) -> str:
    return (
        f"all ratings are {value:g}, which leaves nothing to learn; check the file, or give the "
        f"scale: {Option('scale', function='load')}"
    )
