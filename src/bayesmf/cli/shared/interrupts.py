"""Ctrl-C ends a command at once while modules are loaded, and in order once it has begun.

The command line loads this module before any other, so it imports next to nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

CODE = 130  # what shells expect of a command that Ctrl-C ended


def _leave(number: int, frame: object) -> None:
    os._exit(CODE)


class _Listening:
    """A block in which a handler hears Ctrl-C, unless the caller has set a handler of its own."""

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
    """End at once while modules are loaded, where an exception would leave them half loaded."""
    return _Listening(_leave)


def leaving_in_order() -> _Listening:
    """Raise KeyboardInterrupt while a command runs, so that it can remove files or keep results."""
    return _Listening(signal.default_int_handler)


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Raise SystemExit at SIGTERM while a command runs, so that it leaves no temporary files."""
    heard: list[int] = []

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one does not wait
        heard.append(number)
        raise SystemExit(128 + number)

    try:
        listens = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if listens:
            signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread
        listens = False
    try:
        yield
    except BaseException:
        if heard:  # Ray raises another one in its place if it comes while it waits
            raise SystemExit(128 + heard[0]) from None
        raise
    finally:
        if listens:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
