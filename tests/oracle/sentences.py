"""A table of mistakes and of what the user is told, for the documents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def table_of(cases: Sequence[Any], message: Callable[[Any, Path], str]) -> str:
    """One row for each case, which has a ``what``; ``message(case, folder)`` makes the mistake."""
    lines = ["| input | what the user is told |", "|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            told = message(case, Path(folder)).replace("|", "\\|")
            lines.append(f"| {case.what} | {told} |")
    return "\n".join(lines) + "\n"
