"""Start commands as a bare container would: no home, nothing to write to, one processor, 512 MB.

``python tests/containers_many.py`` prints, for each way of being bare, how every command ended and
how much memory it took at most. Only root can do so, on Linux: file systems are made read-only in a
name space of their own, and limits are control groups, which are removed at the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

COMMANDS = {
    "data describe": ["data", "describe", "demo"],
    "predict": ["predict", "m", "pairs.csv"],
    "recommend": ["recommend", "m", "--user", "1", "--quiet"],
    "fold-in": ["fold-in", "m", "new.csv", "--out", "{out}/folded"],
    "fit demo": ["fit", "demo", "--sweeps", "20", "--chains", "2", "--quiet"],
    "fit demo --out": ["fit", "demo", "--sweeps", "20", "--chains", "2", "--quiet", "--out",
                       "{out}/fitted"],
    "serve": ["serve", "m", "--port", "0"],
    "summary": ["summary", "m", "--out", "{out}/page.html"],
}  # fmt: skip
LONG = {"fit demo, 4 chains": ["fit", "demo", "--sweeps", "100", "--quiet"]}
GROUPS = Path("/sys/fs/cgroup")
PATIENCE = 900.0


@contextlib.contextmanager
def limits(**values: str) -> Iterator[list[Path]]:
    """Control groups with these limits, whose names begin with that of a controller."""
    made = []
    try:
        for name, value in values.items():
            controller, _, rest = name.partition("_")
            group = GROUPS / controller / f"bayesmf-{os.getpid()}"
            group.mkdir()
            made.append(group)
            (group / f"{controller}.{rest}").write_text(value)
        yield made
    finally:
        for group in made:
            group.rmdir()


def run(
    words: list[str], env: dict[str, str], folder: Path, groups: list[Path], before: str
) -> str:
    """How a command ended, with the most memory that it took."""

    def join() -> None:
        for group in groups:
            (group / "tasks").write_text(str(os.getpid()))

    script = f'{before}\nexec "$@"'
    command = [*("unshare", "-m", "sh", "-ec", script, "sh"), sys.executable, "-m", "bayesmf"]
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen([*command, *words], cwd=folder, env=env, stdout=told,
                                   stderr=told, preexec_fn=join)  # fmt: skip
        if words[0] == "serve":
            threading.Thread(target=end_service, args=(process.pid, told.fileno())).start()
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        told.seek(0)
        text = told.read()
    lines = [line for line in text.splitlines() if line.startswith(("Error", "Warning"))]
    bad = "Traceback" in text or process.returncode not in (0, 2)
    last = text.strip().splitlines()[-1:] if bad else []
    ended = f"{process.returncode}, {usage.ru_maxrss / 1024:.0f} MB"
    return "; ".join([ended, *dict.fromkeys(lines), *(["WRONG"] if bad else []), *last])


def end_service(process: int, told: int) -> None:
    """Ask a service for its health when it has begun, and end it."""
    from urllib.request import urlopen

    here = Path(f"/proc/{process}")
    while here.exists():  # it is killed when patience ends
        found = re.search(rb"http://127.0.0.1:\d+/", os.pread(told, 10**6, 0))
        if found:
            urlopen(found[0].decode() + "api/health", timeout=60).close()
            break
        time.sleep(0.1)
    else:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


def main() -> int:
    import bayesmf
    from bayesmf.data.synthetic import World, generate

    wrong = 0
    usual = dict(os.environ)
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    read_only = "mount -o remount,bind,ro /\n"
    openmp = importlib.util.find_spec("numba.np.ufunc.omppool")
    hide = f"mount --bind /dev/null '{openmp.origin}'\n" if openmp else ""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir="/dev/shm") as room:
        base = Path(name)
        (base / "pairs.csv").write_text("user,item\n1,1\n2,2\n")
        (base / "new.csv").write_text("user,item,rating\n900,1,4\n900,2,1\n")
        ratings = generate(World(n_users=60, n_items=40, n_ratings=1200, rank=2), seed=1)[0]
        bayesmf.Gibbs(bayesmf.Model(rank=3), sweeps=20, chains=2).fit(ratings).save(base / "m")
        few = {key: COMMANDS[key] for key in ("data describe", "predict", "fold-in")}
        ways = [
            ("as usual", usual, {}, "", {**COMMANDS, **LONG}),
            ("1 processor of a group", usual, {"cpu_cfs_quota_us": "100000"}, "", COMMANDS),
            ("512 MB of a group", usual, {"memory_limit_in_bytes": "512M"}, "",
             {**COMMANDS, **LONG}),
            ("no OpenMP", usual, {}, hide, COMMANDS),
            ("no home, all read-only, TMPDIR", {**bare, "TMPDIR": room}, {}, read_only, COMMANDS),
            ("no home, all read-only, no TMPDIR", bare, {},
             f"{read_only}mount -o remount,bind,ro /dev/shm\n", few),
        ]  # fmt: skip
        for number, (way, env, values, before, commands) in enumerate(ways):
            for what, words in commands.items():
                (Path(room) / str(number)).mkdir(exist_ok=True)
                with limits(**values) as groups:
                    told = run([word.format(out=f"{room}/{number}") for word in words], env, base,
                               groups, before)  # fmt: skip
                wrong += "WRONG" in told
                print(f"| {way} | {what} | {told} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
