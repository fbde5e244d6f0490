"""A Gaussian for every row of one side: from a chain, and from several chains' together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.model.conditionals import unpack
from bayesmf.model.data import RowPriors

Array = NDArray[np.float64]
CHUNK = 4096  # rows whose covariances are inverted together


@dataclass(frozen=True)
class RowGaussians:
    """x_i ~ N(mean_i, cov_i), rows independent; covariances as lower triangles, row by row."""

    mean: Array
    cov: Array

    def __len__(self) -> int:
        return len(self.mean)

    def priors(self) -> RowPriors:
        """The same by precision and linear term, as the sampler takes them."""
        precision, linear = np.empty_like(self.cov), np.empty_like(self.mean)
        for span in _spans(len(self)):
            P: Array = np.linalg.inv(unpack(self.cov[span])).astype(float)
            precision[span] = pack(P)
            linear[span] = np.einsum("iab,ib->ia", P, self.mean[span])
        return RowPriors(precision, linear)


class RowMoments:
    """Means and covariances of rows from the conditionals N(m_s, C_s) that a chain draws them from.

    E[x] = mean_s m_s,   Cov[x] = mean_s C_s + Cov_s[m_s]

    The conditionals say more than the draws would: the first part of the covariance is positive
    definite whatever their number, so a row with more features than there are draws needs no
    further regularisation.
    """

    def __init__(self, rows: int, size: int) -> None:
        cells = size * (size + 1) // 2
        self.count = 0
        self.mean = np.zeros((rows, size))
        self.within = np.zeros((rows, cells))
        self.between = np.zeros((rows, cells))

    def add(self, mean: Array, cov: Array) -> None:
        """Take in the conditionals of one sweep (Welford 1962)."""
        self.count += 1
        step = mean - self.mean
        self.mean += step / self.count
        self.within += cov
        a, b = np.tril_indices(mean.shape[1])
        self.between += step[:, a] * (mean - self.mean)[:, b]

    def result(self) -> RowGaussians:
        """The Gaussians with these moments."""
        cov = self.within / self.count + self.between / max(self.count - 1, 1)
        return RowGaussians(self.mean, cov)


def product(prior: RowGaussians, later: Sequence[RowGaussians]) -> RowGaussians:
    """The product of posteriors that began at one prior, which is counted once.

    P = sum_b P_b - (B - 1) P_0,   h = sum_b h_b - (B - 1) h_0

    or, seen from the prior, P = P_0 + sum_b (P_b - P_0) and m = m_0 + P^-1 sum_b P_b (m_b - m_0).
    Data add information, P_b >= P_0, but chance, and a likelihood that is no Gaussian in both
    sides at once, may give a direction less of it than the prior has. Such directions of P get the
    prior's precision: in coordinates where P_0 is the identity, the eigenvalues of P are at least
    1. So P is positive definite, and what exact Gaussians give is not touched.
    """
    if not later:
        return prior
    mean, cov = np.empty_like(prior.mean), np.empty_like(prior.cov)
    for span in _spans(len(prior)):
        L = np.linalg.cholesky(unpack(prior.cov[span]))  # x = m_0 + L y: y has P_0 = I
        gain = np.zeros_like(L)
        pull = np.zeros(L.shape[:2])
        for each in later:
            # L' P_b L is the inverse of L^-1 C_b L^-T
            half = np.linalg.solve(L, unpack(each.cov[span]))
            C = np.linalg.solve(L, half.transpose(0, 2, 1))
            P = np.linalg.inv((C + C.transpose(0, 2, 1)) / 2)
            step = np.linalg.solve(L, (each.mean[span] - prior.mean[span])[..., None])
            gain += P - np.eye(P.shape[1])
            pull += (P @ step)[..., 0]
        values, vectors = np.linalg.eigh((gain + gain.transpose(0, 2, 1)) / 2)
        half = L @ vectors / np.sqrt(1 + np.maximum(values, 0.0))[:, None]
        cov[span] = pack(half @ half.transpose(0, 2, 1))
        along = np.einsum("iba,ib->ia", vectors, pull) / (1 + np.maximum(values, 0.0))
        mean[span] = prior.mean[span] + np.einsum("iab,ib->ia", L @ vectors, along)
    return RowGaussians(mean, cov)


def pack(matrices: Array) -> Array:
    """The lower triangles of a stack of symmetric matrices, row by row; see ``unpack``."""
    a, b = np.tril_indices(matrices.shape[-1])
    out: Array = matrices[:, a, b]
    return out


def _spans(rows: int) -> list[slice]:
    return [slice(begin, begin + CHUNK) for begin in range(0, rows, CHUNK)]
