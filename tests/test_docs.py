"""The examples in the documents are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bayesmf.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
PYTHON = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]
COMMANDS = [
    pytest.param(command, output, id=f"{page.name}: {command}")
    for page in PAGES
    for command, output in re.findall(
        r"^    \$ \.venv/bin/bayesmf (.*)\n((?:    .*\n)*)", page.read_text(), re.M
    )
]


@pytest.mark.parametrize("block", PYTHON)
def test_python_examples_run_and_print_what_they_say(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    expected = re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_commands_print_what_the_page_shows(command, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, command.split(), env={"COLUMNS": "100"})
    assert done.exit_code == 0
    shown = [line.removeprefix("    ").rstrip() for line in output.splitlines()]
    assert [line.rstrip() for line in done.output.splitlines()] == shown


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_there_are_examples_to_run():
    assert len(PYTHON) >= 3
    assert len(COMMANDS) >= 2
