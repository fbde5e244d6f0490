"""A Gibbs run in a folder, to go on from after it was killed.

One file, replaced whole, says what there is: a line with the format and a sha256, then the traces,
the averages and the facts (JSON) as safetensors. Beside it are files that are written once: the MAP
start, the state of each chain and each kept draw, named by chain and sweep. They count only if the
one file names them, and are deleted when it no longer does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesmf
from bayesmf.checks import check_number
from bayesmf.data.io.atomic import LOCK, locked, whole_file
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.evaluation.diagnostics import SUMMARIES
from bayesmf.fitted.store.kept import Key
from bayesmf.inference.chains import NOT_REACHED, Chains
from bayesmf.inference.convergence import Check
from bayesmf.inference.loop import Clock
from bayesmf.inference.target import RunningMoments
from bayesmf.machine import arithmetic, compare_arithmetic
from bayesmf.model.state import State, check_start, from_arrays, to_arrays

FORMAT = 3
LONG = 500  # characters that nobody wants to compare
MAGIC, MAIN = "bayesmf-checkpoint", "run.checkpoint"
OURS = re.compile(r"run\.checkpoint|(start|(chain|draw)-\d+(-\d+)?)\.safetensors")
STALE = re.compile(rf"\.({OURS.pattern})\..*")  # what a killed process was writing
Arrays = Mapping[str, NDArray[Any]]


def describe_run(
    run: Chains, start: object, parts: Mapping[str, Ratings | Shards | None]
) -> dict[str, Any]:
    """All that decides the bits of a run; threads do not, nor does the most that it may do."""
    apart = ["model", "threads", "engine"]
    if run.sampler.until == "converged":
        apart.append("sweeps")
    settings = {key: value for key, value in vars(run.sampler).items() if key not in apart}
    facts = {
        "version": bayesmf.__version__,
        "model": run.sampler.model.to_dict(),
        **settings,
        "targets": asdict(run.sampler.targets),
        "keep": run.keep,
        "engine": run.engine.describe(run.data),
        "start": _sum(_pack(to_arrays(start))) if isinstance(start, State) else str(start),
        "patience": None if run.judge is None else run.patience,
        "ratings": {
            name: None if part is None else part.fingerprint() for name, part in parts.items()
        },
    }
    found: dict[str, Any] = json.loads(json.dumps(facts, default=lambda value: value.item()))
    return found


def check_saving(folder: Any, every: Any, resume: bool) -> None:
    """Refuse settings of checkpoints that make no sense."""
    check_number("every", every, least=0.0)
    if resume and folder is None:
        raise DataError(f"resume: say from which folder, with {Option('checkpoint', 'DIR')}")


@contextlib.contextmanager
def open_checkpoint(
    folder: Path, run: Chains, facts: Mapping[str, Any], every: float, resume: bool
) -> Iterator[Checkpoint]:
    """The checkpoint of a run in a folder that is its own as long as it lasts."""
    with locked(folder, "another run"):
        names = {entry.name for entry in folder.iterdir()}
        if MAIN in names and not resume:
            raise DataError(
                f"{folder} holds a checkpoint already; go on with {Option('resume', True)}, or "
                "choose another folder"
            )
        for name in filter(STALE.fullmatch, names):
            (folder / name).unlink(missing_ok=True)
        for name in sorted(names):
            if MAIN not in names and not (
                OURS.fullmatch(name) or STALE.fullmatch(name) or name == LOCK
            ):
                raise DataError(f"{folder} holds other files ({name}); choose another folder")
        yield Checkpoint(folder, run, facts, every)


class Checkpoint:
    """What is saved of a run in ``folder``, at most once in ``every`` seconds unless asked for."""

    def __init__(self, folder: Path, run: Chains, facts: Mapping[str, Any], every: float) -> None:
        self.folder, self.run, self.facts, self.every = folder, run, facts, every
        self.start: State | None = None  # a MAP estimate that all chains begin at
        self._sums: dict[str, str] = {}  # of the files that are written once
        self._last = -math.inf

    def save_if_due(self, clock: Clock) -> None:
        """Save if it is time; the time that saving takes does not count."""
        if time.monotonic() - self._last >= self.every:
            self.save(clock)

    def save(self, clock: Clock) -> None:
        """Save now; if that fails, what was saved before stays as it is."""
        try:
            self._save(self.run, clock)
        except DataError as error:
            if not (self.folder / MAIN).exists():
                raise
            raise DataError(
                f"{error.message}; what was saved before is whole, and "
                f"{Option('resume', True)} goes on from it"
            ) from error
        self._last = time.monotonic()

    def _save(self, run: Chains, clock: Clock) -> None:
        before, self._sums = self._sums, {}
        if self.start is not None:
            self._once("start", partial(to_arrays, self.start), before)
        for chain, state in enumerate(run.states):
            self._once(_chain(chain, run.done), partial(to_arrays, state), before)
        for key in run.kept.keys:
            self._once(_draw(key), partial(run.kept.take, key), before)
        facts, arrays = _collect(run)
        facts.update(run=self.facts, sums=self._sums, seconds=clock.seconds)
        facts["arithmetic"] = arithmetic()
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        body = _pack({**arrays, "facts": text})
        _write(self.folder / MAIN, f"{MAGIC} {FORMAT} {_sum(body)}\n".encode(), body)
        wanted = {MAIN, *(f"{name}.safetensors" for name in self._sums)}
        for path in self.folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in wanted:
                path.unlink(missing_ok=True)

    def _once(self, name: str, make: Callable[[], Arrays], before: Mapping[str, str]) -> None:
        if name in before:
            self._sums[name] = before[name]
            return
        content = _pack(make())
        _write(self.folder / f"{name}.safetensors", content)
        self._sums[name] = _sum(content)

    def load(self, clock: Clock) -> None:
        """Bring a run that has not begun to where it was saved, if it was."""
        path, run = self.folder / MAIN, self.run
        if not path.exists():
            return
        facts, arrays = self._open(path)
        try:
            self._compare(facts["run"])
            there = facts.get("arithmetic", arithmetic())
            compare_arithmetic(there, f"the machine that wrote {self.folder}")
            self._sums = dict(facts["sums"])
            if "start" in self._sums:
                self.start = from_arrays(self._part("start"), run.data)
            for chain, sweep in facts["kept"]:
                run.kept.put(self._part(_draw((chain, sweep))), (chain, sweep))
            states = [self._part(_chain(chain, facts["done"])) for chain in range(facts["chains"])]
            _put_back(run, facts, arrays, states)
            clock.earlier = float(facts["seconds"])
        except DataError:
            raise
        except Exception as error:  # whatever else a forged file may say
            raise _damaged(path, f"{type(error).__name__}: {error}") from None
        self._last = time.monotonic()

    def _open(self, path: Path) -> tuple[dict[str, Any], Arrays]:
        head, _, body = _read(path).partition(b"\n")
        words = head[:200].decode("ascii", "replace").split(" ")
        if len(words) != 3 or words[0] != MAGIC:
            raise _damaged(path, "its first line is not that of a checkpoint")
        if words[1] != str(FORMAT):
            raise DataError(
                f"{path} is of format {words[1]}, and this version reads {FORMAT}; go on with the "
                "version that wrote it, or choose another folder"
            )
        if words[2] != _sum(body):
            raise _damaged(path, "its content is not what was saved")
        try:
            arrays = _unpack(body)
            facts: dict[str, Any] = json.loads(arrays["facts"].tobytes())
            return facts, arrays
        except Exception as error:
            raise _damaged(path, str(error)) from None

    def _part(self, name: str) -> Arrays:
        path = self.folder / f"{name}.safetensors"
        content = _read(path)
        if _sum(content) != self._sums[name]:
            raise _damaged(path, "its content is not what was saved")
        return _unpack(content)

    def _compare(self, facts: Mapping[str, Any]) -> None:
        here, there = dict(_flatten(self.facts)), dict(_flatten(facts))
        for name in [*here, *(name for name in there if name not in here)]:
            if here.get(name) != there.get(name):
                what = f"{name}={there.get(name)!r}, not {here.get(name)!r}"
                if name.startswith("ratings."):
                    what = f"other {name.removeprefix('ratings.')} ratings"
                elif len(what) > LONG:  # attributes, whose description may fill pages
                    what = f"another {name}"
                elif name == "start":
                    what = "another start"
                elif name == "engine.spans":
                    what = "users in other blocks (Ray's resident, blocks)"
                raise DataError(
                    f"{self.folder} holds the checkpoint of a run with {what}; resume with what "
                    "it began with, or choose another folder"
                )


def _chain(chain: int, done: Sequence[int]) -> str:
    """What the file with the state of a chain is called."""
    return f"chain-{chain}-{done[chain]}"


def _draw(key: Key) -> str:
    """What the file of a kept draw is called."""
    return f"draw-{key[0]}-{key[1]}"


def _collect(run: Chains) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a run knows, but for the files that are written once."""
    waiting = run.waiting
    arrays: dict[str, NDArray[Any]] = {
        "curve": np.array(run.curve, float),
        "judged": np.array(run.judged, float),
        "waiting": np.array([waiting.best, waiting.at, waiting.seen], float),
    }
    for chain in range(len(run.states)):
        arrays[f"summaries.{chain}"] = np.array(run.summaries[chain], float)
        arrays[f"predictions.{chain}"] = np.array(run.predictions[chain], np.float32)
    counts = {}
    for name, target in (("test", run.target), ("validation", run.judge)):
        if target is not None:
            found = target.moments
            rows = [found.mean, found.squares, found.noise_variance, *found.means]
            arrays[name] = np.array(rows)
            counts[name] = [found.count, *found.counts.tolist()]
    facts = {
        "chains": len(run.states),
        "done": run.done,
        "ended": run.ended,
        "averaged_from": run.averaged_from,
        "check": run.check,
        "counts": counts,
        "kept": run.kept.keys,
    }
    return facts, arrays


def _put_back(run: Chains, facts: Mapping[str, Any], arrays: Arrays, states: list[Arrays]) -> None:
    """The other way round, with the states of all chains."""
    for chain, parts in enumerate(states):
        state = from_arrays(parts, run.data)
        check_start(state, run.sampler.model, run.data)  # for its refusals
        if any(parts[name].shape != values.shape for name, values in to_arrays(state).items()):
            raise ValueError(f"the state of chain {chain + 1} does not fit the model")
        run.states.append(state)
        summaries, predictions = arrays[f"summaries.{chain}"], arrays[f"predictions.{chain}"]
        shape = facts["done"][chain], len(run.watched.cells.user)
        if summaries.shape != (shape[0], len(SUMMARIES)) or predictions.shape != shape:
            raise ValueError(f"the traces of chain {chain + 1} do not fit the sweeps")
        run.summaries.append(summaries.tolist())
        run.predictions.append(list(predictions))
    run.curve, run.judged = arrays["curve"].tolist(), arrays["judged"].tolist()
    run.ended, run.averaged_from = str(facts["ended"]), int(facts["averaged_from"])
    if run.ended == NOT_REACHED and run.rounds < run.sampler.most_sweeps:
        run.ended = ""  # there are more sweeps now
    run.check = None if facts["check"] is None else Check(*facts["check"])
    best, at, seen = arrays["waiting"].tolist()
    run.waiting.best, run.waiting.at, run.waiting.seen = best, int(at), int(seen)
    for name, target, curve, length in (
        ("test", run.target, run.curve, sum(run.done)),
        ("validation", run.judge, run.judged, run.rounds),
    ):
        if target is not None:
            shape = (3 + target.chains, len(target.values))
            if arrays[name].shape != shape or len(curve) != length:
                raise ValueError(f"its {name} predictions do not fit the ratings or the traces")
            mean, squares, noise_variance, *means = np.array(arrays[name])
            count, *counts = facts["counts"][name]
            target.moments = RunningMoments(
                mean,
                squares,
                noise_variance,
                int(count),
                np.array(means).reshape(len(means), len(mean)),
                np.array(counts, np.int64),
            )


def _flatten(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _pack(arrays: Arrays) -> bytes:
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()})


def _unpack(content: bytes) -> Arrays:
    from safetensors.numpy import load

    return load(content)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, *contents: bytes) -> None:
    with whole_file(path) as made, made.open("wb") as stream:
        for content in contents:
            stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())  # a name must not outlive its content when the power fails


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error


def _damaged(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} cannot be resumed from ({why}); restore it from a copy, or begin again in another "
        "folder"
    )
