"""A service that is killed while it saves or loads models."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kills.files import digests, held
from kills.processes import PATIENCE, finish, fork, signalling, survivors
from oracle.served import request

UPDATES = [{"ratings": [{"user": 1, "item": k, "rating": k % 5 + 1}]} for k in (1, 2, 3)]


def ask(port: int, path: str, body: Any = None) -> Any:
    status, text = request(port, path, body)
    if status != 200:
        raise SystemExit(f"{path}: {status} {text!r}")
    return json.loads(text)


def started(base: Path, child: int) -> int:
    """The port of a service, or 0 if it ends before it has begun."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        told = re.search(r"http://127.0.0.1:(\d+)/", (base / "log").read_text())
        if told:
            return int(told[1])
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return 0
        time.sleep(0.02)
    return 0


class Serving:
    """A service that saves what it is told, or that loads what others save; killed as it does."""

    def __init__(self, base: Path, reloads: bool) -> None:
        self.base, self.reloads = base, reloads
        self.name = "serve, reloading" if reloads else "serve, saving"
        self.words = ["serve", "live", "--port", "0", "--rate", "0"]
        self.words += ["--reload-on-change"] if reloads else ["--allow-updates", "--save", "saved"]
        folder = self.begin()
        self.model = digests(folder, "live")
        self.saved: list[dict[str, str]] = [{}]
        child = fork(self.words, folder)
        port = started(base, child)
        began = time.monotonic()
        for body in UPDATES if not reloads else ():
            ask(port, "/api/update", body)
            self.saved.append(digests(folder, "saved"))
        self.seconds = 1.5 if reloads else 1.2 * (time.monotonic() - began)
        self.answer = ask(port, "/api/model")
        self.end(child)
        self.steps = int((base / "steps").read_text())
        shutil.rmtree(folder)

    def begin(self) -> Path:
        folder = self.base / "round"
        folder.mkdir()
        shutil.copytree(self.base / "m" / "model", folder / "live")
        return folder

    def end(self, child: int) -> None:
        os.kill(child, signal.SIGTERM)
        code = finish(child)
        if code != 0:
            raise SystemExit(f"{self.name}: ended by {code}: {(self.base / 'log').read_text()}")

    def replace(self, folder: Path) -> None:
        import bayesmf

        fit = bayesmf.load_model(self.base / "m2" / "model", threads=1)
        fit.save(folder / "live", overwrite=True)

    def one_round(self, rng: random.Random, kind: str, found: Counter[str]) -> None:
        folder, number = self.begin(), signal.SIGKILL if kind == "kill" else signal.SIGTERM
        at = 0 if self.reloads or rng.random() < 0.5 else rng.randint(1, self.steps)
        child = fork(self.words, folder, at, signalling(number))
        port, known = started(self.base, child), 0
        if self.reloads:
            self.replace(folder)
            time.sleep(rng.uniform(0, self.seconds))
        else:
            helper = 0 if at else self.later(child, rng.uniform(0, self.seconds), number)
            with contextlib.suppress(OSError, http.client.HTTPException):
                for body in UPDATES if port else ():
                    ask(port, "/api/update", body)
                    known += 1
            if helper:
                os.waitpid(helper, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        code = finish(child)
        if code not in (-number, 0 if kind == "term" else -number, 128 + number):
            found["failed"] += 1
            print(f"FAILED {self.name} {code}: {(self.base / 'log').read_text()[-600:]}")
        found[kind] += 1
        found["processes"] += survivors(child)
        found["locks"] += held(folder)
        expected = digests(self.base / "m2", "model") if self.reloads else {}
        expected = {name.replace("model/", "live/", 1): sum_ for name, sum_ in expected.items()}
        if digests(folder, "live") != (expected or self.model):
            found["losses"] += 1
            print(f"LOSS {self.name}: the model that was served")
        if not self.reloads and digests(folder, "saved") not in self.saved[known:]:
            found["losses"] += 1  # an answer that was given is on the disk
            print(f"LOSS {self.name}: after {known} answers")
        self.serve_again(folder, found)
        shutil.rmtree(folder)

    def later(self, child: int, seconds: float, number: int) -> int:
        """A process that sends the signal while this one waits for answers."""
        helper = os.fork()
        if helper == 0:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
            os._exit(0)
        return helper

    def serve_again(self, folder: Path, found: Counter[str]) -> None:
        child = fork(self.words, folder)
        port = started(self.base, child)
        for body in UPDATES if not self.reloads else ():
            ask(port, "/api/update", body)
        if not self.reloads and ask(port, "/api/model") != self.answer:
            found["differing"] += 1
        self.end(child)
        if not self.reloads:
            found["differing"] += digests(folder, "saved") != self.saved[-1]
        names = {path.name for path in folder.iterdir()}
        found["litter"] += len(names - {"live", "saved"})
