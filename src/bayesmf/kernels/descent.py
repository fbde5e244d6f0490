"""Residuals of every rating, summed for gradients and precisions."""

from __future__ import annotations

from numba import prange

from bayesmf.kernels import parallel


@parallel
def residual_sums(observed, x, other, weight, size, gradient, errors):
    """For every row i, with e_ij = r_ij - gamma_i - eta_j - S_i'T_j:

    gradient_i = sum_j w_j e_ij (1, T_j),  errors_i = sum_j w_j e_ij^2
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
            total += scaled * e
            gradient[i, 0] += scaled
            for a in range(1, size):
                gradient[i, a] += scaled * other[j, a]
        errors[i] = total
