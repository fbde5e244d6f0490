"""The distributions of the model's conditionals.

Gaussians are written by mean and precision, Gammas by shape and rate. A conditional returns one
of these; an algorithm takes from it what it needs: a draw, the mean, the mode or the density.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.linalg import solve_triangular

from bayesmf.kernels.densities import truncated_moments
from bayesmf.random.draws import Draws

Array = NDArray[np.float64]
LOG_2PI = float(np.log(2 * np.pi))
NODES = np.polynomial.legendre.leggauss(96)


@dataclass(frozen=True)
class Gaussian:
    """N(mean, precision) of a vector, given by precision and linear term = precision @ mean."""

    precision: Array
    linear: Array

    def mean(self) -> Array:
        """Also the mode."""
        return np.asarray(np.linalg.solve(self.precision, self.linear), float)

    def sample(self, standard_normals: Array) -> Array:
        """Returns mean + L^-T standard_normals, where precision = L L'."""
        if not (np.isfinite(self.precision).all() and np.isfinite(self.linear).all()):
            raise np.linalg.LinAlgError("the precision of a vector is not finite")
        lower = np.linalg.cholesky(self.precision)
        shift: Array = solve_triangular(lower, standard_normals, lower=True, trans="T")
        return self.mean() + shift

    def log_density(self, x: Array) -> float:
        """log N(x | mean, precision)."""
        e = x - self.mean()
        _, logdet = np.linalg.slogdet(self.precision)
        return 0.5 * float(logdet - len(x) * LOG_2PI - e @ self.precision @ e)


@dataclass(frozen=True)
class Gamma:
    """Independent Gamma(shape, rate), element by element."""

    shape: Array
    rate: Array

    def mean(self) -> Array:
        """shape / rate."""
        return self.shape / self.rate

    def mean_log(self) -> Array:
        """psi(shape) - log rate."""
        out: Array = special.digamma(self.shape) - np.log(self.rate)
        return out

    def log_mass(self) -> Array:
        """Nothing is cut off."""
        return np.zeros_like(self.shape)

    def sample(self, draws: Draws) -> Array:
        """One draw of each."""
        return draws.gammas(self.shape) / self.rate

    def log_density(self, x: Array) -> Array:
        """a log b - log Gamma(a) + (a - 1) log x - b x."""
        return self.expected_log_density(np.log(x), x)

    def expected_log_density(self, mean_log: Array, mean: Array) -> Array:
        """The mean of the log density under any distribution, from its E[log x] and E[x]."""
        a, b = self.shape, self.rate
        out: Array = a * np.log(b) - special.gammaln(a) + (a - 1) * mean_log - b * mean
        return out - self.log_mass()


@dataclass(frozen=True)
class TruncatedGamma(Gamma):
    """Gamma(shape, rate) restricted to (low, high), exact in the far tails too."""

    low: float
    high: float

    def sample(self, draws: Draws) -> Array:
        """By inversion where the interval holds mass that doubles can tell, else by rejection.

        In a far tail the log density is bounded by its tangent at the nearer end, which is the
        exponential distribution that proposals come from.
        """
        a = np.asarray(self.shape, float)
        low, high = self.low * self.rate, self.high * self.rate
        u = draws.uniforms(len(a), 2)
        upper = low > a  # work in the tail that is small, where digits are kept
        at_low = np.where(upper, special.gammaincc(a, low), special.gammainc(a, low))
        at_high = np.where(upper, special.gammaincc(a, high), special.gammainc(a, high))
        p = at_low + u[:, 0] * (at_high - at_low)
        out = np.where(upper, special.gammainccinv(a, p), special.gammaincinv(a, p))
        mass = np.abs(at_high - at_low)
        far = (a >= 1) & ((low > a) | (high < a - 1)) & ~(mass > 1e-200)
        if far.any():
            out[far] = _tail(a[far], low[far], high[far], np.flatnonzero(far), draws)
        return np.asarray(np.clip(out / self.rate, self.low, self.high), float)

    @cached_property
    def _moments(self) -> Array:
        """log mass, mean and mean log."""
        out = np.empty((len(self.shape), 3))
        truncated_moments(self.shape, self.rate, self.low, self.high, *NODES, out)
        out[:, 0] -= special.gammaln(self.shape)
        return out

    def log_mass(self) -> Array:
        """log of the untruncated Gamma's mass within the bounds."""
        a = np.asarray(self.shape, float)
        below, above = self.low * self.rate, self.high * self.rate
        outside = special.gammainc(a, below) + special.gammaincc(a, above)
        out: Array = np.log1p(-np.minimum(outside, 0.5))
        few = outside > 0.5  # where the difference would lose digits
        if few.any():
            out[few] = replace(self, shape=a[few], rate=self.rate[few])._moments[:, 0]
        return out

    def mean(self) -> Array:
        """Within the bounds."""
        return self._moments[:, 1]

    def mean_log(self) -> Array:
        """Of x within the bounds."""
        return self._moments[:, 2]

    def log_density(self, x: Array) -> Array:
        """That of the Gamma, less the log mass within the bounds."""
        inside = (x >= self.low) & (x <= self.high)
        return np.where(inside, super().log_density(x), -np.inf)


def _tail(a: Array, low: Array, high: Array, rows: NDArray[np.intp], draws: Draws) -> Array:
    """x ~ x^(a-1) e^-x on (low, high), far from the mode: exponential proposals from the end."""
    rising = high < a - 1
    end = np.where(rising, high, low)
    slope = np.abs((a - 1) / end - 1)  # of the log density at the nearer end
    width = high - low
    out = np.empty(len(a))
    todo = np.arange(len(a))
    attempt = 0
    while len(todo):
        attempt += 1
        u = draws.uniforms(int(rows.max()) + 1, 2 + 2 * attempt)[rows[todo], -2:]
        s = slope[todo]
        # how far in from the end: exponential, cut at the other end
        step = -np.log1p(u[:, 0] * np.expm1(-s * width[todo])) / s
        x = end[todo] + np.where(rising[todo], -step, step)
        log_accept = (a[todo] - 1) * np.log(x / end[todo]) - (x - end[todo]) + s * step
        good = np.log(u[:, 1]) < log_accept
        out[todo[good]] = x[good]
        todo = todo[~good]
    return out


@dataclass(frozen=True)
class NormalWishart:
    """(mu, Lambda): Lambda ~ Wishart(scale, nu), mu | Lambda ~ N(mean, beta Lambda)."""

    mean: Array
    beta: float
    inverse_scale: Array  # the inverse of the Wishart's scale
    nu: float

    def posterior(self, weight: float, total: Array, scatter: Array, count: int) -> NormalWishart:
        """After ``count`` vectors x_k ~ N(mu, w_k Lambda), from sum w, sum w x and sum w x x'.

        beta~ = beta + sum w;  mean~ = (beta mean + sum w x) / beta~;  nu~ = nu + count
        scale~^-1 = scale^-1 + sum w x x' + beta mean mean' - beta~ mean~ mean~'
        """
        beta = self.beta + weight
        mean = (self.beta * self.mean + total) / beta
        inverse = (
            self.inverse_scale
            + scatter
            + self.beta * np.outer(self.mean, self.mean)
            - beta * np.outer(mean, mean)
        )
        return NormalWishart(mean, beta, (inverse + inverse.T) / 2, self.nu + count)

    def expected_precision(self) -> Array:
        """<Lambda> = nu scale; <Lambda mu> is this times the mean."""
        inverse = np.linalg.inv(self.inverse_scale)
        return self.nu * (inverse + inverse.T) / 2

    def expected_log_det(self) -> float:
        """E log |Lambda| = sum_a psi((nu + 1 - a) / 2) + d log 2 + log |scale|."""
        size = len(self.mean)
        _, logdet = np.linalg.slogdet(self.inverse_scale)
        psi = special.digamma((self.nu - np.arange(size)) / 2).sum()
        return float(psi + size * np.log(2) - logdet)

    def sample(self, draws: Draws) -> tuple[Array, Array]:
        """mu and Lambda: Bartlett's decomposition, then the Gaussian."""
        if not np.isfinite(self.inverse_scale).all():
            raise np.linalg.LinAlgError("the precisions of the rows are not finite")
        size = len(self.mean)
        normals = draws.normals(size + 1, size)
        degrees = self.nu - np.arange(size)
        bartlett = np.tril(normals[:size], -1)
        bartlett[np.diag_indices(size)] = np.sqrt(2 * draws.gammas(degrees / 2))
        # scale = inverse(C C') = C^-T C^-1, so Lambda = (C^-T B)(C^-T B)'
        root = solve_triangular(
            np.linalg.cholesky(self.inverse_scale), bartlett, lower=True, trans="T"
        )
        precision = root @ root.T
        shift = np.linalg.solve(np.linalg.cholesky(precision).T, normals[size])
        return self.mean + shift / np.sqrt(self.beta), precision

    def log_density(self, mu: Array, precision: Array) -> float:
        """log Wishart(Lambda) + log N(mu | mean, beta Lambda)."""
        _, logdet = np.linalg.slogdet(precision)
        e = mu - self.mean
        return self._log(precision, float(logdet), float(e @ precision @ e))

    def expected_log_density(self, under: NormalWishart) -> float:
        """The mean of the log density under another of these; under itself, minus the entropy."""
        e = under.mean - self.mean
        precision = under.expected_precision()
        form = float(e @ precision @ e) + len(e) / under.beta
        return self._log(precision, under.expected_log_det(), form)

    def _log(self, precision: Array, logdet: float, form: float) -> float:
        size = len(self.mean)
        _, inverse_logdet = np.linalg.slogdet(self.inverse_scale)
        wishart = (
            0.5 * (self.nu - size - 1) * logdet
            - 0.5 * np.sum(self.inverse_scale * precision)
            + 0.5 * self.nu * inverse_logdet
            - 0.5 * self.nu * size * np.log(2)
            - special.multigammaln(self.nu / 2, size)
        )
        normal = 0.5 * (size * (np.log(self.beta) - LOG_2PI) + logdet - self.beta * form)
        return float(wishart + normal)
