"""What stands before the service."""

from __future__ import annotations

import asyncio
import json

import pytest

from bayesmf.serve.guard import HEADERS, Guard
from bayesmf.serve.limits import Limits, Rates

TOKEN = "a-token-of-some-length"


async def echo(scope, receive, send):
    """An application that answers with what it received."""
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(guard, messages=(b"",), method="POST", path="/api/x", client="1.2.3.4", **headers):
    """The status and the body that a request gets; ``None`` among the messages never comes."""
    named = {"host": "localhost", "content_type": "application/json", **headers}
    scope = {
        "type": "http", "method": method, "path": path, "client": (client, 1),
        "headers": [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in named.items()],
    }  # fmt: skip
    left, sent = list(messages), []

    async def receive():
        if left[0] is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message):
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    told = dict(sent[0]["headers"])
    for name, value in HEADERS.items():
        assert told[name.encode()] == value.encode()
    return sent[0]["status"], sent[1]["body"]


def test_a_body_in_parts_arrives_whole():
    assert ask(Guard(echo), [b"ab", b"", b"cd"]) == (200, b"abcd")


@pytest.mark.parametrize("told", [True, False])
def test_a_large_body_is_refused_whether_its_length_is_told_or_not(told):
    guard = Guard(echo, Limits(body=10))
    more = {"content_length": "11"} if told else {}
    parts = [None] if told else [b"123456", b"7890a", None]  # nothing more is waited for
    assert ask(guard, parts, **more)[0] == 413
    assert ask(guard, [b"1234567890"]) == (200, b"1234567890")


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "9" * 40, "", "²"])
def test_a_length_that_is_none_is_refused(length):
    assert ask(Guard(echo), content_length=length)[0] == 413


def test_a_body_that_does_not_come_is_given_up():
    assert ask(Guard(echo, Limits(seconds=0.01)), [b"{", None])[0] == 408


def test_a_client_that_asks_too_often_has_to_wait():
    now = [0.0]
    limits = Limits(rate=2, clients=3)
    guard = Guard(echo, limits, rates=Rates(limits, lambda: now[0]))
    assert [ask(guard)[0] for _ in range(6)] == [200] * 4 + [429] * 2
    assert ask(guard, client="5.6.7.8")[0] == 200
    now[0] += 0.5
    assert [ask(guard)[0] for _ in range(2)] == [200, 429]
    now[0] += 1000
    assert [ask(guard)[0] for _ in range(5)] == [200] * 4 + [429]
    for k in range(10):
        assert ask(guard, client=f"9.9.9.{k}")[0] == 200
    assert len(guard.rates.left) == 3


def test_a_rate_of_nothing_is_no_limit():
    guard = Guard(echo, Limits(rate=0))
    assert {ask(guard)[0] for _ in range(200)} == {200}


@pytest.mark.parametrize(
    "given", ["", TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
              "Bearer \u00fcber"],
)  # fmt: skip
def test_another_token_is_refused(given):
    status, body = ask(Guard(echo, token=TOKEN), authorization=given)
    assert status == 401
    assert TOKEN not in json.loads(body)["error"]


def test_the_token_opens_and_the_page_and_the_health_need_none():
    guard = Guard(echo, token=TOKEN)
    assert ask(guard, authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(guard, authorization=f"bearer  {TOKEN} ")[0] == 200
    for path in ("/", "/api/health", "/page/explorer.js"):
        assert ask(guard, method="GET", path=path)[0] == 200
    for path in ("/openapi.json", "/api/model", "/api/health/", "/page/other"):
        assert ask(guard, method="GET", path=path)[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.2:8000"])
def test_another_name_of_the_service_is_refused(host):
    assert ask(Guard(echo), host=host)[0] == 421
    assert ask(Guard(echo, hosts=None), host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"]
)
def test_the_names_of_this_machine_are_known(host):
    assert ask(Guard(echo), host=host)[0] == 200


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_what_a_form_of_another_page_could_send_is_refused(kind):
    assert ask(Guard(echo), [b"a=b"], content_type=kind)[0] == 415
    assert ask(Guard(echo), content_type=kind) == (200, b"")


def test_a_websocket_is_closed():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(echo)({"type": "websocket"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_client_that_goes_away_is_not_answered():
    async def gone():
        return {"type": "http.disconnect"}

    async def never(message):
        raise AssertionError(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(echo)(scope, gone, never))
