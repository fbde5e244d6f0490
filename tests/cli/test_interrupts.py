"""Ctrl-C ends a command whenever it comes: exit code 130, no traceback, nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from bayesmf import load_model
from bayesmf.cli.main import main
from bayesmf.cli.shared import interrupts
from bayesmf.data import synthetic
from bayesmf.inference import engine

pytestmark = pytest.mark.usefixtures("listening")

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


def interrupt_sweep(monkeypatch, number):
    """Have Ctrl-C come in the sweep of this number, counted over all chains."""
    sweep, calls = engine.gibbs_sweep, []

    def interrupted(*args):
        calls.append(1)
        sweep(*args)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(engine, "gibbs_sweep", interrupted)


@pytest.mark.parametrize(
    ("options", "at"),
    [(["--sweeps", 30, "--burn-in", 5], 11), ([], 79), (["--sweeps", 30, "--burn-in", 0], 1)],
    ids=["in the burn-in", "before the warm-up is known", "before all chains have begun"],
)
def test_a_fit_that_is_stopped_early_leaves_no_model(
    options, at, tiny_ratings, tmp_path, monkeypatch
):
    """So that `fit && deploy` does not deploy it; a checkpoint goes on."""
    words = ["fit", tiny_ratings, "--quiet", "--rank", 2, "--chains", 2, *options, "--out",
             tmp_path / "out", "--checkpoint", tmp_path / "run"]  # fmt: skip
    words = [str(word) for word in words]
    with monkeypatch.context() as patched:
        interrupt_sweep(patched, at)
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 130
    assert done.stderr.startswith("Stopped before ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert CliRunner().invoke(main, [*words, "--resume"]).exit_code == 0
    assert load_model(tmp_path / "out").facts["sweeps"] > at


@pytest.mark.parametrize(("options", "at"), [(["--sweeps", 30, "--burn-in", 5], 12), ([], 80)])
def test_a_fit_that_is_stopped_later_keeps_what_it_has(
    options, at, tiny_ratings, tmp_path, monkeypatch
):
    """And its exit code says that it was stopped."""
    words = ["fit", tiny_ratings, "--quiet", "--rank", 2, "--chains", 2, *options, "--r-hat",
             "1.0001", "--out", tmp_path / "out"]  # fmt: skip
    if "--sweeps" in options:
        words = [word for word in words if word not in ("--r-hat", "1.0001")]
    interrupt_sweep(monkeypatch, at)
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert (done.exit_code, done.stderr) == (130, "Stopped.\n")
    assert f"{at} sweeps of 2 chains" in done.stdout
    assert "written to" in done.stdout
    assert load_model(tmp_path / "out").facts["sweeps"] == at


def test_sigterm_leaves_no_temporary_file(tiny_fit, tmp_path, monkeypatch):
    def end(*args, **options):
        (temporary,) = tmp_path.iterdir()
        assert temporary.name.startswith(".out.csv.")
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("pyarrow.csv.write_csv", end)
    words = ["recommend", str(tiny_fit), "--user", "u1", "--out", str(tmp_path / "out.csv")]
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assert CliRunner().invoke(main, words).exit_code == 128 + signal.SIGTERM
        assert list(tmp_path.iterdir()) == []
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_who_does_not_listen_is_left_alone():
    """As a process that was started with nohup, or with an & in a script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.leaving_at_once():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
