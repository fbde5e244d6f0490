"""Everything a chain knows at one moment, and the ratings in the form the kernels take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings, Rows
from bayesmf.errors import DataError
from bayesmf.kernels.designs import offsets_of_strips, pattern, strips
from bayesmf.kernels.gram import padded
from bayesmf.kernels.rows import Observed, batches
from bayesmf.model.spec import Model
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Array = NDArray[np.float64]
Name = Literal["user", "item"]
Values = tuple[Any, ...]
Work = Callable[..., tuple[Array, ...]]


@dataclass(frozen=True)
class RowPriors:
    """A Gaussian for each row, known beforehand: x_i ~ N(P_i^-1 h_i, P_i)."""

    precision: Array  # P_i, lower triangles row by row
    linear: Array  # h_i = P_i times the mean


@dataclass(frozen=True)
class SideData:
    """The ratings by the rows of one side; an item is a user of the transposed data."""

    name: Name
    observed: Any  # Observed; an engine may keep it elsewhere
    counts: NDArray[np.int64]
    power: float
    priors: RowPriors | None = None  # in place of the hierarchical prior, which learns

    @property
    def shrink(self) -> Array:
        """c_i = n_i^-p, and 0 for a row without ratings."""
        n = np.maximum(self.counts, 1).astype(float)
        return np.where(self.counts > 0, n**-self.power, 0.0)

    def run(self, work: Work, shared: Values, by_row: Values) -> tuple[Array, ...]:
        """Arrays with an entry for each row: work(self, *shared, *by_row).

        ``by_row`` are arrays with an entry for each row. What comes out for a row may not depend on
        the others, so that another engine may do the work in parts of the rows.
        """
        return work(self, *shared, *by_row)

    def run_strips(self, work: Work, shared: Values, by_strip: Values) -> tuple[Array, ...]:
        """The same for strips of columns: work(self, first strip, *shared, *by_strip)."""
        return work(self, 0, *shared, *by_strip)


def side_data(rows: Rows, name: Name, mean: float, power: float, first: int = 0) -> SideData:
    """Rows of one side, of which ``first`` is the number of the first."""
    order = batches(rows.counts)
    order.flags.writeable = False  # as the ratings are: the kernels are compiled for that
    observed = Observed(rows.starts, rows.index, rows.values, mean, order, first)
    return SideData(name, observed, rows.counts, power)


@dataclass(frozen=True)
class Data:
    """Training ratings, both ways, centred by their mean."""

    user: SideData
    item: SideData
    mean: float
    size: int

    @classmethod
    def of(cls, ratings: Ratings, model: Model, mean: float | None = None) -> Data:
        """Prepare ratings for a model; ``mean`` is that of the training ratings if others are."""
        mean = ratings.mean if mean is None else mean
        sides: list[SideData] = []
        names: tuple[Name, Name] = ("user", "item")
        for name, rows in zip(names, (ratings.by_user, ratings.by_item), strict=True):
            sides.append(side_data(rows, name, mean, model.side_power))
        return cls(sides[0], sides[1], mean, len(ratings))


@dataclass
class Side:
    """The parameters of one side."""

    x: Array  # (rows, padded width): bias, features S (own part and offset together), zeros
    mean: Array  # mu of the own part
    precision: Array  # Lambda of the own part
    noise: Array  # alpha_i
    spread: Array  # Student-t: the precision of row i is this times Lambda
    W: Array  # (rows of the other side, size), or no rows without side features
    W_mean: Array
    W_precision: Array
    offset: Array  # c_i sum of W over the rated set; no rows without side features

    @property
    def size(self) -> int:
        """Columns that are parameters."""
        return len(self.mean)

    @property
    def own(self) -> Array:
        """U_i = S_i - offset_i, with the bias."""
        values = self.x[:, : self.size]
        return values - self.offset if len(self.offset) else values

    def at(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """x and noise of some rows, whose numbers ascend."""
        return self.x[rows], self.noise[rows]

    def plain(self) -> Side:
        """The same with all its rows here; an engine may keep them elsewhere."""
        return self


@dataclass
class State:
    """One point of the parameter space."""

    user: Side
    item: Side
    tau: float
    sweep: int = 0

    def sides(self, name: Name) -> tuple[Side, Side]:
        """The side of this name, and the other."""
        return (self.user, self.item) if name == "user" else (self.item, self.user)

    def width(self) -> tuple[int, ...]:
        """Tells the kernels, by its length, how wide the rows are."""
        return (0,) * int(self.item.x.shape[1])


START_SD, START_COUNT = 0.3, 400.0


def random_start(model: Model, data: Data, seed: int, chain: int = 0) -> State:
    """Small random values everywhere, unit precisions.

    A block's spread and its prior precision follow one another slowly, so the start matters for
    hundreds of sweeps. Biases begin at a plausible spread, features well below it, rows with few
    ratings lowest of all, because the chain grows what the data ask for faster than it shrinks
    what they do not. Nothing begins at zero, from which it would hardly move.
    """
    draws = Draws(seed, chain)
    sides = []
    for mine, other in ((data.user, data.item), (data.item, data.user)):
        rows, others, size = len(mine.counts), len(other.counts), model.size
        x = start_rows(model, mine.counts, stream(draws, mine.name, "start_rows"))
        has_side = model.has_side(mine.name)
        W = np.zeros((others if has_side else 0, size))
        if has_side:
            first = model.first_side
            sd = START_SD * np.sqrt(other.counts / (other.counts + START_COUNT))
            normals = stream(draws, mine.name, "start_W").normals(others, size - first)
            W[:, first:] = sd[:, None] * normals
        side = Side(
            x, np.zeros(size), np.eye(size), np.ones(rows), np.ones(rows), W, np.zeros(size),
            np.eye(size), np.zeros((rows if has_side else 0, size)),
        )  # fmt: skip
        if has_side:
            refresh_offset(side, mine)
            if not model.has_own(mine.name):
                x[:, 1:size] = side.offset[:, 1:]
        sides.append(side)
    return State(sides[0], sides[1], 1.0)


def start_rows(model: Model, counts: NDArray[np.int64], draws: Draws) -> Array:
    """Small random values of rows with so many ratings."""
    rows, size = len(counts), model.size
    x = np.zeros((rows, padded(size + 1)))
    sd = START_SD * np.sqrt(counts / (counts + START_COUNT))
    x[:, :size] = draws.normals(rows, size)
    x[:, 0] *= START_SD
    x[:, 1:size] *= sd[:, None]
    return x


def refresh_offset(side: Side, data: SideData) -> None:
    """Compute the offsets of one side from its W."""
    shared = (strips(side.W), side.W.shape[1])
    (side.offset,) = data.run(_offsets, shared, (data.shrink,))


def _offsets(data: SideData, cut: Array, columns: int, shrink: Array) -> tuple[Array]:
    out = np.empty((len(shrink), columns))
    offsets_of_strips(pattern(data.observed), cut, shrink, out)
    return (out,)


def checked_start(start: object, model: Model, data: Data) -> State:
    """A copy of a state to begin from, or one sentence why it is none of this model and data.

    Precisions and scales that the model holds at 1 are put there, offsets computed from W.
    """
    if not isinstance(start, State):
        raise DataError(f"start={start!r}: choose 'random', 'map' or the state of a fit")
    state = copy.deepcopy(start)
    for mine, other in ((data.user, data.item), (data.item, data.user)):
        me, _ = state.sides(mine.name)
        rows, size = len(mine.counts), model.size
        shapes = {
            "x": (rows, padded(size + 1)), "mean": (size,), "precision": (size, size),
            "noise": (rows,), "spread": (rows,), "W_mean": (size,), "W_precision": (size, size),
            "W": (len(other.counts) if model.has_side(mine.name) else 0, size),
        }  # fmt: skip
        for name, shape in shapes.items():
            if getattr(me, name).shape != shape:
                raise DataError(
                    f"the start is of another model or other data: {mine.name}.{name} has shape "
                    f"{getattr(me, name).shape}, not {shape}"
                )
        if model.precision == "constant":
            me.noise[:] = 1.0
        elif model.precision == "truncated":
            me.noise = np.clip(me.noise, *model.bounds)
        if model.prior == "gaussian":
            me.spread[:] = 1.0
        me.offset = np.zeros((rows if len(me.W) else 0, size))
        if len(me.W):
            refresh_offset(me, mine)
    return state


PARAMETERS = ("mean", "precision", "noise", "spread", "W", "W_mean", "W_precision")


def to_arrays(state: State) -> dict[str, Array]:
    """Every parameter by a name, without padding; offsets follow from W and the data."""
    out: dict[str, Array] = {"tau": np.array([state.tau]), "sweep": np.array([float(state.sweep)])}
    for name, side in (("user", state.user), ("item", state.item)):
        out[f"{name}.x"] = side.x[:, : side.size]
        out.update({f"{name}.{part}": getattr(side, part) for part in PARAMETERS})
    return out


def from_arrays(arrays: Mapping[str, NDArray[Any]], data: Data | None = None) -> State:
    """The state of ``to_arrays``; with the data its offsets too, and a chain can go on from it."""
    sides = []
    for name in ("user", "item"):
        parts = {part: np.array(arrays[f"{name}.{part}"], float) for part in PARAMETERS}
        values = np.asarray(arrays[f"{name}.x"], float)
        rows, size = values.shape
        x = np.zeros((rows, padded(size + 1)))
        x[:, :size] = values
        has_side = data is not None and len(parts["W"]) > 0
        side = Side(x=x, offset=np.zeros((rows if has_side else 0, size)), **parts)
        if data is not None and has_side:
            refresh_offset(side, data.user if name == "user" else data.item)
        sides.append(side)
    return State(sides[0], sides[1], float(arrays["tau"][0]), int(arrays["sweep"][0]))
