"""New users, given what is known of the items, or new items given the users: no refit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.inference.algorithm import Sampling
from bayesmf.inference.modes import Modes
from bayesmf.inference.sweep import update_rows
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Name, State, refresh_offset
from bayesmf.prob.draws import Draws

Array = NDArray[np.float64]


def fold_in(
    model: Model, state: State, data: Data, draws: Draws, *, name: Name = "user",
    sample: bool = False, rounds: int = 5,
) -> State:  # fmt: skip
    """One draw of a fit with the rows of ``data`` in place of its own users (or items).

    Exact given the other side, the side features and the hyper-parameters of ``state``: a row is a
    draw from p(x_i | ratings of i, state), or its mean; the offset is that of what *they* rated.
    Precisions and Student-t scales of rows are not known beforehand; ``rounds`` of Gibbs sampling
    draw them.
    """
    mine = data.user if name == "user" else data.item
    side, others = state.sides(name)
    rows, size = len(mine.counts), model.size
    own = model.features == "none" or model.has_own(name)
    x = np.zeros((rows, side.x.shape[1]))
    me = replace(side, x=x, noise=np.ones(rows), spread=np.ones(rows),
                 offset=np.zeros((rows if model.has_side(name) else 0, size)))  # fmt: skip
    new = replace(state, user=me) if name == "user" else replace(state, item=me)
    if len(me.offset):
        refresh_offset(me, mine)
        if not own:
            x[:, 1:size] = me.offset[:, 1:]
    hidden = model.precision != "constant" or model.prior == "student-t"
    for number in range(rounds if hidden else 0):
        sampling = Sampling(replace(draws, sweep=number))
        errors = update_rows(model, mine, me, others, new, sampling)
        if model.precision != "constant":
            conditional = conditionals.noise(model, mine.counts, errors, new.tau)
            me.noise = sampling.take(name, "noise", conditional)
        features = [group for group in model.groups(name) if group.end > 1]
        if model.prior == "student-t" and features:
            scale = conditionals.spread(model, me, features[0], POINTS, 0.0)
            me.spread = sampling.take(name, "spread", scale)
    algorithm = Sampling(replace(draws, sweep=rounds)) if sample else Modes()
    update_rows(model, mine, me, others, new, algorithm)
    return new
