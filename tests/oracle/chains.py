"""Chains whose effective draws are known: autoregressions."""

from __future__ import annotations

import numpy as np

from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES


def autoregression(chains: int, draws: int, phi: float, seed: int, pairs: tuple[int, ...] = ()):
    """Stationary from the first draw: n (1 - phi) / (1 + phi) of n draws are effective."""
    normals = np.random.default_rng(seed).normal(size=(chains, draws, *pairs))
    x = np.empty_like(normals)
    x[:, 0] = normals[:, 0] / np.sqrt(1 - phi**2)
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + normals[:, t]
    return x


def chains_like(phi: float, chains: int = 4, draws: int = 500, pairs: int = 64, seed: int = 0):
    """Traces like those of a fit, all of which mix alike."""
    traces = {
        name: autoregression(chains, draws, phi, seed + k + 1) for k, name in enumerate(SUMMARIES)
    }
    traces[PREDICTIONS] = 3 + autoregression(chains, draws, phi, seed + 9, (pairs,))
    return traces
