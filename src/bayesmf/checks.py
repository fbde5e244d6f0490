"""Arguments are checked where they are given: one sentence, in the words of the call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from bayesmf.errors import DataError


def check_whole(name: str, value: Any, least: int = 0) -> int:
    """Return ``value`` as an int, or refuse what is no whole number from ``least`` on."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number, not {type(value).__name__}")
    if value < least:
        raise DataError(f"{name}={value}: choose {least} or more")
    return int(value)


def check_number(name: str, value: Any, above: float = -math.inf) -> float:
    """Return ``value`` as a float, or refuse what is not finite and above ``above``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}: give a number, not {type(value).__name__}")
    number = float(value)
    if not (math.isfinite(number) and number > above):
        limit = "a finite number" if above == -math.inf else f"a finite number above {above:g}"
        raise DataError(f"{name}={value}: choose {limit}")
    return number


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    allowed = tuple(choices)
    if value not in allowed:
        raise DataError(f"{name}={value!r}: choose one of {', '.join(allowed)}")


def check_kind(name: str, value: Any, kind: type | tuple[type, ...], example: str) -> None:
    """Refuse an argument of another type, with an example of what to give instead."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is of type {type(value).__name__}; give {example}")
