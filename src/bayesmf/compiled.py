"""Compiled code on the disk: found again, thrown away if it is damaged, done without if need be.

Numba keeps compiled functions beside their source or in the user's cache folder, as pickles. This
adds what it lacks: a place for a process that may write to neither, a checksum, because code with a
flipped bit ends the process, and going on when the disk is full.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import tempfile
import warnings
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile

VARIABLE = "NUMBA_CACHE_DIR"  # of the environment: the folder for compiled code
SIZE = hashlib.sha256().digest_size
_told: set[str] = set()


def keep_on_disk(function: Any) -> Any:
    """Have a compiled function keep its code, if there is a place for it; returns the function.

    Where Numba finds no place, it is a folder of the user's among the temporary files, if that can
    be had. Either way a warning says so, once.
    """
    for folder in (None, _temporary_folder):
        if folder is not None:
            config.CACHE_DIR = config.CACHE_DIR or folder()  # type: ignore[attr-defined]
        try:
            function._cache = _Cache(function.py_func)
        except RuntimeError:  # no place
            continue
        break
    else:
        _tell("it is not kept, and compiled again at every start")
    return function


def _temporary_folder() -> str:
    """Returns a folder that only this user can write to, or nothing.

    What is in it will be run, so a folder that somebody else has made is not taken.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"bayesmf-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except (OSError, AttributeError):  # Windows has no getuid
        return ""
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not ours or stat.S_IMODE(found.st_mode) & 0o077:
        return ""
    _tell(f"it is kept in {folder}")
    return str(folder)


def _tell(what: str) -> None:
    """Warn, once, of what becomes of compiled code."""
    if not _told:
        warnings.warn(
            f"compiled code has no folder that can be written: {what}. Set {VARIABLE} to a folder "
            "for it.",
            RuntimeWarning,
            stacklevel=2,
        )
    _told.add(what)


class _Cache(FunctionCache):
    """The compiled code of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, f"{self._impl.filename_base}.sum", stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if the disk has room for it."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _tell(f"{self._cache_path}: {error.strerror or error}; it is compiled again at a start")


class _Files(IndexDataCacheFile):
    """An index and a file for each signature, each of which begins with its checksum.

    What is damaged counts as missing. The code knows its own key: two processes that write at once
    may leave the code of one signature under the name of another.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (repr(key), data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == repr(key) else None

    def _load_index(self) -> Any:
        found = self._read(self._index_path)
        same = found is not None and found[:2] == (self._version, self._source_stamp)
        return found[2] if same else {}

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _read(self, path: str) -> Any:
        """Returns what a file holds, or None if there is none, or a damaged one.

        A file of another source may name types that are no longer where they were.
        """
        try:
            kept = Path(path).read_bytes()
        except OSError:
            return None
        whole = hashlib.sha256(kept[SIZE:]).digest() == kept[:SIZE]
        try:
            return pickle.loads(kept[SIZE:]) if whole else None
        except (AttributeError, ImportError):
            return None

    def _write(self, path: str, content: Any) -> None:
        kept = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(kept).digest() + kept)
