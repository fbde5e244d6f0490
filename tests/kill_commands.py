"""Kill every command that writes, run it again, and compare with a run that nothing happened to.

``python tests/kill_commands.py N`` kills N commands, one after the other of all kinds, and prints a
table; words behind the number name the commands to take. ``"fit on Ray"`` is taken only if it is
named: it takes a while to begin. With ``steps`` in place of N every command is killed (SIGKILL) at
each of its steps, or at 40 of them if it has more.

A round forks this process, which has loaded everything, so that most moments lie in the work of a
command and not in its imports. Kinds:

- SIGKILL or SIGTERM at a random moment, or at a random one of the steps that touch its files;
- SIGSTOP at such a moment, and SIGCONT: these are no kills, and counted apart.

After a kill, what was there before is whole (a loss otherwise), no lock is held and no process is
left; after the same command once more, all bytes are those of an undisturbed process (differing
otherwise), and no other file is there (litter otherwise).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from kills.apart import fetching, on_ray
from kills.cases import CASES, Case
from kills.files import digests
from kills.processes import SETTINGS
from kills.rounds import Play, measure, one_round, play_at_random, play_steps, prepare, warm
from kills.serving import Serving


def main(rounds: str, names: list[str]) -> int:
    os.environ.update(SETTINGS)
    import bayesmf.cli.main
    import bayesmf.serve.run  # noqa: F401

    with tempfile.TemporaryDirectory() as name, fetching() as fetch:
        base = Path(name).resolve()
        prepare(base)
        inputs = digests(base)
        cases = [case for case in [*CASES, fetch] if not names or case.name in names]
        cases += [case for case in [on_ray(base)] if case.name in names]
        for case in cases:
            warm(case, base)
            measure(case, base)
            print(f"{case.name}: {case.seconds:.2f} s, {case.steps} steps", flush=True)
        began = time.monotonic()
        if rounds == "steps":
            table = play_steps(base, cases)
        else:
            serves = not names or "serve" in names
            table = play_at_random(make_players(base, cases, serves), int(rounds))
        now = digests(base)
        if any(now.get(key) != value for key, value in inputs.items()):
            table["what the commands read"] = Counter(losses=1)
    return tell(table, time.monotonic() - began)


def make_players(base: Path, cases: list[Case], serves: bool) -> list[tuple[str, Play]]:
    """What plays a round of each command, by its name."""
    players: list[tuple[str, Play]] = [
        (case.name, partial(one_round, case, base)) for case in cases
    ]
    for reloads in (False, True) if serves else ():
        serving = Serving(base, reloads)
        players.append((serving.name, serving.one_round))
    return players


def tell(table: dict[str, Counter[str]], seconds: float) -> int:
    bad = ("losses", "differing", "locks", "litter", "processes", "failed")
    columns = ("kill", "term", "stop", *bad)
    print("| command | SIGKILL | SIGTERM | stopped and gone on | losses | differing | locks held "
          "| litter | processes left | failed |")  # fmt: skip
    print("|---|" + "--:|" * len(columns))
    total: Counter[str] = Counter()
    for name, found in table.items():
        total.update(found)
        print(f"| {name} | " + " | ".join(str(found[one]) for one in columns) + " |")
    print("| all | " + " | ".join(str(total[one]) for one in columns) + " |")
    print(f"{total['kill'] + total['term']} kills in {seconds:.0f} s")
    return int(any(total[one] for one in bad))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else "20", sys.argv[2:]))
