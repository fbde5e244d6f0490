"""``bayesmf study`` and ``bayesmf report``: parse, call, print."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from bayesmf.cli.interrupts import leaving_at_once
from bayesmf.cli.options import BINS, bins_of


class Display:
    """One line for a whole study in a terminal; a line for each run elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(stderr=True)
        self.lines = not quiet and not self.console.is_terminal
        columns = (
            TextColumn("{task.fields[runs]}"), BarColumn(), TaskProgressColumn(),
            TextColumn("{task.fields[left]}"), TextColumn("{task.fields[what]}", style="dim"),
        )  # fmt: skip
        self.bar = Progress(*columns, console=self.console, transient=True,
                            disable=quiet or self.lines)  # fmt: skip
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
            self.task, completed=event.done, total=event.total, left=left,
            runs=f"{event.runs[0]} of {event.runs[1]} runs", what=", ".join(event.running),
        )  # fmt: skip
        if self.lines and event.kind == "end":
            rmse = "" if event.rmse is None else f"  RMSE {event.rmse:.4f}"
            click.echo(f"{event.runs[0]:3d} of {event.runs[1]}  {event.name}{rmse}  {left}",
                       err=True)  # fmt: skip

    def _left(self, event: Any) -> str:
        """From the cost of what is done and its time; nothing before a fiftieth is done."""
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


@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option("--quick", is_flag=True, help="Short runs, to look around.")
@click.option("--splits", type=click.IntRange(1), default=1, show_default=True,
              help="Repeat the tables on so many splits.")  # fmt: skip
@click.option("--only", metavar="NAME,...", help="Experiments: table-2, fig-5, ...  [default: all]")
@click.option("--resume", is_flag=True, help="Go on with what is in the folder.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True,
              help="Of the first split and of the draws.")  # fmt: skip
@click.option("--rank", type=click.IntRange(1), default=20, show_default=True,
              help="Number of features.")  # fmt: skip
@BINS
@click.option("--workers", type=click.IntRange(1),
              help="Runs at a time, of one thread each.  [default: all cores]")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress.")
def study(
    data: str, out: Path, quick: bool, splits: int, only: str | None, resume: bool, seed: int,
    rank: int, bins: str | None, workers: int | None, quiet: bool, **reading: Any,
) -> None:  # fmt: skip
    """Run the paper's experiments on DATA and write a report.

    Killed at any moment, --resume goes on and ends with the same results.

    Example: bayesmf study ml-1m --out ml-1m-study
    """
    with leaving_at_once():
        from bayesmf.study.runner import Study

    names = tuple(name.strip() for name in (only or "").split(",") if name.strip())
    chosen = Study(data, out, reading, quick, splits, names, seed, rank, bins_of(bins), workers,
                   resume, _command(data, quick, seed, rank, bins, reading))  # fmt: skip
    display = Display(quiet)
    began = time.perf_counter()
    try:
        with display.bar:
            chosen.run(display)
    except KeyboardInterrupt:
        click.echo(f"stopped; what is done is kept: go on with --resume --out {out}", err=True)
        sys.exit(130)
    click.echo(f"results in {out} after {_words(time.perf_counter() - began)}")
    _report(out)


def _command(
    data: str, quick: bool, seed: int, rank: int, bins: str | None, reading: dict[str, Any]
) -> str:
    """The command without what does not change a result."""
    import shlex

    words = ["bayesmf", "study", data, "--seed", str(seed)]
    words += ["--quick"] if quick else []
    words += ["--rank", str(rank)] if rank != 20 else []
    words += ["--bins", bins] if bins else []
    suffix = {"user": "-col", "item": "-col", "rating": "-col", "time": "-col"}
    plain = {"ids": "auto", "duplicates": "error"}
    for key, value in reading.items():
        if value is None or value == plain.get(key):
            continue
        if key == "header":
            words.append("--header" if value else "--no-header")
        else:
            words += [f"--{key}{suffix.get(key, '')}", str(value)]
    return shlex.join(words)


def _report(folder: Path, out: Path | None = None) -> None:
    with leaving_at_once():
        from bayesmf.report.write import write_report

    click.echo(f"report in {write_report(folder, out)}")


@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path),
              help="Another folder to write to.  [default: FOLDER]")  # fmt: skip
def report(folder: Path, out: Path | None) -> None:
    """Write the report of a study again, from its results in FOLDER alone.

    Example: bayesmf report ml-1m-study
    """
    _report(folder, out)
