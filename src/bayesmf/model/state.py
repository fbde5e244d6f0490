"""Everything a chain knows at one moment."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DataError
from bayesmf.kernels.designs import offsets_of_strips, strips
from bayesmf.kernels.gram import padded
from bayesmf.kernels.reduce import weighted_moments
from bayesmf.machine import LANES
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import Name
from bayesmf.model.effects import Parameters
from bayesmf.model.spec import Model
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Array = NDArray[np.float64]


@dataclass
class Shift:
    """What one design adds to the rows of a side: offset_i = X_i W."""

    W: Array  # (columns of X, columns of a row)
    mu: Array  # of the prior of W
    Lambda: Array
    offset: Array  # one row for each row of the side


@dataclass
class Side:
    """The parameters of one side."""

    x: Array  # (rows, padded width): bias, features S (own part and offsets together), zeros
    mu: Array  # prior mean of the own part
    Lambda: Array  # prior precision of the own part
    alpha: Array  # noise precision of each row: alpha_i of a user, beta_j of an item
    scale: Array  # Student-t: the prior precision of row i is scale_i Lambda
    shifts: list[Shift] = field(default_factory=list)  # one for each design

    @property
    def size(self) -> int:
        """Columns that are parameters."""
        return len(self.mu)

    @property
    def offset(self) -> Array:
        """What all designs together add to each row; no rows if there are no designs."""
        if not self.shifts:
            return np.zeros((0, self.size))
        total = self.shifts[0].offset
        for shift in self.shifts[1:]:
            total = total + shift.offset
        return total

    @property
    def own(self) -> Array:
        """U_i = S_i - offset_i, with the bias."""
        values = self.x[:, : self.size]
        return values - self.offset if self.shifts else values

    def at(self, rows: NDArray[Any]) -> tuple[Array, Array]:
        """x and alpha of some rows, whose numbers ascend."""
        return self.x[rows], self.alpha[rows]

    def log_precision(self, counts: NDArray[np.int64]) -> float:
        """The sum of log alpha over all ratings; ``counts`` has the ratings of each row."""
        return float(np.sum(counts * np.log(self.alpha)))

    def sums(self) -> tuple[Array, Array]:
        """sum x and sum x x' over the rows."""
        _, total, scatter = weighted_moments(self.x, np.ones(len(self.x)), 0, self.size)
        return total, scatter

    def turn(self, A: Array, a: Array) -> None:
        """Every row x becomes x A + a."""
        whole = np.zeros((self.x.shape[1], self.x.shape[1]))  # no copy of a part of each row
        whole[: self.size, : self.size] = A
        self.x = self.x @ whole
        self.x[:, : self.size] += a

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
    effects: list[Parameters] = field(default_factory=list)  # one for each effect of the model
    likelihood: Parameters = field(default_factory=dict)  # the parameters that it has of its own

    def __repr__(self) -> str:
        rows = f"{len(self.user.x):,} users, {len(self.item.x):,} items"
        return f"State(sweep {self.sweep}: {rows}, tau {self.tau:.4g})"

    def sides(self, name: Name) -> tuple[Side, Side]:
        """The side of this name, and the other."""
        return (self.user, self.item) if name == "user" else (self.item, self.user)

    def width(self) -> tuple[int, ...]:
        """Tells the kernels, by its length, how many lanes of columns the rows have."""
        return (0,) * (int(self.item.x.shape[1]) // LANES)


START_SDS = (0.3, 0.2, 0.4, 0.5)
START_COUNT = 50.0  # ratings that a row needs for features of about that spread


def start_sd(chain: int) -> float:
    """How far from zero a chain begins: chains that meet have come from different places."""
    return START_SDS[chain % len(START_SDS)]


def random_start(
    model: Model, data: Data, seed: int, chain: int = 0, sd: float = START_SDS[0]
) -> State:
    """Draw random values of everything, with precisions of 1 in the model's unit.

    Everything begins at about the spread of a bias: rows, and what designs add to them. Features
    that are much smaller would take hundreds of sweeps to grow, one direction after the other, and
    those of rows with few ratings, about which the ratings say little, as many to shrink. So these
    begin lower.
    """
    draws = Draws(seed, chain)
    user, item = (_start_side(model, mine, draws, sd) for mine in (data.user, data.item))
    effects = []
    if data.response is not None:
        effects = [
            effect.start(train, stream(draws, None, "effect", number))
            for number, (effect, train) in enumerate(
                zip(model.every_effect, data.response.prepared, strict=True)
            )
        ]
    own = model.likelihood.start(len(user.x))
    return State(user, item, float(model.units[0] ** -2), effects=effects, likelihood=own)


def _start_side(model: Model, mine: SideData, draws: Draws, sd: float) -> Side:
    rows, size, first = len(mine.counts), model.size, model.first_shifted
    x = start_rows(model, mine.counts, sd, stream(draws, mine.name, "start_rows"))
    Lambda = np.diag(model.units**-2)
    side = Side(x, np.zeros(size), Lambda, np.ones(rows), np.ones(rows))
    for number, counts in enumerate(mine.column_counts):
        W = np.zeros((len(counts), size))
        normals = stream(draws, mine.name, "start_W", number).normals(len(counts), size - first)
        scale = sd / mine.matrices[number].length(mine.counts)
        W[:, first:] = scale * start_share(counts)[:, None] * normals * model.units[first:]
        side.shifts.append(Shift(W, np.zeros(size), Lambda.copy(), np.zeros((rows, size))))
    refresh_offsets(side, mine)
    if not model.has_own(mine.name):
        x[:, 1:size] = side.offset[:, 1:]
    return side


def start_rows(model: Model, counts: NDArray[np.int64], sd: float, draws: Draws) -> Array:
    """Draw random values of rows with so many ratings."""
    x = np.zeros((len(counts), padded(model.size + 1)))
    x[:, : model.size] = sd * draws.normals(len(counts), model.size) * model.units
    x[:, 1 : model.size] *= start_share(counts)[:, None]
    return x


def start_share(counts: NDArray[np.int64]) -> Array:
    """The share of the spread that features of rows, or columns, with so many ratings begin at."""
    return np.sqrt(counts / (counts + START_COUNT))


def refresh_offsets(side: Side, data: SideData, only: int | None = None) -> None:
    """Compute the offsets of one side from W, for all designs or for one of them."""
    for number, shift in enumerate(side.shifts):
        if only in (None, number):
            shared = (number, strips(shift.W), shift.W.shape[1])
            (shift.offset,) = data.run(_offsets, shared, (data.matrices[number].scale,))


def _offsets(data: SideData, number: int, cut: Array, columns: int, scale: Array) -> tuple[Array]:
    out = np.empty((len(scale), columns))
    offsets_of_strips(data.pattern(number), cut, scale, out)
    return (out,)


def check_start(start: object, model: Model, data: Data) -> State:
    """Return a copy of a state to begin from, or say why it is none of this model and data.

    Precisions and scales that the model holds at 1 are put there, offsets computed from W.
    """
    if not isinstance(start, State):
        raise DataError(f"start={start!r}: choose 'random', 'map' or the state of a fit")
    state = copy.deepcopy(start)
    for mine in (data.user, data.item):
        me, _ = state.sides(mine.name)
        _check_shapes(me, mine, model)
        if model.precision == "constant":
            me.alpha[:] = 1.0
        elif model.precision == "truncated":
            me.alpha = np.clip(me.alpha, *model.bounds)
        if model.prior == "gaussian":
            me.scale[:] = 1.0
        refresh_offsets(me, mine)
    if len(state.effects) != len(model.every_effect):
        raise DataError("the start is of another model: it has other effects")
    if set(state.likelihood) != set(model.likelihood.start(0)):
        raise DataError("the start is of another model: it has another likelihood")
    return state


def _check_shapes(me: Side, mine: SideData, model: Model) -> None:
    rows, size = len(mine.counts), model.size
    found = {"x": me.x, "mu": me.mu, "Lambda": me.Lambda, "alpha": me.alpha, "scale": me.scale}
    shapes: dict[str, tuple[int, ...]] = {
        "x": (rows, padded(size + 1)),
        "mu": (size,),
        "Lambda": (size, size),
        "alpha": (rows,),
        "scale": (rows,),
    }
    if len(me.shifts) != len(mine.column_counts):
        raise DataError(
            f"the start is of another model: its {mine.name}s have {len(me.shifts)} designs, not "
            f"{len(mine.column_counts)}"
        )
    for number, (shift, counts) in enumerate(zip(me.shifts, mine.column_counts, strict=True)):
        key = f"shifts[{number}]"
        found.update({f"{key}.W": shift.W, f"{key}.mu": shift.mu, f"{key}.Lambda": shift.Lambda})
        shapes.update({f"{key}.W": (len(counts), size), f"{key}.mu": (size,)})
        shapes[f"{key}.Lambda"] = (size, size)
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise DataError(
                f"the start is of another model or other data: {mine.name}.{name} has shape "
                f"{found[name].shape}, not {shape}"
            )


PARAMETERS = ("mu", "Lambda", "alpha", "scale")
LIKELIHOOD = "likelihood."


def shift_names(number: int) -> dict[str, str]:
    """What the arrays of a design are called: W, mu_W, Lambda_W; W_2, mu_W_2, ... of the next."""
    after = "" if number == 0 else f"_{number + 1}"
    return {"W": f"W{after}", "mu": f"mu_W{after}", "Lambda": f"Lambda_W{after}"}


def to_arrays(state: State) -> dict[str, Array]:
    """Every parameter by a name, without padding; offsets follow from W and the data."""
    out: dict[str, Array] = {"tau": np.array([state.tau]), "sweep": np.array([float(state.sweep)])}
    for name, side in (("user", state.user), ("item", state.item)):
        out[f"{name}.x"] = side.x[:, : side.size]
        out.update({f"{name}.{part}": getattr(side, part) for part in PARAMETERS})
        for number, shift in enumerate(side.shifts):
            for part, called in shift_names(number).items():
                out[f"{name}.{called}"] = getattr(shift, part)
    for number, parameters in enumerate(state.effects):
        out.update({f"effect {number}.{key}": values for key, values in parameters.items()})
    out.update({f"{LIKELIHOOD}{key}": values for key, values in state.likelihood.items()})
    return out


def from_arrays(arrays: Mapping[str, NDArray[Any]], data: Data | None = None) -> State:
    """Make the state of ``to_arrays``; with the data its offsets too, so that a chain can go on."""
    sides = []
    for name in ("user", "item"):
        parts: dict[str, Any] = {
            part: np.array(arrays[f"{name}.{part}"], float) for part in PARAMETERS
        }
        values = np.asarray(arrays[f"{name}.x"], float)
        rows, size = values.shape
        x = np.zeros((rows, padded(size + 1)))
        x[:, :size] = values
        side = Side(x=x, **parts)
        while f"{name}.{shift_names(len(side.shifts))['W']}" in arrays:
            called = shift_names(len(side.shifts))
            found = {part: np.array(arrays[f"{name}.{key}"], float) for part, key in called.items()}
            side.shifts.append(Shift(**found, offset=np.zeros((rows, size))))
        if data is not None:
            refresh_offsets(side, data.user if name == "user" else data.item)
        sides.append(side)
    state = State(sides[0], sides[1], float(arrays["tau"][0]), int(arrays["sweep"][0]))
    for key, values in arrays.items():
        if key.startswith("effect "):
            number, _, parameter = key.removeprefix("effect ").partition(".")
            while len(state.effects) <= int(number):
                state.effects.append({})
            state.effects[int(number)][parameter] = np.array(values, float)
        elif key.startswith(LIKELIHOOD):
            state.likelihood[key.removeprefix(LIKELIHOOD)] = np.array(values, float)
    return state
