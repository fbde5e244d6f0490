"""Neighbours, the map and titles: what a fit is asked for that not every fit can answer yet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import Side
from bayesmf.data.pairs import frame_like

DRAWS = 25  # evenly spaced, whose features are compared


def titles(fit: Any, side: Side) -> list[str] | None:
    """Return the title of every user, or item, in the order of the ids; None if there are none."""
    return None


def similar(fit: Any, side: Side, one: Any, n: int) -> Any:
    """Return a table of the nearest users, or items, by the mean cosine of features over draws."""
    rows, posterior = _rows(fit, side), fit.posterior
    at = int(posterior.row_of(side, [one])[0])
    length = np.maximum(np.linalg.norm(rows, axis=2), 1e-12)
    cosine = np.einsum("sid,sd->si", rows, rows[:, at]) / length / length[:, [at]]
    near = cosine.mean(axis=0)
    near[at] = -np.inf
    near[posterior.counts(side) == 0] = -np.inf
    best = np.argsort(-near, kind="stable")[: min(n, int(np.isfinite(near).sum()))]
    return frame_like({side: posterior.ids(side).values[best], "similarity": near[best]})


def places(fit: Any) -> Any:
    """Return a table of the items with their place on a map, x and y.

    The inner products of the items' features, averaged over draws, do not depend on the basis of
    the features in each draw. Their first two principal axes are those of the map.
    """
    rows = _rows(fit, "item")
    wide = np.concatenate(list(rows - rows.mean(axis=1, keepdims=True)), axis=1) / len(rows) ** 0.5
    axes = np.linalg.eigh(wide.T @ wide)[1][:, ::-1][:, :2]
    xy = np.zeros((len(wide), 2))
    xy[:, : axes.shape[1]] = wide @ (axes * np.where(axes.sum(axis=0) < 0, -1, 1))
    posterior = fit.posterior
    columns = {"item": posterior.items.values, "x": xy[:, 0], "y": xy[:, 1]}
    return frame_like({**columns, "ratings": posterior.item_counts})


def _rows(fit: Any, side: Side) -> NDArray[np.float64]:
    """The features of one side in some draws: (draw, row, feature)."""
    x, size = fit.posterior.draws[f"{side}.x"], fit.posterior.model.size
    every = np.linspace(0, len(x) - 1, min(DRAWS, len(x))).round().astype(int)
    return np.asarray(x[every][:, :, 1:size], float)
