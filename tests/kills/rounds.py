"""One command after the other: killed, looked at, run again and compared."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from kills.cases import CASES, FIT, Case
from kills.files import differences, digests, held
from kills.processes import begin, disturb, finish, fork, survivors, whole

MOST_STEPS = 40


def prepare(base: Path) -> None:
    """The data, the models and the study that commands read."""
    from bayesmf.data.io.write import write
    from bayesmf.data.synthetic import World, generate

    ratings = generate(World(n_users=60, n_items=40, n_ratings=1200, rank=2), seed=1)[0]
    write(ratings, base / "r.csv")
    (base / "pairs.csv").write_text(
        "user,item\n" + "".join(f"{u},{i}\n" for u in range(1, 61) for i in range(1, 41))
    )
    (base / "new.csv").write_text("user,item,rating\n" + "900,1,4\n900,2,1\n901,3,5\n")
    (base / "more.csv").write_text("user,item,rating\n" + "1,1,4\n2,2,1\n3,3,5\n")
    inside = base / "inside"
    inside.mkdir()
    for burn_in, name in ((5, "m"), (9, "m2")):
        whole([*FIT[:-1], f"../{name}", "--burn-in", str(burn_in)], inside)
    study = next(case for case in CASES if case.name == "study").words
    whole([*study[:-1], "../study"], inside)
    inside.rmdir()


def warm(case: Case, base: Path) -> None:
    """Run a command here once, so that those that are forked find its code loaded."""
    from click.testing import CliRunner

    from bayesmf.cli.main import main as run

    if case.name == "study" or case.first is not None:
        return  # its workers are processes of their own, or it needs one that was prepared
    folder, here = base / "warm", Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    done = CliRunner().invoke(run, case.words)
    os.chdir(here)
    shutil.rmtree(folder)
    if done.exit_code:
        raise SystemExit(f"{case.name}: {done.output}")


def measure(case: Case, base: Path) -> None:
    """What an undisturbed run leaves, and how long it takes when everything is loaded."""
    start, end = base / f"{case.name} before", base / f"{case.name} after"
    end.mkdir()
    if case.first is None:
        whole(case.words, end)
    elif finish(begin(case, end)) != 0:
        raise SystemExit(f"{case.name}: {(base / 'log').read_text()}")
    case.after = digests(end)
    start.mkdir()
    if "--overwrite" in case.words:  # there is something older to lose
        older = [word.replace("../m", "../m2") if word == "../m" else word for word in case.words]
        if "fit" in older[:1]:
            older = [*FIT, "--seed", "9"]
        if older[0] == "split":
            older += ["--seed", "9"]
        finish(fork(older, start))
    elif case.name == "report":
        shutil.copytree(end / "out", start / "out")
    case.before = digests(start)
    folder = base / "round"
    shutil.copytree(start, folder)
    began = time.monotonic()
    if finish(begin(case, folder)) != 0:
        raise SystemExit(f"{case.name}: {(base / 'log').read_text()}")
    case.seconds = time.monotonic() - began
    same = digests(folder)
    if same != case.after:
        raise SystemExit(f"{case.name}: not the same twice: {differences(same, case.after)}")
    shutil.rmtree(folder)
    case.steps = int((base / "steps").read_text())


def look(case: Case, folder: Path, found: Counter[str]) -> None:
    """Judge what a kill has left behind, before anything else is run."""
    found["locks"] += held(folder)
    for name in case.replaces:
        now = digests(folder, name)
        choices = [
            {key: value for key, value in part.items() if key == name or key.startswith(f"{name}/")}
            for part in (case.before, case.after)
        ]
        if now not in choices:
            found["losses"] += 1
            print(f"LOSS {case.name}: {name}", flush=True)


def again(case: Case, folder: Path, found: Counter[str]) -> None:
    """The same command once more, if it has not done its work already."""
    if case.name != "shard" or digests(folder) != case.after:
        code = finish(begin(case, folder))
        if code != 0:
            found["failed"] += 1
            print(f"FAILED {case.name} ({code}): {(folder.parent / 'log').read_text()[-600:]}")
    now = digests(folder)
    more = [name for name in now if name not in case.after]
    other = [name for name in case.after if now.get(name) != case.after[name]]
    found["litter"] += len(more)
    found["differing"] += bool(other)
    if more or other:
        print(f"LEFT {case.name}: {more} {other}", flush=True)


def one_round(
    case: Case, base: Path, rng: random.Random, kind: str, found: Counter[str], at: int = 0
) -> None:
    folder = base / "round"
    shutil.copytree(base / f"{case.name} before", folder)
    how, session = disturb(case, folder, rng, kind, at)
    found["processes"] += survivors(session)
    if how == "killed":
        found[kind] += 1
    elif how == "went on":
        found["stop"] += 1
    elif how != "ended (0)":
        found["failed"] += 1
        print(f"FAILED {case.name} {kind} {how}: {(base / 'log').read_text()[-600:]}", flush=True)
    look(case, folder, found)
    again(case, folder, found)
    shutil.rmtree(folder)


def kinds() -> Iterator[str]:
    while True:
        yield from ("kill", "term", "kill", "stop", "kill", "term")


Play = Callable[..., None]


def play_at_random(players: list[tuple[str, Play]], rounds: int) -> dict[str, Counter[str]]:
    """Kill so many commands, one after the other of all kinds."""
    table: dict[str, Counter[str]] = {name: Counter() for name, _ in players}
    order = {name: kinds() for name, _ in players}
    number = kills = 0
    while kills < rounds:
        name, play = players[number % len(players)]
        kind = next(order[name])
        if kind == "stop" and name.startswith("serve"):
            kind = next(order[name])
        play(random.Random(number), kind, table[name])
        number += 1
        kills = sum(found["kill"] + found["term"] for found in table.values())
    return table


def play_steps(base: Path, cases: list[Case]) -> dict[str, Counter[str]]:
    """Kill every command at each of its steps."""
    table: dict[str, Counter[str]] = {}
    for case in cases:
        found = table[case.name] = Counter()
        last = min(case.steps, MOST_STEPS)
        for number in range(last):
            at = 1 + number * (case.steps - 1) // max(last - 1, 1)
            one_round(case, base, random.Random(at), "kill", found, at)
    return table
