"""Commands on ratings: list, fetch, describe, split, shard."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

import bayesmf
from bayesmf.choices import PROTOCOLS
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import (
    DATA,
    JSON,
    PATH,
    SEEDS,
    Cli,
    Options,
    data_names,
    reading_options,
)
from bayesmf.data.io.datasets import DATASETS
from bayesmf.errors import DataError, visible

if TYPE_CHECKING:
    from bayesmf.data.split import Split
    from bayesmf.data.summary import Summary


SPLITTING = Options(
    click.option(
        "--test-fraction",
        type=float,
        help="paper, random, time: the share of the ratings that is the test.  [default: 0.3]",
    ),
    click.option(
        "--min-item-ratings",
        type=int,
        help="paper: drop the items with fewer ratings.  [default: 3; epinions 1]",
    ),
    click.option("--folds", type=int, help="kfold: the number of folds.  [default: 5]"),
    click.option(
        "--user-fraction",
        type=float,
        help="cold-start: the share of the users that is held out.  [default: 0.1]",
    ),
    click.option(
        "--given",
        type=int,
        help="cold-start: how many ratings of each of them are known.  [default: 5]",
    ),
    click.option(
        "--per-user",
        is_flag=True,
        default=None,
        help="time: hold out the latest ratings of each user, not of all users together.",
    ),
)


@click.group(cls=Cli)
def data() -> None:
    """List, fetch and describe ratings."""


@data.command("list")
@JSON
def list_(as_json: bool) -> None:
    """List the data sets that have a name.

    Example: bayesmf data list
    """
    with leaving_at_once():
        from bayesmf.data.io.load import find

    rows = [("demo", "generated: 1,500 users, 1,000 items", True, "none")]
    rows += [
        (name, each.about, find(name) is not None, each.terms) for name, each in DATASETS.items()
    ]
    headings = ("name", "what", "here", "terms")
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(headings, row, strict=True))))
        return
    table = Table(*headings, box=None, header_style="bold")
    for name, about, here, terms in rows:
        table.add_row(name, about, "yes" if here else "no", terms)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@data.command()
@click.argument("name", shell_complete=lambda *asked: data_names(*asked)[1:])
def fetch(name: str) -> None:
    """Find a data set on this machine or download it, and print where it is.

    Example: bayesmf data fetch ml-1m
    """
    with leaving_at_once():
        from bayesmf.data.io import load as sources

    if name == "demo":
        click.echo("demo is generated when it is asked for; there is nothing to fetch")
    else:
        click.echo(sources.fetch(name))


@data.command()
@DATA
@reading_options
@JSON
def describe(data: str, as_json: bool, **reading: Any) -> None:
    """Print what DATA holds: counts, ratings per user and item, density.

    Example: bayesmf data describe ml-1m
    """
    with leaving_at_once():
        from bayesmf.data.summary import summarise

    summary = summarise(bayesmf.load(data, **reading))
    if as_json:
        click.echo(json.dumps({"data": data, **asdict(summary)}))
        return
    console = Console()
    console.print(Text(visible(data), "bold"))
    for table in (_facts_table(summary), _spread_table(summary), _frequency_plot(summary)):
        console.print(table)


def _facts_table(summary: Summary) -> Table:
    facts = Table(box=None, show_header=False)
    facts.add_column()
    facts.add_column(justify="right")
    facts.add_row("ratings", f"{summary.ratings:,}")
    facts.add_row("users", f"{summary.users:,}")
    facts.add_row("items", f"{summary.items:,}")
    facts.add_row("mean rating", f"{summary.mean_rating:.4f}")
    facts.add_row("scale", str(bayesmf.Scale(**summary.scale)))  # type: ignore[arg-type]
    facts.add_row("pairs rated", f"{100 * summary.density:.3g} %")
    if summary.times:
        facts.add_row("times", f"{_date(summary.times['first'])} to {_date(summary.times['last'])}")
    if summary.weights:
        least, mean, most = (f"{value:g}" for value in summary.weights.values())
        facts.add_row("weights", f"{least} to {most}, {mean} on average")
    facts.add_row("memory", f"{summary.bytes / 1e6:.1f} MB")
    return facts


def _spread_table(summary: Summary) -> Table:
    headings = ("ratings per", "min", "25 %", "median", "mean", "75 %", "max")
    table = Table(*headings, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for what, row in (("user", summary.per_user), ("item", summary.per_item)):
        numbers = asdict(row).values()
        table.add_row(what, *(f"{x:,.1f}" if x % 1 else f"{x:,.0f}" for x in numbers))
    return table


def _frequency_plot(summary: Summary) -> Table:
    headings = ("ratings of the user", "users", "their share of all ratings")
    plot = Table(*headings, box=None, header_style="bold")
    plot.columns[0].justify = plot.columns[1].justify = "right"
    most = max(row.ratings for row in summary.by_user_frequency)
    for group in summary.by_user_frequency:
        ends = f"{group.low}" if group.low == group.high else f"{group.low}-{group.high}"
        share = f"{100 * group.ratings / summary.ratings:5.1f} %"
        line = Table.grid(padding=(0, 1))
        line.add_row(share, Bar(most, 0, group.ratings, width=30))
        plot.add_row(ends, f"{group.users:,}", line)
    return plot


def _date(time: int) -> str:
    """The day of a time in seconds or milliseconds; a time that is neither stays a number."""
    seconds = time / 1000 if abs(time) > 10**11 else time
    try:
        return str(datetime.fromtimestamp(seconds, UTC).date())
    except (ValueError, OverflowError, OSError):
        return str(time)


@click.command()
@DATA
@reading_options
@click.option(
    "--blocks", type=int, help="The number of blocks of users, and of items.  [default: 16]"
)
@click.option("--rank", type=int, help="The rank that the blocks are balanced for.  [default: 20]")
@click.option("--out", type=PATH, required=True, help="The folder to write.")
def shard(data: str, out: Path, blocks: int | None, rank: int | None, **reading: Any) -> None:
    """Cut DATA into blocks of users and of items that `fit --engine ray` reads one by one.

    Example: bayesmf shard ml-1m --out ml-1m-shards
    """
    with leaving_at_once():
        from bayesmf.data.io.atomic import check_folder
        from bayesmf.data.io.shards import shard as write

    check_folder(out, None)
    given = {key: value for key, value in (("blocks", blocks), ("rank", rank)) if value is not None}
    made = write(bayesmf.load(data, **reading).drop_unused(), out, **given)
    click.echo(
        f"{len(made):,} ratings in {len(made.by_user.spans)} blocks of users and "
        f"{len(made.by_item.spans)} of items; written to {out}"
    )


@click.command()
@DATA
@reading_options
@click.option(
    "--protocol",
    type=click.Choice([*PROTOCOLS, "kfold"]),
    default="paper",
    show_default=True,
    help="How to cut the ratings.",
)
@click.option(
    "--seed", type=SEEDS, help="The seed; the same seed gives the same files.  [default: 0]"
)
@SPLITTING
@click.option("--out", type=PATH, required=True, help="The folder to write.")
@click.option(
    "--format",
    "ending",
    type=click.Choice(["csv", "tsv", "parquet", "csv.gz"]),
    default="csv",
    show_default=True,
    help="The format of the files.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier split in the folder.")
@JSON
def split(
    data: str,
    protocol: str,
    seed: int | None,
    out: Path,
    ending: str,
    overwrite: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Cut DATA into training and test files.

    Example: bayesmf split ml-1m --protocol paper --seed 0 --out ml-1m-split
    """
    with leaving_at_once():
        from bayesmf.data import split as splits
        from bayesmf.data.io.atomic import check_folder
        from bayesmf.data.io.split_files import is_split

    chosen = {"seed": seed, **SPLITTING.take(values)}
    chosen = {key: value for key, value in chosen.items() if value is not None}
    for key in sorted(set(chosen) - splits.options_of(protocol)):
        flag = "--" + key.replace("_", "-")
        raise DataError(f"{flag} has no meaning with --protocol {protocol}; leave it out")
    check_folder(out, is_split if overwrite else None)
    ratings = bayesmf.load(data, **values)
    made: Split | list[Split]
    if protocol == "kfold":
        made = splits.kfold(ratings, **chosen)
        facts = [one.describe() for one in made]
    else:
        made = splits.split(ratings, protocol, **chosen)  # type: ignore[arg-type]
        facts = [made.describe()]
    bayesmf.save_split(made, out, f".{ending}", overwrite)
    if as_json:
        click.echo(json.dumps(facts if protocol == "kfold" else facts[0]))
        return
    for fact in facts:
        click.echo(_describe_split(fact))
    click.echo(f"written to {out}")


def _describe_split(facts: dict[str, Any]) -> str:
    given = f", {facts['given']:,} given" if "given" in facts else ""
    parts = [
        f"{facts['train']:,} training{given} and {facts['test']:,} test ratings of "
        f"{facts['items']:,} items by {facts['users']:,} users",
        f"{facts['test_users_not_in_train']:,} users and "
        f"{facts['test_items_not_in_train']:,} items of the test are not in training",
    ]
    from bayesmf.data.split import describe_dropped

    return "; ".join([*parts, *describe_dropped(facts)])


COMMANDS = (data, split, shard)
