"""Naive twins of the kernels, and random input for each kernel to be compared on.

A case returns pairs (what the kernel gave, what its twin gives); ``CASES`` holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from bayesmf.kernels import designs, gram, ranking, reduce
from bayesmf.kernels.designs import Sparse
from bayesmf.kernels.rows import Observed
from bayesmf.random.draws import Draws
from bayesmf.random.philox import fill_normal

Pairs = list[tuple[np.ndarray, np.ndarray]]
CASES: dict[str, Callable[[], Pairs]] = {}


def case(made: Callable[[], Pairs]) -> Callable[[], Pairs]:
    CASES[made.__name__] = made
    return made


def random_design(rows: int, columns: int, valued: bool, seed: int = 0) -> np.ndarray:
    """A dense matrix with empty rows and columns; its entries are 1 unless ``valued``."""
    rng = np.random.default_rng(seed)
    v = np.where(rng.random((rows, columns)) < 0.4, rng.normal(size=(rows, columns)), 0.0)
    v[1], v[:, 2] = 0.0, 0.0
    return v if valued else (v != 0).astype(float)


def sparse_of(v: np.ndarray, valued: bool) -> Sparse:
    """``v`` by rows, as the kernels take it."""
    made = sparse.csr_array(v)
    values = made.data if valued else designs.NO_VALUES
    return Sparse(made.indptr.astype(np.int64), made.indices.astype(np.int32), values)


def offsets(valued: bool) -> Pairs:
    """out_i = c_i sum_k v_ik W_k, for one strip, two full strips and a part of a third."""
    pairs = []
    for size in (3, 16, 21):
        rng = np.random.default_rng(size)
        v = random_design(40, 13, valued)
        W, c, out = rng.normal(size=(13, size)), rng.gamma(2.0, size=40), np.empty((40, size))
        designs.offsets(sparse_of(v, valued), W, c, out)
        pairs.append((out, c[:, None] * (v @ W)))
        both = np.empty((40, size))
        designs.offsets(designs.squared(sparse_of(v, valued)), W, c, both)
        pairs.append((both, c[:, None] * (v**2 @ W)))
    return pairs


@case
def offsets_of_ones() -> Pairs:
    return offsets(False)


@case
def offsets_of_values() -> Pairs:
    return offsets(True)


@case
def lines_of_sums() -> Pairs:
    rng = np.random.default_rng(8)
    v, rated, group = random_design(40, 13, False), rng.permutation(30)[:13], rng.integers(0, 3, 40)
    values = rng.normal(size=(4, 30, 5)).astype(np.float32)
    constant, slope = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3, 5, 5))
    out, right = np.empty((4, 40, 5)), np.empty((4, 40, 5))
    designs.lines_of_sums(sparse_of(v, False), rated, values, group, constant, slope, out)
    for k in range(4):
        for i, g in enumerate(group):
            right[k, i] = constant[k, g] + v[i] @ values[k, rated].astype(float) @ slope[k, g]
    return [(out, right)]


@case
def add_coarse() -> Pairs:
    """Bytes times weights; more columns than go together, and two steps of lines."""
    rng = np.random.default_rng(12)
    cells = rng.integers(-127, 128, (2 * ranking.STEP, ranking.PANEL + 77)).astype(np.int8)
    weight, out = rng.integers(-9, 9, len(cells)), np.empty(cells.shape[1], np.float32)
    ranking.add_coarse(cells, weight.astype(np.float32), out)  # whole numbers: exact
    return [(out, weight @ cells.astype(int))]


@case
def fill_others() -> Pairs:
    """(1, T_j) times the root of the precision, zeros, and the bias; with noise and without."""
    rng = np.random.default_rng(11)
    x, noise = rng.normal(size=(2, 4, 9, 5)).astype(np.float32)
    alpha, rows = rng.gamma(2, size=(4, 9)).astype(np.float32), np.array([7, 2, 3], np.int32)
    pairs = []
    for added in (noise, noise[:0]):
        z, right = np.full((12, 8), np.nan), np.zeros((4, 3, 8))
        gram.fill_others(x, added, alpha, rows, z)
        for k in range(4):
            for place, j in enumerate(rows):
                row = x[k, j].astype(float) + (added[k, j] if len(added) else 0.0)
                root = np.sqrt(float(alpha[k, j]))
                right[k, place, :5], right[k, place, 7] = root * row, row[0]
                right[k, place, 0] = root
        pairs.append((z.reshape(4, 3, 8), right))
    return pairs


@case
def predict_draws() -> Pairs:
    """mean + gamma_i + eta_j + S_i'T_j, draw by draw; rows are in several pairs."""
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(4, 7, 5)), rng.normal(size=(4, 6, 5))
    user, item = rng.integers(0, 7, 33), rng.integers(0, 6, 33)
    out, right = np.empty((4, 33)), np.empty((4, 33))
    reduce.predict_draws(user, item, x, y, 3.5, out)
    for k in range(4):
        for p, (i, j) in enumerate(zip(user, item, strict=True)):
            right[k, p] = 3.5 + x[k, i, 0] + y[k, j, 0] + x[k, i, 1:] @ y[k, j, 1:]
    one = np.empty(33)
    reduce.predict(user, item, x[2], y[2], 3.5, one)
    return [(out, right), (one, right[2])]


@case
def part_products() -> Pairs:
    """Sums of w f f' by row, f = (bias and features of each layer; target)."""
    pairs = []
    for weighted in (False, True):
        rng = np.random.default_rng(12)
        v = random_design(9, 7, True)
        matrix, layers, other = (
            sparse_of(v, True),
            rng.normal(size=(9, 2, 5)),
            rng.normal(size=(7, 5)),
        )
        weight, given = rng.gamma(2.0, size=7), rng.gamma(2.0, size=len(matrix.values))
        observed = Observed(*matrix, 0.3, None, weights=given if weighted else designs.NO_VALUES)
        out, right = np.empty((9, 15)), np.zeros((9, 5, 5))
        reduce.part_products(observed, layers, other, weight, np.array([0, 1, 5]), out)
        for i in range(9):
            for p in range(matrix.starts[i], matrix.starts[i + 1]):
                y = other[matrix.index[p]]
                f = [part for u in layers[i] for part in (u[0], u[1:] @ y[1:])]
                f = np.array([*f, matrix.values[p] - 0.3 - y[0]])
                w = weight[matrix.index[p]] * (given[p] if weighted else 1.0)
                right[i] += w * np.outer(f, f)
        pairs.append((out, right[:, *np.tril_indices(5)]))
    return pairs


@case
def add_draws() -> Pairs:
    values, total = np.random.default_rng(10).normal(size=(6, 9)), np.arange(9.0)
    right = total + values.sum(axis=0)
    reduce.add_draws(values, total)
    return [(total, right)]


def row_strips(row: np.ndarray) -> np.ndarray:
    return designs.strips(row[None])[:, 0]


def centred(valued: bool, sample: bool) -> Pairs:
    """W_k ~ N(mean, 1), f_i - v_ik W_k ~ N(0, 1 / (weight_i scale_a)) one column a at a time."""
    rng = np.random.default_rng(1)
    n, m, size = 40, 13, 21
    v = random_design(n, m, valued)
    weight, scale, mean = rng.gamma(2.0, size=n), rng.gamma(2.0, size=size), rng.normal(size=size)
    f, W = rng.normal(size=(n, size)), rng.normal(size=(m, size))
    counter = Draws(3, 1, 4, 5).counter()
    cut_f, cut_W = designs.strips(f), designs.strips(W)
    designs.draw_centred(
        sparse_of(v.T, valued),
        weight,
        row_strips(scale),
        row_strips(mean),
        counter,
        sample,
        cut_f,
        cut_W,
        0,
    )
    normals = np.empty(size)
    for k in range(m):
        fill_normal(counter, k, normals)
        for a in range(size):
            precision = 1.0 + scale[a] * weight @ v[:, k] ** 2
            others = f[:, a] + v[:, k] * W[k, a]  # what is left without column k
            linear = mean[a] + scale[a] * (weight * v[:, k]) @ others
            W[k, a] = linear / precision + sample * normals[a] / np.sqrt(precision)
            f[:, a] = others - v[:, k] * W[k, a]
    flat_W, flat_f = (np.concatenate(list(cut), axis=1)[:, :size] for cut in (cut_W, cut_f))
    return [(flat_W, W), (flat_f, f)]


@case
def draw_centred_with_ones() -> Pairs:
    return centred(False, True) + centred(False, False)


@case
def draw_centred_with_values() -> Pairs:
    return centred(True, True) + centred(True, False)


def non_centred(valued: bool, sample: bool, first: int) -> Pairs:
    """W_k ~ N(mean, prior^-1), and h_i - A_i x_i is the slope of the likelihood in x_i."""
    rng = np.random.default_rng(2)
    n, m, size = 40, 13, 5
    v = random_design(n, m, valued)
    c, weight = rng.gamma(2.0, size=n), rng.gamma(2.0, size=n)
    grams = random_precisions(rng, n, size + 1)
    prior = random_precisions(rng, 1, size - first)[0]
    linear = rng.normal(size=size - first)
    x, W = rng.normal(size=(n, size)), rng.normal(size=(m, size))
    counter = Draws(3, 1, 4, 5).counter()
    new_x, new_W = x.copy(), W.copy()
    designs.draw_non_centred(
        sparse_of(v.T, valued),
        c,
        weight,
        grams,
        prior,
        linear,
        first,
        counter,
        sample,
        new_x,
        new_W,
    )
    X, normals = c[:, None] * v, np.zeros(size - first)
    A, h = grams[:, :size, :size], grams[:, size, :size]
    for k in range(m):
        if sample:
            fill_normal(counter, k, normals)
        part = A[:, first:, first:]
        precision = prior + np.einsum("i,iab->ab", X[:, k] ** 2 * weight, part)
        without = x.copy()
        without[:, first:] -= X[:, k, None] * W[k, first:]
        slope = h - np.einsum("iab,ib->ia", A, without)
        term = linear + (X[:, k] * weight) @ slope[:, first:]
        root = np.linalg.cholesky(precision)
        W[k, first:] = np.linalg.solve(precision, term) + np.linalg.solve(root.T, normals)
        x = without
        x[:, first:] += X[:, k, None] * W[k, first:]
    return [(new_W, W), (new_x, x)]


def random_precisions(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Positive definite matrices."""
    roots = rng.normal(size=(count, size, size + 2))
    return np.einsum("iak,ibk->iab", roots, roots)


@case
def draw_non_centred_with_ones() -> Pairs:
    return non_centred(False, True, 0) + non_centred(False, False, 1)


@case
def draw_non_centred_with_values() -> Pairs:
    return non_centred(True, True, 1) + non_centred(True, False, 0)
