"""What commands share: how mistakes end, and the arguments and options that several have."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.text import Text

from bayesmf.choices import DUPLICATES, ID_KINDS
from bayesmf.cli.shared.interrupts import CODE, ending_in_order, leaving_in_order
from bayesmf.data.io.datasets import NAMES
from bayesmf.errors import DataError, Option, UnusedWarning, render, visible


class Cli(click.Group):
    """Mistakes end in one sentence and exit code 2, Ctrl-C in one word, never in a traceback.

    The sentence names options as flags of the command that was called.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # the caller has closed it
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, until the end
        for stream in (sys.stdout, sys.stderr):  # a bar in a terminal that knows no bars
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            with leaving_in_order(), ending_in_order(), warnings.catch_warnings():
                warnings.showwarning = _show_warning
                found = super().invoke(ctx)
                sys.stdout.flush()  # what is left to do can be broken off
                return found
        except DataError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "") or self
            click.echo(f"Error: {_spell(error.message, command)}", err=True)
            ctx.exit(2)
        except ImportError as error:
            if "bayesmf[" not in str(error):
                raise
            click.echo(f"Error: {error}", err=True)  # an extra that is not installed
            ctx.exit(2)
        except OSError as error:
            if error.filename is not None or error.errno in (None, errno.EPIPE):
                raise  # not about the streams, or a reader who has seen enough, which click knows
            with contextlib.suppress(OSError):  # what Python writes at its end goes nowhere
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo(f"Error: the output cannot be written ({error.strerror})", err=True)
            ctx.exit(2)
        except KeyboardInterrupt as stop:
            click.echo(" ".join(("Stopped", *map(str, stop.args))) + ".", err=True)
            ctx.exit(CODE)


def _show_warning(message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning without its place in the code."""
    told = say(message.message) if isinstance(message, UnusedWarning) else str(message)
    click.echo(f"Warning: {visible(told)}", err=True)


def print_warning(console: Console, message: Warning | str) -> None:
    """Print a warning, whose ids are no markup."""
    console.print(Text(visible(f"Warning: {message}"), "yellow"))


def say(message: str) -> str:
    """Spell the options of a message as flags of the command that is running."""
    return _spell(message, click.get_current_context().command)


def _spell(message: str, command: click.Command) -> str:
    return render(message, lambda option: _flag(command, option), _elsewhere)


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
    name = option.parameter or option.name
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name == name:
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
    """What the shell completes: a file, or the name of a data set."""
    names = [CompletionItem(name) for name in NAMES if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *names]


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Options:
    """Options that belong together: a decorator that adds them in the order of the help."""

    def __init__(self, *given: Decorator) -> None:
        self.given = given
        self.names = [param.name or "" for param in click.command()(self(lambda: None)).params]

    def __call__(self, command: Callable[..., Any]) -> Callable[..., Any]:
        """Add them to a command."""
        for option in reversed(self.given):
            command = option(command)
        return command

    def take(self, values: dict[str, Any]) -> dict[str, Any]:
        """Remove the values of these options from those of a command, and return them."""
        return {name: values.pop(name) for name in self.names}


DATA = click.argument("data", shell_complete=data_names)
PATH: Any = click.Path(path_type=Path)
SEEDS: Any = click.IntRange(0, 2**64 - 1)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
QUIET = click.option("--quiet", is_flag=True, help="Show no progress bar.")
THREADS = click.option(
    "--threads",
    type=int,
    help="How many threads to use; the result does not depend on it.  [default: all]",
)


def _column(role: str, more: str = "") -> Decorator:
    text = f"The name of the {role} column, or its number, counted from 1{more}."
    return click.option(f"--{role}-col", role, metavar="COL", help=text)


PAIR_COLUMNS = (_column("user"), _column("item"))
COLUMNS = (
    *PAIR_COLUMNS,
    _column("rating"),
    _column("time", "; 'none' ignores the times"),
    _column("weight", "; 'none' ignores the weights"),
)
LAYOUT = (
    click.option("--separator", metavar="TEXT", help="The text between two fields of a line."),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line holds the names of the columns.",
    ),
    click.option("--member", metavar="NAME", help="Which file of a zip archive to read."),
)
READ_IDS = click.option(
    "--ids",
    type=click.Choice(ID_KINDS),
    default="auto",
    help="Whether ids that are all whole numbers become numbers (auto) or stay text.",
)
SCALE = click.option(
    "--scale",
    metavar="LOW:HIGH[:STEP]",
    help="The scale of the ratings; a rating that is not on it is refused.",
)
REPEATED = click.option(
    "--duplicates",
    type=click.Choice(DUPLICATES),
    default="error",
    help="What to do with a pair that is rated twice: refuse it, or take the last rating or the "
    "mean.",
)
reading_options = Options(*COLUMNS, *LAYOUT, READ_IDS, SCALE, REPEATED)  # of what reads DATA
ratings_options = Options(*COLUMNS, *LAYOUT, REPEATED)  # the same for a model, which has its ids
pairs_options = Options(*PAIR_COLUMNS, _column("time"), *LAYOUT)
new_model_options = Options(  # of a command that makes a model from another one
    click.option("--seed", type=SEEDS, default=0, show_default=True, help="The seed of the draws."),
    click.option("--out", type=PATH, required=True, help="The folder or .zip of the new model."),
    click.option("--overwrite", is_flag=True, help="Replace the model if it exists."),
    THREADS,
    JSON,
)
BINS = click.option(
    "--bins",
    metavar="N,...",
    help="The largest number of ratings of each bin of users but the last.  "
    "[default: the paper's quantiles]",
)


def parse_bins(text: str | None) -> tuple[int, ...]:
    """Read the rising whole numbers of --bins; there are none where it was not given."""
    if text is None:
        return ()
    try:
        uppers = tuple(int(part) for part in text.split(","))
        if not all(a < b for a, b in zip((0, *uppers), uppers, strict=False)):
            raise ValueError
    except ValueError:
        raise DataError(f"--bins {text!r}: write rising whole numbers, as in 25,71,147") from None
    return uppers
