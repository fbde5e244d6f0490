"""A run that is ended anywhere goes on to the same bits; nothing saved is ever lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bayesmf import DataError
from bayesmf.cli.main import main
from bayesmf.inference import checkpoint, engine
from bayesmf.inference.loop import Progress
from oracle.checkpoints import JUDGE, NAMES, SWEEPS, TEST, TRAIN, Stop, content, fitted, sampler


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing here survives a power failure, and it need not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize(
    ("name", "start"), [*((name, "random") for name in NAMES), (NAMES[0], "map")]
)
def test_ended_at_any_sweep_it_goes_on_to_the_same_bits(name, start, tmp_path):
    """An error leaves what was saved one sweep before, as a kill does."""
    gibbs = sampler(name)
    whole = fitted(gibbs, start=start)
    expected, first = content(whole), 0
    if start == "map":  # whose own sweeps are seen, too
        seen = Stop(-1, "ask")
        fitted(gibbs, start=start, callbacks=[seen])
        first = len(seen.seen) - whole.sweeps
    for at in range(1, whole.sweeps + 1, 3 if start == "map" else 1):
        for how, lost in (("interrupt" if at % 2 else "ask", 0), ("fail", 1)):
            folder, stop, rest = tmp_path / f"{at} {how}", Stop(first + at, how), Stop(-1, "ask")
            try:
                half = fitted(gibbs, folder, start=start, callbacks=[stop])
                assert half.stopped in ("a callback ended it", "interrupted")
                assert half.sweeps == at
            except RuntimeError:
                assert how == "fail"
            except KeyboardInterrupt:  # both chains need a sweep after the burn-in
                assert (how, at < 4) == ("interrupt", True)
            resumed = fitted(gibbs, folder, start=start, resume=True, callbacks=[rest])
            assert len(rest.seen) == whole.sweeps - at + lost
            assert content(resumed) == expected
            assert resumed.seconds > 0


@pytest.mark.parametrize("name", NAMES)
def test_many_short_calls_are_one_long_one(name, tmp_path):
    expected = content(fitted(sampler(name)))
    for _ in range(2 * SWEEPS + 1):
        fit = fitted(sampler(name), tmp_path / "run", resume=True, callbacks=[Stop(1, "ask")])
    assert content(fit) == expected
    seen = Stop(-1, "ask")
    again = fitted(sampler(name), tmp_path / "run", resume=True, callbacks=[seen])
    assert content(again) == expected
    assert seen.seen == []


def test_patience_is_remembered(tmp_path):
    """A chain that ends by it, ended at every sweep before."""
    gibbs = sampler(sweeps=60, keep=3)
    expected = fitted(gibbs, patience=4)
    assert expected.stopped == "the validation error has stopped falling"
    assert expected.sweeps < 120
    for _ in range(expected.sweeps):
        fit = fitted(gibbs, tmp_path / "run", patience=4, resume=True, callbacks=[Stop(1, "ask")])
    fit = fitted(gibbs, tmp_path / "run", patience=4, resume=True)
    assert content(fit) == content(expected)


def test_from_the_beginning_if_nothing_else_was_saved(tmp_path):
    """``every`` is long: an error leaves what was saved before the first sweep."""
    with pytest.raises(RuntimeError):
        fitted(sampler(), tmp_path, every=1e6, callbacks=[Stop(5, "fail")])
    rest = Stop(-1, "ask")
    fit = fitted(sampler(), tmp_path, every=1e6, resume=True, callbacks=[rest])
    assert len(rest.seen) == fit.sweeps
    assert content(fit) == content(fitted(sampler()))


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": None, "chains": 1}, {"chains": 3}])
def test_other_settings(options, tmp_path):
    gibbs = sampler(**options)
    for number, (test, judge) in enumerate(((TEST, None), (None, None), (None, JUDGE))):
        expected = gibbs.fit(TRAIN, test, validation=judge)
        given = {"validation": judge, "checkpoint": tmp_path / str(number), "every": 0}
        gibbs.fit(TRAIN, test, callbacks=[Stop(3, "ask")], **given)
        assert content(gibbs.fit(TRAIN, test, resume=True, **given)) == content(expected)


def test_a_given_start_and_draws_in_a_folder(tmp_path):
    gibbs, state = sampler(NAMES[1]), fitted(sampler(NAMES[1])).states[0]
    expected = fitted(gibbs, start=state, keep_in=tmp_path / "draws")
    fitted(gibbs, tmp_path / "run", start=state, callbacks=[Stop(6, "ask")])
    with pytest.raises(DataError, match="a run with another start; resume with what it began"):
        fitted(gibbs, tmp_path / "run", resume=True)
    rest = fitted(gibbs, tmp_path / "run", start=state, resume=True, keep_in=tmp_path / "more")
    assert content(rest) == content(expected)
    with pytest.raises(DataError, match="start='mapp': choose"):
        fitted(gibbs, tmp_path / "new", start="mapp")
    fitted(gibbs, tmp_path / "new")


def test_a_map_start_that_was_cut_short_is_not_saved(tmp_path):
    gibbs = sampler(NAMES[1])
    fitted(gibbs, tmp_path, start="map", callbacks=[Stop(2, "ask")])
    fit = fitted(gibbs, tmp_path, start="map", resume=True)
    assert content(fit) == content(fitted(gibbs, start="map"))


def test_a_budget_shorter_than_the_map_start_goes_on_all_the_same(tmp_path):
    """Otherwise every call would begin with the same start and end in it."""
    gibbs = sampler()
    expected = fitted(gibbs, start="map")
    for done in range(1, expected.sweeps + 1):
        fit = fitted(gibbs, tmp_path, start="map", resume=True, budget=0.0)
        assert fit.sweeps == done
    seen = Stop(-1, "ask")
    fitted(gibbs, start="map", budget=0.0, callbacks=[seen])
    assert len(seen.seen) == 2  # nothing is saved, so the start is cut short
    assert content(fitted(gibbs, tmp_path, start="map", resume=True)) == content(expected)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_waits_for_the_end_of_the_sweep(tmp_path, monkeypatch):
    """Wherever it comes; a second one does not wait, and what was saved before stays."""
    expected = content(fitted(sampler()))
    sweep = engine.gibbs_sweep
    for times, done in ((1, 5), (2, 4)):
        calls = []

        def interrupted(*args, times=times, calls=calls):
            calls.append(1)
            sweep(*args)
            if len(calls) == 5:  # drawn, but nothing is recorded yet
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(engine, "gibbs_sweep", interrupted)
        fit = fitted(sampler(), tmp_path / str(times))
        assert (fit.stopped, fit.sweeps) == ("interrupted", done)
        monkeypatch.setattr(engine, "gibbs_sweep", sweep)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        rest = Stop(-1, "ask")
        fit = fitted(sampler(), tmp_path / str(times), resume=True, callbacks=[rest])
        assert len(rest.seen) == 2 * SWEEPS - done
        assert content(fit) == expected


def test_a_run_outside_the_main_thread(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(fitted(sampler(), tmp_path)))
    thread.start()
    thread.join()
    assert content(found[0]) == content(fitted(sampler()))


def test_the_budget_counts_anew_and_the_seconds_add_up(tmp_path, monkeypatch):
    """By a clock on which nothing but a sweep takes time, so that a slow machine is no matter."""
    now = [0.0]
    monkeypatch.setattr("bayesmf.inference.loop.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def one_second(progress: Progress) -> None:
        now[0] += 1.0

    options = {"budget": 3.0, "callbacks": [one_second], "patience": 99}
    for calls in (1, 2):
        fit = fitted(sampler(sweeps=100), tmp_path, resume=calls > 1, **options)
        assert fit.stopped == "the time was up"
        assert fit.seconds == fit.sweeps == 3 * calls


THREADS = """
import sys
from oracle.checkpoints import *
folder = sys.argv[1]
for name in NAMES[1:]:
    at = lambda threads: sampler(name, threads=threads)
    expected = content(fitted(at(1)))
    for threads in (5, 1, 2):
        fit = fitted(at(threads), f"{folder}/{name}", resume=True, callbacks=[Stop(2, "ask")])
    assert fit.sweeps == 6
    assert content(fitted(at(5), f"{folder}/{name}", resume=True)) == expected
print("same")
"""


@pytest.mark.slow
def test_threads_do_not_matter(tmp_path):
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(tmp_path)], capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_NUM_THREADS": "5", "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout == "same\n", done.stderr


def command(ratings, out, *more) -> list[str]:
    words = ["fit", ratings, "--rank", 3, "--sweeps", 80, "--chains", 2, "--burn-in", 5, "--json",
             "--quiet", "--holdout", "paper", "--validation", 0.1, "--patience", 79, "--out", out,
             *more]  # fmt: skip
    return [sys.executable, "-m", "bayesmf", *map(str, words)]


def test_killed_three_times(tiny_ratings, tmp_path):
    def facts(words) -> dict:
        done = CliRunner().invoke(main, words[3:])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout.splitlines()[-1])
        del found["seconds"]
        return found

    expected = facts(command(tiny_ratings, tmp_path / "whole"))
    run, out = tmp_path / "run", tmp_path / "out"
    words = command(tiny_ratings, out, "--checkpoint", run, "--checkpoint-every", "0s", "--resume")
    for _ in range(3):
        seen = set()
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            while len(seen) < 12 and process.poll() is None:  # it ends by itself
                if (run / checkpoint.MAIN).exists():
                    seen.add((run / checkpoint.MAIN).stat().st_mtime_ns)
                time.sleep(0.001)
            process.kill()
            assert process.wait() == -signal.SIGKILL
    assert facts(words) == expected
    one, two = (tmp_path / name / "predictions.csv" for name in ("whole", "out"))
    assert one.read_bytes() == two.read_bytes()
    names = {path.name for path in run.iterdir()}
    assert all(checkpoint.OURS.fullmatch(name) or name == checkpoint.LOCK for name in names)
