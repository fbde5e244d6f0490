"""How fast a served model answers: each request alone, and eight clients at a time.

    python benchmarks/serving.py MODEL [--seconds 60] [--clients 8]

It starts `bayesmf serve MODEL` in a process of its own. First every kind of request is made one
after the other: the median (p50) and the 99th percentile of the time until the whole answer is
there, over one connection. Then the clients ask at the same time, each over a connection of its
own, kinds of requests in turn, and every answer is compared with the one that was given before,
when nobody else asked. Memory is that of the server's process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

from bayesmf import load_model

CASES = 16  # requests of each kind
ALONE = 200  # times that each kind is asked when nobody else does


def requests(model: Path) -> dict[str, list[tuple[str, dict | None]]]:
    """Requests of every kind, about users and items of the model."""
    posterior = load_model(model).posterior
    rng = np.random.default_rng(0)
    users = rng.choice(posterior.users.values[posterior.user_counts > 0], CASES).tolist()
    warm = posterior.items.values[posterior.item_counts > 0]
    items = rng.choice(warm, (CASES, 100)).tolist()
    middle = posterior.scale.low

    def rated(some):
        return [{"item": one, "rating": middle} for one in dict.fromkeys(some)]

    each = list(zip(users, items, strict=True))
    return {
        "health": [("/api/health", None)] * CASES,
        "predict 1 pair": [
            ("/api/predict", {"pairs": [{"user": u, "item": i[0]}]}) for u, i in each
        ],
        "predict 100 pairs": [
            ("/api/predict", {"pairs": [{"user": u, "item": one} for one in i]}) for u, i in each
        ],
        "recommend 10": [("/api/recommend", {"users": [u]}) for u in users],
        "similar": [("/api/similar", {"item": i[0]}) for i in items],
        "explain": [("/api/explain", {"user": u, "item": i[0]}) for u, i in each],
        "visitor with 5": [("/api/visitor", {"ratings": rated(i[:5])}) for i in items],
        "search": [(f"/api/users?search={u}", None) for u in users],
    }


async def ask(client: httpx.AsyncClient, path: str, body: dict | None) -> bytes:
    """The body of a good answer."""
    answer = await (client.get(path) if body is None else client.post(path, json=body))
    answer.raise_for_status()
    return answer.content


async def alone(base: str, kinds: dict) -> dict[str, list[bytes]]:
    """Print the time of each kind; return every answer."""
    print(f"{'request':18} {'p50, ms':>9} {'p99, ms':>9}")
    answers = {}
    async with httpx.AsyncClient(base_url=base, timeout=120) as client:
        for name, asked in kinds.items():
            answers[name] = [await ask(client, *one) for one in asked]
            times = []
            for k in range(ALONE):
                begin = time.perf_counter()
                await ask(client, *asked[k % CASES])
                times.append(1000 * (time.perf_counter() - begin))
            low, high = np.quantile(times, [0.5, 0.99])
            print(f"{name:18} {low:9.2f} {high:9.2f}", flush=True)
    return answers


async def together(base: str, kinds: dict, answers: dict, clients: int, seconds: float) -> Counter:
    """Ask at the same time; count answers, errors and answers that differ."""
    end, found = time.monotonic() + seconds, Counter()

    async def one_client(number: int) -> None:
        async with httpx.AsyncClient(base_url=base, timeout=120) as client:
            k = number
            while time.monotonic() < end:
                name = list(kinds)[k % len(kinds)]
                which = (k // len(kinds)) % CASES
                k += 1
                try:
                    answer = await ask(client, *kinds[name][which])
                except httpx.HTTPError:
                    found["errors"] += 1
                    continue
                found["answers"] += 1
                found["other answers"] += answer != answers[name][which]

    await asyncio.gather(*(one_client(number) for number in range(clients)))
    return found


def memory(process: int) -> float:
    """The resident memory of a process in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    words = ["-m", "bayesmf", "serve", str(given.model), "--port", "0", "--rate", "0"]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as server:
        try:
            base = re.search(r"http://\S+/", server.stderr.readline())[0]
            kinds = requests(given.model)
            answers = asyncio.run(alone(base, kinds))
            asyncio.run(together(base, kinds, answers, given.clients, given.seconds / 10))
            before = memory(server.pid)
            found = asyncio.run(together(base, kinds, answers, given.clients, given.seconds))
            facts = {
                "clients": given.clients,
                "seconds": given.seconds,
                "requests a second": round(found["answers"] / given.seconds, 1),
                "answers": found["answers"],
                "errors": found["errors"],
                "other answers": found["other answers"],
                "memory before, MB": round(before, 1),
                "memory after, MB": round(memory(server.pid), 1),
            }
            print(json.dumps(facts, indent=1))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
