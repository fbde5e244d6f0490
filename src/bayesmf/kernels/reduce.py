"""Sums over rows in a fixed order, and predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from bayesmf.machine import parallel, serial

BLOCK = 2048  # rows summed together, whatever the number of threads


@parallel
def weighted_moments(x, weight, first, end):
    """Returns sum w, sum w x and sum w x x' over the rows of x[:, first:end]."""
    size = end - first
    blocks = -(-x.shape[0] // BLOCK)
    parts = np.zeros((blocks, size + 1, size + 1))
    for block in prange(blocks):
        part = parts[block]
        for i in range(block * BLOCK, min((block + 1) * BLOCK, x.shape[0])):
            w = weight[i]
            part[size, size] += w
            for a in range(size):
                scaled = w * x[i, first + a]
                part[size, a] += scaled
                for b in range(a + 1):
                    part[a, b] += scaled * x[i, first + b]
    total = np.zeros((size + 1, size + 1))
    for block in range(blocks):
        total += parts[block]
    scatter = total[:size, :size]
    for a in range(size):
        for b in range(a):
            scatter[b, a] = scatter[a, b]
    return total[size, size], total[size, :size].copy(), scatter.copy()


@parallel
def predict_draws(user, item, x, y, mean, out):
    """Predicts mean + gamma_i + eta_j + S_i'T_j for every pair in every draw.

    x and y hold the rows (bias, features) of draw after draw.
    """
    pairs = out.shape[1]
    for q in prange(out.size):
        number = q // pairs
        k = q - number * pairs
        i, j = user[k], item[k]
        total = mean + x[number, i, 0] + y[number, j, 0]
        for a in range(1, x.shape[2]):
            total += x[number, i, a] * y[number, j, a]
        out[number, k] = total


def predict(user: Any, item: Any, x: Any, y: Any, mean: float, out: Any) -> None:
    """Predicts every pair in one draw, whose rows are x and y."""
    predict_draws(user, item, x[None], y[None], mean, out[None])


@serial
def add_draws(values, total):
    """Adds the rows of values to the total, one after the other."""
    for number in range(values.shape[0]):
        for k in range(len(total)):
            total[k] += values[number, k]


@parallel
def residual_sums(observed, x, other, weight, size, gradient, errors):
    """Sums the residuals e_ij = r_ij - gamma_i - eta_j - S_i'T_j of every row i.

    gradient_i = sum_j w_j e_ij (1, T_j),  errors_i = sum_j w_j e_ij^2

    If the ratings have weights, w_j has that of the rating as a factor.
    """
    for i in prange(len(errors)):
        for a in range(size):
            gradient[i, a] = 0.0
        total = 0.0
        for p in range(observed.starts[i], observed.starts[i + 1]):
            j = observed.index[p]
            e = observed.values[p] - observed.mean - x[i, 0] - other[j, 0]
            for a in range(1, size):
                e -= x[i, a] * other[j, a]
            scaled = weight[j] * e
            if len(observed.weights):
                scaled *= observed.weights[p]
            total += scaled * e
            gradient[i, 0] += scaled
            for a in range(1, size):
                gradient[i, a] += scaled * other[j, a]
        errors[i] = total


@parallel
def part_products(observed, layers, other, weight, cuts, out):
    """Fills out_i = sum_j w_j f_ij f_ij', lower triangles row by row, of every row i.

    A row is the sum of its layers, layers[i, l] = (bias, features). A part is the columns of a
    layer from one of ``cuts`` to the next. f_ij has what each part adds to the prediction of
    rating j, its inner product with (1, T_j), layer by layer; the last is r_ij - mean - eta_j. If
    the ratings have weights, w_j has that of the rating as a factor.
    """
    count, groups = layers.shape[1], len(cuts) - 1
    parts = count * groups + 1
    for i in prange(len(out)):
        f = np.empty(parts)
        out[i] = 0.0
        for p in range(observed.starts[i], observed.starts[i + 1]):
            j = observed.index[p]
            for k in range(parts - 1):
                total = 0.0
                for a in range(cuts[k % groups], cuts[k % groups + 1]):
                    total += layers[i, k // groups, a] * (other[j, a] if a else 1.0)
                f[k] = total
            f[parts - 1] = observed.values[p] - observed.mean - other[j, 0]
            w = weight[j]
            if len(observed.weights):
                w *= observed.weights[p]
            cell = 0
            for a in range(parts):
                for b in range(a + 1):
                    out[i, cell] += w * f[a] * f[b]
                    cell += 1
