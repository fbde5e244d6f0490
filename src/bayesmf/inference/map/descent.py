"""The energy of MAP estimation, its gradient, and descent with momentum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.designs import offsets, squared
from bayesmf.kernels.reduce import residual_sums
from bayesmf.model.data import Data, SideData
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State, refresh_offsets

Array = NDArray[np.float64]
FASTER, SLOWER = 1.05, 0.5  # of the step, after a fall and after a rise of the energy


def residuals(data: SideData, me: Side, others: Side, weight: Array) -> tuple[Array, Array]:
    """sum_j w_j e_ij (1, T_j) and sum_j w_j e_ij^2 for every row i."""
    gradient, errors = np.empty((len(me.x), me.size)), np.empty(len(me.x))
    residual_sums(data.observed, me.x, others.x, weight, me.size, gradient, errors)
    return gradient, errors


def energy(data: Data, state: State) -> float:
    """1/2 sum e_ij^2 + 1/2 sum over rows and W of x' Lambda x, with penalties for Lambda.

    A rating with a weight has it as the factor of its e_ij^2.
    """
    _, errors = residuals(data.user, state.user, state.item, np.ones(len(state.item.x)))
    total = float(errors.sum())
    for side in (state.user, state.item):
        total += _quadratic(side.own, side.Lambda)
        total += sum(_quadratic(shift.W, shift.Lambda) for shift in side.shifts)
    return 0.5 * total


def _quadratic(rows: Array, matrix: Array) -> float:
    """The sum of x' matrix x over all rows x."""
    return float(np.einsum("ia,ab,ib->", rows, matrix, rows, optimize=True))


def gradients(
    model: Model, data: Data, state: State, only_biases: bool = False
) -> dict[str, Array]:
    """Of the energy in each side's own rows and W; a row without own features has only a bias."""
    out: dict[str, Array] = {}
    first = model.first_shifted
    for mine in (data.user, data.item):
        me, others = state.sides(mine.name)
        pull, _ = residuals(mine, me, others, np.ones(len(others.x)))
        out[f"{mine.name}.x"] = me.own @ me.Lambda - pull
        if not model.has_own(mine.name):
            out[f"{mine.name}.x"][:, 1:] = 0.0
        for number, shift in enumerate([] if only_biases else me.shifts):
            shared = np.zeros_like(shift.W)
            # row i pulls every W_k of its design by X_ik
            pulled = pull * mine.matrices[number].scale[:, None]
            offsets(mine.columns[number], pulled, np.ones(len(shift.W)), shared)
            slope = shift.W @ shift.Lambda - shared
            slope[:, :first] = 0.0
            out[f"{mine.name}.W{number}"] = slope
    return out


class Momentum:
    """Batch gradient descent with momentum, every row's step divided by its curvature.

    The curvature of a row is its penalty plus its ratings' weights times the mean square of what
    it is multiplied with. A step that raises the energy is taken back and halved, so that no step
    size needs to be chosen. With ``only_biases`` the weights of designs stay where they are.
    """

    def __init__(
        self,
        model: Model,
        data: Data,
        state: State,
        *,
        hold_biases: bool = False,
        only_biases: bool = False,
    ) -> None:
        self.model, self.data, self.state = model, data, state
        self.hold, self.only_biases = hold_biases, only_biases
        self.rate, self.momentum = 0.5, 0.9
        self.velocity: dict[str, Array] = {}
        self.energy = energy(data, state)

    def step(self) -> float:
        """One step down; returns the energy."""
        slopes = gradients(self.model, self.data, self.state, self.only_biases)
        scale = self._curvatures()
        before = {name: self._part(name).copy() for name in slopes}
        rows = {name: self.state.sides(name)[0].x.copy() for name in ("user", "item")}
        for _ in range(40):
            velocity = {}
            for name, slope in slopes.items():
                downhill = -self.rate * slope / scale[name]
                if self.hold and name.endswith(".x"):
                    downhill[:, 0] = 0.0
                velocity[name] = self.momentum * self.velocity.get(name, 0.0) + downhill
            self._move({name: before[name] + velocity[name] for name in slopes})
            value = energy(self.data, self.state)
            if value <= self.energy:
                self.energy, self.velocity = value, velocity
                self.rate = min(self.rate * FASTER, 1.0)
                return value
            self.rate *= SLOWER
            self.velocity = {}
        self._move(before)
        for name in ("user", "item"):
            self.state.sides(name)[0].x[:] = rows[name]  # type: ignore[arg-type]
        return self.energy

    def run(self, tolerance: float, most: int = 2000) -> None:
        """Until the energy falls by less than ``tolerance`` of itself."""
        for _ in range(most):
            before = self.energy
            if not before - self.step() > tolerance * before:
                break

    def _part(self, name: str) -> Array:
        side = self.state.user if name.startswith("user") else self.state.item
        if name.endswith(".x"):
            return side.own
        return side.shifts[int(name.rpartition(".W")[2])].W

    def _move(self, values: dict[str, Array]) -> None:
        """Put own rows and W in place: x = own + offset."""
        for mine in (self.data.user, self.data.item):
            me, _ = self.state.sides(mine.name)
            for number, shift in enumerate(me.shifts):
                if f"{mine.name}.W{number}" in values:
                    shift.W[:] = values[f"{mine.name}.W{number}"]
                    refresh_offsets(me, mine, number)
            own = values[f"{mine.name}.x"]
            me.x[:, : me.size] = own + me.offset if me.shifts else own

    def _curvatures(self) -> dict[str, Array]:
        out = {}
        for mine, other in ((self.data.user, self.data.item), (self.data.item, self.data.user)):
            me, others = self.state.sides(mine.name)
            z = others.x[:, : me.size].copy()
            z[:, 0] = 1.0
            weights, others_weights = _sum_weights(mine), _sum_weights(other)
            square = others_weights @ z**2 / others_weights.sum()
            out[f"{mine.name}.x"] = np.diag(me.Lambda) + weights[:, None] * square
            for number, shift in enumerate([] if self.only_biases else me.shifts):
                strength = np.empty((len(shift.W), 1))
                by_row = (mine.matrices[number].scale ** 2 * weights)[:, None]
                squares = squared(mine.columns[number])
                offsets(squares, by_row, np.ones(len(shift.W)), strength)
                out[f"{mine.name}.W{number}"] = np.diag(shift.Lambda) + strength * square
        return out


def _sum_weights(data: SideData) -> NDArray[Any]:
    """The sum of the weights of each row's ratings: their number, if they have none."""
    if not len(data.observed.weights):
        return data.counts
    rows = np.repeat(np.arange(len(data.counts)), data.counts)
    return np.bincount(rows, data.observed.weights, len(data.counts))
