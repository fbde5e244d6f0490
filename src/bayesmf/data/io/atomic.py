"""Output that appears whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bayesmf.errors import DataError, Option, clause

try:
    import fcntl
except ImportError:  # Windows: a second process is not noticed there
    fcntl = None  # type: ignore[assignment]

OVERWRITE = "choose another name" + clause(f", or allow {Option('overwrite', True)}")
ENDING, LOCK = ".bayesmf", ".lock"  # of temporary files and folders; of a folder that is held
# of Linux's renameat2: names are relative to here; refuse a name that is taken; exchange names
HERE, NEW, EXCHANGE = -100, 1, 2
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
REMEDIES = {
    "ENOSPC": "free some space, or choose another place",
    "EDQUOT": "free some space, or choose another place",
    "EROFS": "choose a place that is not read-only",
    "ENAMETOOLONG": "choose a shorter name",
}


@contextlib.contextmanager
def whole_file(path: Path, replaces: bool = True) -> Iterator[Path]:
    """Yield a temporary name beside ``path``, which becomes ``path`` if all goes well.

    Unless it ``replaces``, a file that has appeared in the meantime is left alone and refused.
    """
    with _explaining(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder; choose another name")
        with _beside(path, tempfile.mkstemp) as made:
            yield made
            _settle(made)
            os.chmod(made, 0o666 & ~_umask())
            if replaces:
                os.replace(made, path)
            else:
                _put(made, path)


def _put(made: Path, path: Path) -> None:
    """Give a file its name, if nothing has it yet; in one step, where the system has such a one."""
    failed = _rename(made, path, NEW)
    if failed not in (0, errno.EEXIST):
        try:
            os.link(made, path)
        except FileExistsError:
            failed = errno.EEXIST
        except OSError:  # a file system without links
            failed = errno.EEXIST if path.exists() else 0
            if not failed:
                os.replace(made, path)
    if failed == errno.EEXIST:
        raise DataError(f"{path} exists already; {OVERWRITE}")


def _rename(one: Path, other: Path, how: int) -> int:
    """Call Linux's renameat2; return 0, or the number of what was in the way."""
    rename = getattr(_libc, "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    names = os.fsencode(one.absolute()), os.fsencode(other.absolute())
    return 0 if rename(HERE, names[0], HERE, names[1], how) == 0 else ctypes.get_errno()


@contextlib.contextmanager
def whole_folder(
    path: Path, replaces: Callable[[Path], bool] | None = None, remedy: str = OVERWRITE
) -> Iterator[Path]:
    """Yield a temporary folder, which becomes ``path`` if ``check_folder`` allows it.

    A folder that is replaced is exchanged in one step, so that its name is never without one.
    """
    check_folder(path, replaces, remedy)
    with _explaining(path), _beside(path, tempfile.mkdtemp) as made:
        try:
            yield made
        except DataError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and str(made) in error.message:
                raise cause from None  # of a part, in whose place the whole is told
            raise
        for inside in made.rglob("*"):
            if inside.is_file():
                _settle(inside)
        os.chmod(made, 0o777 & ~_umask())
        check_folder(path, replaces, remedy)  # once more: it may have appeared meanwhile
        if path.exists():
            _exchange(made, path)
        else:
            os.replace(made, path)


def _exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders in one step, or in three where the system has no such step.

    Linux has it on most file systems; elsewhere a kill between the steps leaves ``other`` under the
    name of ``one`` with ".old" behind it, and a reader may find nothing for a moment.
    """
    if _rename(one, other, EXCHANGE) == 0:
        return
    aside = one.with_name(one.name + ".old")
    os.replace(other, aside)
    os.replace(one, other)
    os.replace(aside, one)


@contextlib.contextmanager
def _beside(path: Path, make: Callable[..., Any]) -> Iterator[Path]:
    """Make a temporary file or folder beside ``path``, and remove it at the end.

    It is locked as long as its maker lives, so that what a killed process has left is known, and
    removed by the next one that writes there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(path)
    made, lock = Path(), None
    while not made.name:
        found = make(dir=path.parent, prefix=f".{path.name}.", suffix=ENDING)
        if isinstance(found, tuple):
            os.close(found[0])
        made = Path(found[1] if isinstance(found, tuple) else found)
        try:
            lock = _lock(made)
        except (BlockingIOError, FileNotFoundError):
            made = Path()  # somebody took it for one that was left, before it was locked
    try:
        yield made
    finally:
        _remove(made)
        if lock is not None:
            os.close(lock)


def is_ours(name: str) -> bool:
    """Whether a name is that of a lock, or of something that is written, or was when it ended."""
    return name == LOCK or (name.startswith(".") and name.endswith(ENDING))


def _remove_left(path: Path) -> None:
    """Remove temporary files and folders of this name whose makers are gone."""
    if fcntl is None:
        return
    for left in path.parent.iterdir():
        if left.name.startswith(f".{path.name}.") and left.name.endswith(ENDING):
            with contextlib.suppress(OSError):  # its maker is at work, or it is gone
                lock = _lock(left)
                if lock is not None:
                    _remove(left)
                    os.close(lock)


def _lock(path: Path) -> int | None:
    """Lock a file or folder for as long as the number that is returned is open.

    Returns None if the system has no locks; BlockingIOError says that another process has it.
    """
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return handle


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Force a file to the disk before it gets its name: a power cut must not leave it empty."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_folder(
    path: Path, replaces: Callable[[Path], bool] | None = None, remedy: str = OVERWRITE
) -> None:
    """Refuse a folder that holds anything, unless ``replaces`` says that it may be replaced.

    A place where nothing can be written is refused, too: now, and not after hours of work.
    ``remedy`` ends the message about a folder that is not empty.
    """
    with _explaining(path):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise DataError(f"{path} exists and is not a folder; choose another place")
        if path.exists() and any(path.iterdir()):
            if replaces is None:
                raise DataError(f"{path} exists already; {remedy}")
            if not replaces(path):
                kept = clause(f", which {Option('overwrite', True)} does not delete")
                raise DataError(f"{path} holds other files{kept}; choose another folder")
        check_place(path)


def check_place(path: Path) -> None:
    """Refuse a name beside which nothing can be written, and leave no trace, even if killed."""
    with _explaining(path):
        above = path.absolute().parent
        while not above.exists():
            above = above.parent
        with contextlib.suppress(FileNotFoundError):  # but not a name that would be too long
            (above / f".{path.name}.12345678{ENDING}").lstat()
        tempfile.TemporaryFile(dir=above).close()  # on Linux it has no name


@contextlib.contextmanager
def locked(folder: Path, who: str) -> Iterator[None]:
    """Make a folder if need be and hold it, or refuse it while another process holds it.

    ``who`` names that process in the message. The system releases the lock when its holder dies,
    in whatever way. If the folder is refused inside, what was made to hold it is removed.
    """
    with _explaining(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise DataError(f"{folder} exists and is not a folder; choose another place")
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle, new = _open_lock(folder, who)
        except DataError:
            _remove_empty(made)
            raise
    try:
        yield
    except DataError:
        if new:
            (folder / LOCK).unlink(missing_ok=True)
            _remove_empty(made)
        raise
    finally:
        os.close(handle)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first; what is in use, or not empty, stays."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _open_lock(folder: Path, who: str) -> tuple[int, bool]:
    """Open and lock the lock of a folder; returns its handle, and whether the file is new."""
    path, there = folder / LOCK, False
    while not there:
        new = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                _hold(handle, folder, who)
            # one that refused the folder may have removed the file between the two steps
            with contextlib.suppress(FileNotFoundError):
                there = os.path.samestat(os.fstat(handle), path.stat())
        except DataError as error:
            if new and not isinstance(error.__cause__, BlockingIOError):
                path.unlink(missing_ok=True)
            os.close(handle)
            raise
        if not there:
            os.close(handle)
    return handle, new


def _hold(handle: int, folder: Path, who: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DataError(
            f"{folder} is in use by {who}; wait for it, or choose another folder"
        ) from error
    except OSError as error:
        raise DataError(
            f"{folder} cannot be locked ({error.strerror or error}); choose a folder on a "
            "disk of this machine"
        ) from error


@contextlib.contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Turn an error of the system into one sentence."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> DataError:
    """Return the error that says what was in the way, and what to do about it."""
    name = errno.errorcode.get(error.errno or 0, "")
    why = os.strerror(error.errno) if error.errno else str(error)  # Arrow has words of its own
    if name in ("ENOTDIR", "EEXIST"):
        why = "a part of this path is a file, not a folder"
    remedy = REMEDIES.get(name, "choose another place")
    if isinstance(error, PermissionError):
        remedy = "ask for the permission to write there, or choose another place"
    return DataError(f"{path}: cannot be written ({why}); {remedy}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def to_json(facts: Any, indent: int | None = None, sort_keys: bool = False) -> str:
    """Write JSON, in which a number that is not finite becomes null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(facts), indent=indent, sort_keys=sort_keys, allow_nan=False)
