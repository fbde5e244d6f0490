"""Output that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bayesmf.errors import DataError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``; on success it becomes ``path``, on failure nothing does."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            yield Path(name)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``path``; an existing one is replaced only if asked for."""
    if path.exists() and not overwrite and (not path.is_dir() or any(path.iterdir())):
        raise DataError(f"{path} exists already; choose another folder or allow --overwrite")
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield made
            os.chmod(made, 0o777 & ~_umask())
            if path.exists():
                aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
                os.replace(path, aside / "old")
                os.replace(made, path)
                shutil.rmtree(aside)
            else:
                os.replace(made, path)
        finally:
            shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}); free the space or choose "
            "another place"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
