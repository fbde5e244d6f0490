"""The tables of similar items and users, and of a map."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesmf.data.pairs import Cells, Pairs, frame_like
from bayesmf.errors import DataError
from bayesmf.fitted.explore.lists import Choice
from bayesmf.fitted.explore.similar import nearest, principal
from bayesmf.fitted.posterior import Posterior
from bayesmf.model.designs import SIDES, Name


def trained_row(posterior: Posterior, side: Name, one: Any) -> int:
    """Find the row of one id, and refuse an id without training ratings."""
    if np.ndim(one):
        raise TypeError(f"give one {side}, not a {type(one).__name__}")
    row = int(posterior.warm_row_of(side, [one])[0])
    if row < 0:
        raise DataError(f"the {side} {one!r} was not in training; fold it in first")
    return row


def explained_pair(posterior: Posterior, user: Any, item: Any, at: Any = None) -> Cells:
    """Find the rows of a pair, and refuse ids without training ratings or attributes."""
    for side, one in (("user", user), ("item", item)):
        if np.ndim(one):
            raise TypeError(f"give one {side}, not a {type(one).__name__}")
    cells = posterior.cells(Pairs([user], [item]).at(at))
    for side in SIDES:
        if getattr(cells, side)[0] == -1:
            trained_row(posterior, side, user if side == "user" else item)
    return cells


def find_similar(posterior: Posterior, item: Any, user: Any, n: int, choice: Choice) -> Any:
    """Make the table of ``Fitted.similar``."""
    if (item is None) == (user is None):
        raise TypeError("similar compares items or users: give one item= or one user=")
    side: Name = "item" if user is None else "user"
    row = trained_row(posterior, side, item if user is None else user)
    among = np.flatnonzero(posterior.counts(side) > 0)
    if choice != Choice():
        if side == "user":
            raise TypeError("items=, exclude= and where= are about items; leave them out")
        allowed = choice.candidates(posterior, posterior.labels.named(item=None)).row
        among = np.intersect1d(among, allowed)
    found = nearest(posterior, side, row, n, among)
    ids = posterior.ids(side).values[found.row]
    columns = {
        side: ids,
        **posterior.labels.beside(side, ids),
        "similarity": found.similarity,
        "q05": found.low,
        "q95": found.high,
        "probability": found.probability,
        "ratings": posterior.counts(side)[found.row],
    }
    return frame_like(columns)


def lay_out(posterior: Posterior, side: Name, n: int | None) -> Any:
    """Make the table of ``Fitted.map``."""
    counts = posterior.counts(side)
    rows = np.flatnonzero(counts > 0)
    at = principal(posterior, side, rows)
    order = np.argsort(-counts[rows], kind="stable")[:n]
    ids = posterior.ids(side).values[rows[order]]
    columns = {
        side: ids,
        **posterior.labels.beside(side, ids),
        "x": at[order, 0],
        "y": at[order, 1],
        "ratings": counts[rows[order]],
    }
    return frame_like(columns)
