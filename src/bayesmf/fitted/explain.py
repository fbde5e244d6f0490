"""Why a prediction is what it is: its parts, and what each of the user's ratings adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store.kept import take_rows
from bayesmf.kernels.designs import Sparse
from bayesmf.model.attributes import Attributes
from bayesmf.model.data import Data
from bayesmf.model.designs import SIDES, Matrix
from bayesmf.model.state import shift_names

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]
Index = NDArray[np.int32]


def parts_of(posterior: Posterior, user: int, item: int, rated: Ratings | None) -> dict[str, Array]:
    """The parts of one prediction, draw by draw (or at the centre); they add up to it.

    mean + user bias + item bias + U_i'T_j + offset_i'T_j + selection

    The selection is what it says that a newcomer rates the item. Without what the user rated, own
    features and designs cannot be told apart.
    """
    draws, size = posterior.centred().draws, posterior.model.size
    x, y = _rows(draws, "user.x", user), _rows(draws, "item.x", item)
    offset = np.zeros_like(x)
    if rated is not None:
        for number, matrix in enumerate(_matrices(posterior, rated)):
            which, entries = _entries(matrix, rated, user)
            W = take_rows(draws, f"user.{shift_names(number)['W']}", which).astype(float)
            offset += matrix.scale[user] * np.einsum("k,dkc->dc", entries, W)
    parts = {
        "mean": np.full(len(x), posterior.mean),
        "user_bias": x[:, 0] - offset[:, 0],
        "item_bias": y[:, 0],
        "own_features": np.sum((x - offset)[:, 1:size] * y[:, 1:size], axis=1),
        "designs": offset[:, 0] + np.sum(offset[:, 1:size] * y[:, 1:size], axis=1),
    }
    selection = posterior.answers(user, item)
    return {**parts, "selection": selection} if selection.any() else parts


def _rows(draws: Arrays, name: str, row: int) -> Array:
    """One row of an array in every draw."""
    return take_rows(draws, name, np.array([row]))[:, 0].astype(float)


def _matrices(posterior: Posterior, rated: Ratings) -> tuple[Matrix, ...]:
    """The designs of the users."""
    return Data.of(rated, posterior.model, posterior.mean).user.matrices


def _entries(matrix: Matrix, rated: Ratings, user: int) -> tuple[Index, Array]:
    """The columns in which a design has entries of one user, and these but for their scale."""
    rows = Sparse(rated.by_user.starts, rated.by_user.index) if matrix.rows is None else matrix.rows
    span = slice(rows.starts[user], rows.starts[user + 1])
    which = rows.index[span]
    return which, rows.values[span] if len(rows.values) else np.ones(len(which))


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
    draws, own = posterior.centred().draws, model.has_own("user")
    free, first = slice(0, size if own else 1), model.first_shifted
    alpha, scales = _rows(draws, "user.alpha", user), _rows(draws, "user.scale", user)
    goals = _rows(draws, "item.x", item)
    others = take_rows(draws, "item.x", which).astype(float)
    residuals = values - posterior.mean - others[..., 0]
    goals[:, 0], others[..., 0] = 1.0, 1.0
    weights = take_rows(draws, "item.alpha", which).astype(float) * given
    weights *= alpha[:, None] * draws["tau"].astype(float)
    rated_sets = [
        matrix.scale[user] * take_rows(draws, f"user.{shift_names(number)['W']}", which)
        for number, matrix in enumerate(_matrices(posterior, rated))
        if matrix.rows is None
    ]
    total = np.zeros(len(which))
    for k, (z, goal, weight) in enumerate(zip(others, goals, weights, strict=True)):
        prior = np.zeros((size, size))
        for group in model.groups("user"):
            columns = slice(group.first, group.end)
            scale = scales[k] if group.end > 1 else 1.0
            prior[columns, columns] = scale * draws["user.Lambda"][k, columns, columns]
        P = prior + (z * weight[:, None]).T @ z
        lever = np.zeros(size)
        lever[free] = np.linalg.solve(P[free, free], goal[free])
        total += weight * (z @ lever) * residuals[k]
        direct = prior @ lever
        if not own:  # S is the offset itself, and the bias makes room for it
            direct = goal - lever[0] * weight @ z
        for W in rated_sets:
            total += W[k, :, first:] @ direct[first:]
    return total / len(others)


def attribute_parts(posterior: Posterior, user: int, item: int) -> list[dict[str, Any]]:
    """What each attribute of the user and of the item adds to the prediction, the largest first.

    Attribute k of user i adds X_ik (W_k0 + W_k'T_j) through the mean of the user's prior, and one
    of item j adds X_jk (W_k0 + S_i'W_k); averaged over the draws.
    """
    size, rows = posterior.model.size, {"user": user, "item": item}
    draws = posterior.centred().draws
    found: list[dict[str, Any]] = []
    for name, other in zip(SIDES, SIDES[::-1], strict=True):
        one = posterior.ids(name).take(np.array([rows[name]]))
        for number, design in enumerate(posterior.model.designs(name)):
            if not isinstance(design, Attributes):
                continue
            which, x = design.entries_of(one)
            z = _rows(draws, f"{other}.x", rows[other])[:, :size]
            z[:, 0] = 1.0
            W = take_rows(draws, f"{name}.{shift_names(number)['W']}", which)
            total = x * np.einsum("dkc,dc->dk", W.astype(float), z).mean(axis=0)
            labels = list(design.labels())
            for k, entry, adds in zip(which, x, total, strict=True):
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
