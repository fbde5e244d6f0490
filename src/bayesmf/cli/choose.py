"""Commands that help to choose a model: compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import (
    BINS,
    JSON,
    PATH,
    SEEDS,
    THREADS,
    data_names,
    parse_bins,
    ratings_options,
)
from bayesmf.cli.use import load_fit, ratings_for
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import visible


def print_lines(lines: list[list[str]], left: int = 1) -> None:
    """Print headings and lines as a table; the first ``left`` columns begin at the left."""
    table = Table(box=None, header_style="bold")
    for place, heading in enumerate(lines[0]):
        table.add_column(heading, justify="left" if place < left else "right")
    for line in lines[1:]:
        table.add_row(*(Text(visible(text)) for text in line))
    Console().print(table)


@click.command()
@click.argument("models", nargs=-1, required=True, type=PATH)
@click.option(
    "--test",
    metavar="DATA",
    shell_complete=data_names,
    help="Ratings that no model was trained on.  [default: leave training ratings out in turn, by "
    "PSIS-LOO]",
)
@ratings_options
@click.option(
    "--ratings",
    type=click.IntRange(1),
    default=2000,
    show_default=True,
    help="Without --test: how many training ratings are left out in turn.",
)
@BINS
@click.option(
    "--seed",
    type=SEEDS,
    default=0,
    show_default=True,
    help="Without --test: the seed of which ratings are left out.",
)
@THREADS
@JSON
def compare(
    models: tuple[Path, ...],
    test: str | None,
    ratings: int,
    bins: str | None,
    seed: int,
    threads: int | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Compare MODELS: by how much each is better than the first, and whether that is luck.

    Intervals hold 95 %, from a paired bootstrap of users. Without --test the models must have been
    trained on the same ratings.

    Example: bayesmf compare fit-1 fit-2 --test test.csv
    """
    with leaving_at_once():
        from bayesmf.selection.compare import compare as run
    cuts = parse_bins(bins) or None
    given = None if test is None else ratings_for(load_fit(models[0]), test, reading)
    found = run([*models], given, bins=cuts, ratings=ratings, seed=seed, threads=threads)
    if as_json:
        click.echo(to_json(found.to_dict()))
        return
    print_lines(found.format_lines())
    click.echo(f"\n{visible(found.words)}")
    for note in found.notes:
        click.echo(visible(note))


COMMANDS = (compare,)
