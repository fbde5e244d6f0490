"""Convergence of chains: effective sample size and R-hat of a quantity's trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def effective_sample_size(trace: NDArray[Any]) -> float:
    """How many independent draws would estimate the mean as well; ``trace`` is (chain, draw).

    n / (1 + 2 sum of autocorrelations), summed in pairs while these are positive and made to
    decrease (Geyer 1992), over chains cut in halves so that drift counts against it.
    """
    x = _halves(trace)
    chains, draws = x.shape
    if draws < 4:
        return float("nan")
    centred = x - x.mean(axis=1, keepdims=True)
    size = 2 ** int(np.ceil(np.log2(2 * draws)))
    spectrum = np.abs(np.fft.rfft(centred, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=1)[:, :draws].mean(axis=0) / draws
    within = covariance[0] * draws / (draws - 1)
    total = within * (draws - 1) / draws + (x.mean(axis=1).var(ddof=1) if chains > 1 else 0.0)
    if total <= 0:
        return float("nan")
    rho = 1 - (within - covariance * draws / (draws - 1)) / total
    rho[0] = 1.0
    pairs = rho[: 2 * (draws // 2)].reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs)
    time = -1 + 2 * np.minimum.accumulate(pairs[: max(end, 1)]).sum()
    return float(min(chains * draws / max(time, 1 / np.log10(chains * draws)), 1e12))


def r_hat(trace: NDArray[Any]) -> float:
    """Split R-hat: the spread between half chains against the spread within; 1 is converged."""
    x = _halves(trace)
    draws = x.shape[1]
    if draws < 2:
        return float("nan")
    within = x.var(axis=1, ddof=1).mean()
    between = x.mean(axis=1).var(ddof=1)
    return float(np.sqrt((draws - 1) / draws + between / within)) if within > 0 else float("nan")


def _halves(trace: NDArray[Any]) -> NDArray[np.float64]:
    x = np.atleast_2d(np.asarray(trace, float))
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, x.shape[1] - half :]])
