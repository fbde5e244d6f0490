"""Commands that judge a fitted model: evaluate, diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import (
    BINS,
    JSON,
    THREADS,
    data_names,
    parse_bins,
    ratings_options,
    say,
)
from bayesmf.cli.use import MODEL, load_fit, ratings_for
from bayesmf.data.io.atomic import to_json


@click.command()
@MODEL
@click.argument("test", shell_complete=data_names)
@ratings_options
@BINS
@THREADS
@JSON
def evaluate(
    model: Path, test: str, bins: str | None, threads: int | None, as_json: bool, **reading: Any
) -> None:
    """Test a model on ratings: all of them together, and by how much their users rated.

    Example: bayesmf evaluate my-fit test.csv
    """
    cuts = parse_bins(bins)
    fit = load_fit(model, threads)
    facts = fit.evaluate(ratings_for(fit, test, reading), cuts or None)
    if as_json:
        click.echo(to_json(facts))
        return
    rows = facts.pop("by_user_frequency")
    if "log_probability" in facts:  # one of the two is enough for people
        del facts["log_score"]
    table = Table(
        "ratings of the user", "test ratings", *map(_heading, facts), box=None, header_style="bold"
    )
    for column in table.columns:
        column.justify = "right"
    if len(rows) > 1:
        total = sum(row["test_ratings"] for row in rows)
        rows.append({"user_ratings": "all", "test_ratings": total, **facts})
    for row in rows:
        count = row["test_ratings"]
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


COMMANDS = (evaluate, diagnose)
