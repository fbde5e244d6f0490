"""Why a prediction is what it is: its parts, and what each of the user's ratings adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.posterior import Posterior
from bayesmf.model.attributes import Attributes
from bayesmf.model.data import Data
from bayesmf.model.designs import SIDES
from bayesmf.model.state import State, from_arrays, refresh_offsets

Array = NDArray[np.float64]


def parts_of(posterior: Posterior, user: int, item: int, rated: Ratings | None) -> dict[str, Array]:
    """The parts of one prediction, draw by draw (or at the centre); they add up to it.

    mean + user bias + item bias + U_i'T_j + offset_i'T_j + selection

    The selection is what it says that a newcomer rates the item. Without what the user rated, own
    features and designs cannot be told apart.
    """
    found: dict[str, list[float]] = {}
    data = None if rated is None else Data.of(rated, posterior.model, posterior.mean).user
    for state in _states(posterior):
        x, y = state.user.x[user], state.item.x[item]
        size = posterior.model.size
        offset = np.zeros(size)
        if data is not None and state.user.shifts:
            refresh_offsets(state.user, data)
            offset = state.user.offset[user]
        values = {
            "mean": posterior.mean,
            "user_bias": x[0] - offset[0],
            "item_bias": y[0],
            "own_features": float((x[1:size] - offset[1:]) @ y[1:size]),
            "designs": float(offset[0] + offset[1:] @ y[1:size]),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(float(value))
    parts = {name: np.array(values) for name, values in found.items()}
    selection = posterior.answers(user, item)
    return {**parts, "selection": selection} if selection.any() else parts


def _states(posterior: Posterior) -> Iterator[State]:
    """What a prediction is the mean of."""
    if posterior.centre is not None:
        yield from_arrays(posterior.centre)
        return
    for number in range(len(posterior)):
        yield posterior.state(number)


def shares(posterior: Posterior, user: int, item: int, rated: Ratings) -> Array:
    """What each of the user's ratings adds to the prediction, averaged over the draws.

    Given the items, a user's vector is linear in the ratings: with z_k = (1, T_k),

    x_i = P_i^-1 [ Lambda (mu + offset_i) + tau alpha_i sum_k beta_k z_k (r_ik - mean - eta_k) ]

    so rating k adds z_j' P_i^-1 tau alpha_i beta_k z_k (r_ik - mean - eta_k), and by a
    rated-set design z_j' P_i^-1 Lambda c_i W_k. A weight of the rating multiplies beta_k.
    """
    model, size = posterior.model, posterior.model.size
    rows = rated.by_user
    span = slice(rows.starts[user], rows.starts[user + 1])
    which, values = rows.index[span], np.asarray(rows.values[span], float)
    given = 1.0 if rows.weights is None else rows.weights[span]
    total = np.zeros(len(which))
    own = model.has_own("user")
    free = slice(0, size if own else 1)
    matrices = Data.of(rated, model, posterior.mean).user.matrices
    count = 0
    for state in _states(posterior):
        count += 1
        me, other = state.user, state.item
        z = other.x[which, :size].copy()
        z[:, 0] = 1.0
        goal = other.x[item, :size].copy()
        goal[0] = 1.0
        weight = state.tau * me.alpha[user] * other.alpha[which] * given
        prior = np.zeros((size, size))
        for group in model.groups("user"):
            columns = slice(group.first, group.end)
            scale = me.scale[user] if group.end > 1 else 1.0
            prior[columns, columns] = scale * me.Lambda[columns, columns]
        P = prior + (z * weight[:, None]).T @ z
        lever = np.zeros(size)
        lever[free] = np.linalg.solve(P[free, free], goal[free])
        added = weight * (z @ lever) * (values - posterior.mean - other.x[which, 0])
        first, direct = model.first_shifted, prior @ lever
        if not own:  # S is the offset itself, and the bias makes room for it
            direct = goal - lever[0] * weight @ z
        for matrix, shift in zip(matrices, me.shifts, strict=True):
            if matrix.rows is None:  # a rated set
                added += matrix.scale[user] * shift.W[which, first:] @ direct[first:]
        total += added
    return total / count


def attribute_parts(posterior: Posterior, user: int, item: int) -> list[dict[str, Any]]:
    """What each attribute of the user and of the item adds to the prediction, the largest first.

    Attribute k of user i adds X_ik (W_k0 + W_k'T_j) through the mean of the user's prior, and one
    of item j adds X_jk (W_k0 + S_i'W_k); averaged over the draws.
    """
    size, rows = posterior.model.size, {"user": user, "item": item}
    found: list[dict[str, Any]] = []
    for name, other in zip(SIDES, SIDES[::-1], strict=True):
        one = posterior.ids(name).take(np.array([rows[name]]))
        for number, design in enumerate(posterior.model.designs(name)):
            if not isinstance(design, Attributes):
                continue
            which, x = design.entries_of(one)
            total, count = np.zeros(len(which)), 0
            for state in _states(posterior):
                me, others = state.sides(name)
                z = others.x[rows[other], :size].copy()
                z[0] = 1.0
                total, count = total + x * (me.shifts[number].W[which] @ z), count + 1
            labels = list(design.labels())
            for k, entry, adds in zip(which, x, total / count, strict=True):
                column, value = labels[k]
                shown = column.mean + column.sd * float(entry) if value is None else value
                named = {"side": name, "attribute": column.name, "value": shown}
                found.append({**named, "adds": float(adds)})
    return sorted(found, key=lambda part: -abs(part["adds"]))


def explain(
    posterior: Posterior, user: int, item: int, rated: Ratings | None, most: int = 5
) -> dict[str, Any]:
    """Parts of a prediction with their spread, and the ratings that matter most to it."""
    parts = parts_of(posterior, user, item, rated)
    if rated is None and posterior.model.user_designs:  # what was rated is not at hand
        parts["features"] = parts.pop("own_features") + parts.pop("designs")
    out: dict[str, Any] = {
        "prediction": float(sum(values.mean() for values in parts.values())),
        "parts": {
            name: {"mean": float(values.mean()), "sd": float(values.std())}
            for name, values in parts.items()
        },
    }
    if posterior.model.likelihood.latent:
        pair = Cells(np.array([user], np.int32), np.array([item], np.int32))
        out["expected"] = float(posterior.predictive(pair).mean[0])
    attributes = attribute_parts(posterior, user, item)
    if attributes:
        out["attributes"] = attributes[:most]
    if rated is not None and not posterior.model.responds:
        rows = rated.by_user
        span = slice(rows.starts[user], rows.starts[user + 1])
        added = shares(posterior, user, item, rated)
        order = np.argsort(-np.abs(added), kind="stable")[:most]
        out["ratings"] = [
            {
                "item": rated.items.values.item(int(rows.index[span][k])),
                "rating": float(rows.values[span][k]),
                "adds": float(added[k]),
            }
            for k in order
        ]
    return out
