"""Output that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bayesmf.errors import DataError

try:
    import fcntl
except ImportError:  # Windows: a second process is not noticed there
    fcntl = None  # type: ignore[assignment]

OVERWRITE = "choose another name, or allow --overwrite (overwrite=True in Python)"
REMEDIES = {
    "ENOSPC": "free some space, or choose another place",
    "EDQUOT": "free some space, or choose another place",
    "EROFS": "choose a place that is not read-only",
    "ENAMETOOLONG": "choose a shorter name",
}


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``; on success it becomes ``path``, on failure nothing does."""
    with _explained(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder; choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            yield Path(name)
            _settle(Path(name))
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(
    path: Path, replaces: Callable[[Path], bool] | None = None, remedy: str = OVERWRITE
) -> Iterator[Path]:
    """A temporary folder that becomes ``path``, if ``check_folder`` allows it."""
    check_folder(path, replaces, remedy)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield made
            for inside in made.rglob("*"):
                if inside.is_file():
                    _settle(inside)
            os.chmod(made, 0o777 & ~_umask())
            if path.exists():
                aside = made.with_name(made.name + ".old")
                os.replace(path, aside)
                os.replace(made, path)
                shutil.rmtree(aside)
            else:
                os.replace(made, path)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _settle(path: Path) -> None:
    """On the disk before it gets its name, so that a power cut cannot leave an empty file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_folder(
    path: Path, replaces: Callable[[Path], bool] | None = None, remedy: str = OVERWRITE
) -> None:
    """Refuse a place that holds anything, unless it is a folder that ``replaces`` recognises.

    A place where nothing can be written is refused, too: now, and not after hours of work.
    """
    with _explained(path):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise DataError(f"{path} exists and is not a folder; choose another place")
        if path.exists() and any(path.iterdir()):
            if replaces is None:
                raise DataError(f"{path} exists already; {remedy}")
            if not replaces(path):
                raise DataError(
                    f"{path} holds other files, which --overwrite does not delete; choose another "
                    "folder"
                )
        check_place(path)


def check_place(path: Path) -> None:
    """Refuse a name beside which nothing can be written."""
    with _explained(path):
        above = path.absolute().parent
        while not above.exists():
            above = above.parent
        os.rmdir(tempfile.mkdtemp(dir=above, prefix=f".{path.name}."))


@contextlib.contextmanager
def locked(folder: Path, who: str) -> Iterator[None]:
    """Make a folder if need be, and refuse it while another process holds it.

    The system lets go of the lock when its holder dies, however that comes.
    """
    with _explained(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise DataError(f"{folder} exists and is not a folder; choose another place")
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DataError(
                    f"{folder} is in use by {who}; wait for it, or choose another folder"
                ) from error
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> DataError:
    """What was in the way, and what to do about it."""
    name = errno.errorcode.get(error.errno or 0, "")
    why = error.strerror or str(error)
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
    """JSON; a number that is not finite becomes null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(facts), indent=indent, sort_keys=sort_keys, allow_nan=False)
