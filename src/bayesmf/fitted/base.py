"""What every fit can do, whichever algorithm made it, and a fit that was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_number, check_seed, check_whole
from bayesmf.choices import RankBy, Updated
from bayesmf.data.columns import ROLES
from bayesmf.data.io.load import refuse_reading_options
from bayesmf.data.pairs import Cells, answer_pairs, pairs_of
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.evaluation.convergence import Diagnostics
from bayesmf.evaluation.diagnostics import Targets
from bayesmf.fitted.arviz import to_arviz
from bayesmf.fitted.explore import judge
from bayesmf.fitted.explore.answers import Column, Explores
from bayesmf.fitted.explore.html import show
from bayesmf.fitted.explore.plot import Plot
from bayesmf.fitted.fold_in import add_rows
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store import files as model_files
from bayesmf.fitted.store.checked import DRAW_CHAINS
from bayesmf.fitted.update import update
from bayesmf.machine import check_threads, using
from bayesmf.model.attributes import extend_attributes
from bayesmf.model.designs import Name
from bayesmf.model.likelihood import Discrete
from bayesmf.model.spec import Model

KNOWN = np.array(["warm", "new user", "new item", "new"], dtype=object)
OF_THE_TEST = ("test_rmse", "endless_rmse", "endless_rmse_error")  # facts of the fit as it was
FEW = 1 << 18  # ratings for which threads would wait for one another longer than they work
FEW_PAIRS = 1 << 14  # the same to predict, in every draw


class Fitted(Explores):
    """A fit: it predicts, recommends, explains, takes in new users, is evaluated and saved.

    Methods that return a frame return one of the same kind as the frame they were given: pandas,
    polars or pyarrow. If they were given a list, an array, ``Ratings`` or nothing, they return a
    pyarrow table (which has ``to_pandas()``). Where row k of the answer belongs to row k of a
    pandas frame, the answer has the index of that frame. A lazy polars frame is computed.

    Columns of a frame are the ones that ``user=``, ``item=``, ``rating=`` and ``time=`` name, else
    those called as in training, and else they are recognised by their names.
    """

    def _traces(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def _facts(self) -> Mapping[str, Any]:
        return {}

    def _ratings(self, given: Any, columns: Mapping[str, Column]) -> Ratings:
        """Read ratings from a frame whose columns are named, called as in training, or known."""
        for name in columns:
            if name not in ROLES:
                raise TypeError(f"there is no argument {name!r}; columns are {', '.join(ROLES)}")
        if isinstance(given, Ratings):
            refuse_reading_options("these ratings have been read already", columns)
            return given
        every: dict[str, Column] = {**dict.fromkeys(ROLES), **columns}
        return Ratings.from_frame(given, **self.posterior.labels.named(**every))

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
        user: Column = None,
        item: Column = None,
        time: Column = None,
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
          Without a chain it changes nothing, and an ``UnusedWarning`` says so.

        Returns a frame of the same kind as ``pairs``, in the same order, with the columns

        - ``user``, ``item``: the ids as they were given; ``user_title`` and ``title`` if the fit
          has titles.
        - ``probability``: that the rating is the upper one, if the likelihood is binary.
        - ``mean``: the expected rating.
        - ``sd``: the standard deviation of a rating, from what is not known of the user and the
          item, and from the noise.
        - ``q05``, ``q95``, or what ``quantiles`` asks for: quantiles of the predictive
          distribution, which is a Gaussian under the default likelihood. Under an ordinal or a
          binary one they are ratings: the first up to which lies so much of the probability.
        - ``known``: "warm", "new user", "new item" or "new". Users and items not seen in training
          get the prior predictive, which is wide.

        Other columns of ``pairs`` follow as they are, unless they are called like one of these.
        """
        labels = self.posterior.labels
        asked = pairs_of(pairs, **labels.named(user=user, item=item, time=time)).at(at)
        self._warn_if_unused(at)
        if not np.iterable(quantiles):
            raise DataError(f"quantiles={quantiles}: give a list, such as [{quantiles}]")
        cells = self.posterior.cells(asked)
        with using(self._threads_for(cells)):
            found = self.posterior.predictive(cells)
        columns = labels.pairs(asked)
        if isinstance(found, Discrete) and len(found.levels) == 2:
            columns["probability"] = found.chances[:, 1]
        columns |= {"mean": found.mean, "sd": found.sd}
        columns |= {_quantile_name(each): found.quantile(each) for each in quantiles}
        if clip:
            scale = self.posterior.scale
            for name in ("mean", *map(_quantile_name, quantiles)):
                columns[name] = np.clip(columns[name], scale.low, scale.high)
        columns["known"] = KNOWN[(cells.user < 0) + 2 * (cells.item < 0)]
        return answer_pairs(columns, asked)

    def probabilities(
        self,
        pairs: Any,
        *,
        user: Column = None,
        item: Column = None,
        time: Column = None,
        at: Any = None,
    ) -> Any:
        """Predict the probability of every rating of a scale with steps; a mixture over the draws.

        ``pairs`` and the other arguments are what ``predict`` takes. Returns a frame of the same
        kind with the columns ``user``, ``item``, their titles, and one for each rating of the
        scale: ``p1``, ``p2``, ... or ``p0.5``, ``p1``, ... They add up to 1. Other columns of
        ``pairs`` follow.
        """
        labels = self.posterior.labels
        asked = pairs_of(pairs, **labels.named(user=user, item=item, time=time)).at(at)
        self._warn_if_unused(at)
        cells = self.posterior.cells(asked)
        with using(self._threads_for(cells)):
            found = self.posterior.probabilities(cells)
        columns = {f"p{level:g}": found[:, k] for k, level in enumerate(self.posterior.levels)}
        return answer_pairs({**labels.pairs(asked), **columns}, asked)

    def fold_in(
        self,
        ratings: Any,
        side: Name = "user",
        *,
        replace_known: bool = False,
        seed: int = 0,
        **columns: Column,
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
        - ``columns``: the names of ``user``, ``item``, ``rating``, ``time`` and ``weight``.

        The new fit holds the ratings that this fit holds, and the new ones.
        """
        ratings = self._ratings(ratings, columns)
        check_seed(seed)
        old = self.posterior
        few = len(ratings) * len(old) < FEW and side in old.newcomers.unseen_rows
        with using(1 if few else self.threads):
            posterior = add_rows(old, ratings, side, replace_known=replace_known, seed=seed)
        return self._with(posterior)

    def update(
        self, ratings: Any, side: Updated = "user", *, seed: int = 0, **columns: Column
    ) -> SavedFit:
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
        - ``columns``: the names of ``user``, ``item``, ``rating``, ``time`` and ``weight``.

        Users that the fit does not know are taken in as ``fold_in`` does, and so are items with
        "item" or "both". Ratings of items that it does not know are left out with "user", and
        those by users that it does not know with "item". The fit has to hold its training ratings;
        the new fit holds these and the new ones.
        """
        ratings = self._ratings(ratings, columns)
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

    def evaluate(
        self, test: Any, bins: Sequence[int] | None = None, **columns: Column
    ) -> dict[str, Any]:
        """Measure the errors of predictions and the coverage of their intervals.

        - ``test``: ``Ratings``, or a frame with user, item and rating. A rating off the scale of
          the fit is refused, and ratings of training bring a ``SeenWarning``. Every rating counts
          once, whatever its weight.
        - ``bins``: the largest number of ratings of a user in each bin, rising; the last bin has no
          end. The bins are the paper's quantiles if None.
        - ``columns``: the names of ``user``, ``item``, ``rating``, ``time`` and ``weight``.

        The keys are ``rmse``, ``mae``, ``log_score`` (more is better), ``crps`` (less is better),
        ``coverage_50``, ``coverage_80`` and ``coverage_95`` (the share of test ratings inside the
        central interval of that probability), ``log_probability`` if the scale has steps (the mean
        log probability of the ratings), and ``by_user_frequency``: a list with the same for each
        bin of users, its ``user_ratings`` (training and test together) and its number of
        ``test_ratings``.
        """
        test = self._ratings(test, columns)
        posterior = self.posterior
        posterior.check(test)
        judge.warn_if_seen(posterior, test)
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
        **columns: Column,
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
        test = self._ratings(test, columns)
        check_whole("n", n, 1)
        if relevant is not None:
            check_number("relevant", relevant)
        asked = {"rank_by": rank_by, "seen": seen, "items": items, "seed": seed}
        return judge.evaluate_ranking(self, test, n, relevant, bins, **asked)

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


def _quantile_name(quantile: float) -> str:
    if not 0 < check_number("quantiles", quantile) < 1:
        raise DataError(f"quantile {quantile}: choose numbers between 0 and 1")
    return f"q{100 * quantile:02.0f}" if 100 * quantile % 1 == 0 else f"q{100 * quantile:g}"


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
