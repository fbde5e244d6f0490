"""Draws kept on request, in memory or in a folder; draws that new rows join when asked for.

They are float32, or half of it for each rating.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from bayesmf.errors import DataError
from bayesmf.model.effects import BY_RATING
from bayesmf.model.state import State, from_arrays, to_arrays

Floats = NDArray[np.float32]
T = TypeVar("T")
FACTS = "draws.json"
Key = tuple[int, int]  # the chain of a draw, and its sweep, counted from the start of the run


def kept_as(name: str) -> type[np.floating[Any]]:
    """The type in which an array of a draw is kept, by its name."""
    return np.float16 if f".{BY_RATING}" in name else np.float32


class Kept:
    """Up to ``most`` states of a run, one array a parameter with the draw as its first axis.

    While a run goes on, draws may be dropped and others take their place; ``arrange`` puts those
    that are left in order, chain after chain. With a ``folder`` the arrays are files that the
    machine pages in and out, so that memory does not grow with the number of draws.
    """

    def __init__(self, most: int, folder: Path | None = None) -> None:
        self.most, self.folder = most, folder
        self._slots: dict[Key, int] = {}
        self._arrays: dict[str, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def keys(self) -> list[Key]:
        """Chain and sweep of each draw, in the order of both."""
        return sorted(self._slots)

    @property
    def chains(self) -> list[int]:
        """The chain of each draw."""
        return [chain for chain, _ in self.keys]

    def add(self, state: State, key: Key) -> None:
        """Keep a state."""
        self.put(to_arrays(state), key)

    def put(self, arrays: Mapping[str, NDArray[Any]], key: Key) -> None:
        """Keep a state that is in arrays already."""
        taken = set(self._slots.values())
        slot = next(number for number in range(self.most) if number not in taken)
        for name, values in arrays.items():
            if name not in self._arrays:
                self._arrays[name] = self._make(name, (self.most, *values.shape))
            self._arrays[name][slot] = values
        self._slots[key] = slot

    def extend(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Make room for one more array of each draw: (draw, ...), in the order of the others."""
        self._arrays[name] = self._make(name, (self.most, *shape))
        return self._arrays[name][: len(self)]

    def drop(self, keys: Collection[Key]) -> None:
        """Forget some draws."""
        for key in keys:
            del self._slots[key]

    def take(self, key: Key) -> dict[str, NDArray[np.float32]]:
        """The arrays of one draw."""
        return {name: values[self._slots[key]] for name, values in self._arrays.items()}

    def arrange(self) -> None:
        """Put the draws in the order of ``keys``, and give back the room that none of them uses."""
        at = {slot: key for key, slot in self._slots.items()}
        for number, key in enumerate(self.keys):
            slot = self._slots[key]
            if slot != number:  # the two change places
                for values in self._arrays.values():
                    values[[number, slot]] = values[[slot, number]]
                other = at.pop(number, None)
                at.pop(slot, None)
                if other is not None:
                    self._slots[other], at[slot] = slot, other
                self._slots[key], at[number] = number, key
        if len(self) < self.most:
            self.most = len(self)
            self._arrays = {name: self._shrink(name) for name in self._arrays}

    def _shrink(self, name: str) -> NDArray[np.float32]:
        """The first draws of an array in an array of their own, which replaces the file."""
        values = self._arrays[name]
        if not isinstance(values, np.memmap):
            return values[: self.most].copy()
        assert self.folder is not None
        path = self.folder / f"{name}.npy"
        path.rename(path.with_suffix(".old"))
        found = self._make(name, (self.most, *values.shape[1:]))
        for number in range(self.most):
            found[number] = values[number]
        path.with_suffix(".old").unlink()
        return found

    def _make(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        if self.folder is None or 0 in shape:
            return np.empty(shape, kept_as(name))
        kind = kept_as(name)
        return open_memmap(self.folder / f"{name}.npy", mode="w+", dtype=kind, shape=shape)

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Every parameter of the draws, (draw, ...), in order once they were arranged."""
        return {name: values[: len(self)] for name, values in self._arrays.items()}

    def __getitem__(self, number: int) -> State:
        """One draw, as a state; the offsets of side features are part of its rows."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"draw {number} of {len(self)}")
        arrays = self.take(self.keys[number])
        state = from_arrays(arrays)
        if "user.noise" in arrays:
            state.user.x[:, : state.user.size] += arrays["user.noise"]
        return state

    def close(self) -> None:
        """Write down what the folder holds."""
        if self.folder is not None:
            self.arrange()
            for values in self._arrays.values():
                if isinstance(values, np.memmap):
                    values.flush()
            shapes = {name: list(values.shape[1:]) for name, values in self._arrays.items()}
            facts = {"draws": self.keys, "shapes": shapes}
            (self.folder / FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> Kept:
        """The draws that an earlier run kept in a folder."""
        try:
            facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            keys = _read_keys(facts)
            kept = cls(int(facts.get("most", len(keys))), folder)
            for name, shape in facts["shapes"].items():
                kept._arrays[name] = (
                    np.empty((kept.most, *shape), kept_as(name))
                    if 0 in (kept.most, *shape)
                    else np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
                )
                if kept._arrays[name].shape != (kept.most, *shape):
                    raise ValueError(f"{name}.npy has another shape than {FACTS} says")
            kept._slots = {key: slot for slot, key in enumerate(keys)}
            if kept.keys != keys or len(keys) > kept.most:
                raise ValueError(f"its draws are not in order in {FACTS}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{folder}: not a folder of kept draws ({error}); choose one that a fit with "
                "keep_in wrote"
            ) from error
        return kept


def _read_keys(facts: Mapping[str, Any]) -> list[Key]:
    """Chain and sweep of each draw; the first folders named only chains, so draws are numbered."""
    if "draws" in facts:
        return [(int(chain), int(sweep)) for chain, sweep in facts["draws"]]
    return [(int(chain), number) for number, chain in enumerate(facts["chains"])]


class Deferred(Generic[T]):
    """A field of a frozen dataclass that may be given as a function of nothing.

    The function is called when the field is first read. The default is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, owner: object, kind: type | None = None) -> T | None:
        if owner is None:
            return None
        found = vars(owner)[self._name]
        if callable(found):
            found = vars(owner)[self._name] = found()
        return found  # type: ignore[no-any-return]

    def __set__(self, owner: object, value: T | Callable[[], T | None] | None) -> None:
        vars(owner)[self._name] = value


class _Part(NamedTuple):
    """An array, (draw, row, ...), of which new rows are not yet among the others."""

    base: Floats | None  # None: zeros
    size: int  # rows of base
    new: Floats | Callable[[], Floats]
    order: NDArray[np.int64]  # the number of each row, first in base and then in new

    def rows(self) -> Floats:
        """The new rows."""
        return self.new() if callable(self.new) else self.new

    def add(self, new: Floats | Callable[[], Floats], order: NDArray[np.int64]) -> _Part:
        """The same with more rows; ``order`` numbers those of this part first."""
        mine, more, before = self.rows(), new() if callable(new) else new, len(self.order)
        known = order < before
        own = self.order[np.where(known, order, 0)]
        joined = np.where(known, own, order - before + self.size + mine.shape[1])
        both, is_new = np.concatenate([mine, more], axis=1), joined >= self.size
        used, numbers = np.unique(joined[is_new] - self.size, return_inverse=True)
        joined[is_new] = self.size + numbers  # rows that others have replaced are let go
        return _Part(self.base, self.size, both[:, used], joined)

    def take(self, rows: Any, numbers: Any = slice(None)) -> Floats:
        """Some rows, of every draw or of one."""
        order, new = self.order[rows], self.rows()[numbers]
        old, every = order < self.size, (slice(None),) * (not np.isscalar(numbers))
        axis = len(every)
        out = np.zeros((*new.shape[:axis], len(order), *new.shape[axis + 1 :]), np.float32)
        if self.base is not None:
            out[*every, old] = self.base[numbers][*every, order[old]]
        out[*every, ~old] = new[*every, order[~old] - self.size]
        return out


class JoinedDraws(Mapping[str, Floats]):
    """Draws with new rows among the others; an array is joined when it is asked for."""

    def __init__(
        self,
        draws: Mapping[str, Floats],
        size: int,
        new: Mapping[str, Floats | Callable[[], Floats]],
        order: NDArray[np.int64],
    ) -> None:
        """``order`` has the number of each row: first ``size`` rows of draws, then the new ones.

        New rows may be given as a function of nothing, and arrays that are not there are zero.
        """
        self._names = dict.fromkeys([*draws, *new])
        self._parts: dict[str, _Part] = {}
        if isinstance(draws, JoinedDraws):
            self._parts, draws = dict(draws._parts), draws._arrays
        self._arrays: dict[str, Floats] = dict(draws)
        for name, rows in new.items():
            if name in self._parts:
                self._parts[name] = self._parts[name].add(rows, order)
            else:
                self._parts[name] = _Part(self._arrays.pop(name, None), size, rows, order)

    def __getitem__(self, name: str) -> Floats:
        part = self._parts.get(name)
        if part is not None:
            part = part._replace(new=part.rows())  # which may be drawn only now
            every = [part.take(slice(None), number) for number in range(len(part.rows()))]
            self._arrays[name] = np.stack(every)
            self._parts.pop(name, None)
        return self._arrays[name]

    def put(self, arrays: Mapping[str, Floats]) -> None:
        """Put arrays in place of those of their names."""
        for name, values in arrays.items():
            self._parts.pop(name, None)
            self._arrays[name] = values

    def drop(self, names: Collection[str]) -> None:
        """Forget some arrays."""
        for name in names:
            self._parts.pop(name, None)
            self._arrays.pop(name, None)
            self._names.pop(name, None)

    def part(self, name: str) -> _Part | None:
        """Return an array that is not joined yet; None for all others."""
        return self._parts.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def take_rows(
    draws: Mapping[str, Floats], name: str, rows: Any, numbers: slice | int = slice(None)
) -> Floats:
    """Return some rows of an array, of some draws or of one; nothing is joined for them.

    ``rows`` are numbers or a slice.
    """
    part = draws.part(name) if isinstance(draws, JoinedDraws) else None
    if part is not None:
        return part.take(rows, numbers)
    values: Floats = draws[name][numbers]
    if isinstance(numbers, slice) and not isinstance(rows, slice):
        # values[:, rows] would put the draws of a row side by side, which takes twice as long
        taken: Floats = np.take(values, rows, axis=1)
        return taken
    return values[:, rows] if isinstance(numbers, slice) else values[rows]


def put_arrays(draws: Mapping[str, Floats], more: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """Return draws with other arrays in place of some; nothing is joined for that."""
    if not isinstance(draws, JoinedDraws):
        return {**draws, **more}
    found = JoinedDraws(draws, 0, {}, np.empty(0, np.int64))
    found.put(more)
    return found


def leave_out(draws: Mapping[str, Floats], names: Collection[str]) -> Mapping[str, Floats]:
    """Return draws without some arrays; nothing is joined for that."""
    if not isinstance(draws, JoinedDraws):
        return {name: values for name, values in draws.items() if name not in names}
    found = JoinedDraws(draws, 0, {}, np.empty(0, np.int64))
    found.drop(names)
    return found
