"""Users and items of training drawn once more, under the prior that newcomers have.

The prior of the model is a compromise between rows with few ratings and rows with many. Given how
many ratings a row has, and who else rates what it rated, the prior of ``NewRows`` is sharper; for a
row with many ratings it makes no difference. So each kept draw gets its users again, given its
items, and its items, given its users, each without its own part in what it is regressed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.fitted.posterior import POWER, SIDES, Posterior
from bayesmf.model.data import Data
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model
from bayesmf.random.draws import Draws
from bayesmf.random.philox import Counter
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Sampling
from bayesmf.sweep.rows import update_rows


class _Again(Sampling):
    """Draws with random numbers of their own."""

    def counter(self, side: Name, what: str, group: int = 0) -> Counter:
        return stream(self.draws, side, "redraw").counter()


def redraw_rows(
    model: Model, train: Ratings, draws: Mapping[str, NDArray[np.float32]], seed: int
) -> None:
    """Draw the rows of all draws again, in place."""
    data, known = Data.of(train, model), Posterior.of(model, train, draws)
    for number in range(len(known)):
        state, found = known.state(number), {}
        for name in SIDES:
            me, others = state.sides(name)
            mine = data.user if name == "user" else data.item
            prior = known.new_rows(draws, number, name, power=POWER)
            mine = replace(mine, priors=prior.known_priors(mine.counts, prior.told_sums()))
            one = replace(me, shifts=[])
            update_rows(model, mine, one, others, state, _Again(Draws(seed, number)))
            found[name] = one.x[:, : model.size]
        for name, rows in found.items():
            draws[f"{name}.x"][number] = rows
