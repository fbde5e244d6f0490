"""Lists of items for users: which items may be in them, how different they are, how sure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice, check_number, check_seed, check_whole
from bayesmf.choices import RANK_BY, RankBy
from bayesmf.data.ids import Ids
from bayesmf.data.pairs import frame_like, ids_in, pairs_of, read_time
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.fitted.explore.similar import check_features, metrics
from bayesmf.fitted.explore.where import match
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.recommend import Asked, Seen, cells_of, recommend

Floats = NDArray[np.float32]
Index = NDArray[np.int32]
POOL, LEAST_POOL = 10, 100  # of so many times n items, or so many, a different list is chosen
INTERVAL = {"q05": 0.05, "q95": 0.95}


@dataclass(frozen=True)
class Choice:
    """Which items may be recommended."""

    items: Any = None  # these; all that the fit knows if None
    exclude: Any = None  # but not these
    where: str | Iterable[str] | None = None  # and only with such attributes

    def candidates(self, posterior: Posterior, named: Mapping[Any, Any]) -> Asked:
        """Find these items among those of which something is known."""
        column = named["item"]
        items = None if self.items is None else ids_in(self.items, "item", column)[0]
        found = Asked.candidates(posterior, items)
        keep = np.ones(len(found.ids), bool)
        if self.exclude is not None and len(keep):
            row = Ids(found.ids).index(ids_in(self.exclude, "item", column)[0], "item ids")
            keep[row[row >= 0]] = False
        if self.where is not None:
            keep &= match(posterior.model, found.ids, self.where)
        return found if keep.all() else found.take(keep)


@dataclass(frozen=True)
class Order:
    """How many items a list has, and what puts them in order."""

    n: int
    rank_by: RankBy
    seed: int
    diversify: float
    at: Any

    def __post_init__(self) -> None:
        check_whole("n", self.n, 1)
        check_seed(self.seed)
        check_choice("rank_by", self.rank_by, RANK_BY)
        if not 0 <= check_number("diversify", self.diversify) <= 1:
            raise DataError(f"{Option('diversify', self.diversify)}: choose 0 to 1")


def read_seen(posterior: Posterior, given: Any, named: Mapping[Any, Any]) -> list[Ratings]:
    """Return the ratings to leave out of recommendations: those given, or those of the fit.

    False leaves nothing out.
    """
    if given is False:
        return []
    if isinstance(given, Ratings):
        return [given]
    if given is not None:
        pairs = pairs_of(given, **named)
        if not len(pairs.user):
            return []
        zeros = np.zeros(len(pairs.user))
        return [
            Ratings.from_triplets(
                users=pairs.user, items=pairs.item, ratings=zeros, duplicates="last"
            )
        ]
    train, held_out = posterior.train, posterior.held_out
    if train is None:
        raise DataError(
            "the training ratings are not at hand to leave out what was rated; give them with "
            f"{Option('seen', 'RATINGS')}, or keep what was rated in with "
            f"{Option('exclude_seen', False)}"
        )
    return [train] if held_out is None else [train, held_out]


def list_items(
    posterior: Posterior,
    users: Any,
    choice: Choice,
    order: Order,
    seen: Any,
    named: Mapping[Any, Any],
    progress: Callable[[int, int], None] | None,
) -> Any:
    """Make the frame of ``Fitted.recommend``; ``named`` has the columns of users and items."""
    n, diversity = order.n, order.diversify
    if diversity:
        check_features(posterior)
    when = None if order.at is None else read_time(order.at)
    ids, like = (
        (posterior.users.values, None) if users is None else ids_in(users, "user", named["user"])
    )
    asked, candidates = Asked.of(posterior, "user", ids), choice.candidates(posterior, named)
    left_out = [Seen.of(asked, candidates, part) for part in read_seen(posterior, seen, named)]
    pool = max(POOL * n, LEAST_POOL) if diversity else n
    best, score = recommend(
        posterior, asked, candidates, pool, order.rank_by, left_out, order.seed, progress, when
    )
    if diversity:
        best, score = spread_out(posterior, candidates, best, score, n, diversity)
    row, column = np.nonzero(best >= 0)
    chosen, labels = best[row, column], posterior.labels
    columns: dict[str, Any] = {
        "user": asked.ids[row],
        **labels.beside("user", asked.ids[row]),
        "rank": column + 1,
        "item": candidates.ids[chosen],
        **labels.beside("item", candidates.ids[chosen]),
        "score": score[row, column],
        **intervals(posterior, asked, candidates, row, chosen, when),
    }
    return frame_like(columns, like, same_rows=False)


def intervals(
    posterior: Posterior, users: Asked, items: Asked, user: Any, item: Any, at: int | None
) -> dict[str, NDArray[np.float64]]:
    """Return quantiles of the ratings that users would give to the items of their lists.

    As in the scores, what it would say of somebody that they choose to rate the item is left out.
    """
    cells = cells_of(users, items, user, item, at)
    strangers = min(cells.user.min(initial=0), cells.item.min(initial=0)) < 0
    silent = posterior
    if strangers or any(name.endswith(".query") for name in posterior.draws):
        silent = vars(posterior).get("_silent") or posterior.without_selection()
        vars(posterior)["_silent"] = silent  # with what it will have computed
    found = silent.predictive(cells)
    return {name: found.quantile(probability) for name, probability in INTERVAL.items()}


def spread_out(
    posterior: Posterior, items: Asked, best: Index, score: Floats, n: int, diversity: float
) -> tuple[Index, Floats]:
    """Choose ``n`` of each user's best items that are good and not all alike.

    This is maximal marginal relevance: the best item comes first, and then again and again the one
    with the largest

        (1 - diversity) relevance - diversity (the largest similarity to an item chosen before),

    where the relevance is the score, from 0 for the worst to 1 for the best of the user's items,
    and the similarity that of ``nearest``, averaged over the draws.
    """
    used, number = np.unique(best[best >= 0], return_inverse=True)
    unit = _unit_rows(posterior, items.take(used))
    where = np.full(best.shape, -1)
    where[best >= 0] = number
    n = min(n, best.shape[1])
    out, scores = np.full((len(best), n), -1, np.int32), np.full((len(best), n), np.nan, np.float32)
    for row in range(len(best)):
        there = np.flatnonzero(where[row] >= 0)
        z = unit[where[row, there]]
        order = there[choose_apart(score[row, there], z @ z.T, n, diversity)]
        out[row, : len(order)], scores[row, : len(order)] = best[row, order], score[row, order]
    return out, scores


def choose_apart(score: Floats, similarity: Floats, n: int, diversity: float) -> list[int]:
    """Return positions in the order of maximal marginal relevance; of equals the first."""
    relevance = score.astype(float) - score.min(initial=np.inf)
    relevance /= max(relevance.max(initial=0.0), np.finfo(float).tiny)
    nearness = np.full(len(score), -np.inf)
    order: list[int] = []
    for _ in range(min(n, len(score))):
        gain = (1 - diversity) * relevance
        gain = gain - diversity * nearness if order else relevance.copy()
        gain[order] = -np.inf
        order.append(int(np.argmax(gain)))
        nearness = np.maximum(nearness, similarity[:, order[-1]])
    return order


def _unit_rows(posterior: Posterior, items: Asked) -> Floats:
    """Put the directions of items in every draw side by side: products are mean similarities."""
    draws = posterior.draws
    if items.row.min(initial=0) < 0:
        draws = posterior.newcomers.add_to(draws)
    parts = []
    for number, (rows, metric) in enumerate(
        zip(items.means(draws), metrics(posterior, "item"), strict=True)
    ):
        noise = items.noise(draws, number)
        features = rows if noise is None else rows + noise
        z = metric.place(features[:, 1 : posterior.model.size])
        length = np.linalg.norm(z, axis=1, keepdims=True)
        parts.append(z / np.where(length > 0, length, 1.0))
    whole = np.hstack(parts) / np.sqrt(len(parts))
    return np.ascontiguousarray(whole, np.float32)
