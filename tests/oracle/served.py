"""A server in a process of its own, asked over a socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

HEAD = "Host: 127.0.0.1\r\n"
SERVE = """
import json
import sys
from pathlib import Path
from bayesmf.serve import run
from bayesmf.serve.limits import Limits
from bayesmf.serve.served import Options, Shelf
taken = run.bind("127.0.0.1", 0)
shelf = Shelf(Path(sys.argv[1]), Options(True))
say = lambda text: print(text, file=sys.stderr, flush=True)
run.serve(shelf, taken, host="127.0.0.1", limits=Limits(**json.loads(sys.argv[2])), say=say)
"""  # takes a model, and limits, and allows updates
ENDED = 120  # seconds after which a server that should have ended is given up


def request(port: int, path: str, body: Any = None) -> tuple[int, bytes]:
    """Get a path of this machine's server, or post JSON to it; the status and what came back."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link:
        if body is None:
            link.request("GET", path)
        else:
            link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        return answer.status, answer.read()


class Process:
    """A server in a process of its own."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NUMBA_NUM_THREADS": "1"},
        )
        self.lines: list[str] = []
        self.came = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.port = int(re.search(r":(\d+)/;", self.wait_for("Serving"))[1])

    def _read(self) -> None:
        for line in self.process.stderr:
            with self.came:
                self.lines.append(line)
                self.came.notify_all()
        with self.came:
            self.lines.append("(ended)")
            self.came.notify_all()

    def wait_for(self, words: str) -> str:
        """The first line of the log with these words."""
        with self.came:
            found = lambda: [line for line in self.lines if words in line or line == "(ended)"]  # noqa: E731
            assert self.came.wait_for(found, ENDED), self.lines
            assert words in found()[0], self.lines
            return found()[0]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=ENDED)

    def send(self, request: bytes) -> bytes:
        """Everything that comes back until the server closes the connection."""
        with self.connect() as connection:
            with contextlib.suppress(OSError):  # it has refused before all was sent
                connection.sendall(request)
            parts = []
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(1 << 16):
                    parts.append(part)
            return b"".join(parts)

    def ask(self, path: str, body: str | None = None) -> bytes:
        """The body of an answer, which has to be a good one."""
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\n{HEAD}Connection: close\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n"
        answer = self.send(f"{head}\r\n{body or ''}".encode())
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return answer.partition(b"\r\n\r\n")[2]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(ENDED)
        self.reader.join(ENDED)
        return code

    def close(self) -> None:
        """End it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(ENDED)
        self.process.stderr.close()
