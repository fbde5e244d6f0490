"""How large the parts of rows are: a move for rows with few ratings.

A row is the sum of layers: its own part, and what each design adds. Given the rows, the precision
Lambda of a layer is known almost exactly, and given Lambda, rows with few ratings are about as
large as it says. So a sweep alone would change their size by a little at a time, the less the more
rows there are. Here a whole layer is multiplied by a factor, and its prior goes along: rows c u,
mean c mu, precision Lambda / c^2. The density of the rows given their prior stays what it was, and
the factor is drawn given the ratings and the prior of (mu, Lambda).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.densities import draw_scales
from bayesmf.kernels.reduce import part_products
from bayesmf.model.conditionals import unpack
from bayesmf.model.data import SideData
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model
from bayesmf.model.state import Shift, Side, State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep.moves import with_mean

Array = NDArray[np.float64]
ROUNDS = 3  # of the steps in every part


def move_scales(
    model: Model, data: SideData, me: Side, others: Side, state: State, draws: Draws
) -> None:
    """Draw the factors of all parts of one side, if its rows have few ratings.

    The parts of a layer are its bias and its features. This comes before the rows and the W of the
    side are drawn, so that no errors or offsets have to be kept up.
    """
    if not model.rank or data.priors is not None or not has_few_ratings(data, me.size):
        return
    cuts = np.array([0, 1, me.size])
    layers = np.stack([me.own, *(shift.offset for shift in me.shifts)], axis=1)
    shared = others.x, others.alpha, cuts
    (products,) = data.run(_products, shared, (layers,), reads=True)
    M = unpack((state.tau * me.alpha) @ products)
    prior = _prior(model, data.name, me, cuts)
    counter = stream(draws, data.name, "scales").counter()
    c = draw_scales(M[:-1, :-1], M[-1, :-1], *prior, ROUNDS, counter)
    _apply(me, layers, np.repeat(c.reshape(-1, len(cuts) - 1), np.diff(cuts), axis=1))


def has_few_ratings(data: SideData, size: int) -> bool:
    """Whether the rows have fewer ratings than columns on average.

    Where they have more, a sweep changes their size well enough, and the move would cost more.
    """
    return int(data.counts.sum()) < size * len(data.counts)


def _products(
    data: SideData, x: Array, alpha: Array, cuts: NDArray[np.int64], layers: Array
) -> tuple[Array]:
    parts = layers.shape[1] * (len(cuts) - 1) + 1
    out = np.empty((len(layers), parts * (parts + 1) // 2))
    part_products(data.observed, layers, x, alpha, cuts, out)
    return (out,)


def _prior(
    model: Model, name: Name, me: Side, cuts: NDArray[np.int64]
) -> tuple[Array, Array, Array]:
    """What the priors of (mu, Lambda) say of the factors, as ``draw_scales`` takes it.

    These are sums over the columns of each part, of G Lambda, m Lambda mu and nu; all are 0 of
    columns whose prior is fixed.
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
                (G, m), Lambda = with_mean(group.hyper), layer.Lambda[mine, mine]
                R[columns, columns] = G * Lambda
                r[columns] = m * (Lambda @ layer.mu[mine])
                power[columns] = group.hyper.nu
    firsts = np.add.outer(me.size * np.arange(len(layers)), cuts[:-1]).ravel()
    R = np.add.reduceat(np.add.reduceat(R, firsts, axis=0), firsts, axis=1)
    return R, np.add.reduceat(r, firsts), np.add.reduceat(power, firsts)


def _apply(me: Side, layers: Array, c: Array) -> None:
    """Multiply the columns of each layer, with its prior, by the factors."""
    me.x[:, : me.size] = np.einsum("ila,la->ia", layers, c)
    _apply_to_prior(me, c[0])
    for shift, factor in zip(me.shifts, c[1:], strict=True):
        _apply_to_prior(shift, factor)
        shift.W = shift.W * factor
        shift.offset = shift.offset * factor


def _apply_to_prior(layer: Side | Shift, factor: Array) -> None:
    layer.mu = layer.mu * factor
    layer.Lambda = layer.Lambda / np.outer(factor, factor)
