"""What every fit can do, whichever algorithm made it, and a fit that was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bayesmf.data.frames import Pairs, frame_like, pairs_of, users_of
from bayesmf.data.ids import to_arrow
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.evaluation.diagnostics import effective_sample_size, r_hat
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.scores import scores
from bayesmf.inference import model_files
from bayesmf.inference.explain import explain
from bayesmf.inference.posterior import Posterior
from bayesmf.inference.recommend import RankBy, recommend
from bayesmf.inference.run import check_threads, using
from bayesmf.model.state import Name

Index = NDArray[np.int32]
KNOWN = np.array(["hot", "new user", "new item", "new"], dtype=object)


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
        """A frame: user, item, mean, sd, quantiles (q05, q95), and what is known of the pair.

        ``sd`` is that of a rating: what is not known of the user and the item, and the noise. The
        quantiles are those of a Gaussian with this mean and sd. A user or item that was not in
        training is at its prior, and wide. ``clip`` cuts means and quantiles to the scale.
        """
        asked = pairs_of(pairs)
        user, item = self._where(asked)
        with using(self.threads):
            spread = self.posterior.spread(user, item)
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
        """A frame: user, item, and P(rating = r) for every r of a scale with steps."""
        asked = pairs_of(pairs)
        user, item = self._where(asked)
        with using(self.threads):
            found = self.posterior.probabilities(user, item)
        columns = {f"p{level:g}": found[:, k] for k, level in enumerate(self.posterior.levels)}
        return frame_like({"user": asked.user, "item": asked.item, **columns}, asked.like)

    def recommend(
        self, users: Any = None, n: int = 10, *, rank_by: RankBy = "mean",
        exclude_seen: bool = True, seen: Ratings | None = None, items: Any = None, seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Any:  # fmt: skip
        """A frame: user, rank, item, score; the best ``n`` items of each user, all users if none.

        Items that the user rated in training (or in ``seen``) are left out. ``items`` limits what
        may be recommended. A user who was not in training gets what most users like. ``progress``
        is called with the users done and the users in all.
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
        """A fit with new users (or items) in it, each given their ratings; nothing is refitted."""
        if not isinstance(ratings, Ratings):
            ratings = Ratings.from_frame(ratings)
        with using(self.threads):
            posterior = self.posterior.fold_in(
                ratings, side, replace_known=replace_known, seed=seed
            )
        return SavedFit(posterior, dict(self._traces()), dict(self._facts()), self.threads)

    def evaluate(self, test: Any, bins: Sequence[int] | None = None) -> dict[str, Any]:
        """RMSE, MAE, log score, CRPS and coverage, overall and by how much the user rated.

        The bins are the paper's, or those whose largest numbers of ratings are given.
        """
        if not isinstance(test, Ratings):
            test = Ratings.from_frame(test)
        posterior, rows = self.posterior, test.by_user
        user = posterior.rated("user", test.users.values)
        item = posterior.rated("item", test.items.values)
        with using(self.threads):
            spread = posterior.spread(user[rows.row_index], item[rows.index])
        known = np.append(posterior.user_counts, 0)[user]
        totals = (known + rows.counts)[rows.row_index]
        cut = FrequencyBins.at_quantiles(totals)
        if bins is not None:
            cut = FrequencyBins(tuple(bins), totals)
        values = np.asarray(rows.values, float)
        facts = scores(values, cut, spread.mean, spread.sd**2)
        by_bin = facts.pop("by bin")
        facts["by user frequency"] = [
            {"user ratings": label, "test ratings": int(count),
             **{name: each[k] for name, each in by_bin.items()}}
            for k, (label, count) in enumerate(zip(cut.labels, cut.counts, strict=True))
        ]  # fmt: skip
        return facts

    def explain(self, user: Any, item: Any, most: int = 5) -> dict[str, Any]:
        """The parts of one prediction, and what the user's own ratings add to it."""
        posterior = self.posterior
        i, j = int(posterior.where("user", [user])[0]), int(posterior.where("item", [item])[0])
        for what, place, asked in (("user", i, user), ("item", j, item)):
            if place < 0:
                raise DataError(f"the {what} {asked!r} was not in training; fold it in first")
        return explain(posterior, i, j, posterior.seen, most)

    def save(
        self, path: str | Path, *, with_ratings: bool = False, overwrite: bool = False
    ) -> None:
        """Write a folder, or one .zip; without the training ratings unless they are asked for."""
        model_files.save(self.posterior, path, self._traces(), self._facts(), with_ratings,
                         overwrite)  # fmt: skip

    def diagnostics(self) -> dict[str, dict[str, float]]:
        """R-hat and effective sample size of every trace after the burn-in."""
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
    facts: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return self.traces

    def _facts(self) -> Mapping[str, Any]:
        return self.facts


def load_model(path: str | Path, threads: int | None = None) -> SavedFit:
    """A fit that was saved, checked; anything wrong with its files is one sentence."""
    check_threads(threads)
    posterior, facts, traces = model_files.load(path)
    return SavedFit(posterior, traces, facts, threads)
