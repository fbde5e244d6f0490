"""The mean of all side features at once, given the rows' own part: conjugate gradients.

The log density of all W is a quadratic form. Its maximum is the mean of every W_k, under the joint
posterior and under a mean field alike; each step of conjugate gradients raises it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.blocks import grams_times, inverses, pack_scaled, triangles_times
from bayesmf.kernels.designs import offsets
from bayesmf.model.state import Side, SideData

Array = NDArray[np.float64]
STEPS, ENOUGH = 20, 1e-10  # at most, and the fall of the squared gradient to be content with


def move_to_mean(
    data: SideData, raters: SideData, me: Side, first: int, grams: Array, weight: Array,
    cov: Array, logdet: Array,
) -> None:  # fmt: skip
    """Move W, and the rows with it, to the mean; fill ``cov`` and ``logdet`` with those of W_k.

    gradient   Lambda_W (mu_W - W_k) + sum_i c_i weight_i (h_i - A_i x_i)
    curvature  H V = Lambda_W V_k + sum_i c_i weight_i A_i (c_i sum_l V_l)
    block k    Lambda_W + sum_i c_i^2 weight_i A_i, the inverse of Cov[W_k]

    with (A_i, h_i) from ``grams``. The blocks' inverses are the preconditioner.
    """
    prior, mean = me.W_precision[first:, first:], me.W_mean[first:]
    size, last, ones = len(mean), grams.shape[1] - 1, np.ones(len(me.W))
    c = data.shrink

    def gathered(rows: Array) -> Array:
        """sum over the rows i that rated k."""
        out = np.empty((len(me.W), rows.shape[1]))
        offsets(raters.observed, rows, ones, out)
        return out

    def spread(V: Array) -> Array:
        """c_i times the sum over the k that row i rated."""
        out = np.empty((len(me.x), size))
        offsets(data.observed, V, c, out)
        return out

    def curvature(V: Array) -> Array:
        pulled = np.empty((len(me.x), size))
        grams_times(grams, c * weight, first, spread(V), pulled)
        return V @ prior + gathered(pulled)

    triangles = np.empty((len(me.x), size * (size + 1) // 2))
    pack_scaled(grams, c**2 * weight, first, size, triangles)
    inverses(gathered(triangles), prior, first, cov, logdet)
    fitted = np.empty((len(me.x), me.size))
    grams_times(grams, np.ones(len(me.x)), 0, me.x[:, : me.size], fitted)
    slope = (c * weight)[:, None] * (grams[:, last, first : me.size] - fitted[:, first:])
    r = (mean - me.W[:, first:]) @ prior + gathered(slope)
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
    me.x[:, first : me.size] += spread(V)
