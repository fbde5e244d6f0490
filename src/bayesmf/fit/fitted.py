"""What every fit can do, whichever algorithm made it, and a fit that was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bayesmf.data.ids import to_arrow
from bayesmf.data.pairs import Cells, Pairs, frame_like, pairs_of, users_of
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.evaluation.diagnostics import effective_sample_size, r_hat
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.metrics import scores
from bayesmf.fit import files as model_files
from bayesmf.fit.explain import explain
from bayesmf.fit.posterior import Posterior
from bayesmf.fit.recommend import RankBy, recommend
from bayesmf.machine import check_threads, using
from bayesmf.model.designs import Name

Index = NDArray[np.int32]
KNOWN = np.array(["warm", "new user", "new item", "new"], dtype=object)
FEW = 1 << 18  # ratings for which threads would wait for one another longer than they work


class Fitted:
    """Predictions, recommendations, new users, evaluation, files; from draws of the parameters."""

    posterior: Posterior
    threads: int | None = None

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def _facts(self) -> Mapping[str, Any]:
        return {}

    def _where(self, pairs: Pairs) -> tuple[Index, Index]:
        if pairs.places is not None:
            return pairs.places
        users = to_arrow(pairs.user, "user", lambda row: f"pair {row + 1}")
        items = to_arrow(pairs.item, "item", lambda row: f"pair {row + 1}")
        if len(users) != len(items):
            raise DataError(f"{len(users)} users and {len(items)} items make no pairs")
        return self.posterior.rated("user", users), self.posterior.rated("item", items)

    def predict(
        self, pairs: Any, *, quantiles: Sequence[float] = (0.05, 0.95), clip: bool = False
    ) -> Any:
        """Expected ratings of pairs, and how far from them a rating may be.

        ``pairs`` is a frame with a user and an item column, a list of (user, item), an array of two
        columns, or ratings. Back comes a frame of the same kind (a pyarrow table if there was
        none), in the order of the pairs, with the columns

        - ``user``, ``item``: as they were given.
        - ``mean``: the expected rating.
        - ``sd``: the standard deviation of a rating: what is not known of the user and the item,
          and the noise.
        - ``q05``, ``q95``, or whatever ``quantiles`` asks for: those of a Gaussian with this mean
          and sd.
        - ``known``: "warm", "new user", "new item" or "new". Who was not in training is at the
          prior, and wide.

        ``clip`` cuts means and quantiles to the scale.
        """
        asked = pairs_of(pairs)
        user, item = self._where(asked)
        with using(self.threads):
            spread = self.posterior.moments(Cells(user, item))
        columns: dict[str, Any] = {"user": asked.user, "item": asked.item, "mean": spread.mean,
                                   "sd": spread.sd}  # fmt: skip
        for quantile in quantiles:
            if not 0 < quantile < 1:
                raise DataError(f"quantile {quantile}: choose numbers between 0 and 1")
            name = f"q{100 * quantile:02.0f}" if 100 * quantile % 1 == 0 else f"q{100 * quantile:g}"
            columns[name] = spread.mean + ndtri(quantile) * spread.sd
        if clip:
            scale = self.posterior.scale
            for name, values in columns.items():
                if name not in ("user", "item", "sd"):
                    columns[name] = np.clip(values, scale.low, scale.high)
        columns["known"] = KNOWN[(user < 0) + 2 * (item < 0)]
        return frame_like(columns, asked.like)

    def probabilities(self, pairs: Any) -> Any:
        """The probability of every rating of a scale with steps; a mixture over the draws.

        Takes what ``predict`` takes, and gives a frame with the columns ``user``, ``item`` and one
        for each rating of the scale: ``p1``, ``p2``, ... or ``p0.5``, ``p1``, ... They add up to 1.
        """
        asked = pairs_of(pairs)
        user, item = self._where(asked)
        with using(self.threads):
            found = self.posterior.probabilities(Cells(user, item))
        columns = {f"p{level:g}": found[:, k] for k, level in enumerate(self.posterior.levels)}
        return frame_like({"user": asked.user, "item": asked.item, **columns}, asked.like)

    def recommend(
        self, users: Any = None, n: int = 10, *, rank_by: RankBy = "mean",
        exclude_seen: bool = True, seen: Ratings | None = None, items: Any = None, seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Any:  # fmt: skip
        """The best ``n`` items of each user.

        - ``users``: one id, a list, a column, or a frame with a user column; all users if none. Who
          was not in training gets what most users like.
        - ``rank_by``: "mean", the expected rating; "lower", one standard deviation of the
          prediction below it; "thompson", one draw for each user, chosen by ``seed``.
        - ``exclude_seen``, ``seen``: items that the user rated in training, or in the ratings
          ``seen`` if they are given, are left out.
        - ``items``: the ids that may be recommended; all items if none.
        - ``progress``: called with the users done and the users in all.

        Back comes a frame with the columns ``user``, ``rank`` (from 1), ``item`` and ``score``
        (what was ranked by), user after user, with fewer rows where fewer items are left.
        """
        posterior = self.posterior
        asked, like = (posterior.users.values, None) if users is None else users_of(users)
        where = posterior.rated("user", asked)
        rated = seen.onto(posterior.users, posterior.items) if seen is not None else posterior.seen
        if exclude_seen and rated is None:
            raise DataError(
                "the training ratings are not at hand to leave out what was rated; give them "
                "(seen=, --seen), or keep what was rated in (exclude_seen=False, --with-seen)"
            )
        candidates = None
        if items is not None:
            candidates = np.unique(posterior.where("item", items))
            candidates = candidates[candidates >= 0]
        with using(self.threads):
            best, score = recommend(posterior, where, n, rank_by, rated if exclude_seen else None,
                                    candidates, seed, progress)  # fmt: skip
        row, column = np.nonzero(best >= 0)
        columns = {
            "user": np.asarray(asked)[row], "rank": column + 1,
            "item": posterior.items.values[best[row, column]], "score": score[row, column],
        }  # fmt: skip
        return frame_like(columns, like)

    def fold_in(
        self, ratings: Any, side: Name = "user", *, replace_known: bool = False, seed: int = 0
    ) -> SavedFit:
        """A fit with new users (or items) in it, each given their ratings; nothing is refitted.

        - ``ratings``: of the new users: ``Ratings``, or a frame with user, item and rating. Ratings
          of items that the fit does not know are left out.
        - ``side``: "item" takes in new items by the ratings that known users gave them.
        - ``replace_known``: a user who is known already is refused, or with this known by these
          ratings alone from now on.
        - ``seed``: of the draws.

        The fit itself does not change. The new one does not hold the training ratings: give
        ``recommend`` what was rated as ``seen``.
        """
        if not isinstance(ratings, Ratings):
            ratings = Ratings.from_frame(ratings)
        with using(1 if len(ratings) < FEW else self.threads):
            posterior = self.posterior.fold_in(
                ratings, side, replace_known=replace_known, seed=seed
            )
        return SavedFit(posterior, dict(self._traces()), dict(self._facts()), self.threads)

    def evaluate(self, test: Any, bins: Sequence[int] | None = None) -> dict[str, Any]:
        """How good predictions and their intervals are, overall and by how much the user rated.

        ``test`` is ``Ratings`` or a frame with user, item and rating. The keys are ``rmse``,
        ``mae``, ``log score`` (more is better), ``crps`` (less is better), ``coverage 0.5``,
        ``coverage 0.8`` and ``coverage 0.95`` (the share of test ratings inside the central
        interval of that probability), and ``by user frequency``: a list with the same for each bin
        of users, its ``user ratings`` (training and test together) and its number of
        ``test ratings``. The bins are the paper's quantiles, or those whose largest numbers of
        ratings ``bins`` lists.
        """
        if not isinstance(test, Ratings):
            test = Ratings.from_frame(test)
        posterior, rows = self.posterior, test.by_user
        user = posterior.rated("user", test.users.values)
        item = posterior.rated("item", test.items.values)
        with using(self.threads):
            spread = posterior.moments(Cells(user[rows.row_index], item[rows.index]))
        known = np.append(posterior.user_counts, 0)[user]
        totals = (known + rows.counts)[rows.row_index]
        cut = FrequencyBins.at_quantiles(totals)
        if bins is not None:
            cut = FrequencyBins(tuple(bins), totals)
        values = np.asarray(rows.values, float)
        facts = scores(values, cut, spread.mean, spread.sd**2)
        by_bin = facts.pop("by_bin")
        facts["by_user_frequency"] = [
            {"user_ratings": label, "test_ratings": int(count),
             **{name: each[k] for name, each in by_bin.items()}}
            for k, (label, count) in enumerate(zip(cut.labels, cut.counts, strict=True))
        ]  # fmt: skip
        return facts

    def finish(self, test: Ratings | None, validation: Ratings | None = None) -> None:
        """What is left to do when a fit is made: its one test error."""
        if test is not None and len(test):
            self.test_rmse = self.evaluate(test)["rmse"]

    def explain(self, user: Any, item: Any, most: int = 5) -> dict[str, Any]:
        """The parts of one prediction, and what the user's own ratings add to it.

        The keys are ``prediction``; ``parts``: mean, user bias, item bias, own features and side
        features, each with its ``mean`` and ``sd`` over the draws, whose means add up to the
        prediction; and, if the training ratings are at hand, ``ratings``: the ``most`` ratings of
        the user that matter most, each with ``item``, ``rating`` and what it ``adds``.
        """
        posterior = self.posterior
        i, j = int(posterior.where("user", [user])[0]), int(posterior.where("item", [item])[0])
        for what, place, asked in (("user", i, user), ("item", j, item)):
            if place < 0:
                raise DataError(f"the {what} {asked!r} was not in training; fold it in first")
        return explain(posterior, i, j, posterior.seen, most)

    def save(
        self, path: str | Path, *, without_ratings: bool = False, overwrite: bool = False
    ) -> None:
        """Write a folder, or one file if the path ends in .zip; ``load_model`` reads both.

        The training ratings are inside only ``with_ratings``. A model that is there already is
        replaced with ``overwrite``, and refused without.
        """
        with_ratings = not without_ratings and self.posterior.seen is not None
        model_files.save(
            self.posterior, path, self._traces(), self._facts(), with_ratings, overwrite
        )

    def diagnostics(self) -> dict[str, dict[str, float]]:
        """R-hat and effective sample size of every trace after the burn-in.

        By name: {"r_hat": ..., "ess": ...}. Traces are those of Gibbs sampling: the noise
        precision, the size of priors and side features, and 16 predictions.
        """
        return {
            name: {"r_hat": r_hat(trace), "ess": effective_sample_size(trace)}
            for name, trace in self._traces().items()
            if trace.ndim == 2 and trace.shape[1] >= 4
        }

    def to_arviz(self) -> Any:
        """The traces after the burn-in as ArviZ's InferenceData."""
        traces = dict(self._traces())
        if not traces:
            raise DataError("only Gibbs sampling leaves traces for ArviZ; fit with bayesmf.Gibbs")
        try:
            import arviz
        except ImportError as error:
            raise DataError("ArviZ is not installed; run pip install 'bayesmf[arviz]'") from error
        return arviz.from_dict(posterior=traces)


@dataclass
class SavedFit(Fitted):
    """A fit read from its files, or one with new users folded in."""

    posterior: Posterior
    traces: dict[str, NDArray[Any]] = field(default_factory=dict)  # (chain, draw)
    facts: dict[str, Any] = field(default_factory=dict)  # how it was made
    threads: int | None = None

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return self.traces

    def _facts(self) -> Mapping[str, Any]:
        return self.facts


def load_model(path: str | Path, threads: int | None = None) -> SavedFit:
    """A fit that was saved by ``fit.save`` or by ``bayesmf fit --out``, from its folder or .zip.

    The files are checked; anything wrong with them is a ``DataError`` of one sentence.
    """
    check_threads(threads)
    posterior, facts, traces = model_files.load(path)
    return SavedFit(posterior, traces, facts, threads)
