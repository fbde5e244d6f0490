"""Draws kept on request: float32, in memory or in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bayesmf.errors import DataError
from bayesmf.model.state import State, from_arrays, to_arrays

FACTS = "draws.json"


class Kept:
    """Up to ``most`` states of a run, one array a parameter with the draw as its first axis.

    With a ``folder`` the arrays are files that the machine pages in and out, so that memory does
    not grow with the number of draws.
    """

    def __init__(self, most: int, folder: Path | None = None) -> None:
        self.most, self.folder = most, folder
        self.chains: list[int] = []
        self._arrays: dict[str, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self.chains)

    def add(self, state: State, chain: int) -> None:
        """Keep a state."""
        self.put(to_arrays(state), chain)

    def put(self, arrays: Mapping[str, NDArray[Any]], chain: int) -> None:
        """Keep a state that is in arrays already."""
        for name, values in arrays.items():
            if not len(self):
                self._arrays[name] = self._make(name, (self.most, *values.shape))
            self._arrays[name][len(self)] = values
        self.chains.append(chain)

    def _make(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        if self.folder is None or 0 in shape:
            return np.empty(shape, np.float32)
        return open_memmap(self.folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=shape)

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Every parameter of the draws so far, (draw, ...)."""
        return {name: values[: len(self)] for name, values in self._arrays.items()}

    def __getitem__(self, number: int) -> State:
        """One draw, as a state; the offsets of side features are part of its rows."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"draw {number} of {len(self)}")
        return from_arrays({name: values[number] for name, values in self.arrays.items()})

    def close(self) -> None:
        """Write down what the folder holds."""
        if self.folder is not None:
            for values in self._arrays.values():
                if isinstance(values, np.memmap):
                    values.flush()
            shapes = {name: list(values.shape[1:]) for name, values in self._arrays.items()}
            facts = {"chains": self.chains, "most": self.most, "shapes": shapes}
            (self.folder / FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> Kept:
        """The draws that an earlier run kept in a folder."""
        try:
            facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            kept = cls(int(facts["most"]), folder)
            for name, shape in facts["shapes"].items():
                kept._arrays[name] = (
                    np.empty((kept.most, *shape), np.float32)
                    if 0 in shape
                    else np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
                )
                if kept._arrays[name].shape != (kept.most, *shape):
                    raise ValueError(f"{name}.npy has another shape than {FACTS} says")
            kept.chains = [int(chain) for chain in facts["chains"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{folder}: not a folder of kept draws ({error}); choose one that a fit with "
                "keep_in wrote"
            ) from error
        return kept
