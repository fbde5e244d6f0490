"""A fit against test ratings: errors, intervals and lists, overall and by user frequency."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option, SeenWarning
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.metrics import scores
from bayesmf.evaluation.ranking import rank_scores
from bayesmf.fitted.posterior import Posterior
from bayesmf.machine import using
from bayesmf.model.likelihood import Predictive

UPPER = 0.75  # of a scale: from there on a rating says that the item is liked


def cut_bins(
    posterior: Posterior, test: Ratings, cells: Cells, bins: Sequence[int] | None
) -> FrequencyBins:
    """Sort test ratings by the ratings of their user, in training and here together."""
    rows = test.by_user
    # of a user with ratings here, how many there are in training: -1 finds the last entry, 0
    trained = np.append(posterior.user_counts, 0)[np.maximum(cells.user, -1)]
    totals = trained + rows.counts[rows.row_index]
    if bins is None:
        return FrequencyBins.at_quantiles(totals)
    return FrequencyBins(bins, totals)  # type: ignore[arg-type]


def evaluate(
    posterior: Posterior, test: Ratings, cut: FrequencyBins, found: Predictive
) -> dict[str, Any]:
    """Score predictions of the test ratings, as ``Fitted.evaluate`` returns it."""
    levels = posterior.levels if posterior.has_levels else None
    facts = scores(np.asarray(test.values, float), cut, found, levels)
    by_bin = facts.pop("by_bin")
    facts["by_user_frequency"] = [
        {
            "user_ratings": label,
            "test_ratings": int(count),
            **{name: each[k] for name, each in by_bin.items()},
        }
        for k, (label, count) in enumerate(zip(cut.labels, cut.counts, strict=True))
    ]
    return facts


def liked_from(posterior: Posterior, relevant: float | None) -> float:
    """The least rating of what counts as relevant: as given, or the upper quarter of the scale."""
    scale = posterior.scale
    return scale.low + UPPER * (scale.high - scale.low) if relevant is None else relevant


def find_seen(posterior: Posterior, test: Ratings) -> NDArray[np.bool_]:
    """Whether the pair of each test rating was in training; all False if that is not at hand."""
    rows, train = test.by_user, posterior.train
    if train is None:
        return np.zeros(len(test), bool)
    mine = posterior.row_of("user", test.users.values)[rows.row_index].astype(np.int64)
    its = posterior.row_of("item", test.items.values)[rows.index]
    width = len(posterior.items)
    known = train.by_user.row_index.astype(np.int64) * width + train.by_user.index
    return (mine >= 0) & (its >= 0) & np.isin(mine * width + its, known)


def warn_if_seen(posterior: Posterior, test: Ratings) -> None:
    """Warn the caller of a method if the fit was trained on some of these ratings."""
    if seen := int(find_seen(posterior, test).sum()):
        told = (
            f"{seen:,} of the {len(test):,} ratings were in training, and errors of such ratings "
            "are too small; evaluate on ratings that were held out"
        )
        warnings.warn(SeenWarning(told), stacklevel=3)


def unseen(posterior: Posterior) -> Ratings | None:
    """The ratings that were held out, without those that a fit has learned from since.

    An update may have brought their pair, or their item may have been folded in: then training has
    no rating of it, and the item is known by these.
    """
    held, train = posterior.held_out, posterior.train
    if held is None or train is None:
        return held if held is not None and len(held) else None
    its = posterior.row_of("item", held.items.values)[held.by_user.index]
    rated = np.append(train.by_item.counts, 0)[np.maximum(its, -1)] > 0
    kept = held.select(rated & ~find_seen(posterior, held))
    return kept if len(kept) else None


def find_relevant(posterior: Posterior, test: Ratings, least: float) -> Ratings:
    """The test ratings of at least ``least``, without pairs that were in training.

    What a user rated in training is not recommended, so that it cannot be found in a list.
    """
    keep = np.asarray(test.values, float) >= least
    if keep.any():
        keep &= ~find_seen(posterior, test)
        if not keep.any():
            raise DataError(
                f"all test ratings of {least:g} or more were in training, and what was rated there "
                "is not in lists; give ratings that were held out"
            )
    else:
        raise DataError(
            f"no test rating is {least:g} or more, so there is nothing to find in lists; choose a "
            f"lower {Option('relevant')}"
        )
    return test.select(keep)


def evaluate_ranking(
    fit: Any,
    test: Ratings,
    n: int,
    relevant: float | None,
    bins: Sequence[int] | None,
    **asked: Any,
) -> dict[str, Any]:
    """Score the lists of ``fit.recommend``, as ``Fitted.evaluate_ranking`` returns it."""
    posterior: Posterior = fit.posterior
    posterior.check(test)
    cut = cut_bins(posterior, test, posterior.cells(test), bins)
    least = liked_from(posterior, relevant)
    liked = find_relevant(posterior, test, least)
    rows, users = liked.by_user, np.flatnonzero(liked.by_user.counts)
    seen = {"seen": posterior.train} if asked.get("seen") is None and posterior.train else {}
    n = min(n, len(posterior.items))
    table = fit.recommend(test.users.values[users], n, **{**asked, **seen})
    lists = np.full((len(users), n), -1, np.int32)
    owner = Ids(test.users.values[users]).index(table["user"], "user ids")
    lists[owner, table["rank"].to_numpy() - 1] = posterior.row_of("item", table["item"])
    item = posterior.row_of("item", liked.items.values)[rows.index]
    # items that the fit does not know can be in no list, and count as missed
    item = np.where(item < 0, len(posterior.items) + rows.index, item)
    totals = np.zeros(test.n_users, np.int64)
    totals[test.by_user.row_index] = cut.totals
    found = rank_scores(
        lists,
        np.searchsorted(users, rows.row_index),
        item,
        posterior.item_counts,
        int(np.count_nonzero(posterior.user_counts)),
        FrequencyBins(cut.uppers, totals[users]),
    )
    return {"n": n, "relevant_from": least, "users": len(users), **found}


def test_error(posterior: Posterior, test: Ratings | None, threads: int | None) -> float | None:
    """The ``rmse`` that ``Fitted.evaluate`` finds, for ratings that a fit was given to test on."""
    if test is None or not len(test):
        return None
    posterior = posterior.centred()
    with using(threads):
        mean = posterior.predictive(posterior.cells(test)).mean
    return float(np.sqrt(np.mean((mean - np.asarray(test.values, float)) ** 2)))
