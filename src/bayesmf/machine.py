"""How this machine is used: what the compiler may do, and how many threads work."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from bayesmf.errors import DataError

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


MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that this machine does not have."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise DataError(f"threads={threads}: choose 1 to {MOST_THREADS} on this machine")


@contextlib.contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Run kernels on so many threads, and BLAS on one: our threads are the only ones."""
    before = numba.get_num_threads()
    numba.set_num_threads(threads or MOST_THREADS)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)
