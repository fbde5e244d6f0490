"""Kill every command that writes, run it again, and compare with a run that nothing happened to.

``python tests/kill_commands.py N`` kills N commands, one after the other of all kinds, and prints a
table; words behind the number name the commands to take. With ``steps`` in place of N every command
is killed (SIGKILL) at each of its steps, or at 40 of them if it has more.

A round forks this process, which has loaded everything, so that most moments lie in the work of a
command and not in its imports. Kinds:

- SIGKILL or SIGTERM at a random moment, or at a random one of the steps that touch its files;
- SIGSTOP at such a moment, and SIGCONT: these are no kills, and counted apart.

After a kill, what was there before is whole (a loss otherwise), no lock is held and no process is
left; after the same command once more, all bytes are those of an undisturbed process (differing
otherwise), and no other file is there (litter otherwise).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from oracle.served import request

STEPS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.chmod",
         "os.listdir", "os.scandir"}  # fmt: skip
QUICK = ["--sweeps", "8", "--chains", "2", "--threads", "1", "--quiet"]
FIT = ["fit", "../r.csv", "--rank", "2", "--sweeps", "40", "--burn-in", "5", "--chains", "2",
       "--holdout", "random", "--threads", "1", "--quiet", "--overwrite", "--out",
       "out"]  # fmt: skip
SETTINGS = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
TIMED = ("times.jsonl", "run.checkpoint")  # files that hold seconds; so do pages of a study
MOST_STEPS = 40
PATIENCE = 120.0  # seconds for what takes few


@dataclass
class Case:
    """A command in a folder of its own, beside the data."""

    name: str
    words: list[str]
    replaces: tuple[str, ...] = ()  # what is replaced whole: the old or the new bytes, no others
    seconds: float = 0.0
    steps: int = 0
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)


MODEL = ("../m", "--threads", "1", "--overwrite", "--out")
CASES = [
    Case("fit", FIT, ("out",)),
    Case("fit, checkpoint", [*FIT, "--checkpoint", "run", "--checkpoint-every", "0", "--resume"],
         ("out",)),
    Case("fit, vi", [*FIT[:4], "--inference", "vi", "--sweeps", "5", *FIT[10:]], ("out",)),
    Case("predict", ["predict", "../m", "../pairs.csv", *MODEL[1:], "p.csv"], ("p.csv",)),
    Case("recommend", ["recommend", "../m", "--overwrite", "--quiet", "--out", "l.parquet"],
         ("l.parquet",)),
    Case("similar", ["similar", "../m", "--item", "3", "--overwrite", "--out", "s.tsv.gz"],
         ("s.tsv.gz",)),
    Case("map", ["map", "../m", "--overwrite", "--out", "map.csv"], ("map.csv",)),
    Case("fold-in, folder", ["fold-in", "../m", "../new.csv", *MODEL[1:], "out"], ("out",)),
    Case("update, zip", ["update", "../m", "../more.csv", *MODEL[1:], "out.zip"], ("out.zip",)),
    Case("update, folder", ["update", "../m", "../more.csv", *MODEL[1:], "out"], ("out",)),
    Case("summary", ["summary", *MODEL, "page.html"], ("page.html",)),
    Case("split", ["split", "../r.csv", "--overwrite", "--out", "out"], ("out",)),
    Case("shard", ["shard", "../r.csv", "--blocks", "3", "--out", "new/out"], ("new/out",)),
    Case("cross-validate", ["cross-validate", "../r.csv", "--ranks", "1,2", "--folds", "2", *QUICK,
                            "--resume", "--out", "out"]),
    Case("tune", ["tune", "../r.csv", "--ranks", "1,2", *QUICK, "--no-refit", "--resume", "--out",
                  "new/out"]),
    Case("study", ["study", "../r.csv", "--quick", "--rank", "2", "--only", "map-no-side-constant",
                   "--workers", "1", "--quiet", "--resume", "--out", "out"]),
    Case("report", ["report", "../study", "--out", "out"],
         ("out/figures", "out/tables", "out/report.html", "out/report.md")),
    Case("compare", ["compare", "../m", "../m2", "--threads", "1"]),
]  # fmt: skip
UPDATES = [{"ratings": [{"user": 1, "item": k, "rating": k % 5 + 1}]} for k in (1, 2, 3)]


def command(words: list[str]) -> None:
    from bayesmf.__main__ import run

    sys.argv = ["bayesmf", *words]
    run()


def fork(
    words: list[str],
    folder: Path,
    at: int = 0,
    do: Callable[[], object] = lambda: None,
    first: Callable[[], object] = lambda: None,
) -> int:
    """Run a command in a process of its own session.

    The process does ``first`` before anything else, and ``do`` at step ``at``, if any.
    """
    log = folder.parent / "log"
    log.write_text("")
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        handle, told = os.open(log, os.O_WRONLY | os.O_APPEND), folder.parent / "steps"
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        steps = hear_steps(folder, at, do)
        first()
        try:
            command(words)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(PermissionError):
            told.write_text(str(steps[0]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def hear_steps(folder: Path, at: int, do: Callable[[], object]) -> list[int]:
    """Count the steps of this process that touch a folder, in the list that is returned."""
    done, leader = [0], os.getpid()

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if event not in STEPS or os.getpid() != leader:
            return
        if not isinstance(args[0], (str, bytes, os.PathLike)):
            return
        name = os.fsdecode(args[0])
        if not name.startswith("/") or name.startswith(str(folder)):
            done[0] += 1
            if done[0] == at:
                do()

    sys.addaudithook(hear)
    return done


def signalling(number: int) -> Callable[[], None]:
    """What has a process send itself a signal."""
    return lambda: os.kill(os.getpid(), number)


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a process, negative for a signal; None if it is still at work."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def finish(child: int) -> int | None:
    """Wait for a process that should end by itself."""
    code = wait(child, PATIENCE)
    if code is None:
        os.kill(child, signal.SIGKILL)
        wait(child, PATIENCE)
    return code


def survivors(leader: int) -> bool:
    """Whether processes of its session are left for long after a command has ended."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(rest[3]) == leader and rest[0] != "Z":
                    break
        else:
            return False
        time.sleep(0.1)
    return True


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("seconds", "tail")}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def digests(folder: Path, *names: str) -> dict[str, str]:
    """Of every file, by its name; the times that commands write down do not count."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if names and not any(name == one or name.startswith(f"{one}/") for one in names):
            continue
        if path.is_file():
            content = path.read_bytes()
            if path.name in ("fit.json", "result.json", "tuning.json", "cross-validation.json"):
                content = json.dumps(without_times(json.loads(content)), sort_keys=True).encode()
            beside = path.with_name("study.json").exists()
            if path.name in TIMED or (beside and path.suffix in (".html", ".md")):
                content = b""
            found[name] = hashlib.sha256(content).hexdigest()
        elif not any(path.iterdir()):
            found[f"{name}/"] = ""
    return found


def held(folder: Path) -> int:
    """How many files are locked by somebody."""
    count = 0
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            count += 1
        finally:
            os.close(handle)
    return count


def whole(words: list[str], folder: Path) -> None:
    """A process that nothing happens to."""
    subprocess.run([sys.executable, "-m", "bayesmf", *words], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, **SETTINGS})  # fmt: skip


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


def measure(case: Case, base: Path) -> None:
    """What an undisturbed run leaves, and how long it takes when everything is loaded."""
    start, end = base / f"{case.name} before", base / f"{case.name} after"
    end.mkdir()
    whole(case.words, end)
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
    if finish(fork(case.words, folder)) != 0:
        raise SystemExit(f"{case.name}: {(base / 'log').read_text()}")
    case.seconds = time.monotonic() - began
    same = digests(folder)
    if same != case.after:
        raise SystemExit(f"{case.name}: not the same twice: {differences(same, case.after)}")
    shutil.rmtree(folder)
    case.steps = int((base / "steps").read_text())


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def disturb(
    case: Case, folder: Path, rng: random.Random, kind: str, at: int = 0
) -> tuple[str, int]:
    """Run a command and signal it once; returns how it ended, and its session."""
    number = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}[kind]
    if at or (rng.random() < 0.5 and case.steps):
        child = fork(case.words, folder, at or rng.randint(1, case.steps), signalling(number))
        code = wait(child, PATIENCE if kind != "stop" else 2 * case.seconds)
    else:
        child = fork(case.words, folder)
        code = wait(child, rng.uniform(0, case.seconds))
        if code is None:
            os.kill(child, number)
        else:
            case.seconds *= 0.9  # the machine is quicker by now
            return f"ended ({code})", child
    end = time.monotonic() + PATIENCE
    while kind == "stop" and code is None and time.monotonic() < end:
        os.kill(child, signal.SIGCONT)  # again and again: a step may come later than the clock says
        code = wait(child, 0.1)
    if kind == "stop" and code == 0:
        return "went on", child
    code = finish(child) if code is None else code
    expected = {"kill": (-signal.SIGKILL,), "term": (128 + signal.SIGTERM, -signal.SIGTERM)}
    if code in expected.get(kind, ()):
        return "killed", child
    return f"ended ({code})", child


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
        code = finish(fork(case.words, folder))
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


def ask(port: int, path: str, body: Any = None) -> Any:
    status, text = request(port, path, body)
    if status != 200:
        raise SystemExit(f"{path}: {status} {text!r}")
    return json.loads(text)


def started(base: Path, child: int) -> int:
    """The port of a service, or 0 if it ends before it has begun."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        told = re.search(r"http://127.0.0.1:(\d+)/", (base / "log").read_text())
        if told:
            return int(told[1])
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return 0
        time.sleep(0.02)
    return 0


class Serving:
    """A service that saves what it is told, or that loads what others save; killed as it does."""

    def __init__(self, base: Path, reloads: bool) -> None:
        self.base, self.reloads = base, reloads
        self.name = "serve, reloading" if reloads else "serve, saving"
        self.words = ["serve", "live", "--port", "0", "--rate", "0"]
        self.words += ["--reload-on-change"] if reloads else ["--allow-updates", "--save", "saved"]
        folder = self.begin()
        self.model = digests(folder, "live")
        self.saved: list[dict[str, str]] = [{}]
        child = fork(self.words, folder)
        port = started(base, child)
        began = time.monotonic()
        for body in UPDATES if not reloads else ():
            ask(port, "/api/update", body)
            self.saved.append(digests(folder, "saved"))
        self.seconds = 1.5 if reloads else 1.2 * (time.monotonic() - began)
        self.answer = ask(port, "/api/model")
        self.end(child)
        self.steps = int((base / "steps").read_text())
        shutil.rmtree(folder)

    def begin(self) -> Path:
        folder = self.base / "round"
        folder.mkdir()
        shutil.copytree(self.base / "m" / "model", folder / "live")
        return folder

    def end(self, child: int) -> None:
        os.kill(child, signal.SIGTERM)
        code = finish(child)
        if code != 0:
            raise SystemExit(f"{self.name}: ended by {code}: {(self.base / 'log').read_text()}")

    def replace(self, folder: Path) -> None:
        import bayesmf

        fit = bayesmf.load_model(self.base / "m2" / "model", threads=1)
        fit.save(folder / "live", overwrite=True)

    def one_round(self, rng: random.Random, kind: str, found: Counter[str]) -> None:
        folder, number = self.begin(), signal.SIGKILL if kind == "kill" else signal.SIGTERM
        at = 0 if self.reloads or rng.random() < 0.5 else rng.randint(1, self.steps)
        child = fork(self.words, folder, at, signalling(number))
        port, known = started(self.base, child), 0
        if self.reloads:
            self.replace(folder)
            time.sleep(rng.uniform(0, self.seconds))
        else:
            helper = 0 if at else self.later(child, rng.uniform(0, self.seconds), number)
            with contextlib.suppress(OSError, http.client.HTTPException):
                for body in UPDATES if port else ():
                    ask(port, "/api/update", body)
                    known += 1
            if helper:
                os.waitpid(helper, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        code = finish(child)
        if code not in (-number, 0 if kind == "term" else -number, 128 + number):
            found["failed"] += 1
            print(f"FAILED {self.name} {code}: {(self.base / 'log').read_text()[-600:]}")
        found[kind] += 1
        found["processes"] += survivors(child)
        found["locks"] += held(folder)
        expected = digests(self.base / "m2", "model") if self.reloads else {}
        expected = {name.replace("model/", "live/", 1): sum_ for name, sum_ in expected.items()}
        if digests(folder, "live") != (expected or self.model):
            found["losses"] += 1
            print(f"LOSS {self.name}: the model that was served")
        if not self.reloads and digests(folder, "saved") not in self.saved[known:]:
            found["losses"] += 1  # an answer that was given is on the disk
            print(f"LOSS {self.name}: after {known} answers")
        self.serve_again(folder, found)
        shutil.rmtree(folder)

    def later(self, child: int, seconds: float, number: int) -> int:
        """A process that sends the signal while this one waits for answers."""
        helper = os.fork()
        if helper == 0:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
            os._exit(0)
        return helper

    def serve_again(self, folder: Path, found: Counter[str]) -> None:
        child = fork(self.words, folder)
        port = started(self.base, child)
        for body in UPDATES if not self.reloads else ():
            ask(port, "/api/update", body)
        if not self.reloads and ask(port, "/api/model") != self.answer:
            found["differing"] += 1
        self.end(child)
        if not self.reloads:
            found["differing"] += digests(folder, "saved") != self.saved[-1]
        names = {path.name for path in folder.iterdir()}
        found["litter"] += len(names - {"live", "saved"})


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


def main(rounds: str, names: list[str]) -> int:
    os.environ.update(SETTINGS)
    import bayesmf.cli.main
    import bayesmf.serve.run  # noqa: F401

    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        prepare(base)
        inputs = digests(base)
        cases = [case for case in CASES if not names or case.name in names]
        for case in cases:
            warm(case, base)
            measure(case, base)
            print(f"{case.name}: {case.seconds:.2f} s, {case.steps} steps", flush=True)
        began = time.monotonic()
        if rounds == "steps":
            table = play_steps(base, cases)
        else:
            players: list[tuple[str, Play]] = [
                (case.name, partial(one_round, case, base)) for case in cases
            ]
            for reloads in (False, True) if not names or "serve" in names else ():
                serving = Serving(base, reloads)
                players.append((serving.name, serving.one_round))
            table = play_at_random(players, int(rounds))
        now = digests(base)
        if any(now.get(key) != value for key, value in inputs.items()):
            table["what the commands read"] = Counter(losses=1)
    return tell(table, time.monotonic() - began)


def warm(case: Case, base: Path) -> None:
    """Run a command here once, so that those that are forked find its code loaded."""
    from click.testing import CliRunner

    from bayesmf.cli.main import main as run

    if case.name == "study":
        return  # its workers are processes of their own
    folder, here = base / "warm", Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    done = CliRunner().invoke(run, case.words)
    os.chdir(here)
    shutil.rmtree(folder)
    if done.exit_code:
        raise SystemExit(f"{case.name}: {done.output}")


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
