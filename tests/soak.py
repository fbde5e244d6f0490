"""Ask one model for minutes, from several threads, and watch answers, memory and open files.

``python tests/soak.py MINUTES``: four threads predict, recommend, fold in and update at random;
each answer has to be that of one thread alone. Memory and the number of open files are noted all
along, and after a tenth of the time the second half of the rest is compared with the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesmf import Gibbs, Model, Ratings
from bayesmf.data.synthetic import World, generate

THREADS, SEED = 4, 1
MORE = 0.05  # of the memory that the second half may take more than the first


def digest(table: Any) -> str:
    return hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()


def make_calls(fit: Any) -> list[tuple[str, Callable[[], str]]]:
    """Requests of every kind and of several sizes, with what they return as a digest."""
    users, items = (fit.posterior.ids(side).values.tolist() for side in ("user", "item"))
    known = [(user, item) for user in users for item in items]

    def ratings(user: int, k: int) -> Ratings:
        return Ratings.from_triplets(users=[user] * k, items=items[:k], ratings=[1, 5, 3, 4][:k])

    def fold_in(k: int) -> str:
        return digest(fit.fold_in(ratings(10**6, k)).predict([(10**6, item) for item in items]))

    def update(k: int) -> str:
        asked = [(users[k], item) for item in items]
        return digest(fit.update(ratings(users[k], k)).predict(asked))

    calls: list[tuple[str, Callable[[], str]]] = []
    for k in (1, 2, 3, 4):
        few, many = known[k :: 97 * k], known[k::2]
        calls += [
            ("predict", lambda asked=few: digest(fit.predict(asked))),
            ("predict many", lambda asked=many: digest(fit.predict(asked))),
            ("recommend", lambda k=k: digest(fit.recommend(users[: 3 * k], n=5))),
            ("fold in", lambda k=k: fold_in(k)),
            ("update", lambda k=k: update(k)),
        ]
    return calls


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(minutes: float) -> int:
    ratings = generate(World(n_users=120, n_items=80, n_ratings=3000, rank=2), seed=SEED)[0]
    fit = Gibbs(Model(rank=4), sweeps=20, chains=2, seed=SEED).fit(ratings)
    calls = make_calls(fit)
    fit.threads = 1
    right = [call() for _, call in calls]
    fit.threads = None
    end = time.monotonic() + 60 * minutes
    done: Counter[str] = Counter()
    wrong: list[str] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < end:
            which = rng.randrange(len(calls))
            name, call = calls[which]
            try:
                if call() != right[which]:
                    wrong.append(name)
            except Exception as error:
                wrong.append(f"{name}: {error!r}")
            done[f"{name} {number}"] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    seen = []
    while time.monotonic() < end:
        time.sleep(min(1.0, minutes))
        seen.append((megabytes(), len(os.listdir("/proc/self/fd")), threading.active_count()))
    for worker in workers:
        worker.join()
    seen = seen[len(seen) // 10 :]
    halves = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    most = [tuple(max(column) for column in zip(*half, strict=True)) for half in halves]
    total = sum(done.values())
    print(f"{total} calls in {minutes:g} minutes by {THREADS} threads, {len(wrong)} wrong")
    for half, (memory, files, threads) in zip(("first", "second"), most, strict=True):
        print(f"{half} half: at most {memory:.1f} MB, {files} open files, {threads} threads")
    print(*wrong[:10], sep="\n")
    grown = most[1][0] > (1 + MORE) * most[0][0] or most[1][1] > most[0][1]
    return int(bool(wrong) or grown)


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
