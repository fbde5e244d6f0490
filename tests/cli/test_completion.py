"""The shell completes commands, options, names of data sets and files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bayesmf.cli.main import main


def completions(line: str) -> list[str]:
    """What the script of bash is told at the end of a line: a kind and a word each."""
    words = line.split(" ")
    env = {**os.environ, "_BAYESMF_COMPLETE": "bash_complete", "COMP_WORDS": line,
           "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
    command = [sys.executable, "-m", "bayesmf"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bayesmf fo", ["plain,fold-in"]),
        ("bayesmf completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
        ("bayesmf fit --infer", ["plain,--inference"]),
        ("bayesmf fit --inference v", ["plain,vi"]),
        ("bayesmf fit ml-1", ["file,ml-1", "plain,ml-100k", "plain,ml-1m", "plain,ml-10m"]),
        ("bayesmf fit ./de", ["file,./de"]),
        ("bayesmf data describe dem", ["file,dem", "plain,demo"]),
        ("bayesmf data fetch ep", ["plain,epinions"]),
        ("bayesmf split dem", ["file,dem", "plain,demo"]),
        ("bayesmf study dem", ["file,dem", "plain,demo"]),
        ("bayesmf evaluate my-fit dem", ["file,dem", "plain,demo"]),
        ("bayesmf fold-in my-fit dem", ["file,dem", "plain,demo"]),
        ("bayesmf recommend my-", ["file,my-"]),
        ("bayesmf recommend my-fit --seen dem", ["file,dem", "plain,demo"]),
        ("bayesmf fit demo --out my-", ["file,my-"]),
    ],
)
def test_what_may_come_next(line, expected):
    assert completions(line) == expected


def test_names_come_without_numpy():
    """A key that is pressed waits for nothing."""
    code = (
        "import sys, bayesmf.cli.main; from bayesmf.cli.shared.options import data_names;"
        "assert data_names(None, None, 'dem'); print({'numpy', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell):
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_BAYESMF_COMPLETE={shell}_complete" in done.stdout
    told = CliRunner().invoke(main, ["completion", "--help"]).output
    assert "bayesmf completion bash >> ~/.bashrc" in told
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path):
    """With the script sourced, as after its installation."""
    command = tmp_path / "bayesmf"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bayesmf "$@"\n')
    command.chmod(0o755)
    script = """
        source <(bayesmf completion bash)
        complete -p bayesmf
        COMP_WORDS=(bayesmf fit ml-1) COMP_CWORD=2
        compopt() { :; }  # which only works while bash itself completes
        _bayesmf_completion bayesmf
        echo "${COMPREPLY[@]}"
    """
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _bayesmf_completion bayesmf", "ml-100k ml-1m ml-10m",
    ]  # fmt: skip
    assert done.stderr == ""
