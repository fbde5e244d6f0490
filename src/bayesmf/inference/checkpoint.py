"""A Gibbs run in a folder, to go on from after it was killed.

One file, replaced whole, says what there is: a line with the format and a sha256, then the arrays
and the facts (JSON) as safetensors. Beside it are files that are written once, so that a save costs
no more as the run grows: the MAP start, the last state of each finished chain, each kept draw. They
count only if the one file names them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesmf
from bayesmf.data.io.atomic import locked, whole_file
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.inference.chains import Chains
from bayesmf.inference.loop import Clock
from bayesmf.inference.target import RunningMoments
from bayesmf.model.state import State, check_start, from_arrays, to_arrays

FORMAT = 2
MAGIC, MAIN, LOCK = "bayesmf-checkpoint", "run.checkpoint", ".lock"
OURS = re.compile(r"run\.checkpoint|(start|chain-\d+|draw-\d+)\.safetensors")
STALE = re.compile(rf"\.({OURS.pattern})\..*")  # what a killed process was writing
Arrays = Mapping[str, NDArray[Any]]


def describe_run(
    run: Chains, start: object, parts: Mapping[str, Ratings | Shards | None]
) -> dict[str, Any]:
    """All that decides the bits of a run; threads do not."""
    settings = {
        key: value
        for key, value in vars(run.sampler).items()
        if key not in ("model", "threads", "engine")
    }
    facts = {
        "version": bayesmf.__version__,
        "model": run.sampler.model.to_dict(),
        **settings,
        "keep": run.draws_each,
        "engine": run.engine.describe(run.data),
        "start": _sum(_pack(to_arrays(start))) if isinstance(start, State) else str(start),
        "patience": None if run.judge is None else run.patience,
        "ratings": {
            name: None if part is None else part.fingerprint() for name, part in parts.items()
        },
    }
    found: dict[str, Any] = json.loads(json.dumps(facts, default=lambda value: value.item()))
    return found


@contextlib.contextmanager
def open_checkpoint(
    folder: Path, run: Chains, facts: Mapping[str, Any], every: float, resume: bool
) -> Iterator[Checkpoint]:
    """The checkpoint of a run in a folder that is its own as long as it lasts."""
    if not 0 <= every < math.inf:
        raise DataError(f"every={every}: choose a number of seconds, 0 or more")
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
        if self.start is not None:
            self._once("start", to_arrays(self.start))
        for number, state in enumerate(run.states if run.resting else run.states[:-1]):
            self._once(f"chain-{number}", to_arrays(state))
        kept = run.kept.arrays
        for number in range(len(run.kept)):
            self._once(f"draw-{number}", {name: values[number] for name, values in kept.items()})
        facts, arrays = _collect(run)
        facts.update(run=self.facts, sums=self._sums, seconds=clock.seconds)
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        body = _pack({**arrays, "facts": text})
        _write(self.folder / MAIN, f"{MAGIC} {FORMAT} {_sum(body)}\n".encode(), body)

    def _once(self, name: str, arrays: Arrays) -> None:
        if name not in self._sums:
            content = _pack(arrays)
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
            self._sums = dict(facts["sums"])
            if "start" in self._sums:
                self.start = from_arrays(self._part("start"), run.data)
            for number, chain in enumerate(facts["kept"]):
                run.kept.put(self._part(f"draw-{number}"), chain)
            finished = facts["chains"] - (not facts["resting"])
            states = [self._part(f"chain-{number}") for number in range(finished)]
            if not facts["resting"]:
                states.append(
                    {
                        name.removeprefix("state."): values
                        for name, values in arrays.items()
                        if name.startswith("state.")
                    }
                )
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
                elif name == "start":
                    what = "another start"
                elif name == "engine.spans":
                    what = "users in other blocks (Ray's resident, blocks)"
                raise DataError(
                    f"{self.folder} holds the checkpoint of a run with {what}; resume with what "
                    "it began with, or choose another folder"
                )


def _collect(run: Chains) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a run knows, but for the files that are written once."""
    waiting = run.waiting
    arrays: dict[str, NDArray[Any]] = {
        "curve": np.array(run.curve, float),
        "judged": np.array(run.judged, float),
        "waiting": np.array([waiting.best, waiting.at, waiting.seen], float),
    }
    for number, trace in enumerate(run.traces):
        arrays[f"trace.{number}"] = np.array(list(trace.values()), float)
    if not run.resting:
        arrays.update({f"state.{key}": part for key, part in to_arrays(run.states[-1]).items()})
    counts = {}
    for name, target in (("test", run.target), ("validation", run.judge)):
        if target is not None:
            moments = target.moments
            arrays[name] = np.array([moments.mean, moments.squares, moments.noise_variance])
            counts[name] = moments.count
    facts = {
        "chains": len(run.states),
        "resting": run.resting,
        "ended": run.ended,
        "names": list(run.traces[0]) if run.traces else [],
        "counts": counts,
        "kept": run.kept.chains,
    }
    return facts, arrays


def _put_back(run: Chains, facts: Mapping[str, Any], arrays: Arrays, states: list[Arrays]) -> None:
    """The other way round, with the states of all chains."""
    for number, parts in enumerate(states):
        state = from_arrays(parts, run.data)
        check_start(state, run.sampler.model, run.data)  # for its refusals
        if any(parts[name].shape != values.shape for name, values in to_arrays(state).items()):
            raise ValueError(f"the state of chain {number + 1} does not fit the model")
        run.states.append(state)
        rows = [row.tolist() for row in arrays[f"trace.{number}"]]
        run.traces.append(dict(zip(facts["names"], rows, strict=True)))
    run.curve, run.judged = arrays["curve"].tolist(), arrays["judged"].tolist()
    run.ended, run.resting = str(facts["ended"]), bool(facts["resting"])
    best, at, seen = arrays["waiting"].tolist()
    run.waiting.best, run.waiting.at, run.waiting.seen = best, int(at), int(seen)
    for name, target, curve in (
        ("test", run.target, run.curve),
        ("validation", run.judge, run.judged),
    ):
        if target is not None:
            if arrays[name].shape != (3, len(target.values)) or len(curve) != sum(run.done):
                raise ValueError(f"its {name} predictions do not fit the ratings or the traces")
            mean, squares, noise_variance = np.array(arrays[name])
            count = int(facts["counts"][name])
            target.moments = RunningMoments(mean, squares, noise_variance, count)


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
