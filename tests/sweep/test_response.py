"""The working response against a twin that keeps no array from one step to the next."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.data.ratings import Ratings
from bayesmf.model.data import Data
from bayesmf.model.likelihood import Observations
from bayesmf.model.ordinal import Ordinal
from bayesmf.model.state import random_start
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep.response import update_response
from oracle.variants import BASE, small_ratings
from toys.weekday import Weekday

TWO = (Weekday(2.0), Weekday(8.0))
LEVELS = Ordinal((1.0, 2.0, 3.0, 4.0, 5.0), 3.0)
ROBUST = replace(BASE, precision="robust")
MODELS = {
    "two effects": replace(ROBUST, effects=TWO),
    "ordinal": replace(ROBUST, likelihood=LEVELS),
    "ordinal, two effects": replace(ROBUST, likelihood=LEVELS, effects=TWO),
}


class Twin:
    """Everything anew for every step."""

    def __init__(self, model, data, state):
        self.model, self.response, self.state = model, data.response, state
        self.user, self.item = self.response.cells.user, self.response.cells.item
        x, y = state.user.x[self.user], state.item.x[self.item]
        self.f = x[:, 0] + y[:, 0] + (x[:, 1:] * y[:, 1:]).sum(axis=1)

    def weight(self):
        given = 1.0 if self.response.weights is None else self.response.weights
        state = self.state
        return state.tau * state.user.alpha[self.user] * state.item.alpha[self.item] * given

    def effects(self, but=None):
        parts = zip(
            self.model.every_effect, self.state.effects, self.response.prepared, strict=True
        )
        return sum(e.fitted(p, data) for k, (e, p, data) in enumerate(parts) if k != but)

    def seen(self):
        w = self.weight()
        return Observations(
            self.user, self.response.centred.copy(), self.f + self.effects(), w, np.sqrt(w)
        )

    def update(self, draws):
        model, state, target = self.model, self.state, self.response.centred.copy()
        if model.likelihood.latent:
            state.likelihood, state.tau = model.likelihood.update(
                state.likelihood, state.tau, model.priors, self.seen(),
                stream(draws, None, "response", 1), True,
            )  # fmt: skip
            own = stream(draws, None, "response")
            target = model.likelihood.respond(state.likelihood, self.seen(), own)
        for k, effect in enumerate(model.every_effect):
            state.effects[k] = effect.update(
                state.effects[k], self.response.prepared[k], target - self.f - self.effects(k),
                self.weight(), stream(draws, None, "effect", k), True,
            )  # fmt: skip
        return target - self.effects()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_response_is_that_of_its_twin(name, weighted):
    rng, pairs = np.random.default_rng(2), small_ratings(30, 20, weighted=weighted)
    rows = pairs.by_user
    ratings = Ratings.from_triplets(
        users=rows.row_index, items=rows.index, weights=rows.weights,
        ratings=rng.integers(1, 6, len(pairs)), times=rng.integers(0, 10**6, len(pairs)),
    )  # fmt: skip
    model = MODELS[name].settle(ratings)
    data = Data.of(ratings, model)
    state = random_start(model, data, 0)
    for side in (state.user, state.item):
        side.alpha = rng.gamma(9.0, 1 / 9, len(side.x))
    plain = copy.deepcopy(state)
    for sweep in range(3):
        draws = Draws(1, sweep=sweep)
        expected = Twin(model, data, plain).update(draws)
        update_response(model, data, state, draws)
        response = data.response
        np.testing.assert_allclose(response.by_user, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_array_equal(response.by_item, response.by_user[response.order])
        assert state.tau == pytest.approx(plain.tau, rel=1e-9)
        for one, two in zip(state.effects, plain.effects, strict=True):
            np.testing.assert_allclose(one["mood"], two["mood"], rtol=1e-8, atol=1e-8)
