"""Ask one model in threads, pools and servers, and compare with one thread, on each layer.

``python tests/servers_many.py`` fits a small model, loads it before any fork, and prints a table of
answers: right, wrong, and what could not be tried because a package is missing. gunicorn, joblib
and tbb are no part of bayesmf: install them to try them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oracle.served import request

LAYERS = {"omp": "omppool", "tbb": "tbbpool", "workqueue": "workqueue"}  # and their modules
CALLS = ("few", "many", "recommend", "fold_in", "update", "sample")
PATIENCE = 180.0  # seconds
ASKING, TIMES = 3, 2  # threads that ask a server, and how often each asks everything

MODULE = '''
import hashlib, json, os
import bayesmf
from bayesmf import Gibbs, Model, Ratings

fit = bayesmf.load_model(os.environ["MODEL"])
users, items = (fit.posterior.ids(side).values.tolist() for side in ("user", "item"))
known = [(u, i) for u in users for i in items]

def ratings(user):
    return Ratings.from_triplets(users=[user] * 2, items=items[:2], ratings=[1, 5])

def digest(table):
    return hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()

def answer(name, one=None):
    one = one or fit
    if name == "few":
        return digest(one.predict(known[:3]))
    if name == "many":
        return digest(one.predict(8 * known))
    if name == "recommend":
        return digest(one.recommend(n=5))
    if name == "fold_in":
        return digest(one.fold_in(ratings(10**6)).predict([(10**6, item) for item in items]))
    if name == "update":
        return digest(one.update(ratings(users[0])).predict([(users[0], item) for item in items]))
    found = Gibbs(Model(rank=2), sweeps=3, chains=1).fit(one.posterior.train)
    return hashlib.sha256(found.states[0].user.x.tobytes()).hexdigest()

def wsgi(environ, start):
    body = json.dumps([os.getpid(), answer(environ["PATH_INFO"].strip("/"))]).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]

def begun():
    """Answers before a fork, so that threads have begun, and a service of them."""
    for name in ("few", "many"):
        answer(name)
    return wsgi
'''
SERVED = """
import os
import calls
from bayesmf.serve.api import make_app
from bayesmf.serve.guard import Guard
from bayesmf.serve.limits import Limits
from bayesmf.serve.served import Shelf

app = Guard(make_app(Shelf(os.environ["MODEL"])), Limits(rate=0))
calls.begun()
"""


def served_requests() -> list[tuple[str, Any]]:
    import calls

    pairs = [{"user": user, "item": item} for user, item in calls.known]
    new = [{"item": item, "rating": 4} for item in calls.items[:3]]
    return [
        ("/api/predict", {"pairs": pairs[:3]}),
        ("/api/predict", {"pairs": pairs}),
        ("/api/recommend", {"users": calls.users[:5], "n": 5}),
        ("/api/visitor", {"ratings": new}),
        ("/api/similar", {"item": calls.items[0]}),
    ]


def in_threads(works: Callable[[str], str], right: dict[str, str]) -> list[bool]:
    """Every call in several threads at once."""
    found: list[bool] = []

    def work() -> None:
        for name in TIMES * CALLS:
            found.append(works(name) == right[name])

    workers = [threading.Thread(target=work) for _ in range(ASKING)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found + [False] * (ASKING * TIMES * len(CALLS) - len(found))


def in_pool(kind: str, right: dict[str, str]) -> list[bool]:
    import multiprocessing

    import calls

    with multiprocessing.get_context(kind).Pool(2) as pool:
        waiting = [pool.apply_async(calls.answer, (name,)) for name in TIMES * CALLS]
        handed = pool.apply_async(calls.answer, ("many", calls.fit))
        found = [one.get(PATIENCE) for one in waiting]
        return [*map(str.__eq__, found, TIMES * [*right.values()]),
                handed.get(PATIENCE) == right["many"]]  # fmt: skip


def in_joblib(kind: str, right: dict[str, str]) -> list[bool]:
    import calls
    import joblib

    jobs = [joblib.delayed(calls.answer)(name) for name in TIMES * CALLS]
    jobs += [joblib.delayed(calls.answer)(name, calls.fit) for name in CALLS]
    found = joblib.Parallel(2, kind, timeout=PATIENCE)(jobs)
    return [*map(str.__eq__, found, (TIMES + 1) * [*right.values()])]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def ask_server(port: int, path: str, body: Any = None) -> Any:
    status, content = request(port, path, body)
    return json.loads(content) if status == 200 else (status, content)


@contextlib.contextmanager
def serving(words: list[str], path: str) -> Iterator[int]:
    """A server in a process of its own, once it answers at ``path``."""
    port = free_port()
    words = [word.format(port=port) for word in words]
    with subprocess.Popen([sys.executable, "-m", *words]) as process:
        try:
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end and process.poll() is None:
                with contextlib.suppress(OSError):
                    ask_server(port, path)
                    break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


GUNICORN = ["gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:{port}",
            "--log-level", "error", "--timeout", "120"]  # fmt: skip


def in_gunicorn(right: dict[str, str]) -> list[bool]:
    """A service of the usual kind, which is loaded before its workers are forked."""
    workers = set()

    def ask(name: str) -> str:
        found = ask_server(port, f"/{name}")
        workers.add(found[0])
        return str(found[1])

    with serving([*GUNICORN, "calls:begun()"], "/few") as port:
        found = in_threads(ask, right)
    print(f"   {len(workers)} workers answered", flush=True)
    return found


def in_asgi(words: list[str]) -> Callable[[dict[str, str]], list[bool]]:
    """The service of bayesmf, behind another server than its own."""

    def ask(_: dict[str, str]) -> list[bool]:
        from bayesmf.serve.api import make_app
        from bayesmf.serve.served import Shelf

        app = make_app(Shelf(Path(os.environ["MODEL"])))
        asked = served_requests()
        expected = [call_app(app, *one) for one in asked]
        found: list[bool] = []

        def work() -> None:
            for _ in range(5):
                for one, answer in zip(asked, expected, strict=True):
                    found.append(ask_server(port, *one) == answer)

        with serving(words, "/api/health") as port:
            workers = [threading.Thread(target=work) for _ in range(ASKING)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        return found + [False] * (5 * ASKING * len(asked) - len(found))

    return ask


def call_app(app: Any, path: str, body: Any) -> Any:
    """What an ASGI application answers, without a server."""
    import asyncio

    content, answers = json.dumps(body).encode(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        answers.append(message.get("body", b""))

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
             "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
             "root_path": ""}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return json.loads(b"".join(answers))


def has(*names: str) -> str:
    """The first of these packages that is missing, or nothing."""
    return next((name for name in names if importlib.util.find_spec(name) is None), "")


def try_layer() -> int:
    """Everything, on the layer of this process."""
    import calls
    import numba

    threads, calls.fit.threads = calls.fit.threads, 1
    right = {name: calls.answer(name) for name in CALLS}
    calls.fit.threads = threads
    calls.begun()
    asgi = "uvicorn_worker.UvicornWorker" if not has("uvicorn_worker") else ""
    ways: list[tuple[str, str, Callable[[dict[str, str]], list[bool]]]] = [
        ("3 threads", "", lambda right: in_threads(calls.answer, right)),
        ("multiprocessing, fork", "", lambda right: in_pool("fork", right)),
        ("multiprocessing, spawn", "", lambda right: in_pool("spawn", right)),
        ("joblib, loky", has("joblib"), lambda right: in_joblib("loky", right)),
        ("joblib, threading", has("joblib"), lambda right: in_joblib("threading", right)),
        ("gunicorn --preload, sync", has("gunicorn"), in_gunicorn),
        ("gunicorn --preload, uvicorn workers", has("gunicorn", "uvicorn_worker"),
         in_asgi([*GUNICORN, "--worker-class", asgi, "served:app"])),
        ("uvicorn --workers 2", has("uvicorn"),
         in_asgi(["uvicorn", "served:app", "--workers", "2", "--port", "{port}", "--log-level",
                  "error"])),
    ]  # fmt: skip
    bad = 0
    for name, missing, way in ways:
        if missing:
            print(f"| {name} | {numba.threading_layer()} | {missing} is not installed | |")
            continue
        found = Counter(way(right))
        print(
            f"| {name} | {numba.threading_layer()} | {found[True]} | {found[False]} |", flush=True
        )
        bad += found[False]
    return int(bad > 0)


def main() -> int:
    import bayesmf
    from bayesmf.data.synthetic import World, generate

    code = 0
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        (base / "calls.py").write_text(MODULE)
        (base / "served.py").write_text(SERVED)
        ratings = generate(World(n_users=60, n_items=40, n_ratings=1200, rank=2), seed=1)[0]
        bayesmf.Gibbs(bayesmf.Model(rank=3), sweeps=20, chains=2).fit(ratings).save(base / "m")
        print("| | layer | right | wrong |\n|---|---|--:|--:|", flush=True)
        for layer, module in LAYERS.items():
            path = os.pathsep.join([name, *filter(None, sys.path)])
            env = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2",
                   "MODEL": str(base / "m"), "PYTHONPATH": path}  # fmt: skip
            probe = f"from numba.np.ufunc import {module}"
            if subprocess.run([sys.executable, "-c", probe], env=env, stderr=subprocess.DEVNULL,
                              check=False).returncode:  # fmt: skip
                print(f"| | {layer} | is not installed | |", flush=True)
                continue
            words = [sys.executable, __file__, "layer"]
            code |= subprocess.run(words, env=env, check=False, timeout=3000).returncode
    return code


if __name__ == "__main__":
    raise SystemExit(try_layer() if sys.argv[1:] == ["layer"] else main())
