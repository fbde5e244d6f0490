"""What commands share: how mistakes end, and the arguments of those that read DATA."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from bayesmf.cli.interrupts import CODE, leaving_in_order
from bayesmf.data.io.datasets import NAMES
from bayesmf.errors import DataError, Option


class Cli(click.Group):
    """Mistakes end in one sentence and exit code 2, Ctrl-C in one word, never in a traceback.

    The sentence names options as flags of the command that was called.
    """

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
            command = self.get_command(ctx, ctx.invoked_subcommand or "") or self
            message = error.render(lambda option: _flag(command, option), self._elsewhere)
            click.echo(f"Error: {message}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            ctx.exit(CODE)

    @staticmethod
    def _elsewhere(option: Option) -> str:
        """Spell an option that the command lacks: as a flag of another one, or as in Python."""
        root = click.get_current_context().find_root().command
        for words, command in _commands(root, "bayesmf"):
            flag = _flag(command, option)
            if flag is not None:
                return f"{flag} of `{words}`"
        return f"{option.in_python()} in Python"


def _flag(command: click.Command, option: Option) -> str | None:
    """Spell an option as a flag of this command; None if the command does not have it."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name == option.name:
            flags = parameter.secondary_opts if option.value is False else parameter.opts
            value = "" if option.value is None or parameter.is_flag else f" {option.value}"
            return max(flags, key=len) + value if flags else None
    return None


def _commands(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command under this one with the words that call it."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{words} {name}")
    else:
        yield words, command


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
