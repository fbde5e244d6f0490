"""Ctrl-C ends a command whenever it comes: exit code 130, no traceback, nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from bayesmf.cli import interrupts
from bayesmf.cli.main import main
from bayesmf.data import synthetic

LONG = ["fit", "demo", "--quiet", "--sweeps", "100000", "--rank", "2", "--out"]


@pytest.mark.parametrize(
    ("module", "later"),
    [("click", 0), ("rich.console", 0), ("bayesmf.cli.study", 0), ("bayesmf.cli.main", 0),
     ("numpy._core.multiarray", 0), ("pyarrow.lib", 0), ("numba.core.types", 0),
     ("bayesmf.sweep.sweep", 0), ("bayesmf.inference.gibbs", 0.05)],
)  # fmt: skip
def test_while_modules_are_loaded(module, later, tmp_path):
    """Python tells on the error stream when a module is there; that is when the signal comes."""
    command = [sys.executable, "-X", "importtime", "-m", "bayesmf", *LONG, str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as run:
        try:
            loaded = (line.rsplit("|", 1)[-1].strip() for line in run.stderr)
            assert module in loaded
            time.sleep(later)
            run.send_signal(signal.SIGINT)
            rest = run.communicate(timeout=60)[1]
        finally:
            run.kill()
    assert run.returncode == 130, rest
    assert "Traceback" not in rest
    assert "KeyboardInterrupt" not in rest
    assert list(tmp_path.iterdir()) == []


def test_in_a_command(monkeypatch):
    def stop():
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(synthetic, "demo", stop)
    for words in (["fit", "demo"], ["data", "describe", "demo"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 130
        assert done.stderr == "Stopped.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_does_not_listen_is_left_alone():
    """As a process that was started with nohup, or with an & in a script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.leaving_at_once():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
