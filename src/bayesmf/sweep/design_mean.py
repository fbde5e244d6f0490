"""The mean of all side features at once, given the rows' own part: conjugate gradients.

The log density of all W is a quadratic form. Its maximum is the mean of every W_k, under the joint
posterior and under a mean field alike; each step of conjugate gradients raises it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.blocks import grams_times, inverses, pack_scaled, triangles_times
from bayesmf.kernels.designs import Sparse, offsets, squared
from bayesmf.model.state import Side

Array = NDArray[np.float64]
STEPS, ENOUGH = 20, 1e-10  # at most, and the fall of the squared gradient to be content with


def move_to_mean(
    rows: Sparse, columns: Sparse, c: Array, me: Side, first: int, grams: Array, weight: Array,
    cov: Array, logdet: Array,
) -> None:  # fmt: skip
    """Move W, and the rows with it, to the mean; fill ``cov`` and ``logdet`` with those of W_k.

    gradient   Lambda_W (mu_W - W_k) + sum_i X_ik weight_i (h_i - A_i x_i)
    curvature  H V = Lambda_W V_k + sum_i X_ik weight_i A_i (sum_l X_il V_l)
    block k    Lambda_W + sum_i X_ik^2 weight_i A_i, the inverse of Cov[W_k]

    with (A_i, h_i) from ``grams`` and X_ik = c_i v_ik, where v is given by rows and by
    columns. The blocks' inverses are the preconditioner.
    """
    prior, mean = me.W_precision[first:, first:], me.W_mean[first:]
    size, last, ones = len(mean), grams.shape[1] - 1, np.ones(len(me.W))

    def gather(matrix: Sparse, terms: Array) -> Array:
        """Returns sum_i v_ik terms_i for each k, with ``matrix`` by columns."""
        out = np.empty((len(me.W), terms.shape[1]))
        offsets(matrix, terms, ones, out)
        return out

    def shift(V: Array) -> Array:
        """Returns c_i sum_k v_ik V_k for each row i."""
        out = np.empty((len(me.x), size))
        offsets(rows, V, c, out)
        return out

    def curvature(V: Array) -> Array:
        pulled = np.empty((len(me.x), size))
        grams_times(grams, c * weight, first, shift(V), pulled)
        return V @ prior + gather(columns, pulled)

    triangles = np.empty((len(me.x), size * (size + 1) // 2))
    pack_scaled(grams, c**2 * weight, first, size, triangles)
    inverses(gather(squared(columns), triangles), prior, first, cov, logdet)
    fitted = np.empty((len(me.x), me.size))
    grams_times(grams, np.ones(len(me.x)), 0, me.x[:, : me.size], fitted)
    slope = (c * weight)[:, None] * (grams[:, last, first : me.size] - fitted[:, first:])
    r = (mean - me.W[:, first:]) @ prior + gather(columns, slope)
    z, V = np.empty_like(r), np.zeros_like(r)
    triangles_times(cov, first, r, z)
    p, rz = z.copy(), float(np.vdot(r, z))
    enough = ENOUGH * rz
    for _ in range(STEPS):
        if rz <= enough:
            break
        Hp = curvature(p)
        length = rz / float(np.vdot(p, Hp))
        V += length * p
        r -= length * Hp
        triangles_times(cov, first, r, z)
        rz, before = float(np.vdot(r, z)), rz
        p = z + (rz / before) * p
    me.W[:, first:] += V
    me.x[:, first : me.size] += shift(V)
