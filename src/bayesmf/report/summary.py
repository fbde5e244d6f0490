"""A fit on one page: what it is, whether to trust it, how good it is for whom, how to use it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import bayesmf
from bayesmf.data.io.atomic import OVERWRITE, check_place, whole_file
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import generator
from bayesmf.errors import DataError
from bayesmf.evaluation.convergence import COLUMNS
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES
from bayesmf.fitted.base import Fitted
from bayesmf.fitted.explore.judge import unseen
from bayesmf.fitted.posterior import Posterior
from bayesmf.machine import using
from bayesmf.plots.look import Panel
from bayesmf.report.page import (
    Block,
    Cell,
    Code,
    Drawing,
    Facts,
    Figure,
    Finding,
    Page,
    Section,
    Table,
    Text,
)
from bayesmf.report.page import render as render_page

Array = NDArray[np.float64]
USERS = 20  # of whom an item's doubt is measured
SHOWN = 8  # items with the most doubt, and with the least
TOP = 10  # items of a list
HEADINGS = {"mae": "MAE", "rmse": "RMSE", "crps": "CRPS", "ndcg": "NDCG", "mrr": "MRR"}


def summary_page(
    fit: Fitted,
    path: str | Path,
    test: Any = None,
    *,
    name: str = "my-fit",
    overwrite: bool = False,
) -> Path:
    """Write a page about a fit: one HTML file that loads nothing, light and dark.

    - ``test``: ratings to judge it by: ``Ratings``, or a frame with user, item and rating; those
      that the fit has held out if None.
    - ``name``: the path of the saved fit, for the examples on the page.
    - ``overwrite``: replace a file that is there already, which is refused otherwise.

    Returns the path.
    """
    out = check_page(Path(path), overwrite)
    return write_page(make_page(fit, test, name), out, overwrite)


def check_page(out: Path, overwrite: bool) -> Path:
    """Refuse a file that cannot be written, before the work."""
    if out.exists() and not overwrite:
        raise DataError(f"{out} exists already; {OVERWRITE}")
    check_place(out)
    return out


def write_page(page: Page, out: Path, overwrite: bool) -> Path:
    """Write a page as one file, whole or not at all."""
    with whole_file(out, overwrite) as made:
        made.write_text(render_page(page), encoding="utf-8")
    return out


def make_page(
    fit: Fitted, test: Any = None, name: str = "my-fit", words: str | None = None
) -> Page:
    """The page as values; ``words`` are the verdict on the chains, if not those of Python."""
    posterior = fit.posterior
    if test is None:
        test = unseen(posterior)
    elif not isinstance(test, Ratings):
        test = Ratings.from_frame(test)
    if test is not None and not len(test):
        test = None
    facts = None if test is None else fit.evaluate(test)
    sections = [
        Section("what", "What was fitted", [_facts(fit)]),
        Section("chains", "Has it converged?", _chains(fit, words)),
        Section("quality", "How good is it, and for whom?", _quality(fit, test, facts)),
        Section("doubt", "Items with the most and the least doubt", _items(fit)),
        Section("use", "Use it like this", _examples(fit, name)),
    ]
    model = posterior.model
    told = f"{model.likelihood.name} ratings, rank {model.rank}, {model.precision} precision"
    subtitle = f"{told}; {len(posterior.users):,} users, {len(posterior.items):,} items"
    footer = f"Made by bayesmf {bayesmf.__version__}."
    title = f"Summary of {Path(name).name}"
    return Page(title, subtitle, _findings(fit, test, facts), sections, footer)


def _findings(fit: Fitted, test: Ratings | None, facts: Any) -> list[Finding]:
    """What a reader should know first."""
    told = {
        True: "The chains have converged.",
        False: "The chains have not converged: sample longer before you rely on it.",
        None: "Whether it has converged cannot be judged.",
    }
    found = [Finding(told[fit.diagnostics().verdict.converged], "plain")]
    if test is None or facts is None:
        untested = "No ratings were held out, so nothing here says how good its predictions are."
        return [*found, Finding(untested, "plain")]
    values = np.asarray(test.values, float)
    plain = float(np.sqrt(np.mean((values - _mean(fit.posterior)) ** 2)))
    less = 100 * (1 - facts["rmse"] / plain)
    found.append(
        Finding(
            f"On {len(test):,} ratings that it has not seen, the error (RMSE) is "
            f"{facts['rmse']:.4f}: {less:.0f}\N{NO-BREAK SPACE}% less than that of the mean rating "
            f"({plain:.4f}).",
            "plain",
        )
    )
    rows = [row for row in facts["by_user_frequency"] if row["test_ratings"]]
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        found.append(
            Finding(
                f"It is {first['rmse']:.4f} for users with {_words(first['user_ratings'])} "
                f"ratings, and {last['rmse']:.4f} for those with {_words(last['user_ratings'])}.",
                "plain",
            )
        )
    share = f"{100 * facts['coverage_80']:.1f}\N{NO-BREAK SPACE}%"
    inside = f"Of these ratings, {share} lie inside their 80\N{NO-BREAK SPACE}% interval."
    return [*found, Finding(inside, "plain")]


def _mean(posterior: Posterior) -> float:
    """The mean of the training ratings, if they are at hand, and else of the scale."""
    if posterior.train is not None:
        return float(posterior.train.mean)
    return (posterior.scale.low + posterior.scale.high) / 2


def _words(label: str) -> str:
    """A bin of users in words."""
    return f"at most {label[2:]}" if label.startswith("<=") else label.replace("+", " or more")


def _facts(fit: Fitted) -> Facts:
    posterior, own = fit.posterior, fit._facts()
    model = posterior.model
    pairs = [
        ("Training ratings", f"{int(posterior.user_counts.sum()):,}"),
        ("Users", f"{np.count_nonzero(posterior.user_counts):,}"),
        ("Items", f"{np.count_nonzero(posterior.item_counts):,}"),
        ("Scale", str(posterior.scale)),
        ("Rank", f"{model.rank}"),
        ("Likelihood", model.likelihood.name),
        ("Precision of the noise", model.precision),
        ("Time", model.time),
        ("Draws to predict from", f"{len(posterior):,}"),
    ]
    for key, label in (
        ("inference", "Inference"),
        ("chains", "Chains"),
        ("sweeps", "Sweeps of all chains"),
    ):
        if own.get(key):
            pairs.append((label, f"{own[key]:,}" if key != "inference" else str(own[key])))
    if own.get("stopped"):
        pairs.append(("It ended because", str(own["stopped"])))
    return Facts(pairs)


def _chains(fit: Fitted, words: str | None) -> list[Block]:
    blocks: list[Block] = [Text([words or fit.diagnostics().verdict.words])]
    if not fit._traces():
        return blocks
    found = fit.diagnostics()
    rows = [
        [name, *("" if value is None else f"{value:.4g}" for value in row)]
        for name, row in found._rows().items()
    ]
    headings = ["", *(column.replace("_", " ").replace("r hat", "R-hat") for column in COLUMNS)]
    caption = (
        f"Wanted are R-hat of at most {found.targets.r_hat:g} and {found.targets.ess:g} effective "
        "draws (ess) or more."
    )
    panels = [
        _panel(f"chain-{number}", name, f"The {name} by sweep, a line for each chain.", draw)
        for number, name in enumerate((*SUMMARIES, PREDICTIONS))
        if name in fit._traces()
        for draw in [partial(fit.plot.trace, name)]
    ]
    if rows:
        blocks.append(Table("measures", "Measures of the chains", caption, headings, rows))
    lines = "Each line is a chain. Lines that cross often and stay at one level have converged."
    blocks.append(_figure("traces", "The chains", lines, panels))
    return blocks


def _panel(name: str, title: str, alt: str, draw: Callable[..., Any]) -> Panel:
    """What a method of ``fit.plot`` draws."""

    def on(axes: Axes) -> None:
        draw(ax=axes)

    return Panel(name, title, alt, on)


def _figure(name: str, title: str, caption: str, panels: list[Panel]) -> Figure:
    return Figure(name, title, caption, [Drawing(panel.svg, panel.alt) for panel in panels])


def _quality(fit: Fitted, test: Ratings | None, facts: Any) -> list[Block]:
    if test is None or facts is None:
        return [Text(["Give ratings that the fit has not seen, and this section says it."])]
    shown = [name for name in facts if name not in ("by_user_frequency", "log_score")]
    if "log_probability" not in facts:
        shown.append("log_score")
    blocks: list[Block] = [
        _bins_table("errors", "Errors and intervals", facts, shown, "test_ratings"),
        _figure(
            "pictures",
            "By user frequency, and calibration",
            "First the error by how many ratings a user has; then the share of the ratings inside "
            "intervals of each probability: the nearer to the diagonal the better.",
            [
                _panel(
                    "by-frequency",
                    "test error",
                    "The error of each bin of the table above.",
                    partial(fit.plot.by_frequency, test),
                ),
                _panel(
                    "calibration",
                    "calibration",
                    f"{facts['coverage_50']:.1%} of the ratings lie inside their 50 % interval, "
                    f"{facts['coverage_95']:.1%} inside their 95 % interval.",
                    partial(fit.plot.calibration, test),
                ),
            ],
        ),
    ]
    if fit.posterior.train is None:
        return blocks
    try:
        lists = fit.evaluate_ranking(test, TOP)
    except DataError:  # nobody liked anything
        return blocks
    names = ["ndcg", "recall", "precision", "mrr", "hit_rate", "coverage", "novelty"]
    caption = (
        f"Of the items that a user rated {lists['relevant_from']:g} or more in the test ratings, "
        f"how many stand in the list of the {TOP} best, and how far up."
    )
    title = f"Lists of {TOP} items"
    return [*blocks, _bins_table("lists", title, lists, names, "users", caption)]


def _bins_table(
    name: str, title: str, facts: Any, shown: list[str], counted: str, caption: str = ""
) -> Table:
    """Measures by bin, all users first."""
    rows = facts["by_user_frequency"]
    total = sum(row[counted] for row in rows)
    every = [{"user_ratings": "all", counted: total, **facts}, *(rows if len(rows) > 1 else [])]
    headings = ["ratings of the user", counted.replace("_", " "), *map(_heading, shown)]
    cells: list[list[Cell | str]] = [
        [
            Cell(row["user_ratings"], float(number)),
            f"{row[counted]:,}",
            *(f"{row[key]:.4f}" if row[counted] else "" for key in shown),
        ]
        for number, row in enumerate(every)
    ]
    return Table(name, title, caption, headings, cells)


def _heading(name: str) -> str:
    if name.startswith("coverage_"):
        return f"inside {name.removeprefix('coverage_')} %"
    return HEADINGS.get(name, name.replace("_", " "))


def _items(fit: Fitted) -> list[Block]:
    """The items whose expected rating is known worst, and those that are known best."""
    posterior = fit.posterior
    rows = np.flatnonzero(posterior.item_counts).astype(np.int32)
    users = np.flatnonzero(posterior.user_counts).astype(np.int32)
    if posterior.is_point:
        return [Text(["This fit is one point, which knows no doubt: fit it by Gibbs sampling."])]
    some = np.sort(users[np.argsort(generator(0).random_raw(len(users)))[:USERS]])
    cells = Cells(np.tile(some, len(rows)), np.repeat(rows, len(some)))
    with using(fit._threads_for(cells)):
        found = posterior.moments(cells)
    doubt = np.sqrt(found.doubt.reshape(len(rows), -1).mean(axis=1))
    mean = found.mean.reshape(len(rows), -1).mean(axis=1)
    order = np.argsort(-doubt, kind="stable")
    items = posterior.items.values[rows].tolist()
    called = posterior.labels.call("item", items)
    latent = posterior.model.likelihood.latent
    caption = (
        f"The doubt is the standard deviation of {'the latent number of' if latent else ''} the "
        f"expected rating over the draws, for {len(some)} users chosen at random; noise is no part "
        "of it."
    ).replace("  ", " ")
    headings = ["item", "ratings", "expected", "doubt"]
    names = {
        "most-doubt": ("The most doubt", order[:SHOWN]),
        "least-doubt": ("The least doubt", order[::-1][:SHOWN]),
    }
    return [
        Table(
            name,
            title,
            caption if name == "most-doubt" else "",
            headings,
            [
                [
                    called[k],
                    f"{posterior.item_counts[rows[k]]:,}",
                    f"{mean[k]:.2f}",
                    f"{doubt[k]:.3f}",
                ]
                for k in chosen
            ],
        )
        for name, (title, chosen) in names.items()
    ]


def _examples(fit: Fitted, name: str) -> list[Block]:
    """What to type next, with ids that the fit knows."""
    posterior = fit.posterior
    user = posterior.users.values[int(np.argmax(posterior.user_counts))]
    item = posterior.items.values[int(np.argmax(posterior.item_counts))]
    user, item = (each.item() if hasattr(each, "item") else each for each in (user, item))
    python = [
        "import bayesmf",
        "",
        f"fit = bayesmf.load_model({name!r})",
        f"fit.recommend([{user!r}], n=10)",
        f"fit.predict([({user!r}, {item!r})])",
        f"fit.explain({user!r}, {item!r})",
        f"fit.plot.user({user!r})",
    ]
    model, person = shlex.quote(name), shlex.quote(str(user))
    shell = [
        f"bayesmf recommend {model} --user {person} -n 10",
        f"bayesmf predict {model} pairs.csv --out predictions.csv",
        f"bayesmf evaluate {model} test.csv --top 10",
        f"bayesmf update {model} new-ratings.csv --out updated",
    ]
    return [Code(python, "In Python"), Code(shell, "On the command line")]
