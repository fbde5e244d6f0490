"""The table of variants and checks, from what ``pytest -v`` printed.

``python -m pytest -v -m "slow or not slow" > LOG; python tests/checks_table.py LOG``
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from oracle.variants import VARIANTS

LINE = re.compile(r"^tests/(?:\w+/)*(\w+)\.py::(\w+)\[(.+)\] (PASSED|FAILED|SKIPPED)", re.M)
LEAST = 6  # checks of fewer variants than this are left out
MARKS = {"PASSED": "yes", "FAILED": "NO", "SKIPPED": "-"}


def table(text: str) -> str:
    """One row a variant, one column a check; a check in several forms counts as one."""
    found: dict[tuple[str, str], set[str]] = {}
    for file, test, parameters, outcome in LINE.findall(text):
        for variant in VARIANTS:
            if re.fullmatch(rf"(?:[\w-]+-)?{re.escape(variant)}(?:-[\w-]+)?", parameters):
                check = f"{file.removeprefix('test_')}: {test.removeprefix('test_')}"
                found.setdefault((check.replace("_", " "), variant), set()).add(outcome)
    counts = Counter(check for check, _ in found)
    checks = sorted(check for check, count in counts.items() if count >= LEAST)
    keys = {check: str(number) for number, check in enumerate(checks, 1)}
    lines = [f"{key}. {check}" for check, key in keys.items()]
    lines += ["", "| variant | " + " | ".join(keys.values()) + " |", "|---" * (len(keys) + 1) + "|"]
    for variant in VARIANTS:
        cells = []
        for check in checks:
            seen = found.get((check, variant), {"SKIPPED"})
            worst = next(o for o in ("FAILED", "PASSED", "SKIPPED") if o in seen)
            cells.append(MARKS[worst])
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text(encoding="utf-8")))
