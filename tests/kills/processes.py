"""Commands in processes of their own, which are signalled at a moment or at a step."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kills.cases import Case

STEPS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.chmod",
         "os.listdir", "os.scandir"}  # fmt: skip
SETTINGS = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PATIENCE = 120.0  # seconds for what takes few


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


def begin(case: Case, folder: Path, at: int = 0, do: Callable[[], object] = lambda: None) -> int:
    """Run the command of a case; ``at`` and ``do`` are those of ``fork``."""
    return fork(case.words, folder, at, do, case.first or (lambda: None))


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


def whole(words: list[str], folder: Path) -> None:
    """A process that nothing happens to."""
    subprocess.run([sys.executable, "-m", "bayesmf", *words], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, **SETTINGS})  # fmt: skip


def disturb(
    case: Case, folder: Path, rng: random.Random, kind: str, at: int = 0
) -> tuple[str, int]:
    """Run a command and signal it once; returns how it ended, and its session."""
    number = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}[kind]
    if at or (rng.random() < 0.5 and case.steps):
        child = begin(case, folder, at or rng.randint(1, case.steps), signalling(number))
        code = wait(child, PATIENCE if kind != "stop" else 2 * case.seconds)
    else:
        child = begin(case, folder)
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
