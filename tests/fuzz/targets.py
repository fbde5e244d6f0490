"""What a fuzzer feeds with bytes: readers of ratings, attributes, models and checkpoints.

A target is called with bytes. It returns "read" or "refused", and raises anything if the bytes led
to another error than a sentence of ours. ``seeds`` are what a search begins at; ``mutate`` changes
bytes in a way that a fuzzer, which knows nothing of JSON, arrays or checksums, would hardly find.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import bayesmf
from bayesmf import DataError, Gibbs, Model
from bayesmf.data.io.text import read_pairs
from bayesmf.fitted.store.checked import SUMS, sums_of
from bayesmf.fitted.store.files import ARRAYS, FACTS, PARTS
from bayesmf.inference import checkpoint
from bayesmf.model.attributes import Attributes
from fuzz_many import (
    Descriptions,
    Models,
    Ratings,
    check_sentence,
    damage,
    forge_arrays,
    forge_json,
)


class Target(Protocol):
    """A reader, with what a search begins at."""

    seeds: dict[str, bytes]

    def __call__(self, content: bytes) -> str: ...

    def mutate(self, content: bytes, rng: random.Random) -> bytes: ...


def judge(read: Any, *args: Any, **options: Any) -> str:
    """Call a reader that either reads or refuses in a sentence."""
    try:
        read(*args, **options)
    except DataError as error:
        check_sentence(error)
        return "refused"
    return "read"


class RatingsFile:
    """Ratings in any layout, read as ratings and as pairs to predict."""

    def __init__(self, folder: Path) -> None:
        self.path, self.seeds = folder / "ratings", Ratings(folder).files

    def __call__(self, content: bytes) -> str:
        self.path.write_bytes(content)
        found = {
            judge(bayesmf.load, self.path),
            judge(bayesmf.load, self.path, duplicates="mean", ids="text", scale=(1, 5, 1)),
            judge(read_pairs, self.path, {}, timed=True),
        }
        return "read" if "read" in found else "refused"

    def mutate(self, content: bytes, rng: random.Random) -> bytes:
        return damage(content, rng)


class AttributesFile(RatingsFile):
    """Tables of attributes, with a header and without."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seeds = Descriptions(folder).files

    def __call__(self, content: bytes) -> str:
        self.path.write_bytes(content)
        names = ["id", "age", "sex", "genres"]
        found = {judge(Attributes.load, self.path), judge(Attributes.load, self.path, names=names)}
        return "read" if "read" in found else "refused"


class ModelParts:
    """One part of a saved model, under checksums that are right.

    The first byte says which part of which model; the others are its content.
    """

    def __init__(self, folder: Path) -> None:
        self.models, self.folder = Models(folder), folder / "forged"
        self.parts = [name for name in PARTS if name != SUMS]
        self.seeds = {}
        for number, (good, _) in enumerate(self.models.kinds):
            for part, name in enumerate(self.parts):
                if (good / name).is_file():
                    first = bytes([number << 5 | part])
                    self.seeds[f"{number} {name}"] = first + (good / name).read_bytes()

    def of(self, content: bytes) -> tuple[Path, str]:
        """Which model it is a part of, and which part."""
        first = content[0] if content else 0
        kinds = self.models.kinds
        return kinds[(first >> 5) % len(kinds)][0], self.parts[(first & 31) % len(self.parts)]

    def __call__(self, content: bytes) -> str:
        good, name = self.of(content)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(good, self.folder)
        (self.folder / name).write_bytes(content[1:])
        files = {one.name: one.read_bytes() for one in self.folder.iterdir() if one.name != SUMS}
        (self.folder / SUMS).write_bytes(sums_of(files))
        return judge(self.models.use, self.folder)

    def mutate(self, content: bytes, rng: random.Random) -> bytes:
        name, first, rest = self.of(content)[1], content[:1], content[1:]
        try:
            if name == FACTS:
                return first + json.dumps(forge_json(json.loads(rest), rng)).encode()
            if name == ARRAYS:
                change = forge_arrays if rng.random() < 0.5 else forge_header
                return first + change(rest, rng)
        except Exception:  # it is none any more
            pass
        return first + damage(rest, rng)


class ModelZip:
    """A model in one file."""

    def __init__(self, folder: Path) -> None:
        self.models, self.path = Models(folder), folder / "forged.zip"
        self.seeds = {
            good.name: good.with_suffix(".zip").read_bytes() for good, _ in self.models.kinds
        }

    def __call__(self, content: bytes) -> str:
        self.path.write_bytes(content)
        return judge(self.models.use, self.path)

    def mutate(self, content: bytes, rng: random.Random) -> bytes:
        return damage(content, rng)


class CheckpointFile:
    """The main file of a checkpoint behind its first line, under a checksum that is right."""

    def __init__(self, folder: Path) -> None:
        models = Models(folder)
        self.train, self.test, self.folder = models.train, models.test, folder / "run"
        self.fit(resume=False)
        self.good = folder / "good"
        shutil.copytree(self.folder, self.good)
        body = (self.good / checkpoint.MAIN).read_bytes().partition(b"\n")[2]
        self.seeds = {"body": body}

    def fit(self, resume: bool) -> None:
        sampler = Gibbs(Model(rank=2), sweeps=6, burn_in=1, keep=3, chains=2, seed=0, threads=1)
        sampler.fit(self.train, self.test, checkpoint=self.folder, every=0, resume=resume)

    def __call__(self, content: bytes) -> str:
        shutil.rmtree(self.folder)
        shutil.copytree(self.good, self.folder)
        total = hashlib.sha256(content).hexdigest()
        first = f"{checkpoint.MAGIC} {checkpoint.FORMAT} {total}\n".encode()
        (self.folder / checkpoint.MAIN).write_bytes(first + content)
        return judge(self.fit, resume=True)

    def mutate(self, content: bytes, rng: random.Random) -> bytes:
        from safetensors.numpy import load, save

        try:
            kind = rng.randrange(3)
            if kind == 0:
                return forge_arrays(content, rng)
            if kind == 1:
                return forge_header(content, rng)
            arrays = load(content)
            facts = forge_json(json.loads(arrays["facts"].tobytes()), rng)
            text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
            return save({**arrays, "facts": text})
        except Exception:  # it is none any more
            return damage(content, rng)


def forge_header(content: bytes, rng: random.Random) -> bytes:
    """Arrays of which the description, which stands before them, says something else."""
    size = int.from_bytes(content[:8], "little")
    text = json.dumps(forge_json(json.loads(content[8 : 8 + size]), rng)).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


TARGETS: dict[str, type[Target]] = {
    "ratings": RatingsFile,
    "attributes": AttributesFile,
    "model": ModelParts,
    "zip": ModelZip,
    "checkpoint": CheckpointFile,
}
