"""How this machine is used: what the compiler may do, and how many threads work."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba import njit
from threadpoolctl import ThreadpoolController

from bayesmf import __version__
from bayesmf.errors import DataError

FLAGS: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract"},  # fused multiply-add, and no other liberty
    "nogil": True,
}


def compiler(form: str = "", **options: Any) -> Callable[[Any], Any]:
    """Returns a decorator that compiles a function with our flags and keeps the code on disk.

    Numba files the code under the function's name, and looks only at the function's own source to
    see whether it is still good. So our version becomes part of the name, and ``form``, which says
    what else the code depends on.
    """

    def compile_function(function: Any) -> Any:
        function.__qualname__ += f"-{__version__}-{form}" if form else f"-{__version__}"
        return njit(**options, **FLAGS)(function)

    return compile_function


serial, parallel = compiler(), compiler(parallel=True)
LANES = 8  # rows, or columns, that go through the arithmetic side by side


def aligned(shape: tuple[int, ...]) -> Any:
    """Returns an empty array that begins with a cache line, so that its rows span few of them."""
    size = math.prod(shape)
    memory = np.empty(size + 7)
    first = -memory.ctypes.data // 8 % 8
    return memory[first : first + size].reshape(shape)


MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


def check_threads(threads: int | None) -> None:
    """Refuses a number of threads that this machine does not have."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise DataError(f"threads={threads}: choose 1 to {MOST_THREADS} on this machine")


Numbers = list[tuple[Any, int]]  # libraries with pools of threads, and how many threads each uses


class _Libraries:
    """The pools of threads of BLAS and OpenMP, held at one thread while anybody works here.

    A pool that the whole process shares goes back to its number only when the last of overlapping
    users leaves. Other pools have a number for each of the caller's threads. Looking for libraries
    takes milliseconds, so it is done again only after an import.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._modules = -1  # how many were imported when libraries were looked for
        self._found: list[Any] = []
        self._before: Numbers = []  # what shared pools had, the earliest first

    def hold(self) -> Numbers:
        """Sets every pool to one thread; returns what the caller has to hand to ``release``."""
        with self._lock:
            new = len(sys.modules) != self._modules
            if new:
                self._modules = len(sys.modules)
                self._found = ThreadpoolController().lib_controllers
            if new or not self._users:
                self._before += _set([(pool, 1) for pool in self._found if _is_shared(pool)])
            self._users += 1
            own = [(pool, 1) for pool in self._found if not _is_shared(pool)]
        return _set(own)

    def release(self, own: Numbers) -> None:
        """Sets the caller's own pools back, and the shared ones if nobody else is here."""
        _set(own)
        with self._lock:
            self._users -= 1
            if not self._users:
                _set(self._before[::-1])
                self._before = []


def _is_shared(pool: Any) -> bool:
    """Says whether the process has one such pool, and not one for each of the caller's threads."""
    if pool.user_api != "blas" or pool.internal_api == "mkl":
        return False
    return getattr(pool, "threading_layer", None) != "openmp"


def _set(numbers: Numbers) -> Numbers:
    """Sets the numbers of threads; returns those from before."""
    before = [(pool, pool.num_threads) for pool, _ in numbers]
    for pool, threads in numbers:
        # newer versions ignore a thread other than the first that has set a number
        let_go = getattr(pool, "clear_controlling_thread", lambda force: None)
        let_go(force=True)
        pool.set_num_threads(threads)
        let_go(force=True)
    return before


_libraries = _Libraries()


@contextlib.contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Runs the kernels of this block on ``threads`` threads (None: all), and BLAS on one.

    Blocks may overlap in several threads of the process.
    """
    before = numba.get_num_threads()
    numba.set_num_threads(threads or MOST_THREADS)
    try:
        own = _libraries.hold()
        try:
            yield
        finally:
            _libraries.release(own)
    finally:
        numba.set_num_threads(before)
