"""What the rows are to explain, where that is not the ratings themselves.

Effects are drawn given what the rows leave unexplained, the working response of a latent likelihood
given everything else. Both come first in a sweep, so nothing of the response needs to be kept
between two sweeps but the parameters of the effects.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.kernels.reduce import predict
from bayesmf.model.data import Data
from bayesmf.model.spec import Model
from bayesmf.model.state import State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream

Array = NDArray[np.float64]


def update_response(
    model: Model, data: Data, state: State, draws: Draws, *, known: Cells | None = None
) -> None:
    """Draw the latent ratings and the effects, and hand what is left to the kernels.

    With ``known``, the ratings as the effects know them, these are left as they are.
    """
    response = data.response
    assert response is not None
    cells = response.cells
    f = np.empty(data.size)
    size = state.user.size
    predict(cells.user, cells.item, state.user.x[:, :size], state.item.x[:, :size], 0.0, f)
    weight = state.tau * state.user.alpha[cells.user] * state.item.alpha[cells.item]
    added = [
        effect.contribution(parameters, cells if known is None else known)
        for effect, parameters in zip(model.effects, state.effects, strict=True)
    ]
    target = response.centred
    if model.likelihood.latent:
        predictor = f + sum(added) if added else f
        own = stream(draws, None, "response")
        target = model.likelihood.respond(target, predictor, weight, own)
    for number, effect in enumerate(model.effects if known is None else ()):
        others = sum(x for k, x in enumerate(added) if k != number)
        state.effects[number] = effect.update(
            state.effects[number],
            cells,
            target - f - others,
            weight,
            stream(draws, None, "effect", number),
        )
        added[number] = effect.contribution(state.effects[number], cells)
    response.put(target - sum(added) if added else target)
