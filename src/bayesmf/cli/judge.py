"""Commands that judge a fitted model: evaluate, diagnose, summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bayesmf.choices import RANK_BY, RankBy
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.models import MODEL, NEW_ATTRIBUTES, load_fit, ratings_for, with_attributes
from bayesmf.cli.shared.options import (
    BINS,
    JSON,
    PATH,
    SEEDS,
    THREADS,
    data_names,
    parse_bins,
    ratings_options,
    say,
)
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError


@click.command()
@MODEL
@click.argument("test", shell_complete=data_names)
@ratings_options
@NEW_ATTRIBUTES
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="Also make lists of N items for every user, and measure how many of the items that they "
    "liked are in them.",
)
@click.option(
    "--relevant",
    type=float,
    metavar="RATING",
    help="The least rating of an item that a user liked, for --top.  [default: the upper quarter "
    "of the scale, such as 4 of 1 to 5]",
)
@click.option(
    "--rank-by",
    type=click.Choice(RANK_BY),
    help="What the lists of --top are ranked by, as in recommend.  [default: mean]",
)
@click.option(
    "--seed",
    type=SEEDS,
    help="The seed of the draws of --rank-by thompson.  [default: 0]",
)
@BINS
@THREADS
@JSON
def evaluate(
    model: Path,
    test: str,
    top: int | None,
    relevant: float | None,
    rank_by: RankBy | None,
    seed: int | None,
    bins: str | None,
    threads: int | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Test a model on ratings: all of them together, and by how much their users rated.

    Example: bayesmf evaluate my-fit test.csv --top 10
    """
    lists_by = {"relevant": relevant, "rank_by": rank_by, "seed": seed}
    lists_by = {name: value for name, value in lists_by.items() if value is not None}
    if lists_by and top is None:
        flag = next(iter(lists_by)).replace("_", "-")
        raise DataError(f"--{flag} is about lists; say how long they are with --top")
    attributes = NEW_ATTRIBUTES.take(reading)
    cuts = parse_bins(bins) or None
    fit = with_attributes(load_fit(model, threads), **attributes)
    ratings = ratings_for(fit, test, reading)
    facts = fit.evaluate(ratings, cuts)
    lists = None
    if top is not None:
        lists = fit.evaluate_ranking(ratings, top, bins=cuts, **lists_by)
    if as_json:
        click.echo(to_json(facts if lists is None else {**facts, "ranking": lists}))
        return
    if "log_probability" in facts:  # one of the two is enough for people
        del facts["log_score"]
    _print_bins(facts, "test_ratings")
    if lists is not None:
        n, least = lists.pop("n"), lists.pop("relevant_from")
        del lists["users"]
        click.echo(f"\nlists of {n} items; relevant are ratings of {least:g} or more")
        _print_bins(lists, "users")


def _print_bins(facts: dict[str, Any], counted: str) -> None:
    """Print measures, bin by bin and overall; ``counted`` is what a bin has a number of."""
    rows = facts.pop("by_user_frequency")
    headings = ("ratings of the user", counted.replace("_", " "), *map(_heading, facts))
    table = Table(*headings, box=None, header_style="bold")
    for column in table.columns:
        column.justify = "right"
    if len(rows) > 1:
        total = sum(row[counted] for row in rows)
        rows.append({"user_ratings": "all", counted: total, **facts})
    for row in rows:
        count = row[counted]
        numbers = (f"{row[name]:.4f}" if count else "-" for name in facts)
        table.add_row(row["user_ratings"], f"{count:,}", *numbers)
    Console().print(table)


def _heading(name: str) -> str:
    """The heading of a measure: coverage_80 is "cover 80%"."""
    if name == "log_probability":
        return "log prob"
    if name.startswith("coverage_"):
        return f"cover {name.removeprefix('coverage_')}%"
    return name.replace("_", " ")


@click.command()
@MODEL
@JSON
def diagnose(model: Path, as_json: bool) -> None:
    """Print whether the chains of a model have converged, and how it was made.

    The table has, for each quantity that is judged, its mean, its standard deviation, the
    simulation error of the mean, R-hat, and the effective draws (ESS) in the bulk and in the tails.

    Example: bayesmf diagnose my-fit
    """
    fit = load_fit(model)
    with leaving_at_once():
        from bayesmf.fitted.store.checked import DRAW_CHAINS
        from bayesmf.study.results import snake_case
    posterior, found = fit.posterior, fit.diagnostics()
    model_facts = {key: value for key, value in posterior.model.to_dict().items() if key != "hyper"}
    told = {name: value for name, value in fit.facts.items() if name != DRAW_CHAINS}
    facts = {
        **{snake_case(name): value for name, value in told.items()},
        "users": len(posterior.users),
        "items": len(posterior.items),
        "draws": len(posterior),
        "model": model_facts,
    }
    words = say(found.verdict.message)
    if as_json:
        click.echo(to_json({**facts, "diagnostics": {**found.to_dict(), "words": words}}))
        return
    table = found.format_table()
    click.echo(f"{words}\n\n{table}\n" if table else f"{words}\n")
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' ')}: {to_json(value)}")


@click.command()
@MODEL
@click.option(
    "--test",
    metavar="DATA",
    shell_complete=data_names,
    help="Ratings to judge the model by.  [default: those that were held out when it was fitted]",
)
@ratings_options
@click.option("--out", type=PATH, required=True, help="The HTML file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@THREADS
@JSON
def summary(
    model: Path,
    test: str | None,
    out: Path,
    overwrite: bool,
    threads: int | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write a page about a model: what it is, has it converged, how good it is, and for whom.

    The page is one file that loads nothing, good on a phone and on paper.

    Example: bayesmf summary my-fit --out summary.html
    """
    fit = load_fit(model, threads)
    with leaving_at_once():
        from bayesmf.report.summary import check_page, make_page, write_page
    check_page(out, overwrite)
    given = None if test is None else ratings_for(fit, test, reading)
    words = say(fit.diagnostics().verdict.message)
    write_page(make_page(fit, given, str(model), words), out, overwrite)
    click.echo(to_json({"out": str(out)}) if as_json else f"written to {out}")


COMMANDS = (evaluate, diagnose, summary)
