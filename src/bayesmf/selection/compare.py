"""Several fits side by side: which is better, by how much, for whom, and is it more than luck?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_seed, check_whole
from bayesmf.data.pairs import Cells, frame_like
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import generator
from bayesmf.errors import DataError
from bayesmf.evaluation.bootstrap import Difference, lowest_of, paired_difference
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.metrics import log_scores
from bayesmf.fitted.base import Fitted, load_model
from bayesmf.fitted.explore.judge import cut_bins, find_seen
from bayesmf.machine import using
from bayesmf.selection.loo import check_draws, largest_k, leave_one_out

Array = NDArray[np.float64]
LEFT_OUT = 2000  # training ratings that are left out in turn, at most, unless told otherwise
ALL = "all"


@dataclass(frozen=True, repr=False)
class Comparison:
    """What ``compare`` found: ``table`` has the numbers, printed it is a table and a sentence.

    A difference is that of a model less the first one, with a 95 % interval: an interval that does
    not hold 0 is more than the luck of these users.
    """

    rows: list[dict[str, Any]]  # one for each model and bin of users, "all" first
    models: list[str]  # their names; differences are against the first
    measures: tuple[str, ...]  # "rmse" and "log_probability" or "log_score", or "loo" alone
    best: str  # the model with the least error, or the largest loo
    tied: list[str]  # those that cannot be told from it
    notes: list[str]  # what to know before believing it

    @property
    def table(self) -> Any:
        """A pyarrow table of ``rows``."""
        return frame_like({name: [row[name] for row in self.rows] for name in self.rows[0]})

    @property
    def words(self) -> str:
        """Which model is best, and which cannot be told from it."""
        what = "largest leave-one-out score" if self.measures == ("loo",) else "lowest test RMSE"
        told = f"{self.best} has the {what}"
        if self.tied:
            told += f"; {' and '.join(self.tied)} cannot be told from it"
        elif len(self.models) > 1:
            told += ", by more than the luck of these users"
        return f"{told}."

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {**asdict(self), "words": self.words}

    def format_lines(self) -> list[list[str]]:
        """The table as text: headings, then a line for each row."""
        counted = "test ratings" if "test_ratings" in self.rows[0] else "ratings"
        headings = ["model", "ratings of the user", counted]
        for name in self.measures:
            label = name.replace("_", " ").replace("rmse", "RMSE").replace("loo", "LOO")
            headings += [label, "difference [95 %]"]
        lines = [headings]
        for row in self.rows:
            count = row[counted.replace(" ", "_")]
            line = [row["model"], row["user_ratings"], f"{count:,}"]
            for name in self.measures:
                value, low, high = (row[f"{name}_{end}"] for end in ("difference", "low", "high"))
                told = "" if row["model"] == self.models[0] else f"{value:+.4f}"
                if told and np.isfinite(low):
                    told += f" [{low:+.4f}, {high:+.4f}]"
                line += [f"{row[name]:.4f}" if count else "-", told if count else ""]
            lines.append(line)
        return lines

    def __repr__(self) -> str:
        lines = self.format_lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([self.words, "", *text, *self.notes])


def compare(
    fits: Any,
    test: Any = None,
    *,
    bins: Sequence[int] | None = None,
    ratings: int = LEFT_OUT,
    seed: int = 0,
    threads: int | None = None,
) -> Comparison:
    """Compare fits on test ratings, or by PSIS-LOO if there are none.

    - ``fits``: a mapping from names to fits, or a list of them. Differences are against the first
      one. A fit may be the path of a saved
      one, which is read when its turn comes.
    - ``test``: ``Ratings``, or a frame with user, item and rating, that no fit was trained on. The
      measures are the RMSE and the mean log probability of the ratings (on a scale without steps,
      the mean log density).
    - ``bins``: as ``evaluate`` takes them.
    - ``ratings``: without ``test``, how many training ratings are left out in turn, chosen at
      random by ``seed``. All fits must have been trained on the same ratings. The measure is
      ``loo``, the mean log probability of such a rating given all others.
    - ``threads``: of saved fits.

    Intervals are those of a paired bootstrap of users, as in the study: what makes a user hard
    counts for all models alike. [Choosing a model](guides/choosing.md) says what LOO cannot tell.
    """
    check_seed(seed)
    check_whole("ratings", ratings, 1)
    named = _name(fits)
    if test is None:
        return _leave_out(named, ratings, bins, seed, threads)
    if not isinstance(test, Ratings):
        test = Ratings.from_frame(test)
    user, values = test.by_user.row_index, np.asarray(test.values, float)
    squares: dict[str, Array] = {}
    logs: dict[str, Array] = {}
    cut: FrequencyBins | None = None
    measure = "log_score"
    for name, fit in _each(named, threads):
        posterior = fit.posterior
        cells = _check_test(name, fit, test)
        cut = cut or cut_bins(posterior, test, cells, bins)
        with using(fit._threads_for(cells)):
            found = posterior.predictive(cells)
        levels = posterior.levels if posterior.has_levels else None
        measure = "log_score" if levels is None else "log_probability"
        squares[name], logs[name] = (found.mean - values) ** 2, log_scores(values, found, levels)
    assert cut is not None
    measures = {"rmse": (squares, np.sqrt), measure: (logs, np.asarray)}
    best, tied = lowest_of({n: _sum(user, test.n_users, each) for n, each in squares.items()})
    rows = _rows(list(named), measures, user, cut, "test_ratings")
    return Comparison(rows, list(named), tuple(measures), best, tied, [])


def _check_test(name: str, fit: Fitted, test: Ratings) -> Cells:
    """Refuse test ratings that the fit was trained on, or that are not on its scale."""
    fit.posterior.check(test)
    if count := int(find_seen(fit.posterior, test).sum()):
        raise DataError(
            f"{count:,} of the test ratings were in the training of {name}; compare on ratings "
            "that no fit has seen, such as those that bayesmf.split holds out"
        )
    return fit.posterior.cells(test)


def _name(fits: Any) -> dict[str, Any]:
    """The fits by their names: those of a mapping, paths, or numbers."""
    if isinstance(fits, Mapping):
        named = {str(name): fit for name, fit in fits.items()}
    else:
        if isinstance(fits, str | os.PathLike | Fitted):
            fits = [fits]
        named = {}
        for number, fit in enumerate(fits, 1):
            name = str(fit) if isinstance(fit, str | os.PathLike) else f"fit {number}"
            if name in named:
                raise DataError(f"{name} is given twice; give each fit once")
            named[name] = fit
    if not named:
        raise DataError("there are no fits to compare; give one or more")
    for name, fit in named.items():
        if not isinstance(fit, str | os.PathLike | Fitted):
            raise TypeError(f"{name} is of type {type(fit).__name__}; give a fit or its path")
    return named


def _each(named: Mapping[str, Any], threads: int | None) -> Iterator[tuple[str, Fitted]]:
    """Each fit with its name; saved ones are read in turn, so that one is in memory at a time."""
    for name, fit in named.items():
        yield name, fit if isinstance(fit, Fitted) else load_model(fit, threads)


def _sum(user: NDArray[Any], users: int, values: Array | None = None) -> Array:
    """Each user's sum of the values, or their number."""
    return np.asarray(np.bincount(user, values, minlength=users), float)


def _rows(
    names: list[str],
    measures: Mapping[str, tuple[Mapping[str, Array], Any]],
    user: NDArray[Any],
    cut: FrequencyBins,
    counted: str,
) -> list[dict[str, Any]]:
    """A row for each model overall, and then for each bin."""
    found, users = [], int(user.max(initial=-1)) + 1
    places = {ALL: np.ones(len(user), bool)}
    if len(cut.labels) > 1:
        places |= {label: cut.index == k for k, label in enumerate(cut.labels)}
    for label, here in places.items():
        counts = _sum(user[here], users)
        for name in names:
            row = {"model": name, "user_ratings": label, counted: int(counts.sum())}
            for measure, (values, form) in measures.items():
                mine, first = (
                    _sum(user[here], users, values[which][here]) for which in (name, names[0])
                )
                difference: Difference = paired_difference(first, mine, counts, form)
                row[measure] = float(form(mine.sum() / max(counts.sum(), 1)))
                row |= {
                    f"{measure}_difference": difference.value,
                    f"{measure}_low": difference.low,
                    f"{measure}_high": difference.high,
                }
            found.append(row)
    return found


def _leave_out(
    named: Mapping[str, Any],
    ratings: int,
    bins: Sequence[int] | None,
    seed: int,
    threads: int | None,
) -> Comparison:
    """Compare by leave-one-out scores of the same training ratings."""
    scores: dict[str, Array] = {}
    notes: list[str] = []
    trained, chosen = None, np.empty(0, np.intp)
    for name, fit in _each(named, threads):
        posterior = fit.posterior
        check_draws(posterior, name)
        train = posterior.train
        assert train is not None
        if trained is None:
            trained = train
            keys = generator(seed).random_raw(len(train))
            chosen = np.sort(np.argsort(keys, kind="stable")[:ratings])
        elif train.fingerprint() != trained.fingerprint():
            raise DataError(
                f"{name} was trained on other ratings than {next(iter(named))}; compare them on "
                "test ratings instead"
            )
        scores[name], k = leave_one_out(posterior, chosen)
        limit = largest_k(len(posterior))
        if share := float(np.mean(k > limit)):
            notes.append(
                f"{name}: {share:.0%} of the ratings have k above {limit:.2f}, so that its score "
                f"is too high by an unknown amount; {len(posterior)} draws are kept."
            )
    assert trained is not None
    user, totals = trained.by_user.row_index[chosen], trained.by_user.counts
    mine = totals[user]
    cut = FrequencyBins.at_quantiles(mine) if bins is None else FrequencyBins(bins, mine)  # type: ignore[arg-type]
    best = max(scores, key=lambda name: float(scores[name].sum()))
    sums = {name: _sum(user, len(totals), each) for name, each in scores.items()}
    counts = _sum(user, len(totals))
    tied = [
        name
        for name in scores
        if name != best and not paired_difference(sums[name], sums[best], counts).sign
    ]
    rows = _rows(list(named), {"loo": (scores, np.asarray)}, user, cut, "ratings")
    return Comparison(rows, list(named), ("loo",), best, tied, notes)
