"""Ask one model for minutes, from several threads, and watch answers, memory and open files.

``python tests/soak.py MINUTES``: four threads predict, recommend, fold in and update at random;
each answer has to be that of one thread alone. Memory and the number of open files are noted all
along, and after a tenth of the time the second half of the rest is compared with the first.
``--pace N`` makes N calls a second, all threads together, so that an hour leaves room for other
work; ``--every SECONDS`` says how often a line is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
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


class Pace:
    """Lets so many calls begin in a second, whichever thread they come from."""

    def __init__(self, calls_a_second: float | None) -> None:
        self.gap = 1 / calls_a_second if calls_a_second else 0.0
        self.lock, self.next = threading.Lock(), time.monotonic()

    def wait(self) -> None:
        with self.lock:
            now = time.monotonic()
            mine = max(self.next, now)
            self.next = mine + self.gap
        time.sleep(mine - now)


Work = Callable[[int], None]
Seen = list[tuple[float, int, int]]  # megabytes, open files, threads


def watch(work: Work, end: float, step: float, every: float, done: Counter[str]) -> Seen:
    """Let the threads work to the end; returns memory, open files and threads of every step."""
    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    seen: Seen = []
    began = told = time.monotonic()
    while time.monotonic() < end:
        time.sleep(step)
        seen.append((megabytes(), len(os.listdir("/proc/self/fd")), threading.active_count()))
        now = time.monotonic()
        if now - told >= every:
            told = now
            memory, files, threads = seen[-1]
            print(f"{(now - began) / 60:.1f} minutes, {sum(done.values())} calls: {memory:.1f} MB, "
                  f"{files} open files, {threads} threads", flush=True)  # fmt: skip
    for worker in workers:
        worker.join()
    return seen


def main(minutes: float, pace: float | None, every: float) -> int:
    ratings = generate(World(n_users=120, n_items=80, n_ratings=3000, rank=2), seed=SEED)[0]
    fit = Gibbs(Model(rank=4), sweeps=20, chains=2, seed=SEED).fit(ratings)
    calls = make_calls(fit)
    fit.threads = 1
    right = [call() for _, call in calls]
    fit.threads = None
    gate, end = Pace(pace), time.monotonic() + 60 * minutes
    done: Counter[str] = Counter()
    wrong: list[str] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < end:
            gate.wait()
            which = rng.randrange(len(calls))
            name, call = calls[which]
            try:
                if call() != right[which]:
                    wrong.append(name)
            except Exception as error:
                wrong.append(f"{name}: {error!r}")
            done[f"{name} {number}"] += 1

    used = time.process_time()
    seen = watch(work, end, min(1.0, minutes), every, done)
    used = time.process_time() - used
    seen = seen[len(seen) // 10 :]
    halves = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    most = [tuple(max(column) for column in zip(*half, strict=True)) for half in halves]
    total = sum(done.values())
    print(f"{total} calls in {minutes:g} minutes by {THREADS} threads, {used:.0f} s of a core, "
          f"{len(wrong)} wrong")  # fmt: skip
    for kind in dict(calls):
        print(f"{kind}: {sum(done[f'{kind} {number}'] for number in range(THREADS))}")
    for half, (memory, files, threads) in zip(("first", "second"), most, strict=True):
        print(f"{half} half: at most {memory:.1f} MB, {files} open files, {threads} threads")
    print(*wrong[:10], sep="\n")
    grown = most[1][0] > (1 + MORE) * most[0][0] or most[1][1] > most[0][1]
    return int(bool(wrong) or grown)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("minutes", type=float, nargs="?", default=1.0)
    options.add_argument("--pace", type=float, help="calls a second of all threads together")
    options.add_argument("--every", type=float, default=60.0, help="seconds between two lines")
    given = options.parse_args()
    raise SystemExit(main(given.minutes, given.pace, given.every))
