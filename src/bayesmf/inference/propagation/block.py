"""One block of a table of ratings, sampled by itself: what posterior propagation is made of."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.engines.ray.cluster import Ray
from bayesmf.inference.propagation.row_gaussians import RowGaussians, RowMoments
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model.conditionals import POINTS
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Name, Side, SideData, State, random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.algorithm import NO_VALUES
from bayesmf.sweep.sweep import gibbs_sweep, prior_of

Array = NDArray[np.float64]
SIDES: tuple[Name, Name] = ("user", "item")
NO_DRAWS = Draws(0).counter()


@dataclass(frozen=True)
class Job:
    """All that a block's result depends on; where and when it runs plays no part."""

    model: Model
    number: int  # of the block: its draws are those of the chain of this number
    ratings: Ratings  # of its users and items alone
    mean: float  # of all training ratings
    seed: int
    sweeps: int
    burn_in: int
    keep: int  # sweeps after the burn-in whose conditionals are averaged
    user: RowGaussians | None = None  # what is known of its users beforehand
    item: RowGaussians | None = None


@dataclass(frozen=True)
class Block:
    """What a block says of its rows and of the noise."""

    user: RowGaussians
    item: RowGaussians
    noise: Array  # the variance 1 / tau at each averaged sweep
    size: int  # ratings


def run_blocks(jobs: Iterable[Job], engine: Ray | None = None) -> list[Block]:
    """The results of independent jobs, in their order; here one after the other, or on Ray."""
    return [run_block(job) for job in jobs] if engine is None else engine.map(run_block, jobs)


def run_block(job: Job) -> Block:
    """Gibbs sampling of one block, and the moments of its rows.

    A side with priors keeps them: they also hold the features' rotation, and the other side
    follows. With no priors the posterior is the same for every rotation of the features, and the
    chain may drift among them; each sweep is then turned to the first averaged one, which changes
    no prediction, before moments are taken.
    """
    model, data = job.model, data_of(job)
    state = start_of(job, data)
    sides = (data.user, data.item)
    moments = {side.name: RowMoments(len(side.counts), model.size) for side in sides}
    turns = job.user is None and job.item is None and _symmetric(model)
    noise: list[float] = []
    first: State | None = None
    span = job.sweeps - job.burn_in
    for sweep in range(1, job.sweeps + 1):
        gibbs_sweep(model, data, state, Draws(job.seed, job.number, sweep), "centred")
        after = sweep - 1 - job.burn_in
        if after < 0 or (after + 1) * job.keep // span == after * job.keep // span:
            continue
        noise.append(1 / state.tau)
        seen = state
        if turns:
            seen = state if first is None else turned(state, first)
            first = first or copy.deepcopy(state)
        for side in sides:
            moments[side.name].add(*conditional_moments(model, side, seen))
    return Block(moments["user"].result(), moments["item"].result(), np.array(noise),
                 len(job.ratings))  # fmt: skip


def data_of(job: Job) -> Data:
    """The ratings of a job as the sweep takes them, with its priors."""
    data = Data.of(job.ratings, job.model, job.mean)
    user = None if job.user is None else job.user.priors()
    item = None if job.item is None else job.item.priors()
    return replace(data, user=replace(data.user, priors=user),
                   item=replace(data.item, priors=item))  # fmt: skip


def start_of(job: Job, data: Data) -> State:
    """Where a chain begins: at the means of its priors, and at random where there are none."""
    state = random_start(job.model, data, job.seed, job.number)
    for side, known in ((state.user, job.user), (state.item, job.item)):
        if known is not None:
            side.x[:, : side.size] = known.mean
    return state


def conditional_moments(model: Model, data: SideData, state: State) -> tuple[Array, Array]:
    """Mean and covariance of every row of one side, given the other side and everything else."""
    me, others = state.sides(data.name)
    out, covs = np.zeros_like(me.x), np.empty((len(me.x), me.size * (me.size + 1) // 2))
    known = OtherSide.of(others.x, others.noise, POINTS)
    draw_rows(data.observed, known, state.tau * me.noise, prior_of(model, data, me), NO_DRAWS,
              False, out, NO_VALUES, covs, np.empty(len(me.x)), state.width())  # fmt: skip
    return out[:, : me.size], covs


def _symmetric(model: Model) -> bool:
    """Whether the prior is the same for all rotations of the features."""
    h = model.hyper
    return model.rank > 0 and h.feature_mean == 0 and bool(np.ptp(h.feature_scale) == 0)


def turned(state: State, to: State) -> State:
    """A copy whose features are turned as close as can be to those of another state.

    x -> x Q,   mu -> Q' mu,   Lambda -> Q' Lambda Q,   Q = argmin |X Q - X_to|

    with the users' and the items' rows together in X; the biases stay.
    """
    size = state.user.size
    Q = np.eye(size)
    pairs = ((state.user, to.user), (state.item, to.item))
    u, _, v = np.linalg.svd(sum(a.x[:, 1:size].T @ b.x[:, 1:size] for a, b in pairs))
    Q[1:, 1:] = u @ v

    def turn(side: Side) -> Side:
        x = side.x.copy()
        x[:, :size] = side.x[:, :size] @ Q
        return replace(side, x=x, mean=Q.T @ side.mean, precision=Q.T @ side.precision @ Q)

    return replace(state, user=turn(state.user), item=turn(state.item))
