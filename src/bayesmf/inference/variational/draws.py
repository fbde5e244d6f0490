"""Draws from a variational Q, and the variance of a prediction under it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.inference.variational.bound import Beliefs
from bayesmf.model.conditionals import unpack
from bayesmf.model.distributions import Gamma
from bayesmf.model.spec import Model
from bayesmf.model.state import State, shift_names, to_arrays
from bayesmf.random.draws import Draws
from bayesmf.random.philox import normals
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Covariances

Array = NDArray[np.float64]
CHUNK = 4096  # rows whose covariances are factorised together
PAIRS = 8192  # pairs whose covariances are unpacked together


def draw_from_q(
    model: Model, state: State, beliefs: dict[Any, Beliefs], tau: Gamma, count: int, seed: int
) -> dict[str, NDArray[np.float32]]:
    """Draw rows, weights of designs and precisions ``count`` times; hyper-parameters stay put.

    Rows are drawn with the covariance that their offset has too, each on its own, as Q has it.
    """
    means = to_arrays(state)
    draws = [Draws(seed, number) for number in range(count)]
    out = {
        name: np.repeat(np.asarray(values, np.float32)[None], count, axis=0)
        for name, values in means.items()
    }
    out["tau"] = np.array([tau.sample(stream(d, None, "q_tau")) for d in draws], np.float32)
    for name in ("user", "item"):
        q = beliefs[name]
        add_noise(out[f"{name}.x"], q.cov.total, [stream(d, name, "q_rows") for d in draws])
        for number, cov in enumerate(q.cov.W):
            own = [stream(d, name, "q_W", number) for d in draws]
            add_noise(out[f"{name}.{shift_names(number)['W']}"], cov, own, model.first_shifted)
        if q.alpha is not None:
            drawn = [q.alpha.sample(stream(d, name, "q_alpha")) for d in draws]
            out[f"{name}.alpha"] = np.array(drawn, np.float32)
    return out


def add_noise(
    values: NDArray[np.float32], cov: NDArray[np.float64], draws: list[Draws], first: int = 0
) -> None:
    """Add noise of the rows' covariances to every draw, in place."""
    for begin in range(0, len(cov), CHUNK):
        span = slice(begin, begin + CHUNK)
        C = unpack(cov[span])[:, first:, first:]
        sd = np.sqrt(np.maximum(np.einsum("iaa->ia", C), 0))
        sd[sd == 0] = 1.0  # the axes of correlations do not depend on the columns' units
        C = C / (sd[:, :, None] * sd[:, None, :])
        vectors = np.linalg.eigh(C)  # bias-only rows have singular covariances
        half = vectors.eigenvectors * np.sqrt(np.maximum(vectors.eigenvalues, 0))[:, None]
        standard_normals = np.empty((len(C), values.shape[2]))
        for number, one in enumerate(draws):
            normals(one.counter(0), begin, standard_normals)
            step = np.einsum("kab,kb->ka", half, standard_normals[:, first:])
            values[number, span, first:] += sd * step


def noise_variance(state: State, user: NDArray[Any], item: NDArray[Any]) -> Array:
    """1 / (alpha_i beta_j tau), at the means of the precisions."""
    return np.asarray(1 / (state.tau * state.user.alpha[user] * state.item.alpha[item]))


def prediction_variance(
    state: State, users: Covariances, items: Covariances, user: NDArray[Any], item: NDArray[Any]
) -> Array:
    """Var[gamma_i + eta_j + S_i'T_j], rows independent, with C and D their covariances.

    z_j' C z_j + w_i' D w_i + tr(C_SS D_TT),   z_j = (1, T_j),  w_i = (1, S_i)
    """
    size = state.user.size
    out = np.empty(len(user))
    for begin in range(0, len(user), PAIRS):
        span = slice(begin, begin + PAIRS)
        i, j = user[span], item[span]
        C, D = unpack(users.total[i]), unpack(items.total[j])
        z, w = state.item.x[j, :size].copy(), state.user.x[i, :size].copy()
        z[:, 0] = w[:, 0] = 1.0
        out[span] = np.einsum("ka,kab,kb->k", z, C, z, optimize=True)
        out[span] += np.einsum("ka,kab,kb->k", w, D, w, optimize=True)
        out[span] += np.einsum("kab,kab->k", C[:, 1:, 1:], D[:, 1:, 1:])
    return out
