"""What commands share: how mistakes end, and the arguments of those that read DATA."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from bayesmf.cli.interrupts import CODE, leaving_in_order
from bayesmf.data.io.datasets import NAMES
from bayesmf.errors import DataError


class Cli(click.Group):
    """Mistakes end in one sentence and exit code 2, Ctrl-C in one word, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for stream in (sys.stdout, sys.stderr):  # a bar in a terminal that knows no bars
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            with leaving_in_order():
                found = super().invoke(ctx)
                sys.stdout.flush()  # what is left to do can be broken off
                return found
        except DataError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            ctx.exit(CODE)


def data_names(ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
    """For the shell: a file, or the name of a data set."""
    names = [CompletionItem(name) for name in NAMES if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *names]


DATA = click.argument("data", shell_complete=data_names)


_COLUMN = "Name of the {} column, or its number from 1."
COLUMNS = tuple(
    click.option(f"--{role}-col", role, metavar="COL",
                 help=_COLUMN.format(role) + (" 'none' ignores times." if role == "time" else ""))
    for role in ("user", "item", "rating", "time")
)  # fmt: skip
LAYOUT = (
    click.option("--separator", metavar="TEXT", help="What separates the fields."),
    click.option("--header/--no-header", default=None, help="Whether line 1 is names."),
    click.option("--member", metavar="NAME", help="Which file of a zip archive."),
)
IDS = click.option("--ids", type=click.Choice(["auto", "text"]), default="auto",
                   help="Read ids as text even if they are integers.")  # fmt: skip
SCALE = click.option("--scale", metavar="LOW:HIGH[:STEP]", help="Refuse ratings off it.")
DUPLICATES = click.option("--duplicates", type=click.Choice(["error", "last", "mean"]),
                          default="error", help="What to do with a pair rated twice.")  # fmt: skip
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options(*given: Decorator) -> Decorator:
    """Several options as one, in the order of the help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(given):
            command = option(command)
        return command

    return add


reading_options = options(*COLUMNS, *LAYOUT, IDS, SCALE, DUPLICATES)  # of what reads DATA
ratings_options = options(*COLUMNS, *LAYOUT, DUPLICATES)  # the same for a model, which has its ids
pairs_options = options(*COLUMNS[:2], *LAYOUT)
BINS = click.option(
    "--bins",
    metavar="N,...",
    help="Largest numbers of ratings of user bins.  [default: the paper's]",
)


def bins_of(text: str | None) -> tuple[int, ...]:
    """Rising whole numbers; none, if the paper's are to be taken."""
    if text is None:
        return ()
    try:
        uppers = tuple(int(part) for part in text.split(","))
        if not all(a < b for a, b in zip((0, *uppers), uppers, strict=False)):
            raise ValueError
    except ValueError:
        raise DataError(f"bins {text!r}: write rising whole numbers, as in 25,71,147") from None
    return uppers
