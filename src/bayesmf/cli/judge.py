"""Commands that judge a fitted model: evaluate, diagnose."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bayesmf.cli.interrupts import leaving_at_once
from bayesmf.cli.options import BINS, JSON, THREADS, data_names, parse_bins, ratings_options
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
    if name.startswith("coverage_"):
        return f"cover {name.removeprefix('coverage_')}%"
    return name.replace("_", " ")


@click.command()
@MODEL
@JSON
def diagnose(model: Path, as_json: bool) -> None:
    """Print how a model was made, and how far its chains have converged.

    Example: bayesmf diagnose my-fit
    """
    fit = load_fit(model)
    with leaving_at_once():
        from bayesmf.study.results import snake_case
    posterior = fit.posterior
    model_facts = {key: value for key, value in posterior.model.to_dict().items() if key != "hyper"}
    traces = sorted(fit.diagnostics().items(), key=lambda each: _counted(each[0]))
    facts = {
        **{snake_case(name): value for name, value in fit.facts.items()},
        "users": len(posterior.users),
        "items": len(posterior.items),
        "draws": len(posterior),
        "model": model_facts,
    }
    if as_json:
        found = {snake_case(name): each for name, each in traces}
        click.echo(to_json({**facts, "diagnostics": found}))
        return
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' ')}: {to_json(value)}")
    if not traces:
        click.echo(
            "There are no chains to diagnose; Gibbs sampling of 4 sweeps or more leaves some."
        )
        return
    table = Table("trace", "R-hat", "effective draws", box=None, header_style="bold")
    for name, each in traces:
        ess = f"{each['ess']:.0f}" if math.isfinite(each["ess"]) else "too few draws"
        table.add_row(name, f"{each['r_hat']:.3f}", ess)
    Console().print(table)


def _counted(name: str) -> tuple[str, int]:
    """A key that sorts prediction 10 after prediction 9."""
    before, _, number = name.rpartition(" ")
    return (before, int(number)) if number.isdecimal() else (name, 0)


COMMANDS = (evaluate, diagnose)
