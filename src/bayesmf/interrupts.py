"""Ctrl-C: at once while nothing has begun, in order once it has."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

CODE = 130  # what shells expect of a command that Ctrl-C ended


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(CODE)


@contextlib.contextmanager
def leaving_at_once() -> Iterator[None]:
    """While modules are loaded: broken off there, Python prints a traceback or goes on maimed."""
    with _listening(_leave):
        yield


@contextlib.contextmanager
def leaving_in_order() -> Iterator[None]:
    """While a command runs, which may have files to remove and results to keep."""
    with _listening(signal.default_int_handler):
        yield


@contextlib.contextmanager
def _listening(handler: Any) -> Iterator[None]:
    ours = (signal.default_int_handler, _leave)
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) not in ours:
        yield  # whoever listens instead, or does not, has a reason
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
