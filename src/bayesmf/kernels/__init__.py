"""Compiled arithmetic: every @njit function of the project, and nothing else.

No kernel reorders a sum by the number of threads, so the same input gives the same bits on any.
"""

from __future__ import annotations

from typing import Any

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
