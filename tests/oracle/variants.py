"""The registry of variants that every check of the model runs over, and small worlds for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.model.data import Data
from bayesmf.model.designs import RatedSet
from bayesmf.model.spec import Hyper, Model
from bayesmf.model.state import Side, State, random_start, refresh_offsets
from oracle.designs import Labelled

# Priors with lighter tails than the defaults, so that small worlds have finite moments.
HYPER = Hyper(feature_mean=0.3, feature_count=3.0, feature_degrees=9.0, feature_scale=0.2,
              noise_shape=5.0, noise_rate=4.0, bias_shape=4.0, bias_rate=2.0, bias_mean=0.2,
              bias_precision=2.0, student_degrees=6.0)  # fmt: skip
BASE = Model.paper("no-side", rank=2, precision_prior=(6.0, 5.0), hyper=HYPER)
MEAN, ROOT = (RatedSet(1.0),), (RatedSet(0.5),)  # of what a row rated: the mean of W, or more
VARIANTS: dict[str, Model] = {
    "biases": replace(BASE, rank=0),
    "biases, fixed prior": replace(BASE, rank=0, bias="fixed"),
    "no side": BASE,
    "no side, fixed bias prior": replace(BASE, bias="fixed"),
    "no side, joint bias": replace(BASE, bias="joint"),
    "no side, robust": replace(BASE, precision="robust"),
    "no side, truncated": replace(BASE, precision="truncated"),
    "no side, student-t": replace(BASE, prior="student-t"),
    "user side": replace(BASE, user_designs=MEAN),
    "item side": replace(BASE, item_designs=MEAN),
    "both sides": replace(BASE, user_designs=ROOT, item_designs=ROOT),
    "both sides, joint bias": replace(BASE, user_designs=ROOT, item_designs=ROOT, bias="joint"),
    "user side, robust": replace(BASE, user_designs=MEAN, precision="robust"),
    "both sides, joint bias, robust, student-t": replace(
        BASE, user_designs=ROOT, item_designs=ROOT, bias="joint", precision="robust",
        prior="student-t",
    ),
    "item side, truncated, student-t": replace(
        BASE, item_designs=MEAN, precision="truncated", prior="student-t"
    ),
    "user side only": replace(BASE, user_designs=MEAN, own_features=False),
    "item side only, robust": replace(
        BASE, item_designs=MEAN, own_features=False, precision="robust"
    ),
    "both sides only, truncated": replace(
        BASE, user_designs=MEAN, item_designs=MEAN, own_features=False, precision="truncated",
        bias="fixed",
    ),
    "user design": replace(BASE, user_designs=(Labelled(),)),
    "two designs": replace(BASE, user_designs=(*ROOT, Labelled()), bias="joint"),
}  # fmt: skip
WEIGHTED: dict[str, Model] = {  # of ratings with weights
    f"{name}, weights": VARIANTS[name]
    for name in ("no side, robust", "both sides, joint bias, robust, student-t",
                 "both sides only, truncated")
}  # fmt: skip


def small_ratings(
    n_users: int = 5, n_items: int = 4, seed: int = 0, weighted: bool = False
) -> Ratings:
    """A small incomplete table; one user and one item have no rating at all."""
    rng = np.random.default_rng(seed)
    full = rng.random((n_users, n_items)) < 0.6
    full[0] = True
    full[:, 0] = True
    full[-1], full[:, -1] = False, False
    user, item = np.nonzero(full)
    values = rng.normal(0, 1, len(user))
    return Ratings.from_sorted(
        Ids(np.arange(n_users)), Ids(np.arange(n_items)), user.astype(np.int32),
        item.astype(np.int32), values, None, Scale(-9, 9),
        # most are far from 1, so that one that is forgotten, or squared, is seen
        weights=np.exp(rng.normal(1.5, 1, len(user))) if weighted else None,
    )  # fmt: skip


def random_state(model: Model, data: Data, seed: int = 0) -> State:
    """A state far from anything special."""
    rng = np.random.default_rng(seed)
    state = random_start(model, data, seed)
    state.tau = rng.gamma(3.0, 0.5)
    for side, mine in ((state.user, data.user), (state.item, data.item)):
        _scatter(model, side, mine.name, rng)
        refresh_offsets(side, mine)
        if not model.has_own(mine.name):
            side.x[:, 1 : side.size] = side.offset[:, 1:]
    return state


def _scatter(model: Model, side: Side, name: str, rng: np.random.Generator) -> None:
    size, rows = side.size, len(side.x)
    side.x[:, :size] = rng.normal(0, 1, (rows, size))
    side.mu[:] = rng.normal(0, 1, size)
    side.Lambda[:] = 0.0
    for group in model.groups(name):
        columns = slice(group.first, group.end)
        side.Lambda[columns, columns] = _precision(group.end - group.first, rng)
    if model.precision != "constant":
        side.alpha[:] = rng.uniform(0.6, 1.9, rows)
    if model.prior == "student-t" and model.has_own(name):
        side.scale[:] = rng.gamma(3.0, 0.4, rows)
    first = model.first_shifted
    for shift in side.shifts:
        shift.W[:, first:] = rng.normal(0, 1, (len(shift.W), size - first))
        shift.mu[first:] = rng.normal(0, 1, size - first)
        shift.Lambda[first:, first:] = _precision(size - first, rng)


def _precision(size: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.normal(0, 1, (size, size))
    return root @ root.T + np.eye(size)
