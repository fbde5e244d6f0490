"""How this machine is used: what the compiler may do, and how many threads work."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache, update_wrapper
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_features
from numba import njit
from threadpoolctl import ThreadpoolController

from bayesmf import __version__
from bayesmf.checks import check_whole
from bayesmf.compiled import keep_on_disk
from bayesmf.errors import DataError

FLAGS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract"},  # fused multiply-add, and no other liberty
    "nogil": True,
}


def compiler(form: str = "", parallel: bool = False) -> Callable[[Any], Any]:
    """Returns a decorator that compiles a function with our flags and keeps the code on disk.

    Numba files the code under the function's name, and looks only at the function's own source to
    see whether it is still good. So our version becomes part of the name, and ``form``, which says
    what else the code depends on.
    """

    def compile_function(function: Any, *more: str, **options: Any) -> Any:
        words = [function.__qualname__, __version__, *filter(None, (form, *more))]
        named = update_wrapper(FunctionType(function.__code__, function.__globals__), function)
        named.__qualname__ = "-".join(words)
        return keep_on_disk(njit(**options, **FLAGS)(named))

    def compile_both(function: Any) -> Kernel:
        return Kernel(compile_function(function, parallel=True), compile_function(function, "one"))

    return compile_both if parallel else compile_function


class Kernel:
    """A kernel with a parallel loop, and the same one compiled without it, which gives equal bits.

    On one thread there is no parallel region: neither the library behind it nor its state after a
    fork matters. Numba's workqueue, which it takes where it finds no OpenMP and no TBB, ends the
    process if two threads are in it, so there one waits for the other. GNU's OpenMP does not work
    in a process that was forked from one that has used it, so such a process has one thread.
    """

    waiting = threading.Lock()
    forked = False  # from a process in which OpenMP had begun

    def __init__(self, parallel: Any, serial: Any) -> None:
        self.parallel, self.serial = parallel, serial
        update_wrapper(self, serial.py_func)

    @property
    def py_func(self) -> Any:
        """The function as it is written."""
        return self.serial.py_func

    def __call__(self, *given: Any) -> Any:
        """Runs the kernel."""
        if self.forked or numba.get_num_threads() == 1:
            return self.serial(*given)
        if _layer() != "workqueue":
            return self.parallel(*given)
        with self.waiting:
            return self.parallel(*given)


def _layer() -> str:
    """Returns the library behind Numba's threads, or nothing if none has been chosen yet."""
    try:
        return str(numba.threading_layer())  # type: ignore[attr-defined]
    except ValueError:
        return ""


def _after_fork() -> None:
    """What a forked process cannot use as it was: other threads' locks, and OpenMP."""
    Kernel.waiting = threading.Lock()
    Kernel.forked |= _layer() == "omp"
    _libraries.forget_others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

serial, parallel = compiler(), compiler(parallel=True)


@cache
def arithmetic() -> str:
    """What the last digits of a result depend on, besides the versions of packages."""
    fused = "FMA" if get_host_cpu_features().get("fma") else "no FMA"
    pools = ThreadpoolController().select(user_api="blas").lib_controllers
    blas = {f"{one.internal_api} {getattr(one, 'architecture', None)}" for one in pools}
    return ", ".join([platform.machine(), fused, *sorted(blas), " ".join(platform.libc_ver())])


def compare_arithmetic(there: str, where: str) -> None:
    """Warns if ``where`` has other arithmetic than this machine."""
    if there != arithmetic():
        warnings.warn(
            f"{where} has other arithmetic than this machine ({there}; here {arithmetic()}): "
            "results are as good, but their last digits are not those of one machine",
            stacklevel=3,
        )


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
    if threads is None:
        return
    if check_whole("threads", threads, 1) > MOST_THREADS:
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
        self._users: list[Numbers] = []  # what each has to set back
        self._modules = -1  # how many were imported when libraries were looked for
        self._found: list[Any] = []
        self._before: Numbers = []  # what shared pools had, the earliest first

    def hold(self, own: Numbers) -> None:
        """Sets every pool to one thread.

        ``own`` is the caller's, empty, and what to hand to ``release``. What a pool had is noted
        before it is changed: Ctrl-C may come in between.
        """
        with self._lock:
            new = len(sys.modules) != self._modules
            if new:
                self._found = ThreadpoolController().lib_controllers
                self._modules = len(sys.modules)
            first = not self._users
            self._users.append(own)
            for pool in self._found:
                if not _is_shared(pool):
                    _set(pool, 1, own)
                elif new or first:
                    _set(pool, 1, self._before)

    def release(self, own: Numbers) -> None:
        """Sets the caller's own pools back, and the shared ones if nobody else is here."""
        try:
            for pool, threads in own[::-1]:
                _set(pool, threads)
        finally:  # a second Ctrl-C may have come
            with self._lock:
                self._users = [user for user in self._users if user is not own]
                while self._before and not self._users:
                    _set(*self._before[-1])
                    self._before.pop()

    def forget_others(self) -> None:
        """In a forked process: the other threads are gone, and will release nothing."""
        self._lock, self._users = threading.Lock(), []


def _is_shared(pool: Any) -> bool:
    """Says whether the process has one such pool, and not one for each of the caller's threads."""
    if pool.user_api != "blas" or pool.internal_api == "mkl":
        return False
    return getattr(pool, "threading_layer", None) != "openmp"


def _set(pool: Any, threads: int, before: Numbers | None = None) -> None:
    """Sets a pool's number of threads; adds the one it had to ``before``."""
    if before is not None:
        before.append((pool, pool.num_threads))
    # newer versions ignore a thread other than the first that has set a number
    let_go = getattr(pool, "clear_controlling_thread", lambda force: None)
    let_go(force=True)
    pool.set_num_threads(threads)
    let_go(force=True)


_libraries = _Libraries()


@contextlib.contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Runs the kernels of this block on ``threads`` threads (None: all), and BLAS on one.

    Blocks may overlap in several threads of the process.
    """
    before = numba.get_num_threads()
    own: Numbers = []
    try:
        numba.set_num_threads(threads or MOST_THREADS)
        _libraries.hold(own)
        yield
    finally:
        _libraries.release(own)
        numba.set_num_threads(before)
