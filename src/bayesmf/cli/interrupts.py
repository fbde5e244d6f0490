"""Ctrl-C: at once while nothing has begun, in order once it has.

The command line loads this before all else, so it loads next to nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import signal

CODE = 130  # what shells expect of a command that Ctrl-C ended


def _leave(number: int, frame: object) -> None:
    os._exit(CODE)


class _Listening:
    """A block in which a handler hears Ctrl-C, unless somebody else listens, or nobody may."""

    def __init__(self, handler: object) -> None:
        self.handler, self.before = handler, signal.getsignal(signal.SIGINT)

    def __enter__(self) -> None:
        self._set(self.handler)

    def __exit__(self, *_: object) -> None:
        self._set(self.before)

    def _set(self, handler: object) -> None:
        if self.before in (signal.default_int_handler, _leave):
            with contextlib.suppress(ValueError):  # not in the main thread, the one that hears
                signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]


def leaving_at_once() -> _Listening:
    """While modules are loaded: broken off there, Python prints a traceback or goes on maimed."""
    return _Listening(_leave)


def leaving_in_order() -> _Listening:
    """While a command runs, which may have files to remove and results to keep."""
    return _Listening(signal.default_int_handler)
