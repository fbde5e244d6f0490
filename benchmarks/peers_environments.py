"""A virtual environment for each peer, with the versions of peers/requirements.toml."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
WANTED = tomllib.loads((HERE / "peers" / "requirements.toml").read_text(encoding="utf-8"))


def pythons() -> list[str]:
    """This one, then whatever else is on the path or kept by pyenv."""
    names = [f"python3.{minor}" for minor in (14, 13, 12, 11, 10)]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(glob.glob(str(root / "versions" / "*" / "bin" / "python3")), reverse=True)
    found = [getattr(sys, "_base_executable", sys.executable)]
    found += [path for name in names if (path := shutil.which(name))]
    return list(dict.fromkeys(found + kept))


def version(python: str) -> tuple[int, int] | None:
    code = "import sys; print(*sys.version_info[:2])"
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return None if ran.returncode else tuple(int(n) for n in ran.stdout.split())  # type: ignore[return-value]


def fitting(least: str) -> list[str]:
    """Pythons of at least this version, the nearest first."""
    asked = tuple(int(n) for n in least.split("."))
    known = [(found, path) for path in pythons() if (found := version(path)) and found >= asked]
    first: dict[tuple[int, int], str] = {}
    for found, path in known:
        first.setdefault(found, path)
    return [first[found] for found in sorted(first)]


def last_line(text: str) -> str:
    """The line of an error that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line and "subprocess-exited" not in line]
    return (errors or lines or ["nothing was said"])[-1][:200]


def environment(peer: str, root: Path) -> tuple[str | None, str]:
    """The Python of a peer's environment, or None and the line of its error; made once."""
    folder, wanted = root / peer, WANTED[peer]
    told = folder / "installed.json"
    if told.exists() and (done := json.loads(told.read_text()))["pins"] == wanted["pins"]:
        return done["python"], done["error"]
    error = f"needs Python {wanted['python']} or newer, which is not on this machine"
    python = None
    for base in fitting(wanted["python"]):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
        python = str(folder / "bin" / "python")
        words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        ran = subprocess.run([*words, *wanted["pins"]], capture_output=True, text=True)
        if ran.returncode == 0:
            error = ""
            break
        error, python = last_line(ran.stderr), None
    folder.mkdir(parents=True, exist_ok=True)
    told.write_text(json.dumps({"pins": wanted["pins"], "python": python, "error": error}))
    return python, error
