"""What commands share: how mistakes end, and the arguments of those that read DATA."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from bayesmf.data.datasets import NAMES
from bayesmf.errors import DataError
from bayesmf.interrupts import CODE, leaving_in_order


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


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads DATA."""
    column = "Name of the {} column, or its number from 1."
    for option in reversed(
        (
            click.option("--user-col", "user", metavar="COL", help=column.format("user")),
            click.option("--item-col", "item", metavar="COL", help=column.format("item")),
            click.option("--rating-col", "rating", metavar="COL", help=column.format("rating")),
            click.option("--time-col", "time", metavar="COL",
                         help=column.format("time") + " 'none' ignores times."),
            click.option("--separator", metavar="TEXT", help="What separates the fields."),
            click.option("--header/--no-header", default=None, help="Whether line 1 is names."),
            click.option("--member", metavar="NAME", help="Which file of a zip archive."),
            click.option("--ids", type=click.Choice(["auto", "text"]), default="auto",
                         help="Read ids as text even if they are integers."),
            click.option("--scale", metavar="LOW:HIGH[:STEP]", help="Refuse ratings off it."),
            click.option("--duplicates", type=click.Choice(["error", "last", "mean"]),
                         default="error", help="What to do with a pair rated twice."),
        )
    ):  # fmt: skip
        command = option(command)
    return command
