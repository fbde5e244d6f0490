"""How far a rating may be from its prediction, when the parameters are known in moments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.inference.algorithm import Covariances
from bayesmf.model.conditionals import unpack
from bayesmf.model.state import State

Array = NDArray[np.float64]
CHUNK = 8192  # pairs whose covariances are unpacked together


def noise_variance(state: State, user: NDArray[Any], item: NDArray[Any]) -> Array:
    """1 / (alpha_i beta_j tau), at the means of the precisions."""
    return np.asarray(1 / (state.tau * state.user.noise[user] * state.item.noise[item]))


def prediction_variance(
    state: State, users: Covariances, items: Covariances, user: NDArray[Any], item: NDArray[Any]
) -> Array:
    """Var[gamma_i + eta_j + S_i'T_j], rows independent, with C and D their covariances.

    z_j' C z_j + w_i' D w_i + tr(C_SS D_TT),   z_j = (1, T_j),  w_i = (1, S_i)
    """
    size = state.user.size
    out = np.empty(len(user))
    for begin in range(0, len(user), CHUNK):
        span = slice(begin, begin + CHUNK)
        i, j = user[span], item[span]
        C, D = unpack(users.total[i]), unpack(items.total[j])
        z, w = state.item.x[j, :size].copy(), state.user.x[i, :size].copy()
        z[:, 0] = w[:, 0] = 1.0
        out[span] = np.einsum("ka,kab,kb->k", z, C, z, optimize=True)
        out[span] += np.einsum("ka,kab,kb->k", w, D, w, optimize=True)
        out[span] += np.einsum("kab,kab->k", C[:, 1:, 1:], D[:, 1:, 1:])
    return out
