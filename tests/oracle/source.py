"""A server on this machine that a data set is downloaded from."""

from __future__ import annotations

import io
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = b"1::10::4\n1::11::5\n2::10::3\n"
CHUNK = 1 << 16


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("ml-1m/README", b"x" * 300_000)
        zipped.writestr("ml-1m/ratings.dat", TEXT)
    return file.getvalue()


class Server(ThreadingHTTPServer):
    """Serves one file; ``cut`` breaks off so many replies after half of what was asked.

    ``pause`` is the seconds that it waits after every 64 KB.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cut, self.status, self.ranges = content, 0, 200, []
        self.whole_only, self.length, self.pause = False, None, 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/ml-1m.zip"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        if self.server.whole_only:
            asked, start = None, 0
        if start >= len(self.server.content):
            self.send_error(416)
            return
        body = self.server.content[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", self.server.length or str(len(body)))
        self.end_headers()
        if self.server.cut:
            self.server.cut -= 1
            body = body[: len(body) // 2]
        for at in range(0, len(body), CHUNK):
            self.wfile.write(body[at : at + CHUNK])
            time.sleep(self.server.pause)

    def log_message(self, *_: object) -> None:
        pass
