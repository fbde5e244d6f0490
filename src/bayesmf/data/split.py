"""Ways to cut ratings into training and test, each a pure function of (ratings, seed).

The random numbers belong to observations in their canonical order (by user id, then item id),
so the order of the rows in a file does not matter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_kind, check_number, check_seed, check_whole
from bayesmf.choices import Protocol
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option, clause


def generator(seed: int, stream: int = 0) -> np.random.Philox:
    """Return a generator of its own for every (seed, stream): the two halves of Philox's key."""
    return np.random.Philox(key=check_seed(seed) + (stream << 64))


Mask = NDArray[np.bool_]
PAPER_MIN_ITEM_RATINGS = {"epinions": 1}  # elsewhere 3, as for MovieLens
DROPPED = ("dropped_ratings", "dropped_items", "dropped_users")


@dataclass(frozen=True)
class Split:
    """Training and test ratings with the same ids; ``train, test = split`` unpacks them.

    ``dropped_ratings``, ``dropped_items`` and ``dropped_users`` count what is in neither part.
    """

    train: Ratings
    test: Ratings
    protocol: str
    seed: int | None  # None: by time, where nothing is random
    options: Mapping[str, Any] = field(default_factory=dict)  # of the protocol
    given: Ratings | None = None  # cold start: what is known of the users held out of training
    dropped_ratings: int = 0
    dropped_items: int = 0
    dropped_users: int = 0

    def __iter__(self) -> Iterator[Ratings]:
        return iter((self.train, self.test))

    def describe(self) -> dict[str, Any]:
        """Return what split.json says: protocol, seed, counts, what was dropped, and coverage."""
        train, test = self.train, self.test
        unseen_users = (test.by_user.counts > 0) & (train.by_user.counts == 0)
        unseen_items = (test.by_item.counts > 0) & (train.by_item.counts == 0)
        given: dict[str, Any] = {}
        if self.given is not None:
            given = {"given": len(self.given), "given_sha256": self.given.fingerprint()}
        return {
            "protocol": self.protocol,
            "seed": self.seed,
            "options": dict(self.options),
            "users": train.n_users,
            "items": train.n_items,
            "train": len(train),
            **given,
            "test": len(test),
            **{name: getattr(self, name) for name in DROPPED},
            "train_share": round(len(train) / (len(train) + len(test)), 6),
            "test_users_not_in_train": int(unseen_users.sum()),
            "test_items_not_in_train": int(unseen_items.sum()),
            "train_sha256": train.fingerprint(),
            "test_sha256": test.fingerprint(),
        }


def paper(
    ratings: Ratings,
    seed: int = 0,
    test_fraction: float = 0.3,
    min_item_ratings: int | None = None,
) -> Split:
    """Cut by the paper's protocol: 70 % to training, every user and every item among them.

    Every observation gets a random key. The one with the smallest key of each user and of each
    item goes to training; the rest of training are the smallest keys among the others. Items
    rated fewer than ``min_item_ratings`` times are dropped first, and users who have no rating
    left with them: 1 for the data set epinions and 3 for all others, unless given.
    """
    if min_item_ratings is None:
        min_item_ratings = PAPER_MIN_ITEM_RATINGS.get(ratings.name, 3)
    _check_fraction(test_fraction)
    check_whole("min_item_ratings", min_item_ratings)
    ratings = ratings.drop_unused()
    kept = ratings.select(ratings.by_item.counts[ratings.by_user.index] >= min_item_ratings)
    kept = kept.drop_unused()
    if not len(kept):
        raise DataError(
            f"no item has {min_item_ratings} ratings, and the paper's split drops those with "
            f"fewer; lower {Option('min_item_ratings')}, or split in another way"
        )
    keys = _draw_keys(seed, len(kept))
    first = np.full(kept.n_items, np.iinfo(np.uint64).max)
    np.minimum.at(first, kept.by_user.index, keys)
    train = keys == first[kept.by_user.index]
    first_of_user = np.minimum.reduceat(keys, kept.by_user.starts[:-1])
    train |= keys == np.repeat(first_of_user, kept.by_user.counts)
    missing = round((1 - test_fraction) * len(kept)) - int(train.sum())
    if missing > 0:
        others = np.flatnonzero(~train)
        train[others[np.argsort(keys[others], kind="stable")[:missing]]] = True
    options = {"test_fraction": test_fraction, "min_item_ratings": min_item_ratings}
    return replace(
        _cut(kept, train, "paper", seed, options),
        dropped_ratings=len(ratings) - len(kept),
        dropped_items=ratings.n_items - kept.n_items,
        dropped_users=ratings.n_users - kept.n_users,
    )


def random(ratings: Ratings, seed: int = 0, test_fraction: float = 0.3) -> Split:
    """Test on a random part of the ratings; a user or an item may have none in training."""
    _check_fraction(test_fraction)
    kept = ratings.drop_unused()
    rank = _rank(_draw_keys(seed, len(kept)))
    train = rank < round((1 - test_fraction) * len(kept))
    return _cut(kept, train, "random", seed, {"test_fraction": test_fraction})


def kfold(ratings: Ratings, seed: int = 0, folds: int = 5) -> list[Split]:
    """Cut ratings at random into ``folds`` splits; each rating is in the test of exactly one."""
    kept = ratings.drop_unused()
    if not 2 <= check_whole("folds", folds) <= len(kept):
        raise DataError(f"{folds} folds of {len(kept)} ratings; choose between 2 and {len(kept)}")
    fold = _rank(_draw_keys(seed, len(kept))) % folds
    return [
        _cut(kept, fold != k, "kfold", seed, {"folds": folds, "fold": k + 1}) for k in range(folds)
    ]


def cold_start(
    ratings: Ratings, seed: int = 0, user_fraction: float = 0.1, given: int = 5
) -> Split:
    """Hold users out of training: ``given`` ratings of each are known, the rest are the test.

    Only users with more than ``given`` ratings are held out; ``user_fraction`` is a share of those.
    """
    _check_fraction(user_fraction, "user_fraction")
    if check_whole("given", given) < 1:
        raise DataError(f"{Option('given', given)}: give 1 or more ratings of each user")
    kept = ratings.drop_unused()
    able = np.flatnonzero(kept.by_user.counts > given)
    chosen = able[_rank(_draw_keys(seed, len(able))) < round(user_fraction * len(able))]
    if not 0 < len(chosen) < kept.n_users:
        raise DataError(
            f"no way to hold out {len(chosen)} of {kept.n_users} users: {len(able)} have more "
            f"than {given} ratings; change {Option('user_fraction')} or {Option('given')}"
        )
    held = np.zeros(kept.n_users, bool)
    held[chosen] = True
    user = kept.by_user.row_index
    known = held[user] & (rank_within_user(kept, _draw_keys(seed, len(kept), stream=1)) < given)
    options = {"user_fraction": user_fraction, "given": given}
    train, test = kept.select(~held[user]), kept.select(held[user] & ~known)
    return Split(train, test, "cold-start", seed, options, kept.select(known))


def by_time(ratings: Ratings, test_fraction: float = 0.3, per_user: bool = False) -> Split:
    """Test on the latest ratings: of all users together or, with ``per_user``, of each user."""
    _check_fraction(test_fraction)
    check_kind("per_user", per_user, bool, "True or False")
    kept = ratings.drop_unused()
    times = kept.by_user.times
    if times is None:
        raise DataError(
            "a split by time needs times, and these ratings have none; read them again with "
            f"{Option('time', 'NAME', 'bayesmf.load')}"
        )
    if per_user:
        early = np.maximum(np.round((1 - test_fraction) * kept.by_user.counts), 1)
        train = rank_within_user(kept, times) < early[kept.by_user.row_index]
    else:
        train = np.zeros(len(kept), bool)
        train[np.argsort(times, kind="stable")[: round((1 - test_fraction) * len(kept))]] = True
    options = {"test_fraction": test_fraction, "per_user": per_user}
    return _cut(kept, train, "time", None, options)


PROTOCOLS: Mapping[str, Callable[..., Split]] = dict(
    zip(get_args(Protocol), (paper, random, cold_start, by_time), strict=True)
)


def options_of(protocol: str) -> set[str]:
    """Return the names of a protocol's options; "kfold" counts as a protocol here."""
    function: Callable[..., Any] = kfold if protocol == "kfold" else PROTOCOLS[protocol]
    return set(inspect.signature(function).parameters) - {"ratings"}


def split(ratings: Ratings, protocol: Protocol = "paper", seed: int = 0, **options: Any) -> Split:
    """Cut ratings into training and test by a protocol, which has options of its own.

    - "paper" puts 70 % into training, and every user and every item among them. Its options are
      ``test_fraction`` (0.3) and ``min_item_ratings`` (3, and 1 for epinions): items with fewer
      ratings are dropped, and the split counts them.
    - "random" tests on a random part of the ratings: ``test_fraction`` (0.3).
    - "cold-start" holds users out of training and gives a few ratings of each:
      ``user_fraction`` (0.1) and ``given`` (5).
    - "time" tests on the latest ratings: ``test_fraction`` (0.3) and ``per_user`` (False).

    The same ratings and ``seed`` give the same split. For cross-validation
    ``bayesmf.kfold(ratings, seed, folds)`` returns a list of splits.
    """
    if protocol not in PROTOCOLS:
        folds = "; for folds call bayesmf.kfold" if "fold" in str(protocol) else ""
        raise DataError(f"no protocol {protocol!r}; there are {', '.join(PROTOCOLS)}{folds}")
    known = options_of(protocol)
    for name in options:
        if name not in known:
            raise TypeError(
                f"the protocol {protocol!r} has no option {name!r}; it has "
                f"{', '.join(sorted(known - {'seed'}))}"
            )
    if "seed" in known:
        options["seed"] = seed
    return PROTOCOLS[protocol](ratings, **options)


def carve(train: Ratings, fraction: float, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Hold out a part of the training ratings for validation; users and items keep their index."""
    _check_fraction(fraction, "validation")
    keep = _rank(_draw_keys(seed, len(train))) < round((1 - fraction) * len(train))
    if keep.all() or not keep.any():
        raise DataError(
            f"{len(train)} training ratings are too few to hold out {fraction:g} of them for "
            f"validation; leave out {Option('validation')}"
        )
    return train.select(keep), train.select(~keep)


def _cut(kept: Ratings, train: Mask, protocol: str, seed: int | None, options: Any) -> Split:
    if train.all() or not train.any():
        raise DataError(
            f"{len(kept)} ratings are too few for this split: one part would be empty; give more"
            + clause(f", or change {Option('test_fraction')}")
        )
    return Split(kept.select(train), kept.select(~train), protocol, seed, options)


def _check_fraction(fraction: float, name: str = "test_fraction") -> None:
    if not 0 < check_number(name, fraction) < 1:
        raise DataError(f"{Option(name, fraction)}: choose a fraction between 0 and 1")


def _draw_keys(seed: int, size: int, stream: int = 0) -> NDArray[np.uint64]:
    """Draw one random 64-bit key for each position."""
    return generator(seed, stream).random_raw(size)


def _rank(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    ranks = np.empty(len(keys), np.int64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return ranks


def rank_within_user(ratings: Ratings, keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return, for each rating, how many of the same user have a smaller key.

    Of equal keys the earlier counts as smaller.
    """
    user = ratings.by_user.row_index
    ranks = np.empty(len(ratings), np.int64)
    ranks[np.lexsort((keys, user))] = np.arange(len(ratings)) - ratings.by_user.starts[user]
    return ranks


def describe_dropped(facts: dict[str, Any]) -> list[str]:
    """What a split dropped, in words; nothing if it kept everything."""
    if not facts.get("dropped_ratings"):
        return []
    ratings, items, users = (facts[f"dropped_{name}"] for name in ("ratings", "items", "users"))
    least = facts["options"]["min_item_ratings"]
    dropped = f"dropped {ratings:,} ratings of {items:,} items with fewer than {least} ratings"
    return [dropped + (f", and {users:,} users who rated nothing else" if users else "")]
