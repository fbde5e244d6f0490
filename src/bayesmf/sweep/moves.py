"""Moves along directions that the conditionals of a sweep follow only slowly.

No prediction depends on where the features' axes lie, on how much of a mean is in the features and
how much in the other side's biases, or on a factor that tau loses and all alpha gain. The moves
here draw along these directions from the posterior; they change no prediction but by tau.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.densities import LogDensity, draw_basis, log_density, slice_sample
from bayesmf.model import conditionals
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.distributions import Gaussian, NormalWishart
from bayesmf.model.spec import Model
from bayesmf.model.state import Shift, Side, State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Array = NDArray[np.float64]
ROUNDS = 2  # of the steps in every direction of the basis


class Turns:
    """Where the moves take the rows of both sides: x becomes x A + a, and what shifts it W A.

    Priors change at once. Rows are many, and go all the way in one step: ``apply``.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.maps = {name: self._nowhere(name) for name in SIDES}

    def add(self, name: Name, A: Array, a: Array) -> None:
        """Take the rows of a side further."""
        there, to = self.maps[name]
        self.maps[name] = there @ A, to @ A + a

    def apply(self) -> None:
        """Take the rows where they have to go."""
        for name, (A, a) in self.maps.items():
            side, _ = self.state.sides(name)
            side.turn(A, a)
            for shift in side.shifts:
                shift.W = shift.W @ A
                shift.offset = shift.offset @ A
            self.maps[name] = self._nowhere(name)

    def _nowhere(self, name: Name) -> tuple[Array, Array]:
        size = self.state.sides(name)[0].size
        return np.eye(size), np.zeros(size)


def move_features(model: Model, data: Data, state: State, draws: Draws) -> None:
    """Draw the means of the features against the biases, and then the basis of the features.

    This comes first in a sweep: W and the offsets are moved alike, and what rounding leaves between
    them is gone when W is drawn, so that nothing of it is in a state between two sweeps.
    """
    if not model.rank or data.user.priors is not None or data.item.priors is not None:
        return
    turns = Turns(state)
    for name in SIDES:
        if model.has_own(name):
            _move_mean(model, name, turns, stream(draws, name, "mean"))
    _move_basis(model, turns, stream(draws, None, "basis"))
    turns.apply()


def draw_tau(
    model: Model, data: SideData, errors: Array, size: int, state: State, draws: Draws
) -> None:
    """Draw tau with the precisions alpha of one side integrated out; they are to be drawn next.

    With E_i = sum_j beta_j e_ij^2 the log density of s = log tau is

        (a_t + nnz/2) s - b_t e^s - sum_i (a + n_i/2) log(b + e^s E_i/2) + sum_i log mass_i

    where mass_i is the share of alpha's conditional that lies within the bounds, if there are any.
    """
    prior = model.likelihood.tau(model.priors, 0, 0.0)
    if model.precision == "constant" or prior is None:
        return
    (shape,), (rate,), (a, b) = prior.shape, prior.rate, model.precision_prior
    halves, at = data.counts / 2, float(np.log(state.tau))
    width = 1 / np.sqrt(shape + np.sum(a * halves / (a + halves)))  # as far as counts can tell
    f = LogDensity(shape + size / 2, rate, 0.0, 0.0, 0.0, a + halves, errors / (2 * b))
    own = stream(draws, data.name, "tau_with_alpha")
    if model.precision == "robust":
        at = slice_sample(f, at, 3 * width, own.counter(), 0)
    else:
        to = at + 2.4 * width * float(own.normals(1)[0, 0])
        gain = log_density(f, to) - log_density(f, at)
        for s, sign in ((to, 1), (at, -1)):
            alpha = conditionals.alpha(model, data.counts, errors, np.exp(s))
            gain += sign * float(np.sum(alpha.log_mass()))
        at = to if np.log(own.uniforms(1)[0, 0]) < gain else at
    state.tau = float(np.exp(at))


def _move_mean(model: Model, name: Name, turns: Turns, draws: Draws) -> None:
    """Draw a in S + a, with eta - a'T on the other side: the mean of the features of one side.

    The rows' prior follows by mu + a. With a joint bias the prior of the other side follows too,
    by x C, C = [[1, 0], [-a, I]]; with a bias of its own it weighs against a.
    """
    me, others = turns.state.sides(name)
    other: Name = "item" if name == "user" else "user"
    size, first = me.size, model.first_shifted
    prior = model.wishart(size - first)
    features = slice(1 - first, None)  # of the columns that share a prior
    Lambda = me.Lambda[first:, first:]
    precision = prior.beta * Lambda[features, features]
    linear = -prior.beta * (Lambda @ (me.mu[first:] - prior.mean))[features]
    if model.bias == "joint":
        G, m = with_mean(prior)
        M, h = _summed(model, other, others)
        precision = precision + M[0, 0] * G[1:, 1:]
        linear = linear + h[0] * m[1:] - M[0, 0] * G[1:, 0] - G[1:, 1:] @ M[1:, 0]
    else:
        lam, mu = others.Lambda[0, 0], others.mu[0]
        total, scatter = others.sums()
        precision = precision + lam * scatter[1:, 1:]
        linear = linear + lam * (scatter[1:, 0] - mu * total[1:])
    a = Gaussian(precision, linear).sample(draws.normals(1, size - 1)[0])
    turns.add(name, np.eye(size), np.concatenate([[0.0], a]))
    me.mu[1:] += a
    C, inverse = np.eye(size), np.eye(size)
    C[1:, 0], inverse[1:, 0] = -a, a
    if model.bias == "joint":
        _transform(model, other, turns, C, inverse)
    else:
        turns.apply()  # the next move needs the sums of the rows
        others.turn(C, np.zeros(size))


def _move_basis(model: Model, turns: Turns, draws: Draws) -> None:
    """Draw the basis A of the features: S A and T A^-T, with their priors and W."""
    state, first = turns.state, model.first_shifted
    prior = model.wishart(state.user.size - first)
    G, m = with_mean(prior)
    (M, h), (N, g) = (_summed(model, name, state.sides(name)[0]) for name in SIDES)
    groups = [_wisharts(model, name) for name in SIDES]
    delta = prior.nu * (groups[0] - groups[1])
    found = draw_basis(M, N, h, g, G, m, delta, 1 - first, ROUNDS, draws.counter())
    A = np.eye(state.user.size)
    A[first:, first:] = found
    inverse = np.asarray(np.linalg.inv(A), float)
    _transform(model, "user", turns, A, inverse)
    _transform(model, "item", turns, inverse.T, A.T)


def with_mean(prior: NormalWishart) -> tuple[Array, Array]:
    """K + beta_0 mu_0 mu_0' and beta_0 mu_0: what the log density of (mu, Lambda) is made of.

    -2 log p = tr(G Lambda) - 2 m'Lambda mu + beta_0 mu'Lambda mu, apart from powers of |Lambda|.
    """
    mean = prior.beta * prior.mean
    return prior.inverse_scale + np.outer(mean, prior.mean), mean


def _wisharts(model: Model, name: Name) -> int:
    """How many (mu, Lambda) of features a side has: that of its rows, and one for each design."""
    return int(model.has_own(name)) + len(model.designs(name))


def _summed(model: Model, name: Name, side: Side) -> tuple[Array, Array]:
    """Sums of Lambda and of Lambda mu over these."""
    columns = slice(model.first_shifted, None)
    pairs = [(side.mu, side.Lambda)] if model.has_own(name) else []
    pairs += [(shift.mu, shift.Lambda) for shift in side.shifts]
    Lambdas = [Lambda[columns, columns] for _, Lambda in pairs]
    products = [Lambda @ mu[columns] for (mu, _), Lambda in zip(pairs, Lambdas, strict=True)]
    return sum(Lambdas[1:], Lambdas[0].copy()), sum(products[1:], products[0])


def _transform(model: Model, name: Name, turns: Turns, A: Array, inverse: Array) -> None:
    """Rows, W and offsets x become x A, and priors with them."""
    side, _ = turns.state.sides(name)
    turns.add(name, A, np.zeros(side.size))
    own: list[Side | Shift] = [side] if model.has_own(name) else []
    for part in own + side.shifts:
        turn_prior(part, A, inverse)


def turn_prior(layer: Side | Shift, A: Array, inverse: Array) -> None:
    """The prior of rows x A: mu becomes A'mu, and Lambda A^-1 Lambda A^-T."""
    layer.mu = A.T @ layer.mu
    turned = inverse @ layer.Lambda @ inverse.T
    layer.Lambda = (turned + turned.T) / 2
