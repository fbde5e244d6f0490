"""How large the parts of rows are: a move for rows with few ratings.

A row is the sum of layers: its own part, and what each design adds. Given the rows, the precision
Lambda of a layer is known almost exactly, and given Lambda, rows with few ratings are about as
large as it says. So a sweep alone would change their size by a little at a time, the less the more
rows there are. Here a whole layer is multiplied by factors along its axes, and its prior goes
along: rows C u, mean C mu, precision C^-1 Lambda C^-1. The density of the rows given their prior
stays what it was, and the factors are drawn given the ratings and the prior of (mu, Lambda).

The axes are the bias and those directions of the features in which they have independent
covariances on both sides. Factors change no axis, so the move can go back the way it came. Which
directions have a factor of their own is drawn in every sweep; all others share one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from bayesmf.kernels.densities import draw_scales
from bayesmf.kernels.reduce import part_products
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import SideData
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.spec import Model
from bayesmf.model.state import Shift, Side, State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep.moves import turn_prior, with_mean

Array = NDArray[np.float64]
SINGLE = 4  # directions that have a factor of their own in one sweep
ROUNDS = 3  # of the steps in every part


def move_scales(
    model: Model, data: SideData, me: Side, others: Side, state: State, draws: Draws
) -> None:
    """Draw the factors of all layers of one side, if its rows have few ratings.

    The parts of a layer are its bias, single directions, and all other directions together. This
    comes before the rows and the W of the side are drawn, so that no errors or offsets have to be
    kept up.
    """
    if not model.rank or data.priors is not None or not has_few_ratings(data, me.size):
        return
    axes = _axes(model, data.name, state, stream(draws, data.name, "scales"))
    inverse = np.asarray(np.linalg.inv(axes), float)
    cuts = np.array([*range(min(SINGLE, model.rank - 1) + 2), me.size])
    layers = np.stack([me.own, *(shift.offset for shift in me.shifts)], axis=1) @ axes
    shared = others.x[:, : me.size] @ inverse.T, others.alpha, cuts
    (products,) = data.run(_products, shared, (layers,), reads=True)
    M = unpack((state.tau * me.alpha) @ products)
    prior = _prior(model, data.name, me, cuts, axes, inverse)
    counter = stream(draws, data.name, "scales", 1).counter()
    c = draw_scales(M[:-1, :-1], M[-1, :-1], *prior, ROUNDS, counter)
    factors = np.repeat(c.reshape(-1, len(cuts) - 1), np.diff(cuts), axis=1)
    _apply(me, [(axes * factor @ inverse, axes / factor @ inverse) for factor in factors])


def has_few_ratings(data: SideData, size: int) -> bool:
    """Whether the rows have fewer ratings than columns on average.

    Where they have more, a sweep changes their size well enough, and the move would cost more.
    """
    return int(data.counts.sum()) < size * len(data.counts)


def _axes(model: Model, name: Name, state: State, draws: Draws) -> Array:
    """The bias and the directions, in columns: rows x are x axes in them. Their order is drawn.

    The covariance of the features in them is diagonal on this side, and the identity on the other.
    """
    firsts = []
    for side in SIDES if name == "user" else reversed(SIDES):
        rows, _ = state.sides(side)
        layer = rows if model.has_own(side) else rows.shifts[0]
        firsts.append(layer.Lambda[1:, 1:])
    mine, theirs = firsts
    _, directions = eigh(np.linalg.inv(mine), theirs)
    axes = np.eye(model.rank + 1)
    axes[1:, 1:] = directions[:, np.argsort(draws.uniforms(model.rank)[:, 0])]
    return axes


def _products(
    data: SideData, x: Array, alpha: Array, cuts: NDArray[np.int64], layers: Array
) -> tuple[Array]:
    parts = layers.shape[1] * (len(cuts) - 1) + 1
    out = np.empty((len(layers), parts * (parts + 1) // 2))
    part_products(data.observed, layers, x, alpha, cuts, out)
    return (out,)


def _prior(
    model: Model, name: Name, me: Side, cuts: NDArray[np.int64], axes: Array, inverse: Array
) -> tuple[Array, Array, Array]:
    """What the priors of (mu, Lambda) say of the factors, as ``draw_scales`` takes it.

    These are sums over the axes of each part, of G Lambda, m Lambda mu and nu; all are 0 of those
    whose prior is fixed.
    """
    layers: list[Side | Shift] = [me, *me.shifts]
    size = len(layers) * me.size
    R, r, power = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    for number, layer in enumerate(layers):
        groups = [model.design_group()] if number else model.groups(name)
        for group in groups:
            if group.hyper is not None:
                mine = slice(group.first, group.end)
                columns = slice(number * me.size + group.first, number * me.size + group.end)
                (G, m), A, B = with_mean(group.hyper), axes[mine, mine], inverse[mine, mine]
                Lambda = B @ layer.Lambda[mine, mine] @ B.T
                R[columns, columns] = (A.T @ G @ A) * Lambda
                r[columns] = (A.T @ m) * (Lambda @ (A.T @ layer.mu[mine]))
                power[columns] = group.hyper.nu
    firsts = np.add.outer(me.size * np.arange(len(layers)), cuts[:-1]).ravel()
    R = np.add.reduceat(np.add.reduceat(R, firsts, axis=0), firsts, axis=1)
    return R, np.add.reduceat(r, firsts), np.add.reduceat(power, firsts)


def _apply(me: Side, turns: list[tuple[Array, Array]]) -> None:
    """Turn each layer, with its prior, by a matrix, which comes with its inverse."""
    x = me.own @ turns[0][0]
    turn_prior(me, *turns[0])
    for shift, (A, inverse) in zip(me.shifts, turns[1:], strict=True):
        turn_prior(shift, A, inverse)
        shift.W = shift.W @ A
        shift.offset = shift.offset @ A
        x += shift.offset
    me.x[:, : me.size] = x
