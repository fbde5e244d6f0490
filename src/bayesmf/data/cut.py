"""Rows cut into blocks of about the same work, whoever will do it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Rows

BLOCKS = 16  # of each side
RANK = 20  # that blocks are balanced for if none is known


def spans(
    counts: NDArray[np.int64], rank: int = RANK, blocks: int = BLOCKS
) -> list[tuple[int, int]]:
    """Where each block of neighbouring rows begins and ends.

    A row costs a d^3 + b n d^2: a factorisation, and the Gram matrix of its n ratings. With
    a = b / 3, by their operations, that is in proportion to n + d / 3.
    """
    cost = np.cumsum(counts + rank / 3)
    cuts = np.searchsorted(cost, cost[-1] * np.arange(1, blocks) / blocks) + 1
    ends = np.unique(np.concatenate([cuts, [len(counts)]])).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def part(rows: Rows, begin: int, end: int) -> Rows:
    """Some of the rows, on their own."""
    starts = rows.starts[begin : end + 1]
    span = slice(int(starts[0]), int(starts[-1]))
    return Rows(starts - starts[0], rows.index[span].copy(), rows.values[span].copy())
