"""What the rows say of every rating that a sweep learns from."""

from __future__ import annotations

from numba import prange

from bayesmf.machine import parallel

PART = 2048  # ratings that are one piece of work, whatever the number of threads
FOUR = 4  # ratings of one user that are predicted side by side


@parallel
def predict_rated(user, item, x, y, size, tau, alpha, beta, f, w):
    """Fills in f = gamma_i + eta_j + S_i'T_j and w = tau alpha_i beta_j of every rating.

    x and y hold rows (bias, features) of ``size`` columns. Ratings are in by-user order. Each sum
    is in the order of the features, as in ``predict``; four of them go on while one would wait.
    """
    for part in prange(-(-len(f) // PART)):
        p = int(part) * PART
        end = min(p + PART, len(f))
        for q in range(p, end):
            w[q] = tau * alpha[user[q]] * beta[item[q]]
        while p < end:
            i, j = user[p], item[p]
            together = p + FOUR <= end and user[min(p + FOUR, end) - 1] == i
            first = x[i, 0] + y[j, 0]
            if together:
                k, m, n = item[p + 1], item[p + 2], item[p + 3]
                second, third, fourth = x[i, 0] + y[k, 0], x[i, 0] + y[m, 0], x[i, 0] + y[n, 0]
                for a in range(1, size):
                    first += x[i, a] * y[j, a]
                    second += x[i, a] * y[k, a]
                    third += x[i, a] * y[m, a]
                    fourth += x[i, a] * y[n, a]
                f[p + 1], f[p + 2], f[p + 3] = second, third, fourth
            else:
                for a in range(1, size):
                    first += x[i, a] * y[j, a]
            f[p] = first
            p += FOUR if together else 1


@parallel
def reorder(values, order, out):
    """Fills in out_k = values[order_k]."""
    for part in prange(-(-len(out) // PART)):
        for k in range(part * PART, min((part + 1) * PART, len(out))):
            out[k] = values[order[k]]
