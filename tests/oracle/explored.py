"""A small world with titles, attributes and columns of odd names, and slow twins of what is found.

The twins go draw by draw and pair by pair, straight from the definitions.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import bayesmf
from bayesmf.fitted.newcomers import drawn_rows

USERS, ITEMS = 40, 24
TITLES = {f"i{k}": f"Film {k}" for k in range(ITEMS - 2)}  # the last two have none
ATTRIBUTES = pd.DataFrame(
    {
        "item": [f"i{k}" for k in range(ITEMS)],
        "genres": [["Drama"] if k % 3 == 0 else ["War", "Drama"] if k % 3 == 1 else ["Comedy"]
                   for k in range(ITEMS - 1)] + [None],
        "year": [1980.0 + k for k in range(ITEMS - 1)] + [np.nan],
        "country": ["fr" if k % 2 else "it" for k in range(ITEMS)],
    }
)  # fmt: skip


def rated_frame() -> pd.DataFrame:
    """Ratings by who of what on which day; nobody calls their columns so."""
    rng = np.random.default_rng(5)
    tastes, traits = rng.normal(size=(USERS, 2)), rng.normal(size=(ITEMS, 2))
    user, item = np.nonzero(rng.random((USERS, ITEMS)) < 0.5)
    values = 3 + (tastes[user] * traits[item]).sum(axis=1) + 0.5 * rng.normal(size=len(user))
    return pd.DataFrame(
        {
            "who": [f"u{k}" for k in user],
            "film": [f"i{k}" for k in item],
            "points": np.clip(values.round(), 1, 5),
            "day": 86_400 * np.arange(len(user)),
        }
    )


NAMED = {"user": "who", "item": "film", "rating": "points", "time": "day"}


def fitted(**settings):
    """A short fit to these ratings."""
    options = {"rank": 3, "sweeps": 16, "chains": 1, **NAMED, **settings}
    if "model" in options:
        del options["rank"]
    if options.get("inference", "gibbs") != "gibbs":
        del options["chains"]
    return bayesmf.fit(rated_frame(), **options)


def likings(posterior, side: str):
    """How much more the other side likes each row than is usual for both, by draw."""
    other = "user" if side == "item" else "item"
    size = posterior.model.size
    for number in range(len(posterior)):
        mine = drawn_rows(posterior.draws, number, side)[posterior.counts(side) > 0, 1:size]
        theirs = drawn_rows(posterior.draws, number, other)[posterior.counts(other) > 0, 1:size]
        liked = theirs @ mine.T
        yield liked - liked.mean(axis=1, keepdims=True) - liked.mean(axis=0) + liked.mean()


def correlations(posterior, side: str) -> np.ndarray:
    """The correlation over the other side of two rows, by draw: (draw, row, row)."""
    return np.array([np.corrcoef(liked.T) for liked in likings(posterior, side)])


def covariances(posterior, side: str) -> np.ndarray:
    """The covariance over the other side of two rows, averaged over the draws."""
    return np.mean([np.cov(liked.T, bias=True) for liked in likings(posterior, side)], axis=0)


def marginal_relevance(scores, similarity, n: int, diversity: float) -> list[int]:
    """Maximal marginal relevance, by looking at every item that is left again and again."""
    low, high = min(scores), max(scores)
    relevance = [(score - low) / (high - low) for score in scores]
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < min(n, len(scores)):
        best, value = -1, -np.inf
        for k in range(len(scores)):
            if k in chosen:
                continue
            near = max(similarity[k][c] for c in chosen)
            gain = (1 - diversity) * relevance[k] - diversity * near
            if gain > value + 1e-12:
                best, value = k, gain
        chosen.append(best)
    return chosen
