"""Naive twins of the kernels that draw rows, sum over ratings or multiply many small matrices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import integrate

from bayesmf.kernels import blocks, densities, designs, lanes, reduce
from bayesmf.kernels import rows as kernels
from bayesmf.kernels.gram import padded
from bayesmf.machine import LANES
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_normal
from oracle.twins import Pairs, case, random_precisions

ROWS, OTHERS, SIZE, MEAN = 75, 20, 5, 2.5  # ten batches, in two tasks of a thread
CELLS = SIZE * (SIZE + 1) // 2
COLUMNS = padded(SIZE + 1)
WIDTH = (0,) * (COLUMNS // LANES)
NONE = np.empty((0, 0))


def pack(matrices: np.ndarray) -> np.ndarray:
    """Lower triangles row by row."""
    return np.ascontiguousarray(matrices[:, *np.tril_indices(matrices.shape[1])])


class World:
    """Ratings of ROWS rows by OTHERS others, who have rows (bias, T) and maybe covariances."""

    def __init__(self, moments: bool, weighted: bool = False, seed: int = 0) -> None:
        rng = self.rng = np.random.default_rng(seed)
        mask = rng.random((ROWS, OTHERS)) < rng.random((ROWS, 1))
        mask[3] = False
        counts = mask.sum(axis=1)
        starts, index = np.concatenate([[0], np.cumsum(counts)]), np.nonzero(mask)[1]
        values = rng.integers(1, 6, len(index)).astype(np.int8)
        weights = rng.gamma(2.0, size=len(index)) if weighted else designs.NO_VALUES
        weights.flags.writeable = False
        self.observed = kernels.Observed(
            starts, index.astype(np.int32), values, MEAN, kernels.batches(counts), 1000, weights
        )
        self.alpha = rng.gamma(3.0, size=OTHERS)
        self.x = np.zeros((OTHERS, COLUMNS))
        self.x[:, :SIZE] = rng.normal(size=(OTHERS, SIZE))
        self.cov = random_precisions(rng, OTHERS, SIZE) if moments else np.zeros((OTHERS, 1, 1))
        packed = pack(self.cov) if moments else NONE
        self.other = kernels.OtherSide.of(self.x, self.alpha, packed)
        self.moments = moments

    def ratings(self, i: int) -> list[tuple[int, float, float]]:
        """Other, centred rating, and alpha_j times the weight."""
        o = self.observed
        weights = o.weights if len(o.weights) else np.ones(len(o.index))
        span = range(o.starts[i], o.starts[i + 1])
        return [(o.index[p], float(o.values[p]) - MEAN, self.alpha[o.index[p]] * weights[p])
                for p in span]  # fmt: skip

    def gram(self, i: int) -> np.ndarray:
        """sum_j alpha_j <v v'>, v = (1, T_j, r_ij - bias_j)."""
        out = np.zeros((SIZE + 1, SIZE + 1))
        for j, r, w in self.ratings(i):
            v = np.array([1.0, *self.x[j, 1:SIZE], r - self.x[j, 0]])
            turn = np.zeros((SIZE + 1, SIZE))  # from (bias, T) to v
            turn[1:SIZE, 1:], turn[SIZE, 0] = np.eye(SIZE - 1), -1.0
            spread = turn @ self.cov[j] @ turn.T if self.moments else 0.0
            out += w * (np.outer(v, v) + spread)
        return out

    def grams(self) -> np.ndarray:
        return np.array([self.gram(i) for i in range(ROWS)])

    def prior(self, own: bool, offset: bool) -> kernels.Prior:
        rng = self.rng
        fixed, scaled = np.zeros((2, SIZE, SIZE))
        fixed[0, 0], scaled[1:, 1:] = 2.0, random_precisions(rng, 1, SIZE - 1)[0]
        mean, shape = rng.normal(size=SIZE), (ROWS, SIZE)
        return kernels.Prior(
            fixed,
            scaled,
            fixed @ mean,
            scaled @ mean,
            rng.gamma(2.0, size=ROWS),
            rng.normal(size=shape) if offset else NONE,
            pack(random_precisions(rng, ROWS, SIZE)) if offset and self.moments else NONE,
            pack(random_precisions(rng, ROWS, SIZE)) if own else NONE,
            rng.normal(size=shape) if own else NONE,
        )


def unpack(triangle: np.ndarray) -> np.ndarray:
    out = np.zeros((SIZE, SIZE))
    out[np.tril_indices(SIZE)] = triangle
    return out + np.tril(out, -1).T


def conditional(prior: kernels.Prior, weight: float, G: np.ndarray, i: int) -> tuple[Any, Any]:
    """Precision and linear term of row i."""
    precision = prior.fixed + prior.spread[i] * prior.scaled + weight * G[:SIZE, :SIZE]
    linear = prior.linear_fixed + prior.spread[i] * prior.linear_scaled + weight * G[SIZE, :SIZE]
    if len(prior.own):
        precision, linear = precision + unpack(prior.own[i]), linear + prior.own_linear[i]
    if len(prior.offset):
        linear = linear + prior.spread[i] * prior.scaled @ prior.offset[i]
    return precision, linear


def sample(precision: np.ndarray, linear: np.ndarray, normals: np.ndarray) -> np.ndarray:
    root = np.linalg.cholesky(precision)
    return np.linalg.solve(precision, linear) + np.linalg.solve(root.T, normals)


def draw_rows(moments: bool, own: bool, offset: bool, draw: bool, weighted: bool = False) -> Pairs:
    world = World(moments, weighted)
    weight, prior = world.rng.gamma(2.0, size=ROWS), world.prior(own, offset)
    counter = Draws(3, 1, 4, 5).counter()
    out, errors = np.zeros((ROWS, COLUMNS)), np.empty(ROWS)
    covs, logdets = np.empty((ROWS, CELLS)), np.empty(ROWS)
    kernels.draw_rows(
        world.observed, world.other, weight, prior, counter, draw, out, errors, covs, logdets, WIDTH
    )
    x, squares, logs = np.zeros_like(out), np.empty(ROWS), np.empty(ROWS)
    C, normals = np.empty((ROWS, SIZE, SIZE)), np.zeros(SIZE)
    for i in range(ROWS):
        G = world.gram(i)
        precision, linear = conditional(prior, weight[i], G, i)
        if draw:
            fill_normal(counter, 1000 + i, normals)
        x[i, :SIZE] = sample(precision, linear, normals)
        C[i], logs[i] = np.linalg.inv(precision), -np.linalg.slogdet(precision)[1]
        v = np.array([*-x[i, :SIZE], 1.0])
        squares[i] = v @ G @ v
        if moments:
            total = C[i] + unpack(prior.offset_cov[i]) if offset else C[i]
            squares[i] += np.trace(G[:SIZE, :SIZE] @ total)
    alone = np.zeros_like(out)  # without what only some callers ask for
    empty = np.empty(0)
    kernels.draw_rows(
        world.observed, world.other, weight, prior, counter, draw, alone, empty, NONE, empty, WIDTH
    )
    return [(out, x), (errors, squares), (covs, pack(C)), (logdets, logs), (alone, x)]


@case
def rows_given_points() -> Pairs:
    return draw_rows(False, False, False, True) + draw_rows(False, True, True, False)


@case
def rows_given_moments() -> Pairs:
    return draw_rows(True, False, True, False) + draw_rows(True, True, False, True)


@case
def weighted_rows_given_points() -> Pairs:
    return draw_rows(False, False, True, True, True)


@case
def weighted_rows_given_moments() -> Pairs:
    return draw_rows(True, True, False, False, True)


@case
def rows_from_grams() -> Pairs:
    return from_grams(False)


@case
def rows_from_weighted_grams() -> Pairs:
    return from_grams(True)


def from_grams(weighted: bool) -> Pairs:
    world = World(False, weighted)
    weight, prior = world.rng.gamma(2.0, size=ROWS), world.prior(False, False)
    counter = Draws(3, 1, 4, 5).counter()
    packed = np.empty((ROWS, (SIZE + 1) * (SIZE + 2) // 2))
    kernels.pack_grams(world.observed, world.other, SIZE, WIDTH, packed)
    out, errors = np.zeros((ROWS, COLUMNS)), np.empty(ROWS)
    kernels.draw_from_grams(packed, weight, prior, counter, out, errors)
    grams, x, squares = world.grams(), np.zeros_like(out), np.empty(ROWS)
    normals = np.empty(SIZE)
    for i, G in enumerate(grams):
        fill_normal(counter, i, normals)
        x[i, :SIZE] = sample(*conditional(prior, weight[i], G, i), normals)
        v = np.array([*-x[i, :SIZE], 1.0])
        squares[i] = v @ G @ v
    return [(packed, pack(grams)), (out, x), (errors, squares)]


@case
def rows_of_stacks() -> Pairs:
    """The rows of a world as those of three draws, some groups of which have an own precision."""
    world, rng = World(False), np.random.default_rng(7)
    each, groups = ROWS // 3, 4
    grams = world.grams()
    sums = np.empty((-(-ROWS // LANES), (SIZE + 1) * (SIZE + 2) // 2 * LANES))
    kernels.pack_lanes(world.observed, world.other.z, SIZE, WIDTH, sums)
    packed = sums.reshape(len(sums), -1, LANES).swapaxes(1, 2).reshape(-1, sums.shape[1] // LANES)
    priors, traces = (random_precisions(rng, groups, SIZE) for _ in range(2))
    weight, linear = rng.gamma(2.0, size=ROWS), rng.normal(size=(ROWS, SIZE))
    group = np.where(np.arange(ROWS) < 20, 1, rng.integers(0, groups, ROWS))
    stack = kernels.Stack(sums, weight, linear, group, pack(priors), each)
    doubled = pack(traces) * np.where(np.subtract(*np.tril_indices(SIZE)) == 0, 1.0, 2.0)
    errors, found = np.empty(ROWS), [np.empty(shape) for shape in ((ROWS, SIZE),) * 2 + (ROWS,)]
    kernels.draw_stack(stack, Draws(3, 1, 4, 5).counter(), errors)
    kernels.settle_stack(stack, Draws(3, 1, 4, 5).counter(), doubled, *found)
    right, squares, normals = [np.empty_like(one) for one in found], np.empty(ROWS), np.empty(SIZE)
    for s, G in enumerate(grams):
        fill_normal(Draws(3, 1 + s // each, 4, 5).counter(), s % each, normals)
        precision = priors[group[s]] + weight[s] * G[:SIZE, :SIZE]
        term = linear[s] + weight[s] * G[SIZE, :SIZE]
        right[0][s] = np.linalg.solve(precision, term)
        right[1][s] = sample(precision, np.zeros(SIZE), normals)
        right[2][s] = np.trace(traces[group[s]] @ np.linalg.inv(precision))
        v = np.array([*-(right[0][s] + right[1][s]), 1.0])
        squares[s] = v @ G @ v
    return [(packed[:ROWS], pack(grams)), (errors, squares), *zip(found, right, strict=True)]


@case
def grams_and_errors() -> Pairs:
    pairs: Pairs = []
    for moments, weighted in itertools.product((False, True), repeat=2):
        world = World(moments, weighted)
        stored = np.empty((ROWS, COLUMNS, COLUMNS))
        designs.store_grams(world.observed, world.other, SIZE, WIDTH, stored)
        grams, pick = world.grams(), [*range(SIZE), COLUMNS - 1]
        pairs.append((stored[:, pick][:, :, pick], grams))
        x = world.rng.normal(size=(ROWS, SIZE))
        C = random_precisions(world.rng, ROWS, SIZE)
        v = np.concatenate([-x, np.ones((ROWS, 1))], axis=1)
        points = np.einsum("ia,iab,ib->i", v, grams, v)
        both = points + np.einsum("iab,iab->i", grams[:, :SIZE, :SIZE], C)
        for cov, right in ((NONE, points), (pack(C), both)):
            out = np.empty(ROWS)
            designs.squared_errors(stored, x, cov, SIZE, out)
            pairs.append((out, right))
        if moments:
            out = np.empty(ROWS)
            designs.expected_errors(world.observed, x, pack(C), world.other, SIZE, WIDTH, out)
            pairs.append((out, both))
    return pairs


@case
def many_small_matrices() -> Pairs:
    rng, n, first = np.random.default_rng(3), 21, 1
    grams, scale = random_precisions(rng, n, SIZE), rng.gamma(2.0, size=n)
    size = SIZE - first
    packed = np.empty((n, size * (size + 1) // 2))
    blocks.pack_scaled(grams, scale, first, size, packed)
    part = scale[:, None, None] * grams[:, first:, first:]
    prior = random_precisions(rng, 1, size)[0]
    wide, logdet = np.zeros((n, CELLS)), np.empty(n)
    blocks.inverses(packed, prior, first, wide, logdet)
    right = np.zeros((n, SIZE, SIZE))
    right[:, first:, first:] = np.linalg.inv(prior + part)
    v, times, products = rng.normal(size=(n, size)), np.empty((n, size)), np.empty((n, size))
    blocks.triangles_times(wide, first, v, times)
    blocks.grams_times(grams, scale, first, v, products)
    return [
        (packed, pack(part)),
        (wide, pack(right)),
        (logdet, -np.linalg.slogdet(prior + part)[1]),
        (times, np.einsum("kab,kb->ka", right[:, first:, first:], v)),
        (products, np.einsum("kab,kb->ka", part, v)),
    ]


@case
def systems_in_lanes() -> Pairs:
    """Sizes on both sides of four, the rows that a Cholesky step takes at once."""
    pairs: Pairs = []
    for size in (1, 3, 4, 5, 9):
        rng = np.random.default_rng(size)
        A = random_precisions(rng, LANES, size)
        Q = A.transpose(1, 2, 0).copy()
        x, normals = rng.normal(size=(2, size, LANES))
        before, C = x.copy(), np.empty((size * (size + 1) // 2, LANES))
        lanes.cholesky(Q, size)
        lanes.solve_and_draw(Q, x, normals, size)
        lanes.inverse(Q, np.empty((size, size, LANES)), C, size)
        right = [sample(A[k], before[:, k], normals[:, k]) for k in range(LANES)]
        pairs.append((np.tril(Q.transpose(2, 0, 1)), np.linalg.cholesky(A)))
        pairs += [(x.T, np.array(right)), (C.T, pack(np.linalg.inv(A)))]
    return pairs


@case
def sums_over_rows() -> Pairs:
    """More rows than the kernel sums together."""
    rng, n = np.random.default_rng(5), 2 * reduce.BLOCK + 7
    x, w = rng.normal(size=(n, 4)), rng.gamma(2.0, size=n)
    weight, total, scatter = reduce.weighted_moments(x, w, 1, 4)
    part = x[:, 1:]
    return [
        (np.array(weight), w.sum()),
        (total, w @ part),
        (scatter, np.einsum("i,ia,ib->ab", w, part, part)),
    ]


@case
def predictions_and_residuals() -> Pairs:
    return residuals(False)


@case
def weighted_residuals() -> Pairs:
    return residuals(True)


def residuals(weighted: bool) -> Pairs:
    world = World(False, weighted)
    x = world.rng.normal(size=(ROWS, SIZE))
    y = world.x[:, :SIZE]
    fitted = MEAN + x[:, :1] + y[:, 0] + x[:, 1:] @ y[:, 1:].T
    user, item = world.rng.integers(ROWS, size=300), world.rng.integers(OTHERS, size=300)
    out = np.empty(300)
    reduce.predict(user, item, x, np.ascontiguousarray(y), MEAN, out)
    gradient, errors = np.empty((ROWS, SIZE)), np.empty(ROWS)
    reduce.residual_sums(world.observed, x, world.x, world.alpha, SIZE, gradient, errors)
    slopes, squares = np.zeros((ROWS, SIZE)), np.zeros(ROWS)
    for i in range(ROWS):
        for j, r, w in world.ratings(i):
            e = r + MEAN - fitted[i, j]
            slopes[i] += w * e * np.array([1.0, *y[j, 1:]])
            squares[i] += w * e**2
    return [(out, fitted[user, item]), (gradient, slopes), (errors, squares)]


@case
def truncated_gammas() -> Pairs:
    """Against adaptive quadrature of x^(a-1) e^(-bx) b^a, where that does not overflow."""
    low, high = 0.5, 2.0
    a = np.array([0.3, 1.0, 2.5, 7.0, 20.0, 20.0, 3.0])
    b = np.array([0.2, 1.0, 2.5, 7.0, 4.0, 60.0, 30.0])
    out, right = np.empty((len(a), 3)), np.empty((len(a), 3))
    nodes, weights = np.polynomial.legendre.leggauss(96)
    densities.truncated_moments(a, b, low, high, nodes, weights, out)
    for i, (shape, rate) in enumerate(zip(a, b, strict=True)):

        def integral(factor: Any, shape: float = shape, rate: float = rate) -> float:
            def density(x: float) -> float:
                return factor(x) * np.exp((shape - 1) * np.log(x) - rate * x + shape * np.log(rate))

            return integrate.quad(density, low, high, epsabs=0, epsrel=1e-12, limit=200)[0]

        mass = integral(lambda x: 1.0)
        right[i] = np.log(mass), integral(lambda x: x) / mass, integral(np.log) / mass
    return [(out, right)]
