"""New rows of one side in several draws at once: a stack has the rows of draw after draw.

What an update of rows does draw by draw is one piece of work here, so that a few rows do not wait
for a hundred draws of preparations. The sums over ratings are made once for all rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.designs import NO_VALUES
from bayesmf.kernels.rows import Observed, OtherSide, Stack, draw_stack, pack_lanes, settle_stack
from bayesmf.machine import LANES
from bayesmf.model import conditionals
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model
from bayesmf.random.draws import StackedDraws
from bayesmf.random.streams import stream

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StackedRows:
    """Rows given the other side, both of several draws, and priors that rows of a group share."""

    observed: Observed  # of all rows of the stack; their others are those of their draw
    others: OtherSide  # of all draws
    tau: Array  # of each draw
    counts: NDArray[np.int64]  # ratings of each row of one draw
    group: NDArray[np.int64]  # of each row of the stack
    precision: Array  # of each group: lower triangles row by row
    linear: Array  # of each row of the stack


def repeat(observed: Observed, times: int, others: int) -> Observed:
    """Return the ratings of so many copies of the rows, each with ``others`` of its own."""
    size, copies = len(observed.index), np.arange(times)[:, None]
    starts = np.append((copies * size + observed.starts[:-1]).ravel(), times * size)
    index = (copies.astype(np.int32) * np.int32(others) + observed.index).ravel()
    found = starts, index, np.tile(observed.values, times)
    for array in found:
        array.flags.writeable = False  # as the ratings are: the kernels are compiled for that
    weights = NO_VALUES
    if len(observed.weights):
        weights = np.tile(observed.weights, times)
        weights.flags.writeable = observed.weights.flags.writeable
    return Observed(*found, observed.mean, observed.order, weights=weights)


def draw_stacked_rows(
    model: Model,
    side: Name,
    rows: StackedRows,
    traces: Array,
    draws: StackedDraws,
    rounds: int,
    alpha: Array | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Draw the precisions alpha in rounds with the rows, and then the rows.

    ``alpha`` is where they begin, 1 if None. Returns the means of the rows, what a draw adds to
    each, alpha, and tr(T C) with C the covariance of a row and T in ``traces`` for each group.
    """
    count, size = rows.linear.shape
    sums = np.empty((-(-count // LANES), (size + 1) * (size + 2) // 2 * LANES))
    width = (0,) * (rows.others.z.shape[1] // LANES)
    pack_lanes(rows.observed, rows.others.z, size, width, sums)
    tau = np.repeat(rows.tau, len(rows.counts))
    counts = np.tile(rows.counts, len(rows.tau))
    now = np.ones(count) if alpha is None else alpha

    def stack() -> Stack:
        weight = tau * now
        return Stack(sums, weight, rows.linear, rows.group, rows.precision, draws.each)

    for number in range(rounds if model.precision != "constant" else 0):
        own, errors = replace(draws, sweep=draws.sweep + number), np.empty(count)
        draw_stack(stack(), stream(own, side, "rows").counter(), errors)
        conditional = conditionals.alpha(model, counts, errors, tau)
        now = conditional.sample(stream(own, side, "alpha"))
    own = replace(draws, sweep=draws.sweep + rounds)
    mean, noise, trace = np.empty((count, size)), np.empty((count, size)), np.empty(count)
    settle_stack(stack(), stream(own, side, "rows").counter(), traces, mean, noise, trace)
    return mean, noise, now, trace
