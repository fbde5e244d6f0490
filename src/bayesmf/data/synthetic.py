"""Ratings drawn from the model itself, with the truth beside them.

Items come first; users follow in blocks, each a pure function of (world, seed, block), so that
10^8 ratings can be streamed without ever being in memory together. Every draw is the inverse
distribution function at a raw Philox number, whose stream never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.data.split import generator
from bayesmf.data.values import compact
from bayesmf.errors import DataError

Array = NDArray[np.float64]
BLOCK_USERS = 4096
MOST_ROUNDS = 60  # of replacing items that a user has already


@dataclass(frozen=True)
class World:
    """The distribution that ratings are drawn from. The defaults are those of the demo data.

    r_ij = mean + gamma_i + eta_j + S_i' V_j + noise of precision alpha_i tau, rounded to the scale
    S_i  = U_i + n_i^-side_power sum of W_k over the items k that user i rated

    A user picks an item of genre g with probability proportional to
    exp(influence U_i' c_g / feature_sd) times the item's popularity, where c_g is the genre's
    direction, and an item's genre is the direction nearest to V_j. So which items are rated
    depends on the user's taste; with influence 0 it does not, and the ratings given the pairs are
    an exact draw from the model.
    """

    n_users: int = 1500
    n_items: int = 1000
    n_ratings: int = 120_000
    """The expected number; the number drawn differs by a few per cent."""
    rank: int = 6
    mean: float = 3.6
    bias_sd: float = 0.4
    feature_sd: float = 0.5
    side_sd: float = 1.0
    side_power: float = 1.0
    noise_precision: float = 2.0
    noise_shape: float = 4.0
    """alpha_i ~ Gamma(shape, shape): the smaller, the more users differ in noise."""
    influence: float = 1.0
    genres: int = 8
    activity: float = 1.6
    """The tail exponent of the number of ratings per user."""
    popularity: float = 1.4
    """The tail exponent of the items' popularity."""
    least: int = 3
    """The fewest ratings of a user, unless strong influence leaves too few items to choose."""
    scale: Scale | None = Scale(1, 5, 1)
    """Ratings are rounded to it; None leaves them as drawn."""

    def __post_init__(self) -> None:
        if min(self.n_users, self.rank, self.genres) < 1:
            raise DataError("a world needs at least one user, one feature and one genre")
        if not 1 <= self.least <= self._most:
            raise DataError(f"{self.n_items} items are too few for {self.least} ratings a user")
        if not self.least <= self.n_ratings / self.n_users <= self._most:
            raise DataError(
                f"{self.n_ratings} ratings by {self.n_users} users are "
                f"{self.n_ratings / self.n_users:.1f} each; choose {self.least} to {self._most} "
                f"with {self.n_items} items"
            )

    @property
    def _most(self) -> int:
        return max(self.n_items // 2, 1)

    def counts(self, uniform: Array) -> NDArray[np.int64]:
        """Turn uniforms into ratings per user: a Lomax law of the right mean, cut at both ends."""
        shape = uniform ** (-1 / self.activity) - 1
        grid = ((np.arange(20_000) + 0.5) / 20_000) ** (-1 / self.activity) - 1
        mean = self.n_ratings / self.n_users
        low, high = 0.0, 2.0 * self.n_items
        for _ in range(60):
            middle = (low + high) / 2
            short = self._cut(middle * grid).mean() < mean
            low, high = (middle, high) if short else (low, middle)
        return self._cut(high * shape)

    def _cut(self, counts: Array) -> NDArray[np.int64]:
        return np.clip(np.round(counts), self.least, self._most).astype(np.int64)


@dataclass(frozen=True)
class Truth:
    """The parameters that the ratings were drawn with; rows are in the order of the ids."""

    gamma: Array
    U: Array
    S: Array
    alpha: Array
    eta: Array
    V: Array
    W: Array
    tau: float
    mean: float


@dataclass(frozen=True)
class Items:
    """The items' parameters, and what is needed of them to draw pairs."""

    eta: Array
    V: Array
    W: Array
    direction: Array  # genres x rank
    order: NDArray[np.int32]  # items, genre after genre
    cumulative: Array  # genre + share of the genre's popularity up to each of them
    mass: Array  # popularity of each genre


@dataclass(frozen=True)
class UserBlock:
    """Consecutive users: their parameters, and their ratings by user, then item."""

    first_user: int
    gamma: Array
    U: Array
    S: Array
    alpha: Array
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rating: Array


def draw_items(world: World, seed: int) -> Items:
    """Draw the items' parameters, which all blocks share."""
    draw = _Draws(seed, 0)
    V = world.feature_sd * draw.normal(world.n_items, world.rank)
    W = world.side_sd * draw.normal(world.n_items, world.rank)
    eta = world.bias_sd * draw.normal(world.n_items)
    direction = draw.normal(world.genres, world.rank)
    direction /= np.sqrt((direction**2).sum(axis=1, keepdims=True))
    genre = np.argmax(V @ direction.T, axis=1)
    weight = draw.uniform(world.n_items) ** (-1 / world.popularity) - 0.9  # 0.1 and up
    weight = np.minimum(weight, np.quantile(weight, 0.999))
    order = np.argsort(genre, kind="stable").astype(np.int32)
    mass = np.bincount(genre, weight, world.genres).astype(float)
    running = np.cumsum(weight[order])
    before = np.cumsum(mass) - mass
    sorted_genre = genre[order]
    share = (running - before[sorted_genre]) / mass[sorted_genre]
    return Items(eta, V, W, direction, order, sorted_genre + np.clip(share, 0, 1), mass)


def draw_block(world: World, seed: int, items: Items, block: int) -> UserBlock:
    """Draw the users from block * BLOCK_USERS on, with all their ratings."""
    draw = _Draws(seed, block + 1)
    first = block * BLOCK_USERS
    size = min(BLOCK_USERS, world.n_users - first)
    from scipy.special import gammaincinv

    gamma = world.bias_sd * draw.normal(size)
    U = world.feature_sd * draw.normal(size, world.rank)
    alpha = gammaincinv(world.noise_shape, draw.uniform(size)) / world.noise_shape
    user, item = _draw_pairs(world, items, U, world.counts(draw.uniform(size)), draw)
    n = np.bincount(user, minlength=size)
    total = np.add.reduceat(items.W[item], np.cumsum(n) - n, axis=0)
    S = U + total * (n**-world.side_power)[:, None]
    product = (S[user] * items.V[item]).sum(axis=1)
    noise = draw.normal(len(user)) / np.sqrt(alpha[user] * world.noise_precision)
    rating = world.mean + gamma[user] + items.eta[item] + product + noise
    if world.scale is not None:
        low, high, step = world.scale.low, world.scale.high, world.scale.step
        if step is not None:
            rating = low + step * np.round((rating - low) / step)
        rating = np.clip(rating, low, high)
    return UserBlock(first, gamma, U, S, alpha, (user + first).astype(np.int32), item, rating)


def stream(world: World, seed: int = 0, items: Items | None = None) -> Iterator[UserBlock]:
    """Draw all users, block after block; memory does not grow with the number of ratings."""
    items = items or draw_items(world, seed)
    for block in range(-(-world.n_users // BLOCK_USERS)):
        yield draw_block(world, seed, items, block)


def generate(world: World | None = None, seed: int = 0) -> tuple[Ratings, Truth]:
    """Draw ratings, and return them with their truth; the ids are 1, 2, 3, ..."""
    world = world or World()
    items = draw_items(world, seed)
    blocks = list(stream(world, seed, items))
    user = np.concatenate([b.user for b in blocks])
    item = np.concatenate([b.item for b in blocks])
    values = compact(np.concatenate([b.rating for b in blocks]))
    user_ids, item_ids = Ids(np.arange(1, world.n_users + 1)), Ids(np.arange(1, world.n_items + 1))
    scale = world.scale or Scale.infer(values)
    ratings = Ratings.from_sorted(user_ids, item_ids, user, item, values, None, scale)
    seen = ratings.by_item.counts > 0
    truth = Truth(
        gamma=np.concatenate([b.gamma for b in blocks]),
        U=np.concatenate([b.U for b in blocks]),
        S=np.concatenate([b.S for b in blocks]),
        alpha=np.concatenate([b.alpha for b in blocks]),
        eta=items.eta[seen],
        V=items.V[seen],
        W=items.W[seen],
        tau=world.noise_precision,
        mean=world.mean,
    )
    return ratings.drop_unused(), truth


def demo() -> Ratings:
    """Draw the demo data: the defaults of ``World``, with seed 0."""
    return replace(generate()[0], name="demo")


def _draw_pairs(
    world: World, items: Items, U: Array, counts: NDArray[np.int64], draw: _Draws
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Draw distinct items for each user: with replacement, until no item is repeated."""
    taste = world.influence / world.feature_sd * (U @ items.direction.T)
    chance = items.mass * np.exp(taste - taste.max(axis=1, keepdims=True))
    upto = np.cumsum(chance, axis=1) / chance.sum(axis=1, keepdims=True)
    found = np.empty(0, np.int64)
    missing = counts
    for _ in range(MOST_ROUNDS):
        user = np.repeat(np.arange(len(U)), missing)
        if not len(user):
            break
        point = draw.uniform(len(user))
        genre = np.minimum((point[:, None] > upto[user]).sum(axis=1), world.genres - 1)
        position = np.searchsorted(items.cumulative, genre + draw.uniform(len(user)))
        item = items.order[np.minimum(position, world.n_items - 1)]
        pairs = np.sort(user * world.n_items + item)
        position = np.searchsorted(found, pairs)
        new = np.diff(pairs, prepend=-1) > 0
        new &= np.append(found, -1)[position] != pairs
        found = np.insert(found, position[new], pairs[new])
        missing = missing - np.bincount(pairs[new] // world.n_items, minlength=len(U))
    user, item = np.divmod(found, world.n_items)
    return user, item.astype(np.int32)


class _Draws:
    """A stream of independent draws, fixed by (seed, stream)."""

    def __init__(self, seed: int, stream: int) -> None:
        self.bits = generator(seed, stream)

    def uniform(self, *shape: int) -> Array:
        """Draw uniformly from the open unit interval."""
        raw = self.bits.random_raw(int(np.prod(shape))) >> np.uint64(11)
        return (raw.astype(np.float64) + 0.5).reshape(shape) * 2.0**-53

    def normal(self, *shape: int) -> Array:
        """Draw standard normals."""
        from scipy.special import ndtri

        draws: Array = ndtri(self.uniform(*shape))
        return draws
