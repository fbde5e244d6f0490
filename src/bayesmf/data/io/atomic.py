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

from bayesmf.errors import DataError, Option, clause

try:
    import fcntl
except ImportError:  # Windows: a second process is not noticed there
    fcntl = None  # type: ignore[assignment]

OVERWRITE = "choose another name" + clause(f", or allow {Option('overwrite', True)}")
REMEDIES = {
    "ENOSPC": "free some space, or choose another place",
    "EDQUOT": "free some space, or choose another place",
    "EROFS": "choose a place that is not read-only",
    "ENAMETOOLONG": "choose a shorter name",
}


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``, which becomes ``path`` if all goes well."""
    with _explaining(path):
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
    """Yield a temporary folder, which becomes ``path`` if ``check_folder`` allows it."""
    check_folder(path, replaces, remedy)
    with _explaining(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            for inside in temporary.rglob("*"):
                if inside.is_file():
                    _settle(inside)
            os.chmod(temporary, 0o777 & ~_umask())
            if path.exists():
                aside = temporary.with_name(temporary.name + ".old")
                os.replace(path, aside)
                os.replace(temporary, path)
                shutil.rmtree(aside)
            else:
                os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


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
    """Refuse a name beside which nothing can be written."""
    with _explaining(path):
        above = path.absolute().parent
        while not above.exists():
            above = above.parent
        os.rmdir(tempfile.mkdtemp(dir=above, prefix=f".{path.name}."))


@contextlib.contextmanager
def locked(folder: Path, who: str) -> Iterator[None]:
    """Make a folder if need be and hold it, or refuse it while another process holds it.

    ``who`` names that process in the message. The system releases the lock when its holder dies,
    in whatever way.
    """
    with _explaining(folder):
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
def _explaining(path: Path) -> Iterator[None]:
    """Turn an error of the system into one sentence."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> DataError:
    """Return the error that says what was in the way, and what to do about it."""
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
    """Write JSON, in which a number that is not finite becomes null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(facts), indent=indent, sort_keys=sort_keys, allow_nan=False)
