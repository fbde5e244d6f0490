"""What the rows are to explain, where that is not the ratings themselves.

Effects are drawn given what the rows leave unexplained, the working response of a latent likelihood
given everything else. Both come first in a sweep, so nothing of the response needs to be kept
between two sweeps but the parameters of the effects and of the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.response.rated import predict_rated
from bayesmf.model.data import Data
from bayesmf.model.likelihood import Observations
from bayesmf.model.spec import Model
from bayesmf.model.state import State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Array = NDArray[np.float64]
Learn = Literal["all", "rows", "none"]
"""Which parameters are drawn: all, or those of single ratings and users, or none of them."""


def update_response(
    model: Model,
    data: Data,
    state: State,
    draws: Draws,
    learn: Learn = "all",
    added: Sequence[Array] | None = None,
) -> None:
    """Draw the latent ratings and the effects, and hand what is left to the kernels.

    ``added`` is what the effects add to each rating, if they are not to be drawn.
    """
    response = data.response
    assert response is not None
    cells = response.cells
    f, weight, root, residual = response.scratch
    users, items = state.user, state.item
    predict_rated(
        cells.user, cells.item, users.x, items.x, users.size, state.tau, users.alpha, items.alpha,
        f, weight,
    )  # fmt: skip
    if response.weights is not None:
        weight *= response.weights
    drawn = learn != "none" and added is None
    parts = zip(model.every_effect, state.effects, response.prepared, strict=True)
    x = list(added) if added is not None else [e.fitted(p, train) for e, p, train in parts]
    target = response.centred
    if model.likelihood.latent:
        np.sqrt(weight, out=root)
        seen = Observations(cells.user, target, f + _add(x) if x else f, weight, root)
        _update_likelihood(model, state, seen, draws, learn)
        own = stream(draws, None, "response")
        target = model.likelihood.respond(state.likelihood, seen, own)
    if drawn:
        for number, effect in enumerate(model.every_effect):
            rest = [f, *x[:number], *x[number + 1 :]]
            np.subtract(target, _add(rest), out=residual)
            state.effects[number] = effect.update(
                state.effects[number],
                response.prepared[number],
                residual,
                weight,
                stream(draws, None, "effect", number),
                learn == "all",
            )
            x[number] = effect.fitted(state.effects[number], response.prepared[number])
    response.put(target, _add(x) if x else None)


def _add(terms: list[Array]) -> Array:
    """The sum of arrays, of which one alone is not copied."""
    return sum(terms[1:], start=terms[0])


def _update_likelihood(
    model: Model, state: State, seen: Observations, draws: Draws, learn: Learn
) -> None:
    """Draw the likelihood's parameters and tau, which changes the weights."""
    if learn == "none":
        return
    before, own = state.tau, stream(draws, None, "response", 1)
    state.likelihood, state.tau = model.likelihood.update(
        state.likelihood, before, model.priors, seen, own, learn == "all"
    )
    if state.tau != before:
        np.multiply(seen.weight, state.tau / before, out=seen.weight)
        np.sqrt(seen.weight, out=seen.root)
