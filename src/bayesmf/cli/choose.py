"""Commands that help to choose a model: compare, cross-validate, tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bayesmf.choices import CUTS, LIKELIHOODS, TIMES, TUNED_BY, Cuts
from bayesmf.cli.fit import choose_likelihood
from bayesmf.cli.shared.attributes import ATTRIBUTES, load_attributes
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import (
    BINS,
    DATA,
    JSON,
    PATH,
    QUIET,
    SEEDS,
    THREADS,
    Options,
    data_names,
    parse_bins,
    ratings_options,
    reading_options,
)
from bayesmf.cli.use import load_fit, ratings_for
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError, visible


def print_lines(lines: list[list[str]]) -> None:
    """Print headings and lines as a table."""
    table = Table(box=None, header_style="bold")
    for place, heading in enumerate(lines[0]):
        table.add_column(heading, justify="right" if place else "left")
    for line in lines[1:]:
        table.add_row(*(Text(visible(text)) for text in line))
    Console().print(table)


def _print_comparison(found: Any) -> None:
    """Print a table for each measure, and what to think of it."""
    for measure in found.measures:
        print_lines(found.format_lines(measure))
        click.echo()
    for text in (found.words, *found.notes):
        click.echo(visible(text))


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
    _print_comparison(found)


FITTING = Options(  # of fits that are made to be judged
    click.option(
        "--sweeps",
        type=click.IntRange(1),
        default=60,
        show_default=True,
        help="The sweeps of each chain of a fit.",
    ),
    click.option(
        "--chains",
        type=click.IntRange(1),
        default=2,
        show_default=True,
        help="The chains of a fit.",
    ),
    click.option(
        "--seed",
        type=SEEDS,
        default=0,
        show_default=True,
        help="The seed of what is held out and of the draws.",
    ),
    THREADS,
)
RESUME = click.option(
    "--resume", is_flag=True, help="Go on with the search in the folder, if there is one."
)


def _parse_list(option: str, text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise DataError(f"{option} {text!r}: write whole numbers, as in 5,10,20") from None


class _Bar:
    """Shows how far a search is, with the time that is left, and prints each fit that ends."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, console = quiet, Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=quiet)
        self.task = self.bar.add_task("preparing", total=None)

    def __call__(self, step: Any) -> None:
        """Take what the search tells."""
        name = visible(step.name)
        self.bar.update(
            self.task, description=Text(name).markup, completed=step.done, total=step.total
        )
        if step.ended and not self.quiet:
            told = Text(f"{name}: RMSE {step.rmse:.4f}, after {step.seconds:.0f} s")
            self.bar.console.print(told, highlight=False)


def _name_likelihoods(likelihoods: tuple[str, ...], cuts: tuple[Cuts, ...]) -> dict[str, Any]:
    """Return the likelihoods to compare by what they are called in the table."""
    if cuts and "ordinal" not in likelihoods:
        choose_likelihood(None, cuts[0])  # which refuses it
    found: dict[str, Any] = {}
    for word in likelihoods:
        if word == "ordinal" and cuts:
            for whose in cuts:
                name = word if whose == "users" else f"{word} with {whose} cuts"
                found[name] = choose_likelihood(word, whose)
        else:
            found[word] = word
    return found


@click.command("cross-validate")
@DATA
@reading_options
@click.option(
    "--ranks",
    metavar="N,...",
    default="20",
    show_default=True,
    help="The ranks of the models to compare.",
)
@click.option(
    "--likelihood",
    "likelihoods",
    type=click.Choice(LIKELIHOODS),
    multiple=True,
    help="The likelihoods to compare, for each rank; may be given several times.  "
    "[default: gaussian]",
)
@click.option(
    "--cuts",
    type=click.Choice(CUTS),
    multiple=True,
    help="ordinal: with cut points of every user or the same for all, for each of these; may be "
    "given several times.  [default: users]",
)
@click.option(
    "--time",
    "time_effect",
    type=click.Choice(TIMES),
    multiple=True,
    help="With a time chain or without, for each of these; may be given several times.  "
    "[default: none]",
)
@click.option(
    "--folds", type=click.IntRange(2), default=5, show_default=True, help="The number of folds."
)
@FITTING
@BINS
@click.option("--out", type=PATH, metavar="DIR", help="A folder to keep each fit's result in.")
@RESUME
@QUIET
@JSON
def cross_validate(
    data: str,
    ranks: str,
    likelihoods: tuple[str, ...],
    cuts: tuple[Cuts, ...],
    time_effect: tuple[str, ...],
    folds: int,
    bins: str | None,
    out: Path | None,
    resume: bool,
    quiet: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Compare models by cross-validation: each rating of DATA is predicted once, unseen.

    Example: bayesmf cross-validate ml-100k --ranks 5,10,20
    """
    with leaving_at_once():
        import bayesmf
        from bayesmf.selection.cross_validate import cross_validate as run
    models, every = {}, _name_likelihoods(likelihoods or ("gaussian",), cuts)
    for rank in _parse_list("--ranks", ranks):
        for words, likelihood in every.items():
            for time in time_effect or ("none",):
                more = [word for word in (words, time) if word not in ("gaussian", "none")]
                name = ", ".join([f"rank {rank}", *more])
                models[name] = bayesmf.Model(rank, likelihood=likelihood, time=time)  # type: ignore[arg-type]
    reading, fitting = reading_options.take(values), FITTING.take(values)
    show = _Bar(quiet)
    with show.bar:
        found = run(
            *(data, models, folds),
            **(fitting | reading),
            bins=parse_bins(bins) or None,
            out=out,
            resume=resume,
            progress=show,
        )
    if as_json:
        click.echo(to_json(found.to_dict()))
        return
    _print_comparison(found)


@click.command()
@DATA
@reading_options
@click.option(
    "--ranks",
    metavar="N,...",
    default="5,10,20,40",
    show_default=True,
    help="The ranks to try, from the lowest, until one is no better.",
)
@ATTRIBUTES
@click.option(
    "--validation",
    type=float,
    default=0.1,
    show_default=True,
    metavar="FRACTION",
    help="The share of the ratings that is held out to choose by.",
)
@click.option(
    "--by",
    type=click.Choice(TUNED_BY),
    default="rmse",
    show_default=True,
    help="What to choose by: the error, or the log probability of the held-out ratings.",
)
@FITTING
@click.option("--budget", type=float, metavar="SECONDS", help="Begin no fit after so many seconds.")
@click.option("--fits", type=click.IntRange(1), help="Make so many fits at most.")
@click.option(
    "--refit/--no-refit",
    default=True,
    show_default=True,
    help="Fit the chosen model to all ratings at the end.",
)
@click.option("--out", type=PATH, metavar="DIR", required=True, help="The folder to write to.")
@RESUME
@QUIET
@JSON
def tune(
    data: str,
    ranks: str,
    out: Path,
    quiet: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Choose rank, likelihood, time and attributes for DATA on ratings held out of training.

    Each fit is kept in DIR when it is done; --resume goes on after a break. The chosen model,
    fitted to all ratings, is in DIR/model, and other commands take DIR as a model.

    Example: bayesmf tune ml-100k --out tuned --budget 600
    """
    with leaving_at_once():
        from bayesmf.data.io.atomic import whole_file
        from bayesmf.inference.loop import INTERRUPTED
        from bayesmf.selection.tune import tune as run
    attributes = load_attributes(**ATTRIBUTES.take(values))
    tables: dict[str, Any] = {f"{side}_attributes": table for side, table in attributes.items()}
    chosen = _parse_list("--ranks", ranks)
    show = _Bar(quiet)
    with show.bar:
        found = run(data, ranks=chosen, out=out, progress=show, **tables, **values)
    with whole_file(out / "tuning.json") as made:
        made.write_text(to_json(found.to_dict(), indent=2) + "\n", encoding="utf-8")
    if as_json:
        click.echo(to_json({**found.to_dict(), "out": str(out)}))
    else:
        print_lines(found.format_lines())
        click.echo(f"\n{found.words}")
        click.echo(f"written to {out}")
    if found.stopped == INTERRUPTED:
        raise KeyboardInterrupt(f"; go on with --resume --out {out}")


COMMANDS = (compare, cross_validate, tune)
