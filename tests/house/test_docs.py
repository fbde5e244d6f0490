"""The examples in the documents are run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from bayesmf.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
PYTHON = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]
COMMANDS = {
    page.name: commands
    for page in PAGES
    if (commands := re.findall(r"^    \$ (.*)\n((?:    (?!\$).*\n)*)", page.read_text(), re.M))
}
SAMPLED = ("fit", "predict", "recommend")


@pytest.mark.parametrize("block", PYTHON)
def test_python_examples_run_and_print_what_they_say(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    expected = re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_print_what_the_page_shows(page, tmp_path, monkeypatch):
    """One after the other in one folder, as a reader would."""
    monkeypatch.chdir(tmp_path)
    for command, output in COMMANDS[page]:
        shown = [line.removeprefix("    ").rstrip() for line in output.splitlines()]
        program, _, rest = command.partition(" ")
        if program == "printf":
            subprocess.run(command, shell=True, check=True)
            assert shown == []
            continue
        assert program == ".venv/bin/bayesmf", command
        done = CliRunner().invoke(main, rest.split(), env={"COLUMNS": "100"})
        assert done.exit_code == 0, f"{command}: {done.output}"
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        if rest.startswith(SAMPLED):
            assert_alike(printed, shown)
        else:
            assert printed == shown


def assert_alike(printed, shown):
    """The same words and counts, and numbers that are near.

    Another processor rounds in another way, and from there on a chain goes its own way. Averages of
    a hundred draws then differ by a tenth of a few times the predictions' sd, which is at most
    about 1. Items of nearly the same score may change places, so they are not compared, nor are
    times.
    """
    assert len(printed) == len(shown)
    for mine, theirs in zip(printed, shown, strict=True):
        if theirs.startswith("Converged: ") and mine.startswith("Converged: "):
            continue  # after another number of sweeps
        ours, given = (re.sub(r"in [\d.]+ s|after \d+ sweeps|\(0\.\d+ ± 0\.\d+", "", line).split()
                       for line in (mine, theirs))  # fmt: skip
        assert len(ours) == len(given), f"{mine!r} is not like {theirs!r}"
        recommended = "rank" in shown[0] and theirs != shown[0]
        for place, (a, b) in enumerate(zip(ours, given, strict=True)):
            if recommended and place == 2:
                assert a.isdecimal()
                assert b.isdecimal()
            elif "." in b and re.fullmatch(r"-?[\d.]+", b.rstrip("%,:")):
                near = 1.0 if "%" in b else 0.3
                assert abs(float(a.rstrip("%,:")) - float(b.rstrip("%,:"))) <= near, (mine, theirs)
            else:
                assert a == b, f"{mine!r} is not {theirs!r}"


def test_alike_is_not_everything():
    assert_alike(["a 1.20", "in 3 s"], ["a 1.25", "in 9.1 s"])
    for other in ["a 1.90", "b 1.25", "a 1.25 1", "a"]:
        with pytest.raises(AssertionError):
            assert_alike([other], ["a 1.25"])


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_there_are_examples_to_run():
    assert len(PYTHON) >= 3
    assert len(COMMANDS["README.md"]) >= 5
