"""The server: its socket, its signals, and the eye on the files of the model."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bayesmf.errors import DataError, Option, SeenWarning
from bayesmf.serve.api import make_app
from bayesmf.serve.guard import LOCAL, Guard
from bayesmf.serve.limits import CONNECTIONS, DRAIN, Limits
from bayesmf.serve.served import Shelf

LOOKS = 1.0  # seconds between two looks at the files of the model
SHORTEST = 16  # characters of a token


def is_local(host: str) -> bool:
    """Whether only this machine reaches a service that is bound to ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_token(host: str, token: str | None) -> None:
    """Refuse a service that others could reach without a token, and a token that is no secret."""
    if token is None:
        if not is_local(host):
            raise DataError(
                f"{Option('host', host)} lets other machines in, so a token is needed; give "
                f"{Option('token', 'TOKEN')} or set BAYESMF_TOKEN"
            )
        return
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable() and " " not in token):
        raise DataError(
            f"the token is no good secret; give {SHORTEST} or more letters and digits without "
            "blanks"
        )


def bind(host: str, port: int) -> socket.socket:
    """Take a port, or say in a sentence why not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        kind, _, _, _, address = found[0]
        # only where the protocol is named does asyncio send small answers without a delay
        taken = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
            taken.listen()  # two may be bound to a port, but only one can listen
        except OSError:
            taken.close()
            raise
        return taken
    except socket.gaierror:
        raise DataError(
            f"{Option('host', host)} is no address of this machine; give 127.0.0.1, or 0.0.0.0 "
            "for all of them"
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise DataError(
                f"the port {port} of {host} is in use; end what listens there, or choose another "
                f"port with {Option('port', 'PORT')}"
            ) from None
        raise DataError(
            f"the port {port} of {host} cannot be used ({error.strerror}); choose others with "
            f"{Option('host', 'HOST')} and {Option('port', 'PORT')}"
        ) from None


class Impatient(H11Protocol):
    """A connection that is closed if the headers of a request do not come soon."""

    seconds = Limits.seconds
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Begin to wait if these are no whole headers, and else no longer wait."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        super().connection_lost(exc)
        self._stop()

    def _wait(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._end is None:
            self._end = self.loop.call_later(self.seconds, self._close)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _close(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


class Server(uvicorn.Server):
    """A server that ends well at SIGTERM: it takes no new requests, and answers those it has."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self.tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self.tell_started()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to end; only Ctrl-C is told to the caller afterwards."""
        if sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)


def serve(
    shelf: Shelf,
    taken: socket.socket,
    *,
    host: str,
    token: str | None = None,
    limits: Limits | None = None,
    watch: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Answer requests on a socket until a signal ends it.

    - ``host``: what the socket is bound to.
    - ``token``: what requests have to send; None: nothing.
    - ``watch``: whether to load the model again when its files change.
    - ``say``: called with a sentence for whoever runs the service.
    """
    warnings.simplefilter("ignore", SeenWarning)  # which a client would not see
    limits = limits or Limits()
    hosts = {*LOCAL, host.lower()} if is_local(host) else None
    app = Guard(make_app(shelf, token=token is not None), limits, token, hosts)
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=type("Impatient", (Impatient,), {"seconds": limits.seconds}),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        proxy_headers=False,  # a client is who connects, whatever it says of others
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN,
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{taken.getsockname()[1]}/"
    server = Server(config, lambda: say(f"Serving {shelf.path} at {address}; Ctrl-C ends it."))
    ended = threading.Event()
    if watch:
        threading.Thread(target=_look, args=(shelf, ended, say), daemon=True).start()
    try:
        server.run([taken])
    finally:
        ended.set()


def _look(shelf: Shelf, ended: threading.Event, say: Callable[[str], None]) -> None:
    """Load the model again whenever its files have changed."""
    while not ended.wait(LOOKS):
        news = shelf.refresh()
        if news:
            say(news)
