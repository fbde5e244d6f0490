"""Small runs whose users stay in blocks, on Ray and in this process."""

from __future__ import annotations

import contextlib

import numpy as np

import bayesmf
from bayesmf import Gibbs, Model
from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.engines.ray.cluster import Ray
from bayesmf.engines.ray.resident import Here, place_residents
from bayesmf.model.state import Side
from oracle.checkpoints import content
from oracle.variants import VARIANTS, small_ratings

TRAIN, TEST = bayesmf.split(small_ratings(60, 40, seed=1), "random", seed=0)
RESIDENT = {name: m for name, m in VARIANTS.items() if not (m.user_designs or m.item_designs)}
ROBUST = Model.paper("no-side", "robust", rank=3, prior="student-t")


class InProcess(Ray):
    """The same blocks, one after the other in this process."""

    where = Here

    @contextlib.contextmanager
    def place(self, ratings, model):
        yield place_residents(self.where(), ratings, model, self.blocks)


def fitted(model, where=InProcess, train=TRAIN, test=TEST, *, sweeps=4, blocks=5, keep=2, seed=5,
           **options):  # fmt: skip
    place = where if where == "threads" else where(blocks=blocks, resident=True)
    sampler = Gibbs(model, sweeps=sweeps, burn_in=min(2, sweeps - 1), seed=seed, keep=keep,
                    chains=options.pop("chains", 1), engine=place)  # fmt: skip
    return sampler.fit(train, test, **options)


def same(one, other):
    for state in one.states + other.states:  # nothing is left elsewhere
        assert type(state.user) is Side
    found, expected = content(one), content(other)
    assert found.keys() == expected.keys()
    for name in found:
        assert found[name] == expected[name], name


def sparse(users, items=50, each=5, seed=0):
    """Ratings of about so many items by each user."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, users * items, users * each))
    return Ratings.from_sorted(
        Ids(np.arange(users)), Ids(np.arange(items)), (pairs // items).astype(np.int32),
        (pairs % items).astype(np.int32), rng.normal(0, 1, len(pairs)), None, Scale(-9, 9),
    )  # fmt: skip
