"""Run tests with the least versions of all dependencies that pyproject.toml allows.

``python tests/least_versions.py FOLDER [TESTS ...]`` makes an environment in FOLDER, unless one is
there, with every dependency at its lower bound and what these need themselves at its newest, from
wheels alone; then it runs the tests that are named, or those of data, the command line, fits and
files below. Warnings are no errors there: old versions warn of new ones of their own dependencies.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("mypy", "ruff", "types-requests")  # which look at the code and do not run it
TESTS = (
    *("tests/data", "tests/cli/test_cli.py", "tests/cli/test_cli_ids.py"),
    *(
        "tests/cli/test_cli_mistakes.py",
        "tests/fitted/test_saved.py",
        "tests/fitted/test_fold_in.py",
    ),
    *("tests/fitted/test_update.py", "tests/fitted/test_arviz.py", "tests/inference/test_gibbs.py"),
    *("tests/inference/test_map.py", "tests/house/test_sklearn.py", "tests/plots"),
    "tests/serve/test_serve_api.py",
)


def least() -> list[str]:
    """All dependencies but the tools, each with its lower bound as the only version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    found = []
    for line in wanted:
        bound = re.match(r"([\w-]+)>=([\d.]+)", line)
        if not line.startswith(TOOLS):
            if bound is None:
                raise SystemExit(f"{line} has no lower bound")
            found.append(f"{bound[1]}=={bound[2]}")
    return sorted(set(found))


def main(folder: Path, tests: list[str]) -> int:
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--only-binary=:all:", *least()], check=True)
    subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
    words = [python, "-m", "pytest", "-q", "-o", "filterwarnings=default", *(tests or TESTS)]
    return subprocess.run(words, cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
