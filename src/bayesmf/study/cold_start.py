"""ColdStart: users or items that are held out of training, and folded in from some ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import Side
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import cold_start, generator, rank_within_user
from bayesmf.errors import DataError
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.metrics import scores
from bayesmf.fitted.base import Fitted
from bayesmf.model.likelihood import Normal
from bayesmf.study.specs import GIVEN

SHARE = 0.1  # of the users (or items) that have more than ``FEWEST`` ratings
FEWEST = 20  # ratings that are never in the test; every newcomer has more


@dataclass(frozen=True)
class ColdStart:
    """Who is new, what is known of them, and what they are tested on.

    Inside, a newcomer is a user: new items are users of the transposed ratings. ``place`` is where
    a rating stands in the order in which the ratings of its newcomer become known. The first
    ``FEWEST`` are never in the test, so up to that many all numbers of ratings given have the same
    test ratings. More are given only to newcomers who have yet more, and those are the test then.
    """

    side: Side
    train: Ratings  # as the data has them, without the newcomers
    held: Ratings  # all ratings of the newcomers, by newcomer
    place: NDArray[np.int64]

    @classmethod
    def hold_out(cls, ratings: Ratings, seed: int, side: Side) -> ColdStart:
        """Hold out a tenth of the users (or items) that have more than ``FEWEST`` ratings."""
        by_newcomer = ratings if side == "user" else ratings.T
        try:
            cut = cold_start(by_newcomer, seed, SHARE, FEWEST)
        except DataError as error:
            raise DataError(
                f"there are no new {side}s to hold out: too few {side}s have more than {FEWEST} "
                "ratings"
            ) from error
        assert cut.given is not None
        kept = by_newcomer.drop_unused()
        held = kept.select(cut.train.by_user.counts[kept.by_user.row_index] == 0)
        # in the order of random keys, so that the few ratings are among the many
        first = generator(seed, 2).random_raw(len(cut.given))
        later = generator(seed, 3).random_raw(len(cut.test))
        is_given = np.isin(_cells(held), _cells(cut.given))
        place = np.empty(len(held), np.int64)
        place[is_given] = rank_within_user(cut.given, first)
        place[~is_given] = FEWEST + rank_within_user(cut.test, later)
        train = cut.train if side == "user" else cut.train.T
        return cls(side, train.drop_unused(), held, place)

    @property
    def numbers(self) -> list[int]:
        """The numbers of ratings given, as far as a newcomer has more."""
        return [given for given in GIVEN if given < self.held.by_user.counts.max()]

    def known(self, given: int) -> Ratings:
        """The ratings that are given."""
        return self._turn(self.held.select(self._with_more_than(given) & (self.place < given)))

    def asked(self, given: int) -> Ratings:
        """The test ratings, given so many others."""
        return self._turn(self._asked(given))

    def fold_in(self, fit: Fitted, given: int, seed: int = 0) -> Fitted:
        """A fit to ``train`` with the newcomers in it; given nothing, the fit itself."""
        return fit.fold_in(self.known(given), self.side, seed=seed) if given else fit

    def measure(self, fit: Fitted, given: int) -> tuple[dict[str, Any], NDArray[np.float64]]:
        """Score the predictions of a fit with the newcomers in it.

        Returns what ``fit.evaluate`` says of the test ratings, and each newcomer's sum of squared
        errors, which is 0 if they are not tested.
        """
        test = self.asked(given)
        found = fit.predict(test, quantiles=())
        mean, sd = (found[name].to_numpy() for name in ("mean", "sd"))
        values, rows = np.asarray(test.values, float), test.by_user
        everything = FrequencyBins((), np.zeros(len(test), np.int64))
        facts = scores(values, everything, Normal(mean, sd))
        del facts["by_bin"]
        newcomer = rows.row_index if self.side == "user" else rows.index
        squares = np.bincount(newcomer, (mean - values) ** 2, minlength=self.held.n_users)
        counts = self._asked(given).by_user.counts
        facts.update(newcomers=int((counts > 0).sum()), test_ratings=len(test))
        return facts, np.asarray(squares[self.held.by_user.counts > 0], float)

    def _asked(self, given: int) -> Ratings:
        tested = self._with_more_than(given) & (self.place >= max(given, FEWEST))
        return self.held.select(tested)

    def _with_more_than(self, given: int) -> NDArray[np.bool_]:
        """Whether each rating is one of a newcomer with more than so many."""
        rows = self.held.by_user
        return np.asarray(rows.counts[rows.row_index] > given)

    def _turn(self, by_newcomer: Ratings) -> Ratings:
        return by_newcomer if self.side == "user" else by_newcomer.T


def _cells(ratings: Ratings) -> NDArray[np.int64]:
    """One number for each pair of a user and an item."""
    rows = ratings.by_user
    return rows.row_index.astype(np.int64) * ratings.n_items + rows.index
