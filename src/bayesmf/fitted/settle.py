"""Precisions of rows whose prior is known, and what else is hidden of these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store.kept import take_rows
from bayesmf.kernels.gram import padded
from bayesmf.kernels.rows import OtherSide, join_rows
from bayesmf.machine import aligned
from bayesmf.model import conditionals
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model, has_hidden_scales
from bayesmf.model.state import Side, State
from bayesmf.random.draws import Draws
from bayesmf.sweep.algorithm import Covariances, Modes, Sampling
from bayesmf.sweep.response import Learn, update_response
from bayesmf.sweep.rows import update_rows

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]
Kind = Literal["draw", "mean", "point"]
"""What a state is: a draw of the posterior, the means of a Q, or a MAP estimate."""
NO_NOISE = np.empty((0, 0, 0), np.float32)
UPDATES = 20  # of the new rows' Q, which settle in fewer
ROUNDS = 2  # of the new rows' precisions, which settle in fewer
RESPONSE_ROUNDS = 6  # where ratings are latent, or have effects of their own


def rounds_of(model: Model) -> int:
    """How many rounds what is hidden of rows is drawn in, before the rows that stay."""
    return RESPONSE_ROUNDS if model.responds else ROUNDS


def begin_draws(old: Posterior, seed: int, number: int) -> Draws:
    """Random numbers of the first round, which no earlier update of the posterior has had.

    If they had, then a row that is drawn given what depends on an earlier draw of it, or of another
    row, would not be independent of that draw.
    """
    return Draws(seed, number, old.updates * (rounds_of(old.model) + 1))


def last_round(first: Draws, model: Model) -> Draws:
    """Random numbers of the last round, in which the rows are drawn that stay."""
    return replace(first, sweep=first.sweep + rounds_of(model))


def gather_others(
    draws: Arrays, name: Name, rows: NDArray[np.int32], span: slice, size: int
) -> OtherSide:
    """Return some rows of a side in some draws, all of them drawn, one draw after the other."""
    x, noise, alpha = (
        take_rows(draws, f"{name}.{part}", rows, span) if f"{name}.{part}" in draws else NO_NOISE
        for part in ("x", "noise", "alpha")
    )
    z = aligned((alpha.size, padded(size + 1)))
    join_rows(x, noise, alpha, z)
    return OtherSide(z, conditionals.POINTS)


def _draw_scales(
    model: Model,
    data: Data,
    mine: SideData,
    new: State,
    draws: Draws,
    added: list[Array] | None,
) -> None:
    """Draw the new rows' precisions in rounds with the rows, and what else is hidden of them.

    In the first round effects are where they begin, so that they do not explain what rows should.
    """
    name = mine.name
    me, others = new.sides(name)
    rounds = rounds_of(model) if has_hidden_scales(model) or model.responds else 0
    for number in range(rounds):
        sampling = Sampling(replace(draws, sweep=draws.sweep + number))
        if model.responds:
            update_response(
                model, data, new, sampling.draws, _learned(name) if number else "none", added
            )
        errors = update_rows(model, mine, me, others, new, sampling)
        if model.precision != "constant":
            conditional = conditionals.alpha(model, mine.counts, errors, new.tau)
            me.alpha = sampling.take(name, "alpha", conditional)
    if model.responds:
        update_response(model, data, new, last_round(draws, model), _learned(name), added)


def _learned(name: Name) -> Learn:
    """What is drawn of effects and likelihood: what belongs to users, if they are new."""
    return "rows" if name == "user" else "none"


def _update_means(model: Model, mine: SideData, new: State) -> None:
    """Update the means of the new rows' precisions, in turn with the rows.

    <alpha_i> = (a + n_i / 2) / (b + tau / 2 sum_j beta_j <e_ij^2>)
    """
    me, others = new.sides(mine.name)
    means = Means(len(mine.counts), model.size)
    for _ in range(UPDATES if has_hidden_scales(model) else 0):
        errors = update_rows(model, mine, me, others, new, means)
        if model.precision != "constant":
            errors = errors + _doubt_in_errors(mine, me, new.tau, means.cov.own)
            me.alpha = conditionals.alpha(model, mine.counts, errors, new.tau).mean()


class Means(Modes):
    """Takes the mean of every row, given points, and keeps the covariance of its own part."""

    def __init__(self, rows: int, size: int) -> None:
        self.cov = Covariances()
        self.cov.own = np.zeros((rows, size * (size + 1) // 2))
        self.cov.logdet = np.zeros(rows)

    def covariances(self, side: Name) -> Covariances:
        """Return those of the rows, whichever side they are of."""
        return self.cov


def _doubt_in_errors(mine: SideData, me: Side, tau: float, cov: Array) -> Array:
    """Compute tr(A_i C_i), which the covariance C_i of a row adds to its mean squared errors.

    With A_i = sum_j beta_j z_j z_j' and C_i^-1 = prior_i + tau alpha_i A_i it is
    (D - tr(prior_i C_i)) / (tau alpha_i).
    """
    assert mine.priors is not None
    rows, columns = np.tril_indices(me.size)
    trace = (mine.priors.precision * cov) @ np.where(rows == columns, 1.0, 2.0)
    return np.maximum((me.size - trace) / (tau * me.alpha), 0.0)


def at_point(model: Model, state: State) -> tuple[Model, State]:
    """Return model and state of a MAP estimate: every rating weighs the same."""
    user, item = (replace(s, alpha=np.ones(len(s.x))) for s in (state.user, state.item))
    return replace(model, precision="constant"), replace(state, user=user, item=item)


def settle_scales(
    model: Model,
    data: Data,
    mine: SideData,
    new: State,
    draws: Draws,
    kind: Kind,
    added: list[Array] | None = None,
) -> None:
    """Draw the precisions of rows whose prior is known, or update their means.

    ``added`` is what the model's effects add to the ratings, if these are not to be drawn.
    """
    if kind == "mean":
        _update_means(model, mine, new)
    elif kind == "draw":
        _draw_scales(model, data, mine, new, draws, added)
