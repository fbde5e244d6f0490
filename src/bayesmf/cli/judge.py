"""Commands that judge a fitted model: parse, call, print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bayesmf.cli.options import BINS, bins_of, data_names, ratings_options
from bayesmf.cli.use import JSON, MODEL, THREADS, load_fit, ratings_for
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
    """Test a model on ratings, overall and by how much the users rated.

    Example: bayesmf evaluate my-fit test.csv
    """
    cuts = bins_of(bins)
    fit = load_fit(model, threads)
    facts = fit.evaluate(ratings_for(fit, test, reading), cuts or None)
    if as_json:
        click.echo(to_json(facts))
        return
    rows = facts.pop("by_user_frequency")
    headings = (
        f"cover {name.removeprefix('coverage_')}%"
        if name.startswith("coverage_")
        else name.replace("_", " ")
        for name in facts
    )
    table = Table("ratings of the user", "test ratings", *headings, box=None, header_style="bold")
    for column in table.columns:
        column.justify = "right"
    if len(rows) > 1:
        total = sum(row["test_ratings"] for row in rows)
        rows.append({"user_ratings": "all", "test_ratings": total, **facts})
    for row in rows:
        count = row["test_ratings"]
        table.add_row(row["user_ratings"], f"{count:,}",
                      *(f"{row[name]:.4f}" if count else "-" for name in facts))  # fmt: skip
    Console().print(table)


@click.command()
@MODEL
@JSON
def diagnose(model: Path, as_json: bool) -> None:
    """Print what a model is, and how far its chains can be trusted.

    Example: bayesmf diagnose my-fit
    """
    fit = load_fit(model)
    posterior = fit.posterior
    spec = {key: value for key, value in vars(posterior.model).items() if key != "hyper"}
    traces = sorted(fit.diagnostics().items(), key=lambda each: _counted(each[0]))
    facts = {**fit.facts, "users": len(posterior.users), "items": len(posterior.items),
             "draws": len(posterior), "model": spec, "diagnostics": dict(traces)}  # fmt: skip
    if as_json:
        click.echo(to_json(facts))
        return
    for name, value in facts.items():
        if name != "diagnostics":
            click.echo(f"{name}: {json.dumps(value)}")
    if not traces:
        click.echo("no chains to diagnose: there are some after Gibbs sampling of 4 sweeps or more")
        return
    table = Table("trace", "R-hat", "effective draws", box=None, header_style="bold")
    for name, each in traces:
        table.add_row(name, f"{each['r_hat']:.3f}", f"{each['ess']:.0f}")
    Console().print(table)


def _counted(name: str) -> tuple[str, int]:
    """So that prediction 10 comes after prediction 9."""
    before, _, number = name.rpartition(" ")
    return (before, int(number)) if number.isdecimal() else (name, 0)


COMMANDS = (evaluate, diagnose)
