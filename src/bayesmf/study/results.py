"""A results folder: one JSON file and one npz file for each run, written once and as a whole."""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.io.atomic import to_json, whole_file, whole_folder
from bayesmf.errors import DataError
from bayesmf.model.state import State, from_arrays

FORMAT = 2
STUDY, RESULT, ARRAYS, TIMES = "study.json", "result.json", "arrays.npz", "times.jsonl"


@dataclass(frozen=True)
class Result:
    """The facts and arrays that one run left."""

    facts: dict[str, Any]
    path: Path

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def array(self, name: str) -> NDArray[Any]:
        """Read an array: a curve, or values by user or item."""
        with _reading_arrays(self.path) as arrays:
            return np.asarray(arrays[name])


@contextlib.contextmanager
def _reading(place: Path) -> Iterator[None]:
    """Say in one sentence that the files of a run are damaged, or gone."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{place}: cannot be read ({error}); delete it and run the study with --resume"
        ) from error


@contextlib.contextmanager
def _reading_arrays(place: Path) -> Iterator[Any]:
    with (
        _reading(place),
        (place / ARRAYS).open("rb") as file,  # np.load leaves a damaged one open
        np.load(file, allow_pickle=False) as arrays,
    ):
        yield arrays


class Results:
    """Reads and writes one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path) -> Results:
        """Open a folder that a study wrote; any other folder is a ``DataError``."""
        results = cls(folder)
        if not (folder / STUDY).is_file():
            raise DataError(
                f"{folder}: there is no {STUDY} in it; name the folder of a study, which is the "
                "--out of bayesmf study"
            )
        _ = results.study
        return results

    @property
    def study(self) -> dict[str, Any]:
        """The facts of the whole study: its data, options and lengths."""
        path = self.folder / STUDY
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); run the study again") from error
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise DataError(
                f"{path} was written by another version of bayesmf; run the study again in a new "
                "folder"
            )
        return facts

    def begin(self, facts: dict[str, Any]) -> None:
        """Write down what is studied."""
        with whole_file(self.folder / STUDY) as path:
            path.write_text(_json({"format": FORMAT, **facts}), encoding="utf-8")

    def place(self, split: int, name: str) -> Path:
        """The folder of a run."""
        return self.folder / f"split-{split}" / name

    def has(self, split: int, name: str) -> bool:
        """Whether a run is done."""
        return (self.place(split, name) / RESULT).is_file()

    def write(
        self, split: int, name: str, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> None:
        """Write what a run left; its folder appears with everything in it."""
        with whole_folder(self.place(split, name)) as made:
            np.savez_compressed(made / ARRAYS, allow_pickle=False, **arrays)
            (made / RESULT).write_text(_json(facts), encoding="utf-8")

    def __getitem__(self, key: tuple[int, str]) -> Result:
        place = self.place(*key)
        with _reading(place):
            facts = json.loads((place / RESULT).read_text(encoding="utf-8"))
        return Result(facts, place)

    def state(self, split: int, name: str) -> State:
        """Read the state of a run, where other runs begin."""
        with _reading_arrays(self.place(split, name)) as arrays:
            return from_arrays(
                {
                    key.removeprefix("state."): arrays[key]
                    for key in arrays.files
                    if key.startswith("state.")
                }
            )

    def splits(self, name: str) -> Iterator[int]:
        """The numbers of the splits for which a run is done."""
        return (k for k in range(int(self.study["splits"])) if self.has(k, name))

    def add_time(self, facts: dict[str, Any]) -> None:
        """Write down times, which differ from one study to the next, apart from the results."""
        with (self.folder / TIMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts, sort_keys=True) + "\n")

    def times(self) -> list[dict[str, Any]]:
        """Read the times of the runs, in the order in which they were done."""
        path = self.folder / TIMES
        if not path.is_file():
            return []
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # cut short by a kill
                continue
        return found


def snake_case(name: str) -> str:
    """The key of a trace in a result: "user precision, least" is user_precision_least."""
    return re.sub(r"\W+", "_", name)


def _json(facts: dict[str, Any]) -> str:
    return to_json(facts, indent=1, sort_keys=True) + "\n"
