"""Random words that must never change: raw Philox output, whose stream NumPy fixes for good."""

from __future__ import annotations

import numpy as np

from bayesmf.errors import DataError


def generator(seed: int, stream: int = 0) -> np.random.Philox:
    """Independent words for every (seed, stream): the two halves of Philox's key."""
    if not 0 <= seed < 2**64:
        raise DataError(f"seed {seed}: choose a whole number from 0 to 2^64 - 1")
    return np.random.Philox(key=seed + (stream << 64))
