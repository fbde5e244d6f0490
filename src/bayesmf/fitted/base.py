"""What every fit can do, whichever algorithm made it, and a fit that was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice, check_number, check_seed, check_whole
from bayesmf.choices import RANK_BY, RankBy, Updated
from bayesmf.data.pairs import Cells, Pairs, frame_like, pairs_of, read_time, users_of
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.evaluation.convergence import Diagnostics
from bayesmf.evaluation.diagnostics import Targets
from bayesmf.fitted.arviz import to_arviz
from bayesmf.fitted.explain import explain
from bayesmf.fitted.explore import judge
from bayesmf.fitted.explore.html import show
from bayesmf.fitted.explore.plot import Plot
from bayesmf.fitted.fold_in import add_rows
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.recommend import Asked, Seen, recommend
from bayesmf.fitted.store import files as model_files
from bayesmf.fitted.update import update
from bayesmf.machine import check_threads, using
from bayesmf.model.attributes import extend_attributes
from bayesmf.model.designs import Name
from bayesmf.model.likelihood import Discrete
from bayesmf.model.spec import Model

KNOWN = np.array(["warm", "new user", "new item", "new"], dtype=object)
DRAW_CHAINS = "draw_chains"  # the fact of a saved fit that says from which chain each draw is
OF_THE_TEST = ("test_rmse", "endless_rmse", "endless_rmse_error")  # facts of the fit as it was
FEW = 1 << 18  # ratings for which threads would wait for one another longer than they work
FEW_PAIRS = 1 << 14  # the same to predict, in every draw


class Fitted:
    """A fit: it predicts, recommends, explains, takes in new users, is evaluated and saved.

    Methods that return a frame return one of the same kind as the frame they were given: pandas,
    polars or pyarrow. If they were given a list, an array, ``Ratings`` or nothing, they return a
    pyarrow table (which has ``to_pandas()``). Where row k of the answer belongs to row k of a
    pandas frame, the answer has the index of that frame.
    """

    posterior: Posterior
    threads: int | None = None

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def _facts(self) -> Mapping[str, Any]:
        return {}

    def _threads_for(self, cells: Cells) -> int | None:
        return 1 if len(cells.user) < FEW_PAIRS else self.threads

    def __repr__(self) -> str:
        model: Model | None = getattr(self, "model", None)  # not that of the posterior: it may
        error: float | None = getattr(self, "test_rmse", None)  # have to be made first
        told = [] if model is None else [f"rank {model.rank}, {model.precision} precision"]
        if model is not None and model.likelihood.latent:
            told.append(f"{model.likelihood.name} ratings")
        told += [] if error is None else [f"test RMSE {error:.4f}"]
        told += [self.diagnostics().verdict.short] if self._traces() else []
        return f"{type(self).__name__}({'; '.join(told)})"

    @property
    def plot(self) -> Plot:
        """Draw the fit: ``fit.plot.trace()``, ``.calibration()``, ``.user(id)`` and others."""
        return Plot(self)

    def _repr_html_(self) -> str:
        return show(self)

    def predict(
        self,
        pairs: Any,
        *,
        quantiles: Sequence[float] = (0.05, 0.95),
        clip: bool = False,
        at: Any = None,
    ) -> Any:
        """Predict the ratings of pairs, and how far from the prediction a rating may be.

        - ``pairs``: a frame with a user and an item column, a list of (user, item), an array of two
          columns, or ``Ratings``.
        - ``quantiles``: the probabilities for which the prediction has a column.
        - ``clip``: cut means and quantiles to the scale.
        - ``at``: when all ratings would be given, for a model with a time chain: seconds since
          1970, a date, or "now". Pairs may have a column of times instead; without either, a
          prediction does not know the user's mood, and is a little less certain.

        Returns a frame of the same kind as ``pairs``, in the same order, with the columns

        - ``user``, ``item``: the ids as they were given.
        - ``probability``: that the rating is the upper one, if the likelihood is binary.
        - ``mean``: the expected rating.
        - ``sd``: the standard deviation of a rating, from what is not known of the user and the
          item, and from the noise.
        - ``q05``, ``q95``, or what ``quantiles`` asks for: quantiles of the predictive
          distribution, which is a Gaussian under the default likelihood. Under an ordinal or a
          binary one they are ratings: the first up to which lies so much of the probability.
        - ``known``: "warm", "new user", "new item" or "new". Users and items not seen in training
          get the prior predictive, which is wide.
        """
        asked = pairs_of(pairs).at(at)
        if not np.iterable(quantiles):
            raise DataError(f"quantiles={quantiles}: give a list, such as [{quantiles}]")
        cells = self.posterior.cells(asked)
        with using(self._threads_for(cells)):
            found = self.posterior.predictive(cells)
        columns: dict[str, Any] = {"user": asked.user, "item": asked.item}
        if isinstance(found, Discrete) and len(found.levels) == 2:
            columns["probability"] = found.chances[:, 1]
        columns |= {"mean": found.mean, "sd": found.sd}
        for quantile in quantiles:
            if not 0 < check_number("quantiles", quantile) < 1:
                raise DataError(f"quantile {quantile}: choose numbers between 0 and 1")
            name = f"q{100 * quantile:02.0f}" if 100 * quantile % 1 == 0 else f"q{100 * quantile:g}"
            columns[name] = found.quantile(quantile)
        if clip:
            scale = self.posterior.scale
            for name, values in columns.items():
                if name not in ("user", "item", "sd", "probability"):
                    columns[name] = np.clip(values, scale.low, scale.high)
        columns["known"] = KNOWN[(cells.user < 0) + 2 * (cells.item < 0)]
        return frame_like(columns, asked.like)

    def probabilities(self, pairs: Any, *, at: Any = None) -> Any:
        """Predict the probability of every rating of a scale with steps; a mixture over the draws.

        ``pairs`` and ``at`` are what ``predict`` takes. Returns a frame of the same kind with the
        columns ``user``, ``item`` and one for each rating of the scale: ``p1``, ``p2``, ... or
        ``p0.5``, ``p1``, ... They add up to 1.
        """
        asked = pairs_of(pairs).at(at)
        cells = self.posterior.cells(asked)
        with using(self._threads_for(cells)):
            found = self.posterior.probabilities(cells)
        columns = {f"p{level:g}": found[:, k] for k, level in enumerate(self.posterior.levels)}
        return frame_like({"user": asked.user, "item": asked.item, **columns}, asked.like)

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        rank_by: RankBy = "mean",
        exclude_seen: bool = True,
        seen: Any = None,
        items: Any = None,
        at: Any = None,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Any:
        """Recommend the best ``n`` items to each user.

        - ``users``: one id, a list, a column, or a frame with a user column; all users if None.
          Users not seen in training get what most users like, or, if their attributes are known,
          what users with such attributes like.
        - ``rank_by``: "mean", the expected rating; "lower", one standard deviation of the
          prediction below it; "thompson", one draw for each user, chosen by ``seed``.
        - ``exclude_seen``: leave out what a user has rated, in training or in the ratings that were
          held out from it.
        - ``seen``: ratings, or pairs as ``predict`` takes them, to leave out instead of those. They
          may be of users that the fit does not know.
        - ``items``: the ids of the items that may be recommended; all items that the fit knows if
          None. Items not seen in training may be among them if their attributes are known.
        - ``at``: when they would be rated, for a model with a time chain, as in ``predict``: scores
          are those of that time, and the order of items is the same at any time.
        - ``progress``: called with the number of users done and of all users.

        Returns a frame with the columns ``user``, ``rank`` (from 1), ``item`` and ``score`` (what
        items are ranked by), user after user, with fewer rows for a user who has fewer items left.
        Ordinal and binary ratings are ranked by the linear predictor; the score of the items that
        are chosen is their expected rating, and puts them in order.
        It is of the same kind as ``users``, with an index of its own. The score of a newcomer does
        not contain what it would say of them that they choose to rate the item.
        """
        check_whole("n", n, 1)
        check_seed(seed)
        check_choice("rank_by", rank_by, RANK_BY)
        posterior, when = self.posterior, None if at is None else read_time(at)
        ids, like = (posterior.users.values, None) if users is None else users_of(users)
        asked, candidates = Asked.of(posterior, "user", ids), Asked.candidates(posterior, items)
        parts = self._seen(seen) if exclude_seen else []
        left_out = [Seen.of(asked, candidates, part) for part in parts]
        with using(self.threads):
            best, score = recommend(
                posterior, asked, candidates, n, rank_by, left_out, seed, progress, when
            )
        row, column = np.nonzero(best >= 0)
        columns = {
            "user": asked.ids[row],
            "rank": column + 1,
            "item": candidates.ids[best[row, column]],
            "score": score[row, column],
        }
        return frame_like(columns, like, same_rows=False)

    def _seen(self, given: Any) -> list[Ratings]:
        """Return the ratings to leave out of recommendations: those given, or those of the fit."""
        if isinstance(given, Ratings):
            return [given]
        if given is not None:
            pairs = pairs_of(given)
            if not len(pairs.user):
                return []
            zeros = np.zeros(len(pairs.user))
            return [
                Ratings.from_triplets(
                    users=pairs.user, items=pairs.item, ratings=zeros, duplicates="last"
                )
            ]
        train, held_out = self.posterior.train, self.posterior.held_out
        if train is None:
            raise DataError(
                "the training ratings are not at hand to leave out what was rated; give them with "
                f"{Option('seen', 'RATINGS')}, or keep what was rated in with "
                f"{Option('exclude_seen', False)}"
            )
        return [train] if held_out is None else [train, held_out]

    def fold_in(
        self, ratings: Any, side: Name = "user", *, replace_known: bool = False, seed: int = 0
    ) -> SavedFit:
        """Return a fit with new users (or items) in it, each given their ratings.

        Nothing is refitted, and this fit does not change. The first call takes seconds, because it
        measures the prior of new users on all draws; further calls on this fit, or on a fit that
        it returned, take milliseconds, or longer if ratings are latent or have effects, such as a
        time chain.

        - ``ratings``: of the new users: ``Ratings``, or a frame with user, item and rating. Ratings
          of items that the fit does not know are left out; a rating off the scale is refused.
        - ``side``: "item" takes in new items by the ratings that known users gave them.
        - ``replace_known``: a user who is known already is refused; with True, they are known by
          these ratings alone from now on.
        - ``seed``: of the draws.

        The new fit holds the ratings that this fit holds, and the new ones.
        """
        if not isinstance(ratings, Ratings):
            ratings = Ratings.from_frame(ratings)
        check_seed(seed)
        old = self.posterior
        few = len(ratings) * len(old) < FEW and side in old.newcomers.unseen_rows
        with using(1 if few else self.threads):
            posterior = add_rows(old, ratings, side, replace_known=replace_known, seed=seed)
        return self._with(posterior)

    def update(self, ratings: Any, side: Updated = "user", *, seed: int = 0) -> SavedFit:
        """Return a fit that also knows new ratings of users and items that this fit knows.

        Nothing is refitted, and this fit does not change. The rows of the users in ``ratings`` are
        drawn again, given all of their ratings, old and new; the rows of all others stay as they
        are. The first update of a fit takes seconds, because it measures the prior of the rows on
        all draws; further updates of this fit, or of a fit that it returned, take milliseconds.

        - ``ratings``: ``Ratings``, or a frame with user, item and rating. A rating of a pair that
          has one already replaces it; a rating off the scale is refused.
        - ``side``: "user" draws the users of ``ratings`` again, "item" the items, and "both" the
          users and then, given these, the items.
        - ``seed``: of the draws. A further update of the fit that is returned has other random
          numbers, also with the same seed.

        Users that the fit does not know are taken in as ``fold_in`` does, and so are items with
        "item" or "both". Ratings of items that it does not know are left out with "user", and
        those by users that it does not know with "item". The fit has to hold its training ratings;
        the new fit holds these and the new ones.
        """
        if not isinstance(ratings, Ratings):
            ratings = Ratings.from_frame(ratings)
        check_seed(seed)
        with using(1 if len(ratings) < FEW else self.threads):
            return self._with(update(self.posterior, ratings, side, seed=seed))

    def _with(self, posterior: Posterior) -> SavedFit:
        """Return a fit that was made as this one, but with another posterior."""
        facts = {
            name: fact for name, fact in self._saved_facts().items() if name not in OF_THE_TEST
        }
        return SavedFit(posterior, dict(self._traces()), facts, self.threads)

    def with_attributes(self, *, user: Any = None, item: Any = None) -> SavedFit:
        """Return a fit that knows attributes of more users or items, new ones for instance.

        ``user`` and ``item`` are frames, or paths of files, with the columns of the attributes that
        the model was fitted with. The row of an id that has one already is replaced; what the model
        has learned from it stays.
        """
        model = extend_attributes(self.posterior.model, user, item)
        posterior = replace(self.posterior.complete(), model=model)
        return SavedFit(posterior, dict(self._traces()), self._saved_facts(), self.threads)

    def evaluate(self, test: Any, bins: Sequence[int] | None = None) -> dict[str, Any]:
        """Measure the errors of predictions and the coverage of their intervals.

        - ``test``: ``Ratings``, or a frame with user, item and rating. A rating off the scale of
          the fit is refused. Every rating counts once, whatever its weight.
        - ``bins``: the largest number of ratings of a user in each bin, rising; the last bin has no
          end. The bins are the paper's quantiles if None.

        The keys are ``rmse``, ``mae``, ``log_score`` (more is better), ``crps`` (less is better),
        ``coverage_50``, ``coverage_80`` and ``coverage_95`` (the share of test ratings inside the
        central interval of that probability), ``log_probability`` if the scale has steps (the mean
        log probability of the ratings), and ``by_user_frequency``: a list with the same for each
        bin of users, its ``user_ratings`` (training and test together) and its number of
        ``test_ratings``.
        """
        if not isinstance(test, Ratings):
            test = Ratings.from_frame(test)
        posterior = self.posterior
        posterior.check(test)
        cells = posterior.cells(test)
        cut = judge.cut_bins(posterior, test, cells, bins)
        with using(self._threads_for(cells)):
            found = posterior.predictive(cells)
        return judge.evaluate(posterior, test, cut, found)

    def evaluate_ranking(
        self,
        test: Any,
        n: int = 10,
        *,
        relevant: float | None = None,
        rank_by: RankBy = "mean",
        seen: Any = None,
        items: Any = None,
        bins: Sequence[int] | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Measure how many of the items that users liked stand in their lists of ``n`` items.

        - ``test``, ``bins``: as ``evaluate`` takes them.
        - ``relevant``: the least rating of an item that a user liked; the upper quarter of the
          scale if None, which is 4 on a scale from 1 to 5.
        - ``rank_by``, ``items``, ``seed``: as ``recommend`` takes them.
        - ``seen``: ratings to leave out of the lists; those of training if None. Held-out ratings
          stay in.

        Users without a relevant test item are left out. The keys are ``n``, ``relevant_from``, the
        number of ``users``; ``ndcg``, ``recall``, ``precision``, ``mrr`` and ``hit_rate``, each the
        mean over users; ``coverage``, the share of the items that stand in a list; ``novelty``, the
        mean of -log2(share of the users who rated the item); and ``by_user_frequency``: a list with
        the same for each bin of users.
        """
        if not isinstance(test, Ratings):
            test = Ratings.from_frame(test)
        check_whole("n", n, 1)
        if relevant is not None:
            check_number("relevant", relevant)
        asked = {"rank_by": rank_by, "seen": seen, "items": items, "seed": seed}
        return judge.evaluate_ranking(self, test, n, relevant, bins, **asked)

    def explain(self, user: Any, item: Any, most: int = 5) -> dict[str, Any]:
        """Explain one prediction: its parts, and what the user's own ratings add to it.

        Returns a dict with the keys ``prediction``; ``parts``: mean, user bias, item bias, own
        features and designs, each with its ``mean`` and ``sd`` over the draws, whose means
        add up to the prediction; and, if the training ratings are at hand, ``ratings``: the
        ``most`` ratings of the user that matter most, each with ``item``, ``rating`` and what it
        ``adds``. If the model has attributes, ``attributes`` are the ``most`` that matter most.

        Where ratings are cells of a latent number, as ordinal and binary ones are, ``prediction``
        and ``parts`` are those of that number, ``expected`` is the expected rating, and there are
        no ``ratings``: what one of them adds is not linear.
        """
        check_whole("most", most, 1)
        for what, asked in (("user", user), ("item", item)):
            if np.ndim(asked):
                raise TypeError(f"explain takes one {what}, not a {type(asked).__name__}")
        posterior = self.posterior
        cells = posterior.cells(Pairs([user], [item]))
        i, j = int(cells.user[0]), int(cells.item[0])
        for what, row, asked in (("user", i, user), ("item", j, item)):
            if row < 0:
                raise DataError(f"the {what} {asked!r} was not in training; fold it in first")
        return explain(posterior, i, j, posterior.train, most)

    def save(
        self, path: str | Path, *, without_ratings: bool = False, overwrite: bool = False
    ) -> None:
        """Write a folder, or one file if the path ends in .zip; ``load_model`` reads both.

        - ``without_ratings``: leave out the ratings, training and held out. ``recommend`` then
          has to be told what users have seen, and ``explain`` tells less.
        - ``overwrite``: replace a model that is there already, which is refused otherwise.
        """
        facts = self._saved_facts()
        model_files.save(self.posterior, path, self._traces(), facts, without_ratings, overwrite)

    def _saved_facts(self) -> dict[str, Any]:
        """How the fit was made: what goes into its files."""
        facts = dict(self._facts())
        error, chains = getattr(self, "test_rmse", None), self._draw_chains()
        if error is not None:
            facts["test_rmse"] = error
        if chains:
            facts[DRAW_CHAINS] = chains
        return facts

    def diagnostics(self, targets: Targets | None = None) -> Diagnostics:
        """Judge whether the chains have converged, and measure what that rests on.

        What is judged are predictions of many pairs, the noise and the variance of the linear
        predictor, all after the warm-up. Variational inference and MAP have no chains, and the
        verdict then says so. [Has it converged?](guides/convergence.md)

        - ``targets``: what R-hat and the effective draws should be; those that the fit was made
          with if None.

        Returns a ``Diagnostics`` with ``verdict`` (``converged`` and ``words``), ``table``,
        ``predictions`` and ``to_dict()``. It is computed once, which takes a second or two.
        """
        traces, facts = self._traces(), self._facts()
        key = targets, tuple((name, trace.shape) for name, trace in traces.items())
        before: tuple[Any, Diagnostics] | None = vars(self).get("_diagnosed")
        if before is None or before[0] != key:
            before = vars(self)["_diagnosed"] = key, Diagnostics.of_fit(traces, facts, targets)
        return before[1]

    def _draw_chains(self) -> list[int]:
        """The chain of each kept draw; nothing where it is not known."""
        kept = getattr(self, "draws", None)
        return list(kept.chains) if kept is not None else []

    def to_arviz(self) -> Any:
        """Return the chains after the warm-up as ArviZ has them.

        That is an ``InferenceData`` with ArviZ before 1.0, and a ``DataTree`` since. Its group
        ``posterior`` holds what convergence is judged by; ``predictions`` has a dimension ``pair``.
        Its group ``unidentified`` holds Lambda, mu, the variances of biases and the scale of W of
        the kept draws, which must not be judged: its attribute ``why`` says the reason. A model
        that was saved by an earlier version does not have that group.
        """
        chains = self._draw_chains()
        return to_arviz(self._traces(), self.posterior if chains else None, chains)


@dataclass(repr=False)
class SavedFit(Fitted):
    """A fit read from its files, or one with new users folded in."""

    posterior: Posterior
    traces: dict[str, NDArray[Any]] = field(default_factory=dict)  # (chain, draw)
    facts: dict[str, Any] = field(default_factory=dict)  # how it was made
    threads: int | None = None

    @property
    def model(self) -> Model:
        """The model that was fitted."""
        return self.posterior.model

    @property
    def test_rmse(self) -> float | None:
        """The error on the test ratings when it was fitted, if there were any."""
        return self.facts.get("test_rmse")

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return self.traces

    def _facts(self) -> Mapping[str, Any]:
        return self.facts

    def _draw_chains(self) -> list[int]:
        return list(self.facts.get(DRAW_CHAINS, ()))


def load_model(path: str | Path, threads: int | None = None) -> SavedFit:
    """Read a fit that was saved by ``fit.save`` or by ``bayesmf fit --out``.

    ``path`` is its folder or .zip. The files are checked; anything wrong with them is a
    ``DataError`` of one sentence.
    """
    check_threads(threads)
    posterior, facts, traces = model_files.load(path)
    return SavedFit(posterior, traces, facts, threads)
