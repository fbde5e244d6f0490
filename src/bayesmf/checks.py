"""Arguments are checked where they are given: one sentence, in the words of the call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from bayesmf.errors import DataError

MOST_SWEEPS, MOST_CHAINS = 2**32 - 1, 2**16  # that have random numbers of their own


def check_whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Return ``value`` as an int, or refuse what is no whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number, not {type(value).__name__}")
    if value < least:
        raise DataError(f"{name}={value}: choose {least} or more")
    if most is not None and int(value) > most:
        raise DataError(f"{name}={value}: choose {least} to {most}")
    return int(value)


def check_seed(value: Any) -> int:
    """Return a seed as an int: a whole number of 64 bits."""
    return check_whole("seed", value, 0, 2**64 - 1)


def check_length(sweeps: Any) -> int:
    """Return a number of sweeps as an int."""
    return check_whole("sweeps", sweeps, 1, MOST_SWEEPS)


def check_number(
    name: str, value: Any, above: float = -math.inf, *, least: float = -math.inf
) -> float:
    """Return ``value`` as a float, or refuse what is not finite, above ``above`` and ``least``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}: give a number, not {type(value).__name__}")
    number = float(value)
    if not (math.isfinite(number) and number > above and number >= least):
        limit = "a finite number" + (f" above {above:g}" if above > -math.inf else "")
        limit += f", {least:g} or more" if least > -math.inf else ""
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


def check_path(name: str, value: Any) -> Path:
    """Return the path of a file or folder, or refuse what is none."""
    check_kind(name, value, (str, PathLike), "the path of a file or folder")
    return Path(value)
