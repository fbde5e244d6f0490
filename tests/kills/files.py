"""What is on the disk: digests of files, and who holds a lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

TIMED = ("times.jsonl", "run.checkpoint")  # files that hold seconds; so do pages of a study


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("seconds", "tail")}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def digests(folder: Path, *names: str) -> dict[str, str]:
    """Of every file, by its name; the times that commands write down do not count."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if names and not any(name == one or name.startswith(f"{one}/") for one in names):
            continue
        if path.is_file():
            content = path.read_bytes()
            if path.name in ("fit.json", "result.json", "tuning.json", "cross-validation.json"):
                content = json.dumps(without_times(json.loads(content)), sort_keys=True).encode()
            beside = path.with_name("study.json").exists()
            if path.name in TIMED or (beside and path.suffix in (".html", ".md")):
                content = b""
            found[name] = hashlib.sha256(content).hexdigest()
        elif path.is_dir() and not any(path.iterdir()):  # sockets of Ray are neither
            found[f"{name}/"] = ""
    return found


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def held(folder: Path) -> int:
    """How many files are locked by somebody."""
    count = 0
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            count += 1
        finally:
            os.close(handle)
    return count
