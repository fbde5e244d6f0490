"""Slow twins, written straight from the definitions."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


def index(triplets: list[tuple[Any, Any, float]]) -> dict[str, Any]:
    """Users, items and ratings by user and by item, by dictionaries and loops."""
    by_user: dict[Any, dict[Any, float]] = defaultdict(dict)
    by_item: dict[Any, dict[Any, float]] = defaultdict(dict)
    for user, item, value in triplets:
        by_user[user][item] = value
        by_item[item][user] = value
    return {
        "users": sorted(by_user),
        "items": sorted(by_item),
        "by_user": {u: sorted(row.items()) for u, row in by_user.items()},
        "by_item": {i: sorted(row.items()) for i, row in by_item.items()},
    }


def rows(side: Any, own: Any, other: Any) -> dict[Any, list[tuple[Any, float]]]:
    """Unpack a Rows object into the form of ``index``."""
    out = {}
    for r, name in enumerate(own):
        span = range(side.starts[r], side.starts[r + 1])
        out[name] = [(other[side.index[k]], float(side.values[k])) for k in span]
    return out
