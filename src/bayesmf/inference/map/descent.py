"""The energy of MAP estimation, its gradient, and descent with momentum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.designs import offsets, pattern
from bayesmf.kernels.reduce import residual_sums
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Side, SideData, State, refresh_offset

Array = NDArray[np.float64]
FASTER, SLOWER = 1.05, 0.5  # of the step, after a fall and after a rise of the energy


def residuals(data: SideData, me: Side, others: Side, weight: Array) -> tuple[Array, Array]:
    """sum_j w_j e_ij (1, T_j) and sum_j w_j e_ij^2 for every row i."""
    gradient, errors = np.empty((len(me.x), me.size)), np.empty(len(me.x))
    residual_sums(data.observed, me.x, others.x, weight, me.size, gradient, errors)
    return gradient, errors


def energy(data: Data, state: State) -> float:
    """1/2 sum e_ij^2 + 1/2 sum over rows and side features of x' penalty x."""
    _, errors = residuals(data.user, state.user, state.item, np.ones(len(state.item.x)))
    total = float(errors.sum())
    for side in (state.user, state.item):
        total += float(np.einsum("ia,ab,ib->", side.own, side.precision, side.own, optimize=True))
        total += float(np.einsum("ia,ab,ib->", side.W, side.W_precision, side.W, optimize=True))
    return 0.5 * total


def gradients(model: Model, data: Data, state: State) -> dict[str, Array]:
    """Of the energy in each side's own rows and W; a row without own features has only a bias."""
    out: dict[str, Array] = {}
    for mine, other in ((data.user, data.item), (data.item, data.user)):
        me, others = state.sides(mine.name)
        pull, _ = residuals(mine, me, others, np.ones(len(others.x)))
        out[f"{mine.name}.x"] = me.own @ me.precision - pull
        if not (model.features == "none" or model.has_own(mine.name)):
            out[f"{mine.name}.x"][:, 1:] = 0.0
        if model.has_side(mine.name):
            first = model.first_side
            shared = np.zeros_like(me.W)
            # row i pulls every W_k that it rated by c_i
            pulled = pull * mine.shrink[:, None]
            offsets(pattern(other.observed), pulled, np.ones(len(me.W)), shared)
            slope = me.W @ me.W_precision - shared
            slope[:, :first] = 0.0
            out[f"{mine.name}.W"] = slope
    return out


class Momentum:
    """Batch gradient descent with momentum, every row's step divided by its curvature.

    The curvature of a row is its penalty plus its number of ratings times the mean square of what
    it is multiplied with. A step that raises the energy is taken back and halved, so that no step
    size needs to be chosen.
    """

    def __init__(self, model: Model, data: Data, state: State, hold_biases: bool) -> None:
        self.model, self.data, self.state, self.hold = model, data, state, hold_biases
        self.rate, self.momentum = 0.5, 0.9
        self.velocity: dict[str, Array] = {}
        self.energy = energy(data, state)

    def step(self) -> float:
        """One step down; returns the energy."""
        slopes = gradients(self.model, self.data, self.state)
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
        return side.own if name.endswith(".x") else side.W

    def _move(self, values: dict[str, Array]) -> None:
        """Put own rows and W in place: x = own + offset."""
        for mine in (self.data.user, self.data.item):
            me, _ = self.state.sides(mine.name)
            if f"{mine.name}.W" in values:
                me.W[:] = values[f"{mine.name}.W"]
                refresh_offset(me, mine)
            own = values[f"{mine.name}.x"]
            me.x[:, : me.size] = own + me.offset if len(me.offset) else own

    def _curvatures(self) -> dict[str, Array]:
        out = {}
        for mine, other in ((self.data.user, self.data.item), (self.data.item, self.data.user)):
            me, others = self.state.sides(mine.name)
            z = others.x[:, : me.size].copy()
            z[:, 0] = 1.0
            square = other.counts @ z**2 / self.data.size
            out[f"{mine.name}.x"] = np.diag(me.precision) + mine.counts[:, None] * square
            if self.model.has_side(mine.name):
                strength = np.empty((len(me.W), 1))
                each = (mine.shrink**2 * mine.counts)[:, None]
                offsets(pattern(other.observed), each, np.ones(len(me.W)), strength)
                out[f"{mine.name}.W"] = np.diag(me.W_precision) + strength * square
        return out
