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
from bayesmf.fitted.store.linear import AskedRows, answers
from bayesmf.kernels.designs import Sparse
from bayesmf.model.attributes import Attributes
from bayesmf.model.data import Data
from bayesmf.model.designs import SIDES, Matrix, Name
from bayesmf.model.state import shift_names

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]
Index = NDArray[np.int32]


class AskedPair:
    """One pair of a user and an item: their rows in every draw (or at the centre)."""

    def __init__(self, posterior: Posterior, cells: Cells) -> None:
        """``cells`` hold the pair alone; who has no ratings has to have attributes."""
        self.posterior, self.cells = posterior, cells
        self.row: dict[Name, int] = {name: int(getattr(cells, name)[0]) for name in SIDES}
        self.is_new = {name: _is_new(posterior, name, self.row[name]) for name in SIDES}
        draws = posterior.centred().draws
        if any(self.is_new.values()):
            draws = posterior.newcomers.add_to(draws)
        self.draws, self.every = draws, slice(0, len(draws["tau"]))
        given = cells.given or {}
        self.asked: dict[Name, AskedRows] = {
            name: AskedRows(draws, name, getattr(cells, name), given.get(name)) for name in SIDES
        }

    def x(self, name: Name) -> Array:
        """Return the row (bias, S_i) or (bias, T_j) in every draw."""
        asked = self.asked[name]
        rows = asked.means(self.every, self.posterior.newcomers)
        return np.asarray(rows[:, asked.numbers[0]], float)

    def selection(self) -> Array:
        """Return what it says that a newcomer rates the item, in every draw."""
        found = answers(self.asked["user"], self.asked["item"], self.every)
        return np.asarray(np.zeros(self.every.stop) + np.ravel(found))

    def given(self, name: Name) -> dict[int, tuple[Index, Array]]:
        """Return the entries of the given designs, by their number: the columns and the values."""
        row, posterior = self.row[name], self.posterior
        if row < 0:
            assert self.cells.given is not None
            matrices, row = self.cells.given[name], -2 - row
        else:
            one = posterior.ids(name).take(np.array([row]))
            matrices, row = posterior.newcomers.given_of(name, one), 0
        return {number: _entries(matrix, matrix.rows, row) for number, matrix in matrices.items()}

    def weights(self, name: Name, number: int, which: Index) -> Array:
        """Return the weights of some columns of a given design, those that made the row."""
        if not self.is_new[name]:
            key = f"{name}.{shift_names(number)['W']}"
            return take_rows(self.draws, key, which).astype(float)
        before = [m for k, m in self.posterior.newcomers.given[name].items() if k < number]
        first = sum(len(matrix.columns.starts) - 1 for matrix in before if matrix.columns)
        return take_rows(self.draws, f"{name}.new_W", first + which).astype(float)

    def offset(self, rated: Ratings | None) -> Array:
        """Return what designs add to the user's row in every draw, as far as it is known.

        The prior of newcomers knows what rows of training rated without a rated-set design, so that
        their given designs are all there is.
        """
        total = np.zeros((self.every.stop, self.posterior.model.size))
        if self.is_new["user"]:
            for number, (which, x) in self.given("user").items():
                total += np.einsum("k,dkc->dc", x, self.weights("user", number, which))
        elif rated is not None:
            for number, matrix in enumerate(_matrices(self.posterior, rated)):
                rows = Sparse(rated.by_user.starts, rated.by_user.index)
                which, x = _entries(matrix, matrix.rows or rows, self.row["user"])
                total += np.einsum("k,dkc->dc", x, self.weights("user", number, which))
        return total


def _is_new(posterior: Posterior, name: Name, row: int) -> bool:
    """Whether given designs have the weights of newcomers in a row.

    That is so for rows without ratings, rows that were folded in, which have a newness, and users
    that the model draws again, who have a noise.
    """
    if row < 0 or not posterior.newcomers.given[name]:
        return row < 0
    marks = [key for key in (f"{name}.noise", f"{name}.newness") if key in posterior.draws]
    return any(take_rows(posterior.draws, key, np.array([row])).any() for key in marks)


def parts_of(pair: AskedPair, rated: Ratings | None) -> dict[str, Array]:
    """The parts of one prediction, draw by draw (or at the centre); they add up to it.

    mean + user bias + item bias + U_i'T_j + offset_i'T_j + selection + effects, such as the mood

    The selection is what it says that a newcomer rates the item. Without what the user rated, own
    features and designs cannot be told apart, unless the user's row is one of newcomers.
    """
    size, posterior = pair.posterior.model.size, pair.posterior
    x, y, offset = pair.x("user"), pair.x("item"), pair.offset(rated)
    parts = {
        "mean": np.full(len(x), posterior.mean),
        "user_bias": x[:, 0] - offset[:, 0],
        "item_bias": y[:, 0],
        "own_features": np.sum((x - offset)[:, 1:size] * y[:, 1:size], axis=1),
        "designs": offset[:, 0] + np.sum(offset[:, 1:size] * y[:, 1:size], axis=1),
    }
    selection = pair.selection()
    if selection.any():
        parts["selection"] = selection
    for name, added in posterior.effects(pair.draws, pair.cells):
        if pair.cells.time is not None or added.any():
            parts[name] = parts.get(name, 0.0) + added[:, 0]
    return parts


def _rows(draws: Arrays, name: str, row: int) -> Array:
    """One row of an array in every draw."""
    return take_rows(draws, name, np.array([row]))[:, 0].astype(float)


def _matrices(posterior: Posterior, rated: Ratings) -> tuple[Matrix, ...]:
    """The designs of the users."""
    return Data.of(rated, posterior.model, posterior.mean).user.matrices


def _entries(matrix: Matrix, rows: Sparse | None, row: int) -> tuple[Index, Array]:
    """The columns in which a design has entries of one row, and the entries."""
    assert rows is not None
    span = slice(rows.starts[row], rows.starts[row + 1])
    which = rows.index[span]
    values = rows.values[span] if len(rows.values) else np.ones(len(which))
    return which, matrix.scale[row] * values


def shares(pair: AskedPair, rated: Ratings) -> Array:
    """What each of the user's ratings adds to the prediction, averaged over the draws.

    Given the items, a user's vector is linear in the ratings: with z_k = (1, T_k),

    x_i = P_i^-1 [ Lambda (mu + offset_i) + tau alpha_i sum_k beta_k z_k (r_ik - mean - eta_k) ]

    so rating k adds z_j' P_i^-1 tau alpha_i beta_k z_k (r_ik - mean - eta_k), and by a
    rated-set design z_j' P_i^-1 Lambda c_i W_k. A weight of the rating multiplies beta_k.
    """
    posterior, user = pair.posterior, pair.row["user"]
    model, size = posterior.model, posterior.model.size
    rows = rated.by_user
    span = slice(rows.starts[user], rows.starts[user + 1])
    which, values = rows.index[span], np.asarray(rows.values[span], float)
    given = 1.0 if rows.weights is None else rows.weights[span]
    draws, own = pair.draws, model.has_own("user")
    free, first = slice(0, size if own else 1), model.first_shifted
    alpha, scales = _rows(draws, "user.alpha", user), _rows(draws, "user.scale", user)
    goals = pair.x("item")
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


def attribute_parts(pair: AskedPair) -> list[dict[str, Any]]:
    """What each attribute of the user and of the item adds to the prediction, the largest first.

    Attribute k of user i adds X_ik (W_k0 + W_k'T_j) through the mean of the user's prior, and one
    of item j adds X_jk (W_k0 + S_i'W_k); averaged over the draws.
    """
    found: list[dict[str, Any]] = []
    for name, other in zip(SIDES, SIDES[::-1], strict=True):
        designs = pair.posterior.model.designs(name)
        if not any(isinstance(design, Attributes) for design in designs):
            continue
        z = pair.x(other)
        z[:, 0] = 1.0
        for number, (which, x) in pair.given(name).items():
            design = designs[number]
            if not isinstance(design, Attributes):
                continue
            W = pair.weights(name, number, which)
            total = x * np.einsum("dkc,dc->dk", W, z).mean(axis=0)
            labels = list(design.labels())
            for k, entry, adds in zip(which, x, total, strict=True):
                column, value = labels[k]
                shown = column.mean + column.sd * float(entry) if value is None else value
                named = {"side": name, "attribute": column.name, "value": shown}
                found.append({**named, "adds": float(adds)})
    return sorted(found, key=lambda part: -abs(part["adds"]))


def explain(
    posterior: Posterior, cells: Cells, rated: Ratings | None, most: int = 5
) -> dict[str, Any]:
    """Parts of a prediction with their spread, and the ratings that matter most to it."""
    pair, model = AskedPair(posterior, cells), posterior.model
    parts = parts_of(pair, rated)
    if rated is None and model.user_designs and not pair.is_new["user"]:
        # what was rated is not at hand
        parts["features"] = parts.pop("own_features") + parts.pop("designs")
    out: dict[str, Any] = {
        "prediction": float(sum(values.mean() for values in parts.values())),
        "parts": {
            name: {"mean": float(values.mean()), "sd": float(values.std())}
            for name, values in parts.items()
        },
    }
    if model.likelihood.latent:
        out["expected"] = float(posterior.predictive(cells).mean[0])
    attributes = attribute_parts(pair)
    if attributes:
        out["attributes"] = attributes[:most]
    if rated is not None and pair.row["user"] >= 0 and not model.responds:
        out["ratings"] = _rank_ratings(pair, rated, most)
    return out


def _rank_ratings(pair: AskedPair, rated: Ratings, most: int) -> list[dict[str, Any]]:
    """The ratings of the user that matter most, the first one most."""
    rows, user = rated.by_user, pair.row["user"]
    span = slice(rows.starts[user], rows.starts[user + 1])
    added = shares(pair, rated)
    order = np.argsort(-np.abs(added), kind="stable")[:most]
    return [
        {
            "item": rated.items.values.item(int(rows.index[span][k])),
            "rating": float(rows.values[span][k]),
            "adds": float(added[k]),
        }
        for k in order
    ]
