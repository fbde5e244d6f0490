"""The command that writes a page about a fitted model: summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import JSON, PATH, THREADS, data_names, ratings_options, say
from bayesmf.cli.use import MODEL, load_fit, ratings_for
from bayesmf.data.io.atomic import to_json


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


COMMANDS = (summary,)
