"""A table of mistakes and of what the user is told, for the documents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bayesmf import DataError


def message_of(make: Callable[[Any, Path], object], case: Any, folder: Path) -> str:
    """What the user is told of a mistake that ``make(case, folder)`` makes, without the folder."""
    try:
        make(case, folder)
    except DataError as error:
        return str(error).replace(f"{folder}/", "")
    return "(accepted)"


def table_of(cases: Sequence[Any], make: Callable[[Any, Path], object]) -> str:
    """One row for each case, which has a ``what``."""
    lines = ["| input | what the user is told |", "|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            told = message_of(make, case, Path(folder)).replace("|", "\\|")
            lines.append(f"| {case.what} | {told} |")
    return "\n".join(lines) + "\n"
