"""Compiled code on the disk: damaged files, a full disk, and no folder at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

MODULE = """
from bayesmf.machine import parallel, serial
from numba import prange

@serial
def double(x):
    return 2.0 * x

@parallel
def fill(out):
    for k in prange(len(out)):
        out[k] = double(float(k))
"""
RUN = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import numpy as np, resource
    LIMIT
    from kept import double, fill
    out = np.zeros(3)
    fill(out)
    assert double(4.0) == 8.0 and out.tolist() == [0.0, 2.0, 4.0]
hits = sum(double.stats.cache_hits.values()), sum(fill.serial.stats.cache_hits.values())
print(*hits, *(str(warning.message) for warning in seen))
"""
FULL = "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"  # no file may be longer


@pytest.fixture
def run(tmp_path):
    """Runs compiled functions of a module; returns how many were found on the disk, and words."""
    (tmp_path / "kept.py").write_text(MODULE)

    def once(limit="", **variables):
        path = os.pathsep.join([str(tmp_path), *sys.path])
        env = {**os.environ, "NUMBA_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
        done = subprocess.run(
            [sys.executable, "-c", RUN.replace("LIMIT", limit)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return once


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


def point_at(name):
    """A whole file whose content is something that there was under this name."""
    content = f"c{name}\n.".encode()  # as pickle writes it
    return lambda _: hashlib.sha256(content).digest() + content


DAMAGES = {
    "a flipped bit": flip,
    "a shorter file": lambda content: content[:-20],
    "a type that has moved": point_at("bayesmf.kernels.rows\nNoSuchType"),
    "a module that is gone": point_at("bayesmf.no_such_module\nType"),
}


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_code_is_compiled_anew(damage, ending, run, tmp_path):
    folder = tmp_path / "cache"
    assert run(NUMBA_CACHE_DIR=str(folder)) == "0 0"
    files = list(folder.rglob(f"*.{ending}"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    assert run(NUMBA_CACHE_DIR=str(folder)) == "0 0"
    assert run(NUMBA_CACHE_DIR=str(folder)) == "1 1"


def test_a_full_disk_is_one_line(run, tmp_path):
    folder = tmp_path / "cache"
    said = run(FULL, NUMBA_CACHE_DIR=str(folder))
    assert said.startswith(f"0 0 compiled code has no folder that can be written: {folder}")
    assert said.count("compiled code has") == 1
    assert run(NUMBA_CACHE_DIR=str(folder)) == "0 0"


@pytest.mark.parametrize(("mode", "kept"), [(None, True), (0o777, False)])
def test_without_a_folder(mode, kept, run, tmp_path):
    """Read-only code and no home; a folder that others can write to might hold their code."""
    (tmp_path / "__pycache__").write_text("in the way")
    (tmp_path / "temporary").mkdir()
    ours = tmp_path / "temporary" / f"bayesmf-{os.getuid()}"
    if mode is not None:
        ours.mkdir()
        ours.chmod(mode)
    homeless = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/x", "NUMBA_CACHE_DIR": "",
                "TMPDIR": str(tmp_path / "temporary")}  # fmt: skip
    words = f"kept in {ours}" if kept else "not kept"
    for hits in ("0 0", "1 1" if kept else "0 0"):
        said = run(**homeless)
        assert said.startswith(hits)
        assert words in said
        assert said.count("compiled code has") == 1
