"""What stands before the service: hosts, rates, the token, the size and the speed of a request."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from bayesmf.serve.limits import Limits, Rates

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/page/explorer.css", "/page/explorer.js", "/page/charts.js", "/page/parts.js")
HEALTH = "/api/health"  # for whoever watches the service, who need not have the token
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""The names of a service on this machine: a page elsewhere cannot reach it by another name."""


class Refused(Exception):
    """A request that the service does not look at."""

    def __init__(self, status: int, why: str, **headers: str) -> None:
        super().__init__(why)
        self.response = JSONResponse({"error": why}, status, headers=headers)


class Guard:
    """An ASGI application around another one, which sees only whole, small, allowed requests.

    - ``hosts``: the names that a request may call the service by; None allows all.
    - ``token``: what has to be sent with every request but those of the page and of the health.
    """

    def __init__(
        self,
        app: App,
        limits: Limits | None = None,
        token: str | None = None,
        hosts: Collection[str] | None = LOCAL,
        rates: Rates | None = None,
    ) -> None:
        self.app, self.limits, self.hosts = app, limits or Limits(), hosts
        self.token = None if token is None else token.encode()
        self.rates = rates or Rates(self.limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            body = await self._examine(scope, receive)
        except Refused as refused:
            # what is left of the request is not waited for
            refused.response.headers["connection"] = "close"
            return await refused.response(scope, receive, answer)
        if body is None:
            return None  # the client has gone
        return await self.app(scope, _replay(body, receive), answer)

    async def _examine(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body of a request that is allowed; None if it never came."""
        headers, path = Headers(scope=scope), scope["path"]
        if self.hosts is not None and _name(headers.get("host", "")) not in self.hosts:
            raise Refused(421, "this service is not known by the host name of the request")
        if sum(len(name) + len(value) for name, value in headers.raw) > self.limits.headers:
            raise Refused(431, f"the headers have at most {self.limits.headers:,} bytes")
        client = scope.get("client")
        if not self.rates.allow(client[0] if client else ""):
            raise Refused(429, "too many requests; wait a second", **{"retry-after": "1"})
        if self.token is not None and path not in OPEN and path != HEALTH:
            self._check_token(headers.get("authorization", ""))
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15 or int(length) > self.limits.body:
            raise self._too_large()
        try:
            body = await asyncio.wait_for(self._read(receive), self.limits.seconds)
        except TimeoutError:
            raise Refused(408, "the request took too long to arrive; send it again") from None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and kind != "application/json":  # forms of other pages cannot send that
            raise Refused(415, "send JSON, with the header Content-Type: application/json")
        return body

    def _check_token(self, given: str) -> None:
        kind, _, token = given.partition(" ")
        assert self.token is not None
        same = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self.token)
        if kind.lower() != "bearer" or not same:
            raise Refused(
                401,
                "send the token of this service, with the header Authorization: Bearer TOKEN",
                **{"www-authenticate": "Bearer"},
            )

    async def _read(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self.limits.body:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> Refused:
        return Refused(
            413, f"a request has at most {self.limits.body:,} bytes; ask for less at a time"
        )


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body in one piece, then what happens next."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return parts.pop() if parts else await receive()

    return next_message
