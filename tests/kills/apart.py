"""Commands that need more than a folder: a server to download from, or Ray."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from kills.cases import FIT, Case
from oracle.source import TEXT, Server

SIZE, PAUSE = 3 << 20, 0.01  # bytes of the download, and seconds between two parts of it


@contextlib.contextmanager
def fetching() -> Iterator[Case]:
    """``data fetch`` from a slow server, which is a process of its own."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo("ml-1m/README"), random.Random(1).randbytes(SIZE))
        archive.writestr(zipfile.ZipInfo("ml-1m/ratings.dat"), TEXT)
    server = Server(content.getvalue())
    server.pause = PAUSE
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it is told of every client that is gone
            server.serve_forever()
        finally:
            os._exit(0)
    server.server_close()
    known = hashlib.sha256(server.content).hexdigest()

    def use_server() -> None:
        from bayesmf.data.io import load

        cache = Path.cwd() / "cache"
        os.environ.pop("BAYESMF_DATA", None)
        here = replace(load.DATASETS["ml-1m"], url=server.url, known_hash=known)
        load.DATASETS["ml-1m"], load.cache = here, lambda: cache

    try:
        yield Case("data fetch", ["data", "fetch", "ml-1m"], ("cache/ml-1m.zip",), use_server)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def on_ray(base: Path) -> Case:
    """A fit on a Ray of two workers, which the command starts itself."""

    def use_folder() -> None:
        # Ray keeps its notes there, and workers as nice as it has them would wait for other work
        os.environ.update({"RAY_TMPDIR": str(base / "ray"), "RAY_worker_niceness": "0"})

    words = ["--engine", "ray", "--workers", "2", "--checkpoint", "run", "--checkpoint-every", "0"]
    return Case("fit on Ray", [*FIT, *words, "--resume"], ("out",), use_folder)
