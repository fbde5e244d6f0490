"""Rows cut into blocks of about the same work, whoever will do it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Rows

BLOCKS = 16  # of each side


def bounds(counts: NDArray[np.int64], rank: int, blocks: int = BLOCKS) -> NDArray[np.int64]:
    """Where blocks of neighbouring rows begin, and the end.

    A row costs a d^3 + b n d^2: a factorisation, and the Gram matrix of its n ratings. With
    a = b / 3, by their operations, that is in proportion to n + d / 3.
    """
    cost = np.cumsum(counts + rank / 3)
    cuts = np.searchsorted(cost, cost[-1] * np.arange(1, blocks) / blocks, side="left") + 1
    return np.unique(np.concatenate([[0], cuts, [len(counts)]])).astype(np.int64)


def part(rows: Rows, begin: int, end: int) -> Rows:
    """Some of the rows, on their own."""
    starts = rows.starts[begin : end + 1]
    span = slice(int(starts[0]), int(starts[-1]))
    return Rows(starts - starts[0], rows.index[span].copy(), rows.values[span].copy())
