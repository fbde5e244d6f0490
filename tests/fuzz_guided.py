"""Search for bytes that readers cannot take, guided by the code that they reach.

``python tests/fuzz_guided.py SECONDS [KIND ...]``, with atheris installed (the extra ``fuzz``):
SECONDS of a core are shared by the kinds of tests/fuzz/targets.py, or by those that are named. A
search begins at what is kept in tests/fuzz/corpus and at good files that are made for it, and
changes bytes and values; what reaches code that nothing before has reached is changed further.

Any bytes have to be read, or refused with one sentence of ours: another error, more than a minute
or more than 3 GB of memory is a finding, which goes to the folder of ``--findings``. ``--keep``
adds to the corpus what has reached more, up to so many files of a kind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "fuzz" / "corpus"
KINDS = ("ratings", "attributes", "model", "zip", "checkpoint")  # those of TARGETS
SECONDS, MEGABYTES = 60, 3000  # that a single input may take
LONGEST = 1 << 17  # bytes of an input
SMALL = 1 << 13  # bytes of an input that is kept
GUIDED = ["bayesmf.data", "bayesmf.fitted.store", "bayesmf.fitted.explore.names", "bayesmf.checks",
          "bayesmf.model.spec", "bayesmf.model.attributes", "bayesmf.model.likelihood",
          "bayesmf.inference.checkpoint"]  # fmt: skip


def corpus(kind: str) -> dict[str, bytes]:
    """What is kept of earlier searches, by name."""
    place = CORPUS / f"{kind}.zip"
    if not place.exists():
        return {}
    with zipfile.ZipFile(place) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def keep(kind: str, found: list[bytes], most: int) -> None:
    """Add inputs to the corpus, up to so many: of all sizes, but none that is large."""
    files = corpus(kind)
    small = sorted({content for content in found if len(content) <= SMALL}, key=len)
    step = max(len(small) // max(most - len(files), 1), 1)
    for content in small[::-step]:
        if len(files) < most and content not in files.values():
            files[f"{len(files):03d}"] = content
    with zipfile.ZipFile(CORPUS / f"{kind}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)


def load_guided() -> Any:
    """Load atheris, and the readers so that it sees which of their branches are taken.

    Other modules are left as they are: Numba could not compile what atheris puts into them.
    """
    from importlib.util import find_spec

    import atheris

    spec = find_spec("bayesmf")  # which loads nothing
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    names = [".".join(path.relative_to(root.parent).with_suffix("").parts)
             for path in root.rglob("*.py")]  # fmt: skip
    names = [name.removesuffix(".__init__") for name in names]
    others = [name for name in names if not any(f"{name}.".startswith(f"{one}.") for one in GUIDED)]
    with atheris.instrument_imports(include=["bayesmf"], exclude=others):
        import bayesmf.data.io.load
        import bayesmf.fitted.store.files
        import bayesmf.inference.checkpoint
        import bayesmf.model.attributes  # noqa: F401
    return atheris


class Search:
    """One target, what it did with its inputs, and what went wrong."""

    def __init__(self, kind: str, target: Any, seconds: float, folder: Path) -> None:
        self.kind, self.target, self.folder = kind, target, folder
        self.found: Counter[str] = Counter()
        self.wrong: dict[str, str] = {}  # by the place
        self.end = time.process_time() + seconds

    def __call__(self, content: bytes) -> None:
        if time.process_time() > self.end:
            told = {"found": self.found, "wrong": self.wrong}
            (self.folder / "told.json").write_text(json.dumps(told))
            sys.stderr.flush()
            os._exit(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.found[self.target(content)] += 1
        except Exception as error:
            self.found["wrong"] += 1
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            places = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
            name = f"{type(error).__name__} at {places}"
            if name not in self.wrong:
                self.wrong[name] = f"{name}: {error}"[:600]
                (self.folder / f"wrong-{len(self.wrong)}").write_bytes(content)


def search(kind: str, seconds: float, folder: Path) -> None:
    """Search in this process, until its time is up or the fuzzer ends it."""
    atheris = load_guided()
    from fuzz.targets import TARGETS

    made = folder / "files"
    made.mkdir()
    target = TARGETS[kind](made)
    begin = folder / "corpus"
    begin.mkdir()
    for number, content in enumerate([*target.seeds.values(), *corpus(kind).values()]):
        (begin / f"seed-{number}").write_bytes(content)

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            found: bytes = atheris.Mutate(content, most)
            return found
        return target.mutate(content, rng)[:most]

    options = [f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", f"-max_len={LONGEST}",
               f"-artifact_prefix={folder}/wrong-", "-seed=1", "-len_control=0"]  # fmt: skip
    atheris.Setup(
        [sys.argv[0], *options, str(begin)],
        Search(kind, target, seconds, folder),
        custom_mutator=mutate,
    )
    atheris.Fuzz()


def run(kind: str, seconds: float, most: int = 0, findings: Path | None = None) -> dict[str, Any]:
    """Search in a process of its own; returns what was tried, reached and found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [sys.executable, __file__, "--inside", name, str(seconds), kind]
        done = subprocess.run(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        reached = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", done.stderr)
        told = {"found": {}, "wrong": {}}
        if (folder / "told.json").exists():
            told = json.loads((folder / "told.json").read_text())
        if done.returncode:
            told["wrong"][f"exit code {done.returncode}"] = done.stderr[-2000:]
        for path in folder.glob("wrong-*") if findings is not None else ():
            findings.mkdir(parents=True, exist_ok=True)
            path.rename(findings / f"{kind}-{path.name}")
        if most:
            seeds = (folder / "corpus").iterdir()
            new = [path.read_bytes() for path in seeds if not path.name.startswith("seed-")]
            keep(kind, new, most)
        first, last = (reached[0], reached[-1]) if reached else (("0",) * 3,) * 2
        return {**told, "begun": int(first[0]), "reached": int(last[0]), "inputs": int(last[2])}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("seconds", type=float, help="of a core, for all kinds together")
    options.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="all, if none is named")
    options.add_argument("--findings", type=Path, help="a folder for inputs that went wrong")
    options.add_argument("--keep", type=int, default=0, help="inputs to keep of each kind")
    options.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    kinds = given.kinds or KINDS
    if given.inside is not None:
        search(kinds[0], given.seconds, given.inside)
    wrong = 0
    print("| kind | tried | refused | read | wrong | places reached by the seeds | at the end |")
    print("|---|" + "--:|" * 6)
    for kind in kinds:
        told = run(kind, given.seconds / len(kinds), given.keep, given.findings)
        found, wrong = told["found"], wrong + len(told["wrong"])
        counts = (sum(found.values()), *(found.get(name, 0) for name in ("refused", "read")))
        print(f"| {kind} | " + " | ".join(f"{count:,}" for count in counts)
              + f" | {len(told['wrong'])} | {told['begun']:,} | {told['reached']:,} |")  # fmt: skip
        for what in told["wrong"].values():
            print(f"WRONG {kind}: {what}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
