"""The sweep for very many users: their rows stay where their ratings are.

A user step is one task for each block of users. It sees the items, the users' prior and tau, draws
the block's rows, and leaves them where they are. Back come sums over the block: the moments of the
rows for mu and Lambda, and for every item j the Gram matrix sum_i alpha_i v_i v_i' over its raters,
v_i = (1, S_i, r_ij - gamma_i). Of an item's conditional and its errors nothing else depends on the
users. So what travels in a sweep grows with the items, not with the users.

Draws are those of ``sweep``, by the users' numbers. Sums go by blocks, so their last digits, and
after some sweeps all digits, depend on how the users are cut; on nothing else.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.engines.ray.resident import Block, Held, ResidentData, ResidentSide, Sums
from bayesmf.errors import DataError
from bayesmf.kernels.reduce import weighted_moments
from bayesmf.kernels.rows import OtherSide, draw_from_grams, pack_grams
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import SideData
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State, random_start, start_rows, start_sd
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep.algorithm import Sampling
from bayesmf.sweep.moves import draw_tau, move_features
from bayesmf.sweep.rows import row_prior, update_rows
from bayesmf.sweep.sweep import (
    fix_hyper,
    take_hyper,
    update_alpha,
    update_hyper,
    update_scale,
    update_tau,
)

Array = NDArray[np.float64]
ATTEMPTS = 3  # at a sweep, and then at all that led to it


class Shared(NamedTuple):
    """What a user step sees besides its block."""

    model: Model
    draws: Draws
    x: Array  # of the items
    alpha: Array
    mu: Array  # of the users' prior
    Lambda: Array
    tau: float
    map: tuple[Array, Array]  # turns that the users' rows have still to make


def resident_start(model: Model, data: ResidentData, seed: int, chain: int) -> State:
    """``random_start``, the users' rows made by their blocks."""
    nobody = SideData("user", None, data.user.counts[:0])
    state = random_start(model, replace(data, user=nobody), seed, chain, start_sd(chain))
    draws = stream(Draws(seed, chain), "user", "start_rows")
    begin = partial(_begin, model=model, sd=start_sd(chain), draws=draws)
    rows = [data.workers.call(begin, block) for block in data.blocks]
    state.user = ResidentSide(data, state.user.mu, state.user.Lambda, rows)
    return state


def _begin(block: Block, model: Model, sd: float, draws: Draws) -> Held:
    first = block.users.observed.first
    x = start_rows(model, block.users.counts, sd, replace(draws, first=first))
    return Held(x, np.ones(len(x)), np.ones(len(x)))


def resident_sweep(model: Model, data: ResidentData, state: State, draws: Draws) -> None:
    """Draw everything once, as ``sweep`` does; changes ``state`` in place.

    Rows that died with their machine are made again: the sweeps since the last state that the
    driver held whole (of a kept draw, of a checkpoint, or the start) are redone with the same
    draws.
    """
    if not isinstance(state.user, ResidentSide):
        since = copy.deepcopy(state)
        state.user = _scatter(data, state.user)
        state.user.since = since
    elif state.user.here:
        state.user.since = copy.deepcopy(replace(state, user=state.user.plain()))
    again = partial(_again, model, data, state, state.user.since, draws)
    try:
        _sweep(model, data, state, draws)
    except data.workers.lost:
        again()
    state.user.redo = again


def _scatter(data: ResidentData, user: Side) -> ResidentSide:
    """Rows that the driver has, brought to the blocks."""
    rows = [
        data.workers.put(Held(user.x[a:b], user.alpha[a:b], user.scale[a:b])) for a, b in data.spans
    ]
    return ResidentSide(data, user.mu, user.Lambda, rows)


def _again(
    model: Model, data: ResidentData, state: State, since: State | None, draws: Draws
) -> None:
    """The state after the sweep of ``draws``, from an earlier one or from the random start."""
    assert isinstance(state.user, ResidentSide)
    for _ in range(ATTEMPTS):
        with contextlib.suppress(*data.workers.lost):
            new = (
                resident_start(model, data, draws.seed, draws.chain)
                if since is None
                else copy.deepcopy(since)
            )
            user = new.user = (
                new.user if isinstance(new.user, ResidentSide) else _scatter(data, new.user)
            )
            for sweep in range(new.sweep + 1, draws.sweep + 1):
                _sweep(model, data, new, replace(draws, sweep=sweep))
            state.user.mu, state.user.Lambda = user.mu, user.Lambda
            state.user.put(user.rows, user.moments)
            state.item, state.tau, state.sweep = new.item, new.tau, new.sweep
            return
    raise DataError(
        f"machines that held users' rows were lost {ATTEMPTS} times over; when the cluster is "
        "stable, go on from the checkpoint (resume=True)"
    )


def _sweep(model: Model, data: ResidentData, state: State, draws: Draws) -> None:
    """A sweep, begun again if a worker dies: the rows of the last one are still there as a rule."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(*data.workers.lost):
            return _once(model, data, state, draws)
    return _once(model, data, state, draws)


def _once(model: Model, data: ResidentData, state: State, draws: Draws) -> None:
    """Everything once; ``state`` changes when the blocks have answered, for they may be lost."""
    algorithm, workers = Sampling(draws), data.workers
    assert isinstance(state.user, ResidentSide)
    if state.user.moments is None:
        made = [workers.call(_moments, rows, model) for rows in state.user.rows]
        state.user.moments = data.summed(made)
    user, item = state.user.moved(), copy.deepcopy(state.item)
    move_features(model, data, replace(state, user=user, item=item), draws)
    _update_prior(model, data, user, algorithm)
    shared = workers.put(
        Shared(model, draws, item.x, item.alpha, user.mu, user.Lambda, state.tau, user.map)
    )
    steps = [
        workers.step(_users, block, rows, shared)
        for block, rows in zip(data.blocks, user.rows, strict=True)
    ]
    grams, *moments = data.summed([sums for _, sums in steps])
    state.user.mu, state.user.Lambda, state.item = user.mu, user.Lambda, item
    state.user.put([rows for rows, _ in steps], tuple(moments))
    update_hyper(model, data.item, item, algorithm)
    prior, errors = row_prior(model, data.item, item), np.empty(len(item.x))
    item.x = np.zeros_like(item.x)
    draw_from_grams(
        grams, state.tau * item.alpha, prior, algorithm.counter("item", "rows"), item.x, errors
    )
    draw_tau(model, data.item, errors, data.size, state, draws)
    update_alpha(model, data.item, item, errors, state, algorithm)
    update_tau(model, data, errors, state, algorithm)


def _update_prior(
    model: Model, data: ResidentData, user: ResidentSide, algorithm: Sampling
) -> None:
    """mu and Lambda of the users, from the blocks' moments."""
    assert user.moments is not None
    for number, group in enumerate(model.groups("user")):
        if group.hyper is None:
            fix_hyper(model, user, group)
        else:
            columns = slice(group.first, group.end)
            weight, total, scatter = user.moments[:3] if group.end > 1 else user.moments[-3:]
            conditional = group.hyper.posterior(
                weight, total[columns], scatter[columns, columns], len(data.user.counts)
            )
            take_hyper("user", user, group, number, conditional, algorithm)


def _moments(rows: Held, model: Model) -> Sums:
    """sum w, sum w x and sum w x x' with the weights of the features' prior; then without any."""
    weights = [np.ones(len(rows.x))]
    if model.prior == "student-t":
        weights = [rows.scale, *weights]
    found: list[Sums] = [weighted_moments(rows.x, w, 0, model.size) for w in weights]
    return sum(found, ())


def _users(block: Block, rows: Held, shared: Shared) -> tuple[Held, Sums]:
    """The user step of a block: its new rows; the items' Gram matrices and the rows' moments."""
    model, data = shared.model, block.users
    algorithm = Sampling(replace(shared.draws, first=data.observed.first))
    me = _make_side(rows._replace(x=rows.x.copy()), shared.mu, shared.Lambda)
    me.turn(*shared.map)
    items = Held(shared.x, shared.alpha, np.ones(len(shared.x)))
    state = State(me, _make_side(items, shared.mu, shared.Lambda), shared.tau)
    for group in model.groups("user"):
        update_scale(model, "user", me, group, algorithm)
    errors = update_rows(model, data, me, state.item, state, algorithm)
    update_alpha(model, data, me, errors, state, algorithm)
    new = Held(me.x, me.alpha, me.scale)
    grams = np.empty((len(shared.x), (me.size + 1) * (me.size + 2) // 2))
    known = OtherSide.of(me.x, me.alpha, POINTS)
    pack_grams(block.items, known, me.size, state.width(), grams)
    return new, (grams, *_moments(new, model))


def _make_side(rows: Held, mu: Array, Lambda: Array) -> Side:
    """Rows without designs."""
    return Side(rows.x, mu, Lambda, rows.alpha, rows.scale)
