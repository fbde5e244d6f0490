"""Compiled arithmetic: every @njit function of the project, and what lays out their arrays.

No kernel reorders a sum by the number of threads, so the same input gives the same bits on any.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

FLAGS: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract"},  # fused multiply-add, and no other liberty
    "nogil": True,
}

serial = njit(**FLAGS)
parallel = njit(parallel=True, **FLAGS)
LANES = 8  # rows, or columns, that go through the arithmetic side by side


def aligned(shape: tuple[int, ...]) -> Any:
    """An empty array that begins with a cache line, so that its rows lie in as few as can be."""
    size = math.prod(shape)
    memory = np.empty(size + 7)
    first = -memory.ctypes.data // 8 % 8
    return memory[first : first + size].reshape(shape)
