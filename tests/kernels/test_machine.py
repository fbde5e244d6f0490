"""How many threads work: what overlapping users leave behind, and what it costs to ask."""

from __future__ import annotations

import os
import sys
import threading
import types
import warnings

import numba
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from bayesmf import machine


def blas() -> list[int]:
    """How many threads each BLAS library uses."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library.num_threads for library in libraries]


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        assert set(blas()) == {2}
        yield


class Visitor:
    """A thread that is inside ``using`` between ``enter`` and ``leave``."""

    def __init__(self) -> None:
        self.inside, self.free = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.visit, daemon=True)

    def visit(self) -> None:
        with machine.using(1):
            self.inside.set()
            self.free.wait()

    def enter(self) -> None:
        self.thread.start()
        assert self.inside.wait(60)

    def leave(self) -> None:
        self.free.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.mark.parametrize("first_out", [0, 1])
def test_overlapping_users_leave_blas_as_it_was(first_out, two_blas_threads):
    visitors = [Visitor(), Visitor()]
    for visitor in visitors:
        visitor.enter()
        assert set(blas()) == {1}
    visitors[first_out].leave()
    assert set(blas()) == {1}  # the other is still inside
    visitors[1 - first_out].leave()
    assert set(blas()) == {2}


def test_an_error_inside_leaves_everything_as_it_was(two_blas_threads):
    before = numba.get_num_threads()
    with pytest.raises(ZeroDivisionError), machine.using(1), machine.using(1):
        1 / 0  # noqa: B018
    assert set(blas()) == {2}
    assert numba.get_num_threads() == before


def test_libraries_are_looked_for_once_and_again_after_an_import(two_blas_threads, monkeypatch):
    scans = []

    def scan() -> ThreadpoolController:
        scans.append(1)
        return ThreadpoolController()

    monkeypatch.setattr(machine, "ThreadpoolController", scan)
    monkeypatch.setattr(machine, "_libraries", machine._Libraries())
    for _ in range(5):
        with machine.using(1), machine.using(1):
            assert set(blas()) == {1}
    assert len(scans) == 1
    with machine.using(1):
        monkeypatch.setitem(sys.modules, "a_module_imported_meanwhile", types.ModuleType("new"))
        with machine.using(1):
            pass
        assert set(blas()) == {1}
    assert len(scans) == 2
    assert set(blas()) == {2}


@pytest.mark.parametrize("openmp", [1, 2])
def test_ctrl_c_while_pools_are_set_leaves_blas_as_it_was(two_blas_threads, monkeypatch, openmp):
    """With one thread of OpenMP before, it comes a second time when that is set back."""
    right = machine._set

    def interrupted(pool, threads, before=None) -> None:
        right(pool, threads, before)
        if threads == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(machine, "_libraries", machine._Libraries())
    with threadpool_limits(openmp, user_api="openmp"):
        monkeypatch.setattr(machine, "_set", interrupted)
        with pytest.raises(KeyboardInterrupt), machine.using(1):
            pass
        monkeypatch.setattr(machine, "_set", right)
        assert set(blas()) == {2}
        with machine.using(1):
            assert set(blas()) == {1}
        assert set(blas()) == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have(two_blas_threads):
    """They would have set BLAS back, and released their locks."""
    visitor = Visitor()
    visitor.enter()
    with warnings.catch_warnings(), machine.Kernel.waiting, machine._libraries._lock:
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        child = os.fork()
    if child == 0:
        with machine.using(1):
            inside = set(blas())
        free = machine.Kernel.waiting.acquire(blocking=False)
        os._exit(0 if inside == {1} and set(blas()) == {2} and free else 3)
    visitor.leave()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
