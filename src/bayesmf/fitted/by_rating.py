"""Parameters of single ratings: they follow the ratings that a posterior holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store.kept import kept_as, put_arrays
from bayesmf.model.data import Data
from bayesmf.model.designs import Name
from bayesmf.model.effects import BY_RATING, BY_USER
from bayesmf.model.spec import Model
from bayesmf.model.state import LIKELIHOOD, State, to_arrays

Array = NDArray[np.float64]


def is_by_rating(name: str) -> bool:
    """Whether an array of a draw has an entry for each training rating."""
    return f".{BY_RATING}" in name


def is_of_row(name: str) -> bool:
    """Whether an array of a draw, besides x, has an entry for each rating or row for each user."""
    return is_by_rating(name) or name.startswith(f"{LIKELIHOOD}{BY_USER}")


def positions(part: Ratings, whole: Ratings) -> NDArray[np.int64]:
    """Where each rating of a part stands in the whole, both by user; -1 where it does not."""

    def keys(ratings: Ratings) -> NDArray[np.int64]:
        rows = ratings.by_user
        user = whole.users.index(ratings.users.values).astype(np.int64)[rows.row_index]
        item = whole.items.index(ratings.items.values).astype(np.int64)[rows.index]
        return np.where((user < 0) | (item < 0), -1, user * len(whole.items) + item)

    there, asked = keys(whole), keys(part)
    at = np.searchsorted(there, asked)
    found = there[np.minimum(at, max(len(there) - 1, 0))] == asked if len(there) else at < 0
    return np.where(found, at, -1)


def follow(
    draws: Mapping[str, NDArray[Any]], before: Ratings | None, after: Ratings | None
) -> Mapping[str, NDArray[Any]]:
    """Draws whose parameters of single ratings are those of other ratings; new ones are zero."""
    names = [name for name in draws if is_by_rating(name)]
    if not names or before is None or after is None or before is after:
        return draws
    at, out = positions(before, after), {}
    new = np.ones(len(after), bool)
    new[at[at >= 0]] = False
    for name in names:
        out[name] = np.empty((len(draws[name]), len(after)), kept_as(name))
        for there, here in _runs(at):
            out[name][:, here] = draws[name][:, there]
        out[name][:, new] = 0
    return put_arrays(draws, out)


def _runs(at: NDArray[np.int64]) -> Iterator[tuple[slice, slice]]:
    """Where neighbours stay neighbours: parts of what is moved, and the places of each.

    A part is copied at once. Few new ratings among many leave few parts.
    """
    kept = np.flatnonzero(at >= 0)
    breaks = 1 + np.flatnonzero((np.diff(kept) != 1) | (np.diff(at[kept]) != 1))
    for part in np.split(kept, breaks) if len(kept) else ():
        first, length = int(part[0]), len(part)
        yield slice(first, first + length), slice(int(at[first]), int(at[first]) + length)


def begin_rows(model: Model, data: Data, new: State, side: Name) -> State:
    """A state whose effects and likelihood have first values for other users' ratings."""
    if data.response is None or side == "item":
        return new
    parts = zip(model.every_effect, new.effects, data.response.prepared, strict=True)
    return replace(
        new,
        effects=[effect.begin(own, train) for effect, own, train in parts],
        likelihood=model.likelihood.begin(new.likelihood, len(data.user.counts)),
    )


def known_additions(
    old: Posterior, data: Data, state: State, side: Name, cells: Cells | None = None
) -> list[Array] | None:
    """What effects add to ratings by known users of other items; None where they are drawn."""
    if data.response is None or side == "user":
        return None
    asked = data.response.cells if cells is None else cells
    parts = zip(old.model.every_effect, state.effects, old.prepared, strict=True)
    return [effect.contribution(own, effect.locate(train, asked)) for effect, own, train in parts]


def row_parameters(state: State, side: Name) -> dict[str, Array]:
    """What was drawn of single ratings and of users besides their rows, by the names of draws."""
    if side == "item":
        return {}
    return {name: values for name, values in to_arrays(state).items() if is_of_row(name)}
