"""Several fits side by side: which is better, by how much, for whom, and is it more than luck?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_seed, check_whole
from bayesmf.data.pairs import Cells, frame_like
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import generator
from bayesmf.errors import DataError
from bayesmf.evaluation.bootstrap import lowest_of, paired_difference
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.evaluation.metrics import log_scores
from bayesmf.fitted.base import Fitted, load_model
from bayesmf.fitted.explore.judge import cut_bins, find_seen
from bayesmf.machine import using
from bayesmf.selection.loo import check_draws, largest_k, leave_one_out

Array = NDArray[np.float64]
LEFT_OUT = 2000  # training ratings that are left out in turn, at most, unless told otherwise
ALL = "all"
ENDS = ("difference", "low", "high")


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

    def format_lines(self, measure: str) -> list[list[str]]:
        """The table of one measure as text: headings, then a line for each row."""
        counted = "test ratings" if "test_ratings" in self.rows[0] else "ratings"
        label = measure.replace("_", " ").replace("rmse", "RMSE").replace("loo", "LOO")
        lines = [["model", "ratings of the user", counted, label, "difference [95 %]"]]
        for row in self.rows:
            count = row[counted.replace(" ", "_")]
            told = "" if row["model"] == self.models[0] else format_difference(row, measure)
            line = [row["model"], row["user_ratings"], f"{count:,}"]
            lines.append([*line, f"{row[measure]:.4f}" if count else "-", told if count else ""])
        return lines

    def __repr__(self) -> str:
        tables = [format_lines(self.format_lines(measure)) for measure in self.measures]
        return "\n\n".join([self.words, *tables, *self.notes])


def format_lines(lines: list[list[str]]) -> str:
    """Put columns of text below one another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def format_difference(row: Mapping[str, Any], measure: str) -> str:
    """A difference with its interval, if there is one."""
    value, low, high = (row[f"{measure}_{end}"] for end in ENDS)
    return f"{value:+.4f}" + (f" [{low:+.4f}, {high:+.4f}]" if np.isfinite(low) else "")


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
    rows, found = test.by_user, {}
    cut: FrequencyBins | None = None
    for name, fit in _each(named, threads):
        cells = _check_test(name, fit, test)
        cut = cut or cut_bins(fit.posterior, test, cells, bins)
        found[name] = measure(fit, test, cells)
    assert cut is not None
    bin_of = np.zeros(test.n_users, np.intp)
    bin_of[rows.row_index] = cut.index
    return summarise(found, bin_of, cut.labels)


class Sums(NamedTuple):
    """What one model's predictions of test ratings add up to, user by user."""

    counts: Array  # test ratings
    squares: Array  # of the errors
    logs: Array  # log probabilities of the ratings, or densities
    levels: bool  # whether they are probabilities

    def add(self, other: Sums) -> Sums:
        """Those of both parts of the test ratings together."""
        counts, squares = self.counts + other.counts, self.squares + other.squares
        return Sums(counts, squares, self.logs + other.logs, self.levels)


def measure(fit: Fitted, test: Ratings, cells: Cells) -> Sums:
    """Predict test ratings, whose rows in the fit are ``cells``, and sum the errors by user."""
    posterior, values = fit.posterior, np.asarray(test.values, float)
    with using(fit._threads_for(cells)):
        found = posterior.predictive(cells)
    levels = posterior.levels if posterior.has_levels else None
    logs, user = log_scores(values, found, levels), test.by_user.row_index
    counts, squares, logs = (
        _sum(user, test.n_users, each) for each in (None, (found.mean - values) ** 2, logs)
    )
    return Sums(counts, squares, logs, levels is not None)


def summarise(
    found: Mapping[str, Sums], bin_of: NDArray[np.intp], labels: Sequence[str]
) -> Comparison:
    """Compare models by their sums; ``bin_of`` is the bin of each user."""
    first = next(iter(found.values()))
    name = "log_probability" if first.levels else "log_score"
    squares = {model: sums.squares for model, sums in found.items()}
    logs = {model: sums.logs for model, sums in found.items()}
    measures = {"rmse": (squares, np.sqrt), name: (logs, np.asarray)}
    rows = _rows(measures, first.counts, bin_of, labels, "test_ratings")
    return Comparison(rows, list(found), tuple(measures), *lowest_of(squares), [])


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
    measures: Mapping[str, tuple[Mapping[str, Array], Any]],
    counts: Array,
    bin_of: NDArray[np.intp],
    labels: Sequence[str],
    counted: str,
) -> list[dict[str, Any]]:
    """A row for each model overall, and then for each bin, from the sums of each user."""
    found = []
    places = {ALL: np.ones(len(counts), bool)}
    if len(labels) > 1:
        places |= {label: bin_of == k for k, label in enumerate(labels)}
    names = list(next(iter(measures.values()))[0])
    for label, here in places.items():
        total = counts[here].sum()
        for name in names:
            row = {"model": name, "user_ratings": label, counted: int(total)}
            for measure, (sums, form) in measures.items():
                mine, first = (sums[which][here] for which in (name, names[0]))
                found_difference = paired_difference(first, mine, counts[here], form)
                row[measure] = float(form(mine.sum() / max(total, 1)))
                row |= {
                    f"{measure}_{end}": value
                    for end, value in zip(ENDS, found_difference, strict=True)
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
    sums = {name: _sum(user, len(totals), each) for name, each in scores.items()}
    counts, bin_of = _sum(user, len(totals)), np.zeros(len(totals), np.intp)
    bin_of[user] = cut.index
    best = max(scores, key=lambda name: float(scores[name].sum()))
    tied = [
        name
        for name in scores
        if name != best and not paired_difference(sums[name], sums[best], counts).sign
    ]
    rows = _rows({"loo": (sums, np.asarray)}, counts, bin_of, cut.labels, "ratings")
    return Comparison(rows, list(named), ("loo",), best, tied, notes)
