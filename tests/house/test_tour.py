"""The tour, as a notebook and as a shell session: from csv files to a served model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = (DOCS / "tour.ipynb").read_text()
CODE = [cell for cell in json.loads(NOTEBOOK)["cells"] if cell["cell_type"] == "code"]
CELLS = ["".join(cell["source"]) for cell in CODE]
BLOCKS = re.findall(r"```sh\n(.*?)```", (DOCS / "guides" / "tour.md").read_text(), re.S)
SERVE = "bayesmf serve later --port 8000\n"


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("uvicorn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, object] = {}
    for cell in CELLS:
        exec(compile(cell, "a cell", "exec"), names)
    told = capsys.readouterr().out
    assert "has the lowest test RMSE" in told
    assert re.search(r"volume \d+ [\d.]+ \[[\d.]+, [\d.]+\]\n", told)
    assert told.endswith("ended with 0\n")
    assert names["tuned"].best is not None
    lists = names["lists"]
    assert lists["after"]["score"][0] < lists["before"]["score"][0] - 0.5


def test_the_notebook_shows_what_it_gave():
    """It was run from the first cell to the last; `jupyter nbconvert --execute` does it again."""
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)]
    shown = [part for cell in CODE for part in cell["outputs"]]
    assert {part["output_type"] for part in shown} <= {"stream", "execute_result", "display_data"}
    assert sum("<img" in str(part) or "image/png" in str(part) for part in shown) == 2
    assert len(NOTEBOOK) < 300_000


def test_the_session_runs(tmp_path, monkeypatch):
    """Every command, in one shell after the other; the service on a port that is free."""
    pytest.importorskip("uvicorn")
    monkeypatch.chdir(tmp_path)
    exec(compile(CELLS[0], "the first cell", "exec"), {})
    assert BLOCKS[-1] == SERVE
    start = f'set -e; bayesmf() {{ "{sys.executable}" -m bayesmf "$@"; }}\n'
    for block in BLOCKS[:-1]:
        done = subprocess.run(
            ["bash", "-c", start + block], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
    assert (tmp_path / "shop.html").stat().st_size > 10_000
    titles = re.findall(r"Mystery, volume \d+", done.stdout)
    assert len(titles) == 5
    words = [sys.executable, "-m", "bayesmf", "serve", "later", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stderr is not None
            address = re.search("http://[^;]*", served.stderr.readline())
            assert address is not None
            with urllib.request.urlopen(f"{address[0]}api/ratings?user=reader007") as answer:
                ratings = json.load(answer)["ratings"]
        finally:
            served.terminate()
    assert served.returncode == 0
    found = {each["item"]: each["rating"] for each in ratings}
    assert (found["bk000"], found["bk004"]) == (1.0, 2.0)
