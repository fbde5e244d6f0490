"""Requests that mean harm are refused, over a socket, and the service lives on."""

from __future__ import annotations

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from oracle.served import SERVE

POSTS = ("predict", "recommend", "similar", "explain", "visitor", "update", "evaluate")
GETS = ("health", "model", "users", "items", "ratings?user=u1", "quality", "chains", "map")
BIG = 10**400


def request(method, path, body=b"", head="", kind="application/json", host="127.0.0.1"):
    head = f"Host: {host}\r\nConnection: close\r\n{head}"
    if method == "POST":
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def post(path, value, **more):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return request("POST", f"/api/{path}", body, **more)


def broken_bodies():
    """Bodies that no address takes."""
    deep = 50_000
    yield "empty", b""
    yield "no JSON", b"{pairs: 1}"
    yield "cut off", b'{"pairs": [{"user": "u1", "item'
    yield "bad utf-8", b'{"pairs": "\xff\xfe\xc0\x80"}'
    yield "utf-16", '{"pairs": []}'.encode("utf-16")
    yield "zeros", b"\0" * 1000
    yield "deep list", b"[" * deep + b"]" * deep
    yield "deep object", b'{"a":' * deep + b"1" + b"}" * deep
    yield "a number", b"17"
    yield "null", b"null"
    yield "a list", b"[]"
    yield "NaN", b"NaN"
    yield "huge digits", b"9" * 5000
    yield "other fields", b'{"__proto__": {}, "constructor": 1}'
    yield "a script", b"<script>alert(1)</script>"
    yield "too large", b" " * 200_001


def wrong_values():
    """Requests with one value that is wrong."""
    pair, rated = {"user": "u1", "item": "i1"}, {"item": "i1", "rating": 3}
    good = {
        "predict": {"pairs": [pair]},
        "recommend": {"users": ["u1"]},
        "similar": {"item": "i1"},
        "explain": pair,
        "visitor": {"ratings": [rated]},
        "update": {"ratings": [{**pair, "rating": 3}]},
        "evaluate": {"ratings": [{**pair, "rating": 3}]},
    }
    nobody = [True, 1.5, {}, [], BIG, -BIG, 2**63, "", "x" * 201]
    number = ["3", True, None, [], {}, float("nan"), float("inf"), BIG, 1e308, -7]
    whole = ["3", True, 1.5, -1, 0, 1001, BIG, [], {}]
    wrong = {
        ("predict", "pairs"): [None, {}, [], "u1", [None], [[]], [["u1", "i1"]], [pair] * 10_001],
        ("predict", "quantiles"): [[0], [1], [-1], ["a"], [None], 0.5, [0.5] * 21, [float("nan")]],
        ("predict", "clip"): ["yes", 1, [], None],
        ("predict", "at"): ["never", "", "x" * 41, -1, 2**60, [], {}, True, 1.5],
        ("recommend", "users"): [None, "u1", [], [None], [{}], ["u1"] * 101, [[["u1"]]]],
        ("recommend", "n"): whole,
        ("recommend", "rank_by"): ["best", 1, None, [], "__class__"],
        ("recommend", "exclude_seen"): ["no", 0, None],
        ("recommend", "items"): ["i1", [], [None], ["i1"] * 10_001],
        ("recommend", "seed"): [-1, 2**53, 1.5, "1", BIG],
        ("recommend", "level"): [0, 1, 2, -1, "0.9", None, float("nan")],
        ("similar", "item"): nobody,
        ("similar", "n"): whole,
        ("explain", "user"): [*nobody, None, "nobody"],
        ("explain", "most"): whole,
        ("explain", "at"): ["never", "", "x" * 41, -1, 2**60, [], {}, True, 1.5],
        ("visitor", "ratings"): [None, {}, "i1", [None], [[]], [rated] * 2, [rated] * 1001],
        ("visitor", "items"): ["i1", [None], [{}], ["i1"] * 1001],
        ("update", "ratings"): [None, [], [rated], [pair], [{**pair, "rating": 3, "weight": 9}]],
        ("update", "side"): ["all", 1, None, []],
        ("evaluate", "bins"): [[], [0], [-1], [3, 2], [3, 3], [1.5], ["1"], 7, [1] * 51],
    }  # fmt: skip
    for (path, field), values in wrong.items():
        for value in values:
            yield f"{path} {field}={str(value)[:30]}", post(path, {**good[path], field: value})
    for path, value in itertools.product(("visitor", "update", "evaluate"), number):
        one = {**good[path]["ratings"][0], "rating": value}
        yield f"{path} rating={str(value)[:30]}", post(path, {"ratings": [one]})
    for path, value in itertools.product(("predict", "update"), nobody):
        key = {"predict": "pairs", "update": "ratings"}[path]
        one = {**good[path][key][0], "user": value}
        yield f"{path} user={str(value)[:30]}", post(path, {key: [one]})
    surrogate = b'{"pairs": [{"user": "\\ud800", "item": "i1"}]}'
    yield "half a character", post("predict", surrogate)


def paths():
    """Addresses that lead out of the page."""
    tricks = [
        "/../../etc/passwd", "/page/../../../../etc/passwd", "/page/%2e%2e/%2e%2e/etc/passwd",
        "/page/..%2f..%2fetc%2fpasswd", "/page/..%5c..%5cwindows", "//etc/passwd",
        "/page//etc/passwd", "/page/explorer.js%00.css", "/page/explorer.js/..", "/page/",
        "/page", "/page/index.html", "/page/.", "/static/x", "/.git/config", "/model.json", "/api",
        "/api/", "/api/../api/nothing", "/api/health/..", "/%00", "/%ff%fe", "/" + "a" * 5000,
        "/api/model;x=1", "/docs", "/redoc", "/docs/oauth2-redirect", "/page/../explorer.py",
        "/proc/self/environ", "/page/%252e%252e/x",
    ]  # fmt: skip
    for path in tricks:
        yield f"path {path[:40]}", request("GET", path)
    for query in ("user=", "user=" + "x" * 201, "", "user=%00", "user=nobody&n=0", "user=u1&n=x",
                  "user=u1&n=1e9", "user=%ff", "user=u1&n=-1"):  # fmt: skip
        yield f"query {query[:20]}", request("GET", f"/api/ratings?{query}")


def messages():
    """What is no request that HTTP knows, or one that another page could make."""
    for method, path in itertools.product(("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"),
                                          ("/", "/api/model", "/api/predict")):  # fmt: skip
        yield f"{method} {path}", request(method, path)
    for path in POSTS:
        yield f"GET {path}", request("GET", f"/api/{path}")
        yield f"form to {path}", post(path, b"a=b", kind="application/x-www-form-urlencoded")
    for path in GETS[:3]:
        yield f"POST {path}", post(path, {})
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "[::1"):
        yield f"host {host}", request("GET", "/api/model", host=host)
    yield "no HTTP", b"hello\r\n\r\n"
    yield "binary", bytes(range(256)) * 4 + b"\r\n\r\n"
    yield "another version", b"GET / HTTP/9.9\r\n\r\n"
    yield "no host", b"GET /api/model HTTP/1.1\r\nConnection: close\r\n\r\n"
    yield "long headers", request("GET", "/", head=f"X-A: {'a' * 100_000}\r\n")
    yield "many headers", request("GET", "/", head="".join(f"X-{k}: {k}\r\n" for k in range(9000)))
    length = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    yield "claims to be large", length + b"Content-Length: 99999999999\r\n\r\n{"
    yield "a negative length", length + b"Content-Length: -5\r\n\r\n{}"
    yield "two lengths", length + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"
    yield "a bad chunk", length + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
    chunks = b"".join(b"ffff\r\n" + b" " * 0xFFFF + b"\r\n" for _ in range(5))
    yield "large in chunks", length + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    upgrade = "Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    yield "a websocket", request("GET", "/api/nothing", head=f"{upgrade}")


CASES = [
    *((f"{path}: {name}", post(path, body))
      for path, (name, body) in itertools.product(POSTS, broken_bodies())),
    *wrong_values(),
    *paths(),
    *messages(),
]  # fmt: skip
SLOW = {
    "headers that never end": b"GET /api/health HTTP/1.1\r\nHost: localh",
    "nothing at all": b"",
    "a body that never ends": request("POST", "/api/predict", b"{").replace(
        b"Content-Length: 1", b"Content-Length: 100"
    ),
    "chunks that never end": b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{ \r\n",
}


@pytest.fixture(scope="module")
def server(start, tiny_fit):
    return start("-c", SERVE, tiny_fit, json.dumps({"rate": 0, "seconds": 0.5, "body": 200_000}))


def alive(server) -> None:
    assert json.loads(server.ask("/api/health"))["status"] == "ok"
    assert server.process.poll() is None
    told = "".join(server.lines)
    assert "Traceback" not in told
    assert "rror" not in told


def test_there_are_enough_of_every_kind():
    assert len({sent for _, sent in CASES}) >= 380
    assert sum(len(sent) > 30_000 for _, sent in CASES) >= 25  # too large, too long or too deep
    assert len([*wrong_values()]) >= 180
    assert len([*paths()]) >= 35
    assert len(SLOW) == 4


def test_each_is_refused_and_the_service_lives_on(server):
    facts = server.ask("/api/model")
    for name, sent in CASES:
        answer = server.send(sent)
        found = re.match(rb"HTTP/1\.1 (\d+) ", answer)
        assert found, f"{name}: {answer[:200]}"
        assert 400 <= int(found[1]) < 500, f"{name}: {answer[:300]}"
        assert b"Traceback" not in answer
        assert b"root:" not in answer
        assert b"site-packages" not in answer
        if b"application/json" in answer:
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"content-security-policy" in head, name
            assert set(json.loads(body)) == {"error"}, name
    alive(server)
    assert server.ask("/api/model") == facts, "none of them has changed the model"


@pytest.mark.parametrize("name", SLOW)
def test_who_sends_too_slowly_is_sent_away(server, name):
    answer = server.send(SLOW[name])  # ends when the server closes the connection
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
    alive(server)


def test_many_slow_ones_keep_nobody_from_an_answer(server):
    waiting = [server.connect() for _ in range(100)]
    for connection in waiting:
        connection.sendall(SLOW["headers that never end"])
    alive(server)
    for connection in waiting:
        connection.close()


def test_answers_at_the_same_time_are_those_of_one_after_the_other(server):
    asked = [
        ("/api/predict", {"pairs": [{"user": f"u{k}", "item": f"i{j}"} for j in range(9)]})
        for k in range(12)
    ]
    asked += [("/api/recommend", {"users": [f"u{k}"], "n": 5}) for k in range(12)]
    rated = [[{"item": f"i{k}", "rating": 1 + k % 5}] for k in range(12)]
    asked += [("/api/visitor", {"ratings": ratings, "items": ["i1"]}) for ratings in rated]
    asked += [("/api/explain", {"user": f"u{k}", "item": "i1"}) for k in range(6)]
    asked += [("/api/similar", {"item": f"i{k}"}) for k in range(6)]
    serial = [server.ask(path, json.dumps(body)) for path, body in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda one: server.ask(one[0], json.dumps(one[1])), 2 * asked))
    assert together == 2 * serial
    alive(server)
