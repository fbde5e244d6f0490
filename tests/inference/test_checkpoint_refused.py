"""Runs, folders and files that cannot be resumed are told in a sentence, and nothing is lost."""

from __future__ import annotations

import errno
import os
from dataclasses import fields, replace

import numpy as np
import pytest
from click.testing import CliRunner

from bayesmf import DataError, Gibbs, Model
from bayesmf.cli.fit import _seconds
from bayesmf.cli.main import main
from bayesmf.data.io.atomic import locked
from bayesmf.fitted.store.kept import Kept
from bayesmf.inference import checkpoint
from bayesmf.inference.chains import Chains
from bayesmf.inference.engine import Threads
from bayesmf.inference.loop import Progress
from bayesmf.model.data import Data
from oracle.checkpoints import ALL, JUDGE, TEST, TRAIN, Stop, content, fitted, sampler
from oracle.variants import BASE, VARIANTS


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing here survives a power failure, and it need not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


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
    left = tmp_path / "run" / ".draw-0-3.safetensors.abc123"
    left.write_text("half")
    with locked(tmp_path / "run", "x"), pytest.raises(DataError, match="in use by another run"):
        fitted(sampler(), tmp_path / "run")
    fitted(sampler(), tmp_path / "run")
    assert not left.exists()


def test_damaged_files_are_refused_in_a_sentence(tmp_path):
    fitted(sampler(), tmp_path, callbacks=[Stop(6, "ask")])
    names = sorted(path.name for path in tmp_path.iterdir() if path.name != checkpoint.LOCK)
    assert names == ["chain-0-3.safetensors", "chain-1-3.safetensors", "draw-0-3.safetensors",
                     "draw-1-3.safetensors", checkpoint.MAIN]  # fmt: skip
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
    for name in ("summaries.0", "predictions.1", "test", "curve", "waiting", "facts"):
        arrays = dict(checkpoint._unpack(body))
        arrays[name] = arrays[name][..., :-1]
        bad = checkpoint._pack(arrays)
        head = f"{checkpoint.MAGIC} {checkpoint.FORMAT} {checkpoint._sum(bad)}\n"
        path.write_bytes(head.encode() + bad)
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
        assert not [path for path in folder.glob("*") if checkpoint.STALE.fullmatch(path.name)]
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
    sampler, data = Gibbs(BASE, sweeps=4, burn_in=1, chains=1), Data.of(TRAIN, BASE)
    run = Chains(sampler, Threads(), data, None, None, 9, 0, Kept(0))
    told = checkpoint.describe_run(run, "random", {"training": TRAIN})
    assert set(told["model"]) == {field.name for field in fields(Model)}
    assert {field.name for field in fields(Gibbs)} - {"threads", "engine"} <= set(told)
