"""Have every command that writes meet a full disk and other hindrances; only root can do so.

``python tests/full_disk.py`` mounts small disks in memory and prints a table; words behind it name
the commands to take, as in kill_commands.py, or the hindrances (full, closed, gone, twice):

- a disk with room for a part of what a command writes, in several sizes, or without a free name;
- a disk that cannot be written, and a folder that this user may not write to;
- a folder that is deleted at one of the steps;
- the same command in two processes at once.

A command that cannot do its work has to end with code 2 and one sentence, leave what was there
before, and no file of its own. When nothing is in its way any more, it has to end with the bytes of
a run that nothing happened to.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kills.cases import CASES, Case
from kills.files import differences, digests
from kills.processes import SETTINGS, finish, fork
from kills.rounds import measure, prepare, warm

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)  # of what a command needs
NOBODY = 65534
PAGE = 4096


@contextlib.contextmanager
def disk(folder: Path, *options: str) -> Iterator[None]:
    """A disk in memory."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", ",".join(("size=32m", *options)), "tmpfs", str(folder)]
    subprocess.run(words, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path, free: int) -> Path:
    """Leave so many bytes free."""
    ballast = folder.parent / "round" / "ballast"
    found = os.statvfs(folder)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * PAGE - free, 1))
    return ballast


def pages(folder: Path) -> int:
    """The bytes that files take up on a disk."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(-(-size // PAGE) * PAGE for size in sizes)


def judge(case: Case, folder: Path, found: Counter[str], code: int | None, what: str) -> None:
    """After a run that something was in the way of."""
    log = (folder.parent / "log").read_text()
    lines = [line for line in log.splitlines() if line.startswith("Error: ")]
    if code == 0:
        found["done all the same"] += 1
    elif code == 2 and len(lines) == 1 and "Traceback" not in log:
        found["a sentence"] += 1
        if case.name not in SEEN:
            SEEN.add(case.name)
            print(f"{case.name}, {what}: {lines[0]}", flush=True)
    else:
        found["wrong"] += 1
        print(f"WRONG {case.name}, {what} ({code}): {log[-1200:]}", flush=True)


SEEN: set[str] = set()


def judge_files(case: Case, folder: Path, found: Counter[str], code: int | None, what: str) -> None:
    """What was there before is whole, and nothing half-written is there."""
    now = digests(folder)
    now.pop("ballast", None)
    for name in case.replaces:
        part = {key: value for key, value in now.items() if within(key, name)}
        whole = [
            {key: value for key, value in kept.items() if within(key, name)}
            for kept in (case.before, case.after)
        ]
        if part not in whole:
            found["losses"] += 1
            print(f"LOSS {case.name}, {what}: {name}", flush=True)
    if code == 2:
        litter = [name for name in now if ".bayesmf" in name]
        found["litter"] += len(litter)
        if litter:
            print(f"LITTER {case.name}, {what}: {litter}", flush=True)


def within(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}/")


def go_on(case: Case, folder: Path, found: Counter[str], what: str) -> None:
    """The same command once more, with nothing in its way."""
    code: int | None = 0
    if digests(folder) != case.after:
        code = finish(fork(case.words, folder))
    now = digests(folder)
    if code != 0 or now != case.after:
        found["not gone on"] += 1
        log = (folder.parent / "log").read_text()[-600:]
        other = differences(now, case.after)
        print(f"NOT GONE ON {case.name}, {what} ({code}): {other} {log}", flush=True)


def full(case: Case, base: Path, found: Counter[str]) -> None:
    """Too little room, in several sizes; and no name free."""
    folder, end = base / "round", base / f"{case.name} after"
    need = pages(end) + PAGE
    for share in SHARES:
        with disk(folder):
            shutil.copytree(base / f"{case.name} before", folder, dirs_exist_ok=True)
            ballast = fill(folder, int(share * need) // PAGE * PAGE)
            code = finish(fork(case.words, folder))
            judge(case, folder, found, code, f"room for {share:.0%}")
            judge_files(case, folder, found, code, f"room for {share:.0%}")
            ballast.unlink()
            go_on(case, folder, found, f"after room for {share:.0%}")
    for names in (0, 2):
        used = len(list((base / f"{case.name} before").rglob("*"))) + 1
        with disk(folder, f"nr_inodes={used + names}"):
            shutil.copytree(base / f"{case.name} before", folder, dirs_exist_ok=True)
            code = finish(fork(case.words, folder))
            judge(case, folder, found, code, f"{names} names free")
            judge_files(case, folder, found, code, f"{names} names free")
            subprocess.run(["mount", "-o", "remount,nr_inodes=9999", str(folder)], check=True)
            go_on(case, folder, found, f"after {names} names free")


def closed(case: Case, base: Path, found: Counter[str]) -> None:
    """A disk that cannot be written, and a folder of somebody else."""
    folder = base / "round"
    with disk(folder):
        shutil.copytree(base / f"{case.name} before", folder, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        code = finish(fork(case.words, folder))
        judge(case, folder, found, code, "a disk that is read-only")
        judge_files(case, folder, found, code, "a disk that is read-only")
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        code = finish(fork(case.words, folder, first=lambda: os.setresuid(*[NOBODY] * 3)))
        judge(case, folder, found, code, "no permission")
        judge_files(case, folder, found, code, "no permission")
        go_on(case, folder, found, "after no permission")


def gone(case: Case, base: Path, found: Counter[str]) -> None:
    """The folder is emptied, and with it where the output goes, at some of the steps."""
    folder, rng = base / "round", random.Random(case.name)

    def empty() -> None:
        for entry in list(folder.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    for _ in range(4 if case.steps else 0):
        shutil.copytree(base / f"{case.name} before", folder)
        at = rng.randint(1, case.steps)
        code = finish(fork(case.words, folder, at, empty))
        judge(case, folder, found, code, f"the folder is emptied at step {at}")
        go_on(case, folder, found, f"after it was emptied at step {at}")
        shutil.rmtree(folder)


def twice(case: Case, base: Path, found: Counter[str]) -> None:
    """Two processes in one folder."""
    folder = base / "round"
    for pause in (0.0, case.seconds / 3):
        shutil.copytree(base / f"{case.name} before", folder)
        first = fork(case.words, folder)
        time.sleep(pause)
        second = fork(case.words, folder)
        codes = [finish(first), finish(second)]
        if 0 not in codes:
            found["wrong"] += 1
            print(f"WRONG {case.name}: neither of two ({codes})", flush=True)
        judge(case, folder, found, max(codes, key=lambda code: 99 if code is None else code), "two")
        judge_files(case, folder, found, max(code or 0 for code in codes), "two")
        go_on(case, folder, found, "after two")
        shutil.rmtree(folder)


def main(names: list[str]) -> int:
    os.environ.update(SETTINGS)
    import bayesmf.cli.main
    import bayesmf.report.write
    import bayesmf.study.runner  # noqa: F401, which somebody else may not be able to read later

    ways = {way.__name__: way for way in (full, closed, gone, twice)}
    chosen = [ways[name] for name in names if name in ways] or list(ways.values())
    taken = [name for name in names if name not in ways]
    cases = [case for case in CASES if case.name in taken or not taken]
    table: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        base.chmod(0o755)
        prepare(base)
        for case in cases:
            warm(case, base)
            measure(case, base)
            writes = case.before != case.after
            for hinder in chosen if writes else (twice,):
                hinder(case, base, table.setdefault(hinder.__name__, Counter()))
    columns = ("a sentence", "done all the same", "wrong", "losses", "litter", "not gone on")
    print("| hindrance | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns))
    for hindrance, found in table.items():
        print(f"| {hindrance} | " + " | ".join(str(found[one]) for one in columns) + " |")
    return int(any(found[one] for found in table.values() for one in columns[2:]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
