"""Commands on whole studies: study, report."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from bayesmf.cli.shared.attributes import ATTRIBUTES, load_attributes
from bayesmf.cli.shared.interrupts import CODE, leaving_at_once
from bayesmf.cli.shared.options import (
    BINS,
    DATA,
    PATH,
    QUIET,
    SEEDS,
    parse_bins,
    print_warning,
    reading_options,
)
from bayesmf.errors import AttributesWarning


class Display:
    """Shows progress: one line for a whole study in a terminal, a line for each run elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(stderr=True)
        self.lines = not quiet and not self.console.is_terminal
        columns = (
            TextColumn("{task.fields[runs]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[what]}", style="dim"),
        )
        self.bar = Progress(
            *columns, console=self.console, transient=True, disable=quiet or self.lines
        )
        self.task = self.bar.add_task("", total=None, runs="preparing", left="", what="")
        self.first: tuple[float, float] | None = None

    def __call__(self, event: Any) -> None:
        """Show an event."""
        if event.kind == "plan":
            self.first = (event.done, event.seconds)
            if self.lines and event.runs[0]:
                click.echo(f"{event.runs[0]} of {event.runs[1]} runs are there already", err=True)
        left = self._left(event)
        self.bar.update(
            self.task,
            completed=event.done,
            total=event.total,
            left=left,
            runs=f"{event.runs[0]} of {event.runs[1]} runs",
            what=", ".join(event.running),
        )
        if self.lines and event.kind == "end":
            rmse = "" if event.rmse is None else f"  RMSE {event.rmse:.4f}"
            click.echo(
                f"{event.runs[0]:3d} of {event.runs[1]}  {event.name}{rmse}  {left}", err=True
            )

    def warn(self, message: Warning | str, *place: Any, **more: Any) -> None:
        """Show a warning above the progress, without the place in the code."""
        print_warning(self.console, message)

    def _left(self, event: Any) -> str:
        """The time left, by the speed so far; nothing before a fiftieth is done."""
        if self.first is None:
            return ""
        done = event.done - self.first[0]
        if done < 0.02 * (event.total - self.first[0]):
            return ""
        left = max(event.total - event.done, 0.0) * (event.seconds - self.first[1]) / done
        return f"about {_words(left)} left"


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@click.command()
@DATA
@reading_options
@ATTRIBUTES
@click.option("--out", type=PATH, required=True, help="The folder to write the results to.")
@click.option("--quick", is_flag=True, help="Make the runs short, to look around.")
@click.option(
    "--splits",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The number of splits on which the tables are repeated.",
)
@click.option(
    "--only",
    metavar="NAME,...",
    help="The experiments to run, such as table-2,fig-5.  [default: all]",
)
@click.option("--resume", is_flag=True, help="Continue with the study in the folder.")
@click.option(
    "--seed",
    type=SEEDS,
    default=0,
    show_default=True,
    help="The seed of the first split and of the draws.",
)
@click.option(
    "--rank",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="The number of features of a user and of an item.",
)
@BINS
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="The number of runs at a time, each on one thread.  [default: one for each core]",
)
@QUIET
def study(
    data: str,
    out: Path,
    quick: bool,
    splits: int,
    only: str | None,
    resume: bool,
    seed: int,
    rank: int,
    bins: str | None,
    workers: int | None,
    quiet: bool,
    **values: Any,
) -> None:
    """Run the paper's experiments on DATA and write a report.

    If it is stopped or killed, --resume continues it and ends with the same results. With tables of
    attributes, the cold-start experiment has one more model: the default model with attributes.

    Example: bayesmf study ml-1m --out ml-1m-study
    """
    with leaving_at_once():
        from bayesmf.report.write import check_places
        from bayesmf.study.runner import Study

    attributes, reading = ATTRIBUTES.take(values), reading_options.take(values)
    tables = load_attributes(**attributes)
    chosen = Study(
        data,
        out,
        reading,
        quick=quick,
        splits=splits,
        only=tuple(name.strip() for name in (only or "").split(",") if name.strip()),
        seed=seed,
        rank=rank,
        bins=parse_bins(bins),
        workers=workers,
        resume=resume,
        command=_command(data, quick, seed, rank, bins, reading, attributes),
        user_attributes=tables["user"],
        item_attributes=tables["item"],
    )
    check_places(out)
    display = Display(quiet)
    began = time.perf_counter()
    try:
        with display.bar, warnings.catch_warnings():
            warnings.simplefilter("default", AttributesWarning)
            warnings.showwarning = display.warn
            chosen.run(display)
    except KeyboardInterrupt:
        click.echo(
            f"Stopped. The results so far are kept; continue with --resume --out {out}", err=True
        )
        sys.exit(CODE)
    click.echo(f"results in {out} after {_words(time.perf_counter() - began)}")
    _report(out)


def _command(
    data: str,
    quick: bool,
    seed: int,
    rank: int,
    bins: str | None,
    reading: dict[str, Any],
    attributes: dict[str, Any],
) -> str:
    """The command that makes the same results: without options that do not change any."""
    import shlex

    words = ["bayesmf", "study", data, "--seed", str(seed)]
    words += ["--quick"] if quick else []
    words += ["--rank", str(rank)] if rank != 20 else []
    words += ["--bins", bins] if bins else []
    suffix = dict.fromkeys(("user", "item", "rating", "time", "weight"), "-col")
    plain = {"ids": "auto", "duplicates": "error"}
    for key, value in reading.items():
        if value is None or value == plain.get(key):
            continue
        if key == "header":
            words.append("--header" if value else "--no-header")
        else:
            words += [f"--{key}{suffix.get(key, '')}", str(value)]
    for key, value in attributes.items():
        words += [] if value is None else [f"--{key.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _report(folder: Path, out: Path | None = None) -> None:
    with leaving_at_once():
        from bayesmf.report.write import write_report

    click.echo(f"report in {write_report(folder, out)}")


@click.command()
@click.argument("folder", type=PATH)
@click.option("--out", type=PATH, help="Another folder to write the report to.  [default: FOLDER]")
def report(folder: Path, out: Path | None) -> None:
    """Write the report of a study again, from its results in FOLDER alone.

    Example: bayesmf report ml-1m-study
    """
    _report(folder, out)


COMMANDS = (study, report)
