"""A run that is ended anywhere goes on to the same bits; nothing saved is ever lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from click.testing import CliRunner

from bayesmf import DataError, Gibbs, Model
from bayesmf.atomic import locked
from bayesmf.cli import main
from bayesmf.cli_fit import _seconds
from bayesmf.inference import chains, checkpoint
from bayesmf.inference.gibbs import GibbsFit
from bayesmf.inference.run import Progress
from variants import BASE, VARIANTS, small_ratings

NAMES = ("no side", "both sides, joint bias, robust, student-t", "user side only",
         "no side, truncated")  # fmt: skip
ALL = small_ratings(30, 20)
PART = np.arange(len(ALL)) % 5
TRAIN, TEST, JUDGE = ALL.select(PART < 3), ALL.select(PART == 3), ALL.select(PART == 4)
SWEEPS = 4


def sampler(name: str = "no side", **others) -> Gibbs:
    given = {"sweeps": SWEEPS, "burn_in": 1, "thin": 2, "chains": 2, "keep": 2, "seed": 3,
             "form": "interwoven", **others}  # fmt: skip
    return Gibbs(VARIANTS[name], **given)


def fitted(gibbs: Gibbs, folder=None, **options) -> GibbsFit:
    if folder is not None:
        options = {"checkpoint": folder, "every": 0, **options}
    return gibbs.fit(TRAIN, TEST, **{"validation": JUDGE, "patience": 3, **options})


def content(fit: GibbsFit) -> dict[str, object]:
    """Everything in a fit but the time it took, as bytes or text."""
    out: dict[str, object] = {}
    for number, state in enumerate(fit.states):
        out[f"{number} tau, sweep"] = repr((state.tau, state.sweep))
        for name, side in (("user", state.user), ("item", state.item)):
            for part in fields(side):
                values = getattr(side, part.name)
                out[f"{number} {name} {part.name}"] = (values.shape, values.tobytes())
    out.update({f"trace {name}": values.tobytes() for name, values in fit.traces.items()})
    if fit.predictions is not None:
        p = fit.predictions
        out["predictions"] = (p.mean.tobytes(), p.squares.tobytes(), p.noise.tobytes(), p.count)
    if fit.draws is not None:
        out["chains of draws"] = fit.draws.chains
        out.update({f"draws {name}": v.tobytes() for name, v in fit.draws.arrays.items()})
        out.update({f"known {name}": v.tobytes() for name, v in fit.posterior.draws.items()})
    out["curves"] = repr((fit.rmse_by_sweep, fit.validation_by_sweep, fit.test_rmse))
    out["facts"] = repr((fit.sweeps, fit.stopped, fit.burn_in))
    out["diagnostics"] = repr(fit.diagnostics())
    return out


class Stop:
    """Ends a run at its sweep number ``at``, counted over the sweeps of this call."""

    def __init__(self, at: int, how: str) -> None:
        self.at, self.how = at, how
        self.seen: list[tuple[int, int]] = []

    def __call__(self, progress: Progress) -> bool:
        self.seen.append((progress.chain, progress.sweep))
        if len(self.seen) != self.at:
            return False
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "fail":
            raise RuntimeError
        return True


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


def test_ctrl_c_waits_for_the_end_of_the_sweep(tmp_path, monkeypatch):
    """Wherever it comes; a second one does not wait, and what was saved before stays."""
    expected = content(fitted(sampler()))
    sweep = chains.gibbs_sweep
    for times, done in ((1, 3), (2, 2)):
        calls = []

        def interrupted(*args, times=times, calls=calls):
            calls.append(1)
            sweep(*args)
            if len(calls) == 3:  # drawn, but nothing is recorded yet
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(chains, "gibbs_sweep", interrupted)
        fit = fitted(sampler(), tmp_path / str(times))
        assert (fit.stopped, fit.sweeps) == ("interrupted", done)
        monkeypatch.setattr(chains, "gibbs_sweep", sweep)
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


def test_the_budget_counts_anew_and_the_seconds_add_up(tmp_path):
    def slow(progress: Progress) -> None:
        time.sleep(0.02)

    one = fitted(sampler(), tmp_path, budget=0.05, callbacks=[slow])
    assert one.stopped == "the time was up"
    two = fitted(sampler(), tmp_path, budget=0.05, callbacks=[slow], resume=True)
    assert two.sweeps >= one.sweeps + 2
    assert two.seconds >= one.seconds + 0.04


THREADS = """
import sys
from test_checkpoint import *
folder = sys.argv[1]
for name in NAMES[1:3]:
    at = lambda threads: sampler(name, threads=threads)
    expected = content(fitted(at(1)))
    for threads in (3, 1, 2):
        fit = fitted(at(threads), f"{folder}/{name}", resume=True, callbacks=[Stop(2, "ask")])
    assert fit.sweeps == 6
    assert content(fitted(at(3), f"{folder}/{name}", resume=True)) == expected
print("same")
"""


def test_threads_do_not_matter(tmp_path):
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(tmp_path)], capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_NUM_THREADS": "3", "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout == "same\n", done.stderr


def command(ratings, out, *more) -> list[str]:
    words = ["fit", ratings, "--rank", 3, "--sweeps", 80, "--chains", 2, "--burn-in", 5, "--json",
             "--quiet", "--validation", 0.1, "--patience", 79, "--out", out, *more]  # fmt: skip
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
        before, seen = time.monotonic(), set()
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            while len(seen) < 12 and process.poll() is None and time.monotonic() < before + 60:
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


def test_another_run_is_refused(tmp_path):
    fitted(sampler(), tmp_path, callbacks=[Stop(4, "ask")])
    before = (tmp_path / checkpoint.MAIN).read_bytes()
    model = VARIANTS["no side"]
    for other, told in (
        (sampler("no side, robust"), "model.precision='constant', not 'robust'"),
        (replace(sampler(), model=replace(model, rank=3)), "model.rank=2, not 3"),
        (sampler(seed=4), "seed=3, not 4"),
        (sampler(sweeps=7), "sweeps=4, not 7"),
        (sampler(keep=1), "keep=2, not 1"),
        (sampler(form="centred"), "form='interwoven', not 'centred'"),
    ):
        with pytest.raises(DataError, match=f"a run with {told}; resume with what it began with"):
            fitted(other, tmp_path, resume=True)
    with pytest.raises(DataError, match="a run with other training ratings"):
        sampler().fit(ALL, TEST, validation=JUDGE, patience=3, checkpoint=tmp_path, resume=True)
    with pytest.raises(DataError, match="a run with other test ratings"):
        sampler().fit(TRAIN, JUDGE, validation=JUDGE, patience=3, checkpoint=tmp_path, resume=True)
    with pytest.raises(DataError, match="a run with other validation ratings"):
        fitted(sampler(), tmp_path, resume=True, validation=TEST)
    with pytest.raises(DataError, match="a run with patience=3, not 9"):
        fitted(sampler(), tmp_path, resume=True, patience=9)
    with pytest.raises(DataError, match="a run with another start"):
        fitted(sampler(), tmp_path, resume=True, start="map")
    with pytest.raises(DataError, match="holds a checkpoint already; go on with resume=True"):
        fitted(sampler(), tmp_path)
    assert (tmp_path / checkpoint.MAIN).read_bytes() == before
    assert content(fitted(sampler(), tmp_path, resume=True)) == content(fitted(sampler()))


def test_folders_that_will_not_do(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear reader")
    with pytest.raises(DataError, match=r"holds other files \(thesis.tex\)"):
        fitted(sampler(), tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        fitted(sampler(), tmp_path / "thesis.tex")
    with pytest.raises(DataError, match="every=-1: choose"):
        fitted(sampler(), tmp_path / "run", every=-1)
    with pytest.raises(DataError, match="resume: say from which folder"):
        fitted(sampler(), resume=True)
    (tmp_path / "run").mkdir()
    left = tmp_path / "run" / ".draw-3.safetensors.abc123"
    left.write_text("half")
    with locked(tmp_path / "run", "x"), pytest.raises(DataError, match="in use by another run"):
        fitted(sampler(), tmp_path / "run")
    fitted(sampler(), tmp_path / "run")
    assert not left.exists()


def test_damaged_files_are_refused_in_a_sentence(tmp_path):
    fitted(sampler(), tmp_path, callbacks=[Stop(6, "ask")])
    names = sorted(path.name for path in tmp_path.iterdir() if path.name != checkpoint.LOCK)
    assert names == ["chain-0.safetensors", "draw-0.safetensors", "draw-1.safetensors",
                     "draw-2.safetensors", checkpoint.MAIN]  # fmt: skip
    rng = np.random.default_rng(0)
    for name in names:
        path = tmp_path / name
        good = path.read_bytes()
        many = 60 if name == checkpoint.MAIN else 10
        places = {*range(0, 100 if many > 10 else 0, 3), *rng.integers(0, len(good), many).tolist()}
        for at in sorted(places):
            flipped = bytearray(good)
            flipped[at] ^= 1 << rng.integers(8)
            for bad in (bytes(flipped), good[:at], good[:at] + good[at + 1 :]):
                path.write_bytes(bad)
                with pytest.raises(DataError, match="cannot be resumed from|is of format") as told:
                    fitted(sampler(), tmp_path, resume=True)
                assert str(path) in str(told.value)
                assert path.read_bytes() == bad
        path.unlink()
        if name != checkpoint.MAIN:
            with pytest.raises(DataError, match="cannot be resumed from .No such file"):
                fitted(sampler(), tmp_path, resume=True)
        path.write_bytes(good)
    assert content(fitted(sampler(), tmp_path, resume=True)) == content(fitted(sampler()))


def test_a_forged_file_is_refused(tmp_path):
    """Sound in itself, but of other shapes than the run that it says it is of."""
    fitted(sampler(), tmp_path, callbacks=[Stop(2, "ask")])
    path = tmp_path / checkpoint.MAIN
    body = path.read_bytes().partition(b"\n")[2]
    for name in ("state.user.x", "test", "trace.0", "waiting", "facts"):
        arrays = dict(checkpoint._unpacked(body))
        arrays[name] = arrays[name][..., :-1]
        bad = checkpoint._packed(arrays)
        path.write_bytes(f"bayesmf-checkpoint 1 {checkpoint._sum(bad)}\n".encode() + bad)
        with pytest.raises(DataError, match="cannot be resumed from"):
            fitted(sampler(), tmp_path, resume=True)


@pytest.mark.parametrize("start", ["random", "map"])
def test_a_full_disk_leaves_what_was_saved(start, tmp_path, monkeypatch):
    """At whichever write it is full."""
    expected, fsync = content(fitted(sampler(), start=start)), os.fsync
    for room in range(0, 14, 3):
        folder, left = tmp_path / str(room), [room]

        def full(handle, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="No space left on device") as told:
            fitted(sampler(), folder, start=start)
        monkeypatch.setattr(os, "fsync", fsync)
        assert ("goes on from it" in str(told.value)) == (folder / checkpoint.MAIN).exists()
        assert not [path for path in folder.iterdir() if checkpoint.STALE.fullmatch(path.name)]
        fit = fitted(sampler(), folder, start=start, resume=True)
        assert content(fit) == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder(tmp_path):
    folder = tmp_path / "run"
    fitted(sampler(), folder, callbacks=[Stop(4, "ask")])

    def forbid(progress: Progress) -> None:
        folder.chmod(0o500)

    try:
        with pytest.raises(DataError, match="Permission denied.*goes on from it"):
            fitted(sampler(), folder, resume=True, callbacks=[forbid])
        with pytest.raises(DataError, match="Permission denied"):
            fitted(sampler(), folder / "new")
    finally:
        folder.chmod(0o700)
    assert content(fitted(sampler(), folder, resume=True)) == content(fitted(sampler()))


def test_commands_that_are_refused(tmp_path):
    for words, told in (
        (["--inference", "vi", "--checkpoint", "x"], "--checkpoint is for --inference gibbs"),
        (["--inference", "map", "--resume"], "--resume is for --inference gibbs"),
        (["--resume"], "--resume needs a folder; name it with --checkpoint DIR"),
        (["--checkpoint-every", "9"], "--checkpoint-every needs a folder"),
        (["--checkpoint", "x", "--checkpoint-every", "soon"], "'soon': write seconds, such as 90"),
    ):
        done = CliRunner().invoke(main, ["fit", "demo", *words])
        assert done.exit_code == 2
        assert told in done.output


def test_ways_to_write_a_time():
    assert [_seconds(text) for text in ("60", "60s", "5m", "1.5h", " 0 ")] == [
        60.0, 60.0, 300.0, 5400.0, 0.0,
    ]  # fmt: skip


def test_what_is_compared():
    """Every field of the model and of the sampler is part of what is compared."""
    run = checkpoint.Chains(Gibbs(BASE, sweeps=4, burn_in=1), TRAIN, None, None, 9, None, 0)  # type: ignore[arg-type]
    told = checkpoint.describe(run, "random", {"training": TRAIN})
    assert set(told["model"]) == {field.name for field in fields(Model)}
    assert {field.name for field in fields(Gibbs)} - {"threads"} <= set(told)
