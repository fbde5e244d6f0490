"""The command line: parse, call, print."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

import bayesmf
from bayesmf import cli_model, cli_study
from bayesmf.errors import DataError
from bayesmf.plain import to_json


class Cli(click.Group):
    """Users' mistakes end in one sentence and exit code 2, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for stream in (sys.stdout, sys.stderr):  # a bar in a terminal that knows no bars
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except DataError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(bayesmf.__version__)
def main() -> None:
    """Bayesian matrix factorization of ratings.

    DATA is the name of a data set (see `bayesmf data list`) or the path of a ratings file: csv,
    tsv, parquet, MovieLens '::' or space-separated; plain, .gz, .bz2 or .zip.
    """


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


@main.group(cls=Cli)
def data() -> None:
    """List, fetch and describe ratings."""


@data.command("list")
def list_() -> None:
    """List the data sets known by name."""
    from bayesmf.data.sources import DATASETS, find

    table = Table("name", "what", "here", "terms", box=None, header_style="bold")
    table.add_row("demo", "generated: 1,500 users, 1,000 items", "yes", "none")
    for name, dataset in DATASETS.items():
        table.add_row(name, dataset.about, "yes" if find(name) else "no", dataset.terms)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@data.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Find a data set on this machine or download it, and print where it is.

    Example: bayesmf data fetch ml-1m
    """
    from bayesmf.data import sources

    if name == "demo":
        click.echo("demo is generated when it is asked for; there is nothing to fetch")
    else:
        click.echo(sources.fetch(name))


@data.command()
@click.argument("data")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def describe(data: str, as_json: bool, **reading: Any) -> None:
    """Print what DATA holds: counts, ratings per user and item, density.

    Example: bayesmf data describe ml-1m
    """
    from bayesmf.data.summary import summarise

    summary = summarise(bayesmf.load(data, **reading))
    if as_json:
        click.echo(json.dumps({"data": data, **asdict(summary)}))
        return
    console = Console()
    scale = bayesmf.Scale(**summary.scale)  # type: ignore[arg-type]
    console.print(Text(data, "bold"))
    facts = Table(box=None, show_header=False)
    facts.add_column()
    facts.add_column(justify="right")
    facts.add_row("ratings", f"{summary.ratings:,}")
    facts.add_row("users", f"{summary.users:,}")
    facts.add_row("items", f"{summary.items:,}")
    facts.add_row("mean rating", f"{summary.mean_rating:.4f}")
    facts.add_row("scale", str(scale))
    facts.add_row("pairs rated", f"{100 * summary.density:.3g} %")
    if summary.times:
        facts.add_row("times", f"{_date(summary.times['first'])} to {_date(summary.times['last'])}")
    facts.add_row("memory", f"{summary.bytes / 1e6:.1f} MB")
    console.print(facts)
    spread = Table("ratings per", "min", "25 %", "median", "mean", "75 %", "max", box=None,
                   header_style="bold")  # fmt: skip
    for column in spread.columns[1:]:
        column.justify = "right"
    for what, row in (("user", summary.per_user), ("item", summary.per_item)):
        spread.add_row(what, *(f"{x:,.1f}" if x % 1 else f"{x:,.0f}"
                               for key, x in asdict(row).items()))  # fmt: skip
    console.print(spread)
    plot = Table("ratings of the user", "users", "their share of all ratings", box=None,
                 header_style="bold")  # fmt: skip
    plot.columns[0].justify = plot.columns[1].justify = "right"
    most = max(row.ratings for row in summary.by_user_frequency)
    for group in summary.by_user_frequency:
        ends = f"{group.low}" if group.low == group.high else f"{group.low}-{group.high}"
        share = f"{100 * group.ratings / summary.ratings:5.1f} %"
        line = Table.grid(padding=(0, 1))
        line.add_row(share, Bar(most, 0, group.ratings, width=30))
        plot.add_row(ends, f"{group.users:,}", line)
    console.print(plot)


def _date(time: int) -> str:
    """A day, from seconds or milliseconds; a time that is neither stays a number."""
    seconds = time / 1000 if abs(time) > 10**11 else time
    try:
        return str(datetime.fromtimestamp(seconds, UTC).date())
    except (ValueError, OverflowError, OSError):
        return str(time)


@main.command()
@click.argument("data")
@reading_options
@click.option("--protocol", type=click.Choice(["paper", "random", "kfold", "cold-start", "time"]),
              default="paper", show_default=True, help="How to cut.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**64 - 1),
              help="The same seed gives the same bytes.  [default: 0]")  # fmt: skip
@click.option("--test-fraction", type=float, help="Share of test ratings.  [default: 0.3]")
@click.option("--min-item-ratings", type=int,
              help="paper: drop items with fewer.  [default: 3, epinions 1]")  # fmt: skip
@click.option("--folds", type=int, help="kfold: how many.  [default: 5]")
@click.option("--user-fraction", type=float, help="cold-start: users held out.  [default: 0.1]")
@click.option("--given", type=int, help="cold-start: known ratings of each.  [default: 5]")
@click.option("--per-user", is_flag=True, default=None, help="time: the latest of each user.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option("--format", "ending", type=click.Choice(["csv", "tsv", "parquet", "csv.gz"]),
              default="csv", show_default=True, help="Of the files written.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace what is in the folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def split(
    data: str, protocol: str, seed: int | None, out: Path, ending: str, overwrite: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Cut DATA into training and test files.

    Example: bayesmf split ml-1m --protocol paper --seed 0 --out ml-1m-split
    """
    from bayesmf.atomic import check_folder
    from bayesmf.data import split as splits
    from bayesmf.data.split_files import is_split

    choices = ("test_fraction", "min_item_ratings", "folds", "user_fraction", "given", "per_user")
    chosen = {key: options.pop(key) for key in choices}
    chosen = {key: value for key, value in chosen.items() if value is not None}
    accepted = splits.options_of(protocol)
    for key in [*chosen, *(["seed"] if seed is not None else [])]:
        if key not in accepted:
            flag = "--" + key.replace("_", "-")
            raise click.UsageError(
                f"{flag} has no meaning with --protocol {protocol}; leave it out"
            )
    check_folder(out, is_split if overwrite else None)
    ratings = bayesmf.load(data, **options)
    seed = seed or 0
    made: splits.Split | list[splits.Split]
    if protocol == "kfold":
        made = splits.kfold(ratings, seed, **chosen)
        facts = [one.describe() for one in made]
    else:
        made = splits.split(ratings, protocol, seed, **chosen)  # type: ignore[arg-type]
        facts = [made.describe()]
    bayesmf.save_split(made, out, f".{ending}", overwrite)
    if as_json:
        click.echo(json.dumps(facts if protocol == "kfold" else facts[0]))
        return
    for fact in facts:
        given = f", {fact['given']:,} given" if "given" in fact else ""
        click.echo(
            f"{fact['train']:,} training{given} and {fact['test']:,} test ratings of "
            f"{fact['items']:,} items by {fact['users']:,} users; "
            f"{fact['test_users_not_in_train']:,} users and "
            f"{fact['test_items_not_in_train']:,} items of the test are not in training"
        )
    click.echo(f"written to {out}")


@main.command()
@click.argument("data")
@reading_options
@click.option(
    "--model",
    type=click.Choice(["none", "no-side", "side", "side-only"]),
    help="Features.  [default: the best known: side, both, 0.5, robust, joint]",
)
@click.option("--rank", type=int, default=20, show_default=True, help="Number of features.")
@click.option("--side-of", type=click.Choice(["user", "item", "both"]), help="Whom they shift.")
@click.option("--side-power", type=float, help="p of the weight n^-p of side features.")
@click.option(
    "--precision",
    type=click.Choice(["constant", "robust", "truncated"]),
    help="Of the noise, by user and item.",
)
@click.option("--bounds", metavar="LOW:HIGH|N", help="Of truncated precisions.")
@click.option("--prior", type=click.Choice(["gaussian", "student-t"]), help="Of the features.")
@click.option(
    "--bias",
    type=click.Choice(["learned", "fixed", "joint"]),
    help="Prior of the biases; joint: one with the features.",
)
@click.option(
    "--inference",
    type=click.Choice(["gibbs", "vi", "map"]),
    default="gibbs",
    show_default=True,
    help="Sampling, variational inference or a MAP estimate.",
)
@click.option("--sweeps", type=int, help="At most.  [default: 400; vi 100; map 60 or 1000]")
@click.option("--burn-in", type=int, help="gibbs: sweeps not averaged.  [default: 20]")
@click.option("--thin", type=int, help="gibbs: average every so many.  [default: 1]")
@click.option("--chains", type=int, help="gibbs: independent runs.  [default: 1]")
@click.option(
    "--side-form",
    type=click.Choice(["centred", "non-centred", "interwoven"]),
    help="gibbs: how side features are drawn.  [default: centred]",
)
@click.option(
    "--start",
    type=click.Choice(["random", "map"]),
    help="gibbs, vi: where to begin.  [default: gibbs random, vi map]",
)
@click.option(
    "--prior-scale",
    type=click.Choice(["default", "map-driven"]),
    help="vi: of the features' hyperprior; map-driven: from the start.  [default: default]",
)
@click.option(
    "--moments",
    type=click.Choice(["second", "first"]),
    help="vi: first leaves covariances out, as the paper prints it.  [default: second]",
)
@click.option("--clamp", is_flag=True, default=None, help="vi: truncated precisions by clamping.")
@click.option(
    "--method",
    type=click.Choice(["coordinate", "momentum"]),
    help="map: one row at a time, or the paper's descent.  [default: coordinate]",
)
@click.option("--penalty", type=float, help="map: of the features.  [default: by validation]")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Of the split and of the draws.",
)
@click.option("--threads", type=int, help="The result does not depend on it.  [default: all]")
@click.option("--budget", type=float, metavar="SECONDS", help="Stop in time.")
@click.option(
    "--holdout",
    type=click.Choice(["paper", "random", "none"]),
    default="paper",
    show_default=True,
    help="Which ratings to test on.",
)
@click.option(
    "--validation",
    type=float,
    metavar="FRACTION",
    help="Of the training ratings, to stop by: see --patience.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    metavar="SWEEPS",
    help="End when the validation error has not fallen for so long.",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="gibbs: save the run there, so that it survives a kill.",
)
@click.option(
    "--checkpoint-every",
    metavar="SECONDS",
    help="gibbs: how often, such as 90, 90s or 5m.  [default: 60]",
)
@click.option("--resume", is_flag=True, help="gibbs: go on from the checkpoint, if there is one.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--with-ratings", is_flag=True, help="Keep the training ratings in the model.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier fit in the folder.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def fit(
    data: str, model: str | None, rank: int, side_of: str | None, side_power: float | None,
    precision: str | None, bounds: str | None, prior: str | None, bias: str | None,
    inference: str, seed: int, threads: int | None, budget: float | None, holdout: str,
    validation: float | None, patience: int | None, start: str | None,
    checkpoint: Path | None, checkpoint_every: str | None, resume: bool, out: Path | None,
    with_ratings: bool, overwrite: bool, quiet: bool, as_json: bool, **rest: Any,
) -> None:  # fmt: skip
    """Fit a model to DATA and test it on held-out ratings.

    Example: bayesmf fit ml-1m --model side --precision robust --sweeps 400 --out side-robust
    """
    from bayesmf import cli_fit
    from bayesmf.atomic import check_folder
    from bayesmf.data.split import carve

    replaces = cli_fit.is_fit if overwrite else None
    if out is not None:
        check_folder(out, replaces)
    chosen = cli_fit.model_of(model, rank, side_of, side_power, precision, bounds, prior, bias)
    reading = {key: rest.pop(key) for key in list(rest) if key not in cli_fit.SETTINGS}
    algorithm = cli_fit.algorithm_of(inference, chosen, seed, threads, rest)
    options: dict[str, Any] = {"start": start, "patience": patience, "budget": budget}
    if inference == "map" and start is not None:
        raise DataError("--start is for --inference gibbs and vi; leave it out")
    options.update(cli_fit.saving(inference, checkpoint, checkpoint_every, resume))
    ratings = bayesmf.load(data, **reading)
    if holdout == "none":
        train, test = ratings.drop_unused(), None
        held: dict[str, Any] = {"protocol": "none", "train": len(train)}
    else:
        cut = bayesmf.split(ratings, holdout, seed)  # type: ignore[arg-type]
        train, test = cut
        held = cut.describe()
    judge = None
    if validation is not None:
        train, judge = carve(train, validation, seed)
        held = {**held, "train": len(train), "validation": len(judge)}
    done = cli_fit.fit_with_progress(
        algorithm, train, test, quiet, validation=judge,
        **{key: value for key, value in options.items() if value is not None},
    )  # fmt: skip
    facts = {"data": data, **cli_fit.facts_of(inference, algorithm, done, held)}
    if test is not None:
        parts = [train, test] if judge is None else [train, judge, test]
        facts["by_frequency"] = cli_fit.by_frequency(done, parts, test)
        if inference == "gibbs" and done.predictions is not None:
            facts["coverage"] = cli_fit.coverage(done, test)
    if out is not None:
        cli_fit.save(out, facts, done, test, replaces, with_ratings)
    if as_json:
        click.echo(to_json(facts))
        return
    error = "" if done.test_rmse is None else f"test RMSE {done.test_rmse:.4f} "
    ended = f" ({done.stopped})" if done.stopped else ""
    click.echo(f"{error}after {done.sweeps} sweeps in {done.seconds:.1f} s{ended}")
    for line in cli_fit.remarks(done):
        click.echo(line)
    if "coverage" in facts:
        shares = ", ".join(f"{float(k):.0%}: {v:.1%}" for k, v in facts["coverage"].items())
        click.echo(f"test ratings inside their intervals: {shares}")
    if facts.get("by_frequency"):
        Console().print(cli_fit.frequency_table(facts["by_frequency"]))
    if out is not None:
        click.echo(f"written to {out}")


main.command()(click.argument("data")(reading_options(cli_study.study)))
main.command()(cli_study.report)
for command in cli_model.COMMANDS:
    main.add_command(command)
