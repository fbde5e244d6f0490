"""One sweep: every parameter once, each given what is known of all the others.

The sweep is the same for every algorithm; an ``Algorithm`` says what it takes from a conditional.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import Form
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import Name
from bayesmf.model.distributions import NormalWishart
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Side, State
from bayesmf.random.draws import Draws
from bayesmf.sweep.algorithm import Algorithm, Sampling
from bayesmf.sweep.designs import update_design, update_design_hyper
from bayesmf.sweep.moves import draw_tau, move_features
from bayesmf.sweep.response import update_response
from bayesmf.sweep.rows import update_rows
from bayesmf.sweep.scales import move_scales

Array = NDArray[np.float64]


def gibbs_sweep(
    model: Model, data: Data, state: State, draws: Draws, form: Form, *, same_basis: bool = False
) -> None:
    """Draw everything once; changes ``state`` in place.

    Features of one sweep cannot be compared with those of another, whose axes are drawn anew,
    unless ``same_basis`` is True.
    """
    if data.response is not None:
        update_response(model, data, state, draws)
    if not same_basis:
        move_features(model, data, state, draws)
    sweep(model, data, state, Sampling(draws, form))


def sweep(model: Model, data: Data, state: State, algorithm: Algorithm) -> float:
    """Update users, items and the global precision in turn; changes ``state`` in place.

    On each side: the designs, the hyper-parameters, the rows, and the rows' precisions, which need
    the squared errors that the rows' update leaves behind. Returns the weighted sum of squared
    errors, sum alpha_i beta_j e_ij^2.
    """
    for mine in (data.user, data.item):
        me, others = state.sides(mine.name)
        if isinstance(algorithm, Sampling):
            move_scales(model, mine, me, others, state, algorithm.draws)
        for number in range(len(me.shifts)):
            update_design_hyper(model, mine, me, number, algorithm)
            update_design(model, mine, me, others, number, state, algorithm)
        update_hyper(model, mine, me, algorithm)
        errors = update_rows(model, mine, me, others, state, algorithm)
        if isinstance(algorithm, Sampling):
            draw_tau(model, mine, errors, data.size, state, algorithm.draws)
        update_alpha(model, mine, me, errors, state, algorithm)
    # what is left behind by the items, who come last: sum_i alpha_i e_ij^2 for each item j
    return update_tau(model, data, errors, state, algorithm)


def update_alpha(
    model: Model, data: SideData, me: Side, errors: Array, state: State, algorithm: Algorithm
) -> None:
    """Update the rows' precisions, if they are not constant."""
    if model.precision != "constant":
        conditional = conditionals.alpha(model, data.counts, errors, state.tau)
        me.alpha = algorithm.take(data.name, "alpha", conditional)
        algorithm.note_update(f"{data.name} alpha")


def update_tau(
    model: Model, data: Data, errors: Array, state: State, algorithm: Algorithm
) -> float:
    """Update the global precision, which ends a sweep; ``errors`` are sum_i alpha_i e_ij^2 of j."""
    total = float(state.item.alpha @ errors)
    conditional = model.likelihood.tau(model.priors, data.size, total)
    if conditional is not None:
        state.tau = float(algorithm.take(None, "tau", conditional)[0])
        algorithm.note_update("tau")
    state.sweep += 1
    return total


def update_hyper(model: Model, data: SideData, me: Side, algorithm: Algorithm) -> None:
    """Update mu and Lambda of the rows' own part, and the rows' Student-t scales.

    Rows with priors of their own leave nothing to learn.
    """
    if data.priors is not None:
        return
    cov = algorithm.seen_covariances(data.name).own
    for number, group in enumerate(model.groups(data.name)):
        if group.hyper is None:
            fix_hyper(model, me, group)
        else:
            conditional = conditionals.hyper(group, me.own, group_weights(me.scale, group), cov)
            take_hyper(data.name, me, group, number, conditional, algorithm)
            doubt = len(conditional.mean) / conditional.beta if len(cov) else 0.0
            update_scale(model, data.name, me, group, algorithm, cov, doubt)


def group_weights(scale: Array, group: Group) -> Array:
    """The rows' weights in the moments of a group: Student-t scales are those of the features."""
    return scale if group.end > 1 else np.ones(len(scale))


def fix_hyper(model: Model, me: Side, group: Group) -> None:
    """Set mu and Lambda of a group whose prior is fixed: the biases'."""
    columns = slice(group.first, group.end)
    me.mu[columns] = model.priors.bias_mean
    me.Lambda[columns, columns] = model.priors.bias_precision


def take_hyper(
    side: Name,
    me: Side,
    group: Group,
    number: int,
    conditional: NormalWishart,
    algorithm: Algorithm,
) -> None:
    """Update mu and Lambda of a group from their conditional."""
    columns = slice(group.first, group.end)
    mu, Lambda = algorithm.take(side, "hyper", conditional, number)
    me.mu[columns], me.Lambda[columns, columns] = mu, Lambda
    algorithm.note_update(f"{side} hyper")


def update_scale(
    model: Model,
    side: Name,
    me: Side,
    group: Group,
    algorithm: Algorithm,
    cov: Array = POINTS,
    doubt: float = 0.0,
) -> None:
    """Update the rows' Student-t scales, if the model has them for this group."""
    if group.end > 1 and model.prior == "student-t":
        conditional = conditionals.student_scale(model, me, group, cov, doubt)
        me.scale = algorithm.take(side, "scale", conditional)
        algorithm.note_update(f"{side} scale")
