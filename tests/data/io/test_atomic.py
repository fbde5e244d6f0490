from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import DataError
from bayesmf.cli.main import main
from bayesmf.data.io import atomic
from bayesmf.data.io.atomic import check_folder, check_place, locked, whole_file, whole_folder


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with whole_file(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder"
    with pytest.raises(RuntimeError), whole_folder(path) as made:
        (made / "one").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with whole_folder(path) as made:
        (made / "one").write_text("1")
    with pytest.raises(RuntimeError), whole_folder(path, lambda folder: True) as made:
        raise RuntimeError
    assert (path / "one").read_text() == "1"
    with whole_folder(path, lambda folder: True) as made:
        (made / "two").write_text("2")
    assert [file.name for file in path.iterdir()] == ["two"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space, or choose another place"),
        (errno.EACCES, "ask for the permission to write there, or choose another place"),
        (errno.EPERM, "ask for the permission to write there, or choose another place"),
        (errno.EROFS, "choose a place that is not read-only"),
        (errno.ENAMETOOLONG, "choose a shorter name"),
        (errno.EIO, "choose another place"),
    ],
)
def test_what_is_in_the_way_decides_the_remedy(number, remedy, tmp_path):
    with pytest.raises(DataError) as told, whole_file(tmp_path / "x"):
        raise OSError(number, os.strerror(number))
    why = os.strerror(number)
    assert str(told.value) == f"{tmp_path / 'x'}: cannot be written ({why}); {remedy}"
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_cannot_be_written_is_told_of_the_whole(tmp_path):
    """Nobody knows the name of the temporary folder."""
    with pytest.raises(DataError) as told, whole_folder(tmp_path / "x") as made, \
         whole_file(made / "part"):  # fmt: skip
        raise OSError(errno.ENOSPC, "no space")
    assert str(told.value).startswith(f"{tmp_path / 'x'}: cannot be written (No space left")


def test_files_where_folders_should_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "x", tmp_path / "file" / "deep" / "x"):
        for attempt in (whole_file, whole_folder, lambda path: locked(path, "x")):
            with pytest.raises(DataError, match="is a file, not a folder\\); choose another place"):
                attempt(path).__enter__()
    with pytest.raises(DataError, match="is a folder; choose another name"), whole_file(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@contextlib.contextmanager
def anybody():
    """Without the rights of root, who may write anywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def closed():
    """A folder that may be read but not written."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        yield Path(name)
        os.chmod(name, 0o755)


def test_a_folder_without_permission(closed):
    for attempt in (whole_file, whole_folder, check_folder, lambda path: locked(path, "x")):
        for path in (closed / "x", closed / "deep" / "x"):
            with anybody(), pytest.raises(DataError) as told, attempt(path):
                pass
            assert str(told.value) == (
                f"{path}: cannot be written (Permission denied); ask for the permission to write "
                "there, or choose another place"
            )
    assert list(closed.iterdir()) == []


def test_a_fit_that_could_not_be_written_does_not_begin(closed, monkeypatch):
    monkeypatch.setattr("bayesmf.load", lambda *_, **__: pytest.fail("began"))
    for command in (["fit", "demo"], ["split", "demo"]):
        CliRunner().invoke(main, [*command, "--out", "/"])  # Numba finds its cache with our rights
        with anybody():
            done = CliRunner().invoke(main, [*command, "--out", str(closed / "x")])
        assert done.exit_code == 2, done.output
        assert "ask for the permission" in done.stderr


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_place_where_nothing_can_be_made():
    for attempt in (whole_file, whole_folder, check_folder):
        with pytest.raises(DataError, match="/proc/none/x: cannot be written .*choose another"):
            attempt(Path("/proc/none/x")).__enter__()


def test_what_is_there_already(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DataError, match="choose another name, or allow overwrite=True$"):
        check_folder(tmp_path)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    """But nothing that somebody is still writing, and nothing of another name."""
    for make in (whole_file, whole_folder):
        left = tmp_path / ".x.12345678.bayesmf"
        left.write_text("half") if make is whole_file else left.mkdir()
        (tmp_path / ".x.swp").write_text("mine")
        with make(tmp_path / "x") as first:
            assert not left.exists()
            with make(tmp_path / "x") as second:
                assert first.exists()
                (second if make is whole_file else second / "y").write_text("2")
            (tmp_path / "x").rename(tmp_path / make.__name__)
        assert not first.exists()
        assert (tmp_path / ".x.swp").read_text() == "mine"
        remove(tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {".x.swp", "whole_file", "whole_folder"}


def remove(path):
    path.unlink() if path.is_file() else path.rmdir()


def test_a_lock_that_cannot_be_had_is_not_one_that_is_taken(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    with locked(tmp_path, "another run"), pytest.raises(DataError, match="in use by another run"):
        locked(tmp_path, "another run").__enter__()
    monkeypatch.setattr(atomic.fcntl, "flock", refuse)
    with pytest.raises(
        DataError, match=r"cannot be locked \(No locks available\); choose a folder"
    ):
        locked(tmp_path, "another run").__enter__()
    (tmp_path / ".lock").unlink()
    for folder in (tmp_path, tmp_path / "new" / "folder"):
        with pytest.raises(DataError, match="cannot be locked"):
            locked(folder, "another run").__enter__()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_refused_is_left_as_it_was(tmp_path, monkeypatch):
    def refuse(folder):
        with pytest.raises(DataError, match="other files"), locked(folder, "another run"):
            raise DataError("it holds other files; choose another folder")

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    refuse(tmp_path / "full")
    refuse(tmp_path / "new" / "folder")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "letter"]
    with locked(tmp_path / "full", "another run"):
        pass
    refuse(tmp_path / "full")  # which was not made for it
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "full", "letter"]


def test_a_lock_that_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
    """Another process refused the folder between our opening the file and our locking it."""
    real, removed = atomic.fcntl.flock, []

    def slow(handle, how):
        if not removed:
            removed.append((tmp_path / ".lock").unlink())
        real(handle, how)

    monkeypatch.setattr(atomic.fcntl, "flock", slow)
    with locked(tmp_path, "another run"):
        assert removed
        with pytest.raises(DataError, match="in use by another run"):
            locked(tmp_path, "another run").__enter__()


def no_links(*names):
    raise OSError(errno.EPERM, "no links")


def test_a_look_at_a_place_leaves_nothing_however_it_ends(tmp_path):
    """A kill can come at any moment; without a name there is nothing to be left."""
    script = (
        "import os, signal, sys; from pathlib import Path; from bayesmf.data.io import atomic\n"
        "sys.addaudithook(lambda event, args: os.kill(os.getpid(), signal.SIGKILL)"
        " if event in ('os.rmdir', 'os.remove') else None)\n"
        f"atomic.check_place(Path({str(tmp_path / 'x')!r}))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="choose a shorter name"):
        check_place(tmp_path / ("x" * 250))


def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path, monkeypatch):
    for way in ("one step", "a link", "neither"):
        with pytest.raises(DataError, match="exists already"), \
             whole_file(tmp_path / "x", replaces=False) as made:  # fmt: skip
            made.write_text("ours")
            (tmp_path / "x").write_text("theirs")
        with pytest.raises(DataError, match="exists already"), whole_folder(tmp_path / "f") as made:
            (tmp_path / "f").mkdir(exist_ok=True)
            (tmp_path / "f" / "y").write_text("theirs")
        assert (tmp_path / "x").read_text() == (tmp_path / "f" / "y").read_text() == "theirs"
        with whole_file(tmp_path / way, replaces=False) as made:
            made.write_text("ours")
        if way == "a link":
            monkeypatch.setattr(os, "link", no_links)
        monkeypatch.setattr(atomic, "_libc", None)
    assert {path.name for path in tmp_path.iterdir()} == {"f", "x", "one step", "a link", "neither"}


def test_a_folder_is_exchanged_in_one_step(tmp_path, monkeypatch):
    """Its name is there at every moment, old or new; without such a step it is there at the end."""
    seen = []
    for step in ("one", "three"):
        path = tmp_path / step
        for content in ("old", "new"):
            if step == "three":
                monkeypatch.setattr(atomic, "_libc", None)
            right, calls = os.replace, []

            def replace(one, other, right=right, calls=calls):
                calls.append(other)
                right(one, other)

            with monkeypatch.context() as patched:
                patched.setattr(os, "replace", replace)
                with whole_folder(path, lambda folder: True) as made:
                    (made / "file").write_text(content)
            seen.append((step, content, len(calls)))
            assert (path / "file").read_text() == content
            assert {one.name for one in tmp_path.iterdir()} <= {"one", "three"}
    steps = 0 if hasattr(ctypes.CDLL(None), "renameat2") else 3
    assert seen == [
        ("one", "old", 1),
        ("one", "new", steps),
        ("three", "old", 1),
        ("three", "new", 3),
    ]


def test_a_load_beside_a_writer_finds_the_old_model_or_the_new_one(tiny_fit, tmp_path, monkeypatch):
    """Also if the folder is replaced while its files are read one after the other."""
    old = bayesmf.load_model(tiny_fit)
    new = old.update(old.posterior.train.select(slice(0, 5)), seed=1)
    old.save(tmp_path / "model")
    right, read = Path.read_bytes, []

    def replaced(path):
        read.append(path.name)
        if len(read) == 2:
            new.save(tmp_path / "model", overwrite=True)
        return right(path)

    monkeypatch.setattr(Path, "read_bytes", replaced)
    assert bayesmf.load_model(tmp_path / "model").posterior.updates == 1
    assert read.count("model.json") == 2
