"""How good ranked lists are: do the items that users like stand in them, and how far up?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.evaluation.frequency import FrequencyBins

Array = NDArray[np.float64]
Index = NDArray[np.int32]
AVERAGED = ("ndcg", "recall", "precision", "mrr", "hit_rate")  # of users, one number each


def find_hits(lists: Index, owner: NDArray[Any], item: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each place of the lists holds a relevant item of its user.

    Row u of ``lists`` has the items of user u, the best first, and -1 where it has ended. Entry k
    of ``owner`` and ``item`` says that the item is relevant to the user.
    """
    width = int(max(lists.max(initial=-1), item.max(initial=-1))) + 1
    asked = np.arange(len(lists), dtype=np.int64)[:, None] * width + lists
    relevant = owner.astype(np.int64) * width + item
    return np.isin(asked, relevant) & (lists >= 0)


def score_lists(hits: NDArray[np.bool_], relevant: NDArray[np.int64]) -> dict[str, Array]:
    """Score each list by its hits, given how many items are relevant to each user.

    With h_k = 1 where place k of n is a hit, and R relevant items:

    - ``ndcg``: sum_k h_k / log2(k + 1), over its largest possible value, sum_{k <= min(n, R)}.
    - ``recall``: sum_k h_k / R.
    - ``precision``: sum_k h_k / n. Places behind the end of a short list are no hits.
    - ``mrr``: 1 / k of the first hit; 0 if there is none.
    - ``hit_rate``: 1 if there is a hit, else 0.

    Every user has to have a relevant item.
    """
    n = hits.shape[1]
    discount = 1 / np.log2(np.arange(2.0, n + 2))
    ideal = np.append(0.0, np.cumsum(discount))[np.minimum(relevant, n)]
    count, first = hits.sum(axis=1), hits.argmax(axis=1)
    found = count > 0
    return {
        "ndcg": hits @ discount / ideal,
        "recall": count / relevant,
        "precision": count / n,
        "mrr": np.where(found, 1 / (first + 1.0), 0.0),
        "hit_rate": found.astype(float),
    }


def cover(lists: Index, items: int) -> float:
    """The share of all items that stand in at least one list."""
    return len(np.unique(lists[lists >= 0])) / items


def surprise(lists: Index, raters: NDArray[np.int64], users: int) -> float:
    """The mean of -log2(share of the users who rated the item), over all places of the lists.

    This is the novelty of lists: 0 if everybody rated everything in them. An item that nobody rated
    counts as one with one rating.
    """
    there = lists[lists >= 0]
    if not len(there):
        return float("nan")
    return float(-np.log2(np.maximum(raters[there], 1) / users).mean())


def rank_scores(
    lists: Index,
    owner: NDArray[Any],
    item: NDArray[Any],
    raters: NDArray[np.int64],
    users: int,
    bins: FrequencyBins,
) -> dict[str, Any]:
    """Score lists together and by user frequency.

    ``lists``, ``owner`` and ``item`` are those of ``find_hits``; ``raters`` counts the training
    ratings of each item, given by ``users`` users; ``bins`` has a total for each list. Items that
    are relevant to a user may have numbers beyond ``raters``: these are never in a list.
    """
    scores = score_lists(find_hits(lists, owner, item), np.bincount(owner, minlength=len(lists)))
    facts = _average(lists, scores, raters, users)
    facts["by_user_frequency"] = [
        {
            "user_ratings": label,
            "users": int(np.count_nonzero(bins.index == k)),
            **_average(
                lists[bins.index == k],
                {name: each[bins.index == k] for name, each in scores.items()},
                raters,
                users,
            ),
        }
        for k, label in enumerate(bins.labels)
    ]
    return facts


def _average(
    lists: Index, scores: Mapping[str, Array], raters: NDArray[np.int64], users: int
) -> dict[str, Any]:
    """The means over users, and what only lists together have."""
    facts: dict[str, Any] = {
        name: float(scores[name].mean()) if len(lists) else float("nan") for name in AVERAGED
    }
    facts["coverage"] = cover(lists, len(raters))
    facts["novelty"] = surprise(lists, raters, users)
    return facts
