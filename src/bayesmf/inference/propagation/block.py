"""One block of a table of ratings, sampled by itself: what posterior propagation is made of."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.inference.propagation.row_gaussians import RowGaussians, RowMoments
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model
from bayesmf.model.state import Side, State, random_start
from bayesmf.random.draws import Draws
from bayesmf.sweep.algorithm import NO_DRAWS, NO_VALUES
from bayesmf.sweep.rows import row_prior
from bayesmf.sweep.sweep import gibbs_sweep

Array = NDArray[np.float64]
SIDES: tuple[Name, Name] = ("user", "item")


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
class BlockPosterior:
    """What a block says of its rows and of the noise."""

    user: RowGaussians
    item: RowGaussians
    noise_variance: Array  # 1 / tau at each averaged sweep
    size: int  # ratings


def run_block(job: Job) -> BlockPosterior:
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
    rotates = job.user is None and job.item is None and _symmetric(model)
    noise_variance: list[float] = []
    first: State | None = None
    span = job.sweeps - job.burn_in
    for sweep in range(1, job.sweeps + 1):
        draws = Draws(job.seed, job.number, sweep)
        gibbs_sweep(model, data, state, draws, "centred", same_basis=True)
        after = sweep - 1 - job.burn_in
        if after < 0 or (after + 1) * job.keep // span == after * job.keep // span:
            continue
        noise_variance.append(1 / state.tau)
        seen = state
        if rotates:
            seen = state if first is None else rotate_towards(state, first)
            first = first or copy.deepcopy(state)
        for side in sides:
            moments[side.name].add(*conditional_moments(model, side, seen))
    user, item = moments["user"].result(), moments["item"].result()
    return BlockPosterior(user, item, np.array(noise_variance), len(job.ratings))


def data_of(job: Job) -> Data:
    """The ratings of a job as the sweep takes them, with its priors."""
    data = Data.of(job.ratings, job.model, job.mean)
    user = None if job.user is None else job.user.priors()
    item = None if job.item is None else job.item.priors()
    return replace(data, user=replace(data.user, priors=user), item=replace(data.item, priors=item))


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
    known = OtherSide.of(others.x, others.alpha, POINTS)
    draw_rows(
        data.observed,
        known,
        state.tau * me.alpha,
        row_prior(model, data, me),
        NO_DRAWS,
        False,
        out,
        NO_VALUES,
        covs,
        np.empty(len(me.x)),
        state.width(),
    )
    return out[:, : me.size], covs


def _symmetric(model: Model) -> bool:
    """Whether the prior is the same for all rotations of the features."""
    h = model.hyper
    return model.rank > 0 and h.feature_mean == 0 and bool(np.ptp(h.feature_scale) == 0)


def rotate_towards(state: State, to: State) -> State:
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
        return replace(side, x=x, mu=Q.T @ side.mu, Lambda=Q.T @ side.Lambda @ Q)

    return replace(state, user=turn(state.user), item=turn(state.item))
