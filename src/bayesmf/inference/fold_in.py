"""New users, given what is known of the items: no refit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.inference.map import Modes
from bayesmf.inference.sweep import Sampling, update_rows
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, State, refresh_offset
from bayesmf.prob.draws import Draws

Array = NDArray[np.float64]


def fold_in(model: Model, state: State, data: Data, draws: Draws, rounds: int = 5) -> State:
    """One draw of a fit with the users of ``data`` in place of its own, at their mean.

    Exact given the items, the side features and the hyper-parameters of ``state``: a user is
    E[x_i | ratings of i, state], the offset being that of the items *they* rated. Precisions and
    Student-t scales of users are not known beforehand; ``rounds`` of Gibbs sampling draw them.
    """
    rows, size = len(data.user.counts), model.size
    own = model.features == "none" or model.has_own("user")
    x = np.zeros((rows, state.user.x.shape[1]))
    me = replace(state.user, x=x, noise=np.ones(rows), spread=np.ones(rows),
                 offset=np.zeros((rows if model.has_side("user") else 0, size)))  # fmt: skip
    new = State(me, state.item, state.tau, state.sweep)
    if len(me.offset):
        refresh_offset(me, data.user)
        if not own:
            x[:, 1:size] = me.offset[:, 1:]
    hidden = model.precision != "constant" or model.prior == "student-t"
    for number in range(rounds if hidden else 0):
        sampling = Sampling(replace(draws, sweep=number))
        errors = update_rows(model, data.user, me, new.item, new, sampling)
        if model.precision != "constant":
            conditional = conditionals.noise(model, data.user.counts, errors, new.tau)
            me.noise = sampling.take("user", "noise", conditional)
        features = [group for group in model.groups("user") if group.end > 1]
        if model.prior == "student-t" and features:
            scale = conditionals.spread(model, me, features[0], POINTS, 0.0)
            me.spread = sampling.take("user", "spread", scale)
    update_rows(model, data.user, me, new.item, new, Modes())
    return new
