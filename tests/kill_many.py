"""Kill a fit at random moments, resume it, and compare it with one that nothing happened to.

``python tests/kill_many.py N`` does so on the demo data until N fits were killed, and prints how
many were the same.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIT = ["fit", "demo", "--rank", "3", "--sweeps", "60", "--chains", "2", "--burn-in", "10",
       "--validation", "0.1", "--patience", "40", "--threads", "1", "--quiet", "--json",
       "--overwrite"]  # fmt: skip


def begin(out: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "bayesmf", *FIT, "--out", str(out), *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)


def digest(out: Path) -> str:
    """Of all that the fit wrote, the model among it, but the seconds it took."""
    facts = json.loads((out / "fit.json").read_text())
    del facts["seconds"]
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name != "fit.json":
            total.update(path.relative_to(out).as_posix().encode() + path.read_bytes())
    return total.hexdigest()


def killed(folder: Path, moment: float) -> int:
    """One fit, killed ``moment`` seconds after its begin and resumed; 0 if it was done by then."""
    words = ["--checkpoint", str(folder / "run"), "--checkpoint-every", "0", "--resume"]
    first = begin(folder / "out", *words)
    try:
        code = first.wait(moment)
    except subprocess.TimeoutExpired:
        first.kill()
        code = first.wait()
    if code not in (0, -signal.SIGKILL) or begin(folder / "out", *words).wait():
        raise SystemExit("the fit failed")
    return int(code != 0)


def main(rounds: int) -> None:
    same = kills = fits = 0
    with tempfile.TemporaryDirectory() as name:
        started = time.monotonic()
        if begin(Path(name) / "whole").wait():
            raise SystemExit("the fit failed")
        seconds, expected = time.monotonic() - started, digest(Path(name) / "whole")
        while kills < rounds:
            folder = Path(name) / str(fits)
            done = killed(folder, random.Random(fits).uniform(0, seconds))
            kills += done
            seconds *= 1 if done else 0.9  # the machine is quicker by now
            same += digest(folder / "out") == expected
            fits += 1
    print(f"{kills} kills; {same} of {fits} fits are the same as one that was not killed")
    raise SystemExit(same != fits)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
