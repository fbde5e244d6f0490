"""Commands that use a fitted model: parse, call, print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from bayesmf.cli.interrupts import leaving_at_once
from bayesmf.cli.options import data_names, pairs_options, ratings_options
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError

MODEL = click.argument("model", type=click.Path(path_type=Path))
THREADS = click.option("--threads", type=int, help="The result does not depend on it.")
OUT = click.option("--out", type=click.Path(path_type=Path), help="csv, tsv or parquet to write.")
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace what is there.")
JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
SHOWN = 20  # rows printed for people


def load_fit(path: Path, threads: int | None = None) -> Any:
    """A model, and the compiler with it."""
    with leaving_at_once():
        from bayesmf.fit.fitted import load_model
    return load_model(path, threads)


def _ids(fit: Any, name: str, column: Any, where: str) -> Any:
    """Return the index of each id of a file; what the model does not know is -1."""
    from bayesmf.data.ids import look_up

    return look_up(fit.posterior.ids(name), column, name, lambda row: f"{where}, pair {row + 1}")


def ratings_for(fit: Any, path: str, reading: dict[str, Any]) -> Any:
    """Ratings whose ids are of the model's kind."""
    import bayesmf

    user, item = (fit.posterior.ids(name).kind == "text" for name in ("user", "item"))
    kinds = {True: "text", False: "auto"}
    return bayesmf.load(path, ids=(kinds[user], kinds[item]), **reading)  # type: ignore[arg-type]


def _users(fit: Any, asked: tuple[str, ...]) -> Any:
    """The users of a command line, as the model calls them."""
    from bayesmf.data.ids import read_id

    known = fit.posterior.users
    users = [read_id(user, known.kind) for user in asked]
    if None in users:
        raise DataError(
            f"--user {asked[users.index(None)]}: the users of this model are numbers, such as "
            f"{known[0]}; give one of them"
        )
    for user, place in zip(users, fit.posterior.warm_row_of("user", users), strict=True):
        if place < 0:
            click.echo(f"user {user!r} was not in training: what most users like", err=True)
    return users


def _check(out: Path | None, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before the work."""
    from bayesmf.data.io.write import check_table

    if out is not None:
        check_table(out, overwrite)


def _show(table: Any, out: Path | None, as_json: bool, most: int = SHOWN) -> None:
    """A pyarrow table to a file, as JSON lines, or for people."""
    if out is not None:
        from bayesmf.data.io.write import write_table

        write_table(table, out)
        told = to_json({"rows": table.num_rows, "out": str(out)})
        click.echo(told if as_json else f"{table.num_rows:,} rows written to {out}")
        return
    if as_json:
        for row in table.to_pylist():
            click.echo(to_json(row))
        return
    shown = Table(box=None, header_style="bold")
    numbers = [str(field.type) in ("double", "float") for field in table.schema]
    for name, number in zip(table.column_names, numbers, strict=True):
        shown.add_column(name, justify="right" if number else "left")
    for row in table.slice(0, most).to_pylist():
        shown.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value)
                        for value in row.values()))  # fmt: skip
    Console().print(shown)
    if table.num_rows > most:
        click.echo(f"... and {table.num_rows - most:,} more; write all with --out")


@click.command()
@MODEL
@click.argument("pairs", type=click.Path(path_type=Path))
@pairs_options
@click.option("--probabilities", is_flag=True, help="P(rating = r) for every r of the scale.")
@click.option("--clip", is_flag=True, help="Cut means and quantiles to the scale.")
@OUT
@OVERWRITE
@THREADS
@JSON
def predict(
    model: Path, pairs: Path, user: str | None, item: str | None, probabilities: bool,
    clip: bool, out: Path | None, overwrite: bool, threads: int | None, as_json: bool,
    **layout: Any,
) -> None:  # fmt: skip
    """Predict the ratings of PAIRS, a file with a user and an item column.

    Example: bayesmf predict my-fit pairs.csv --out predictions.csv
    """
    with leaving_at_once():
        from bayesmf.data.io.text import read_pairs
        from bayesmf.data.pairs import Pairs
    if probabilities and clip:
        raise DataError("--clip has no meaning with --probabilities; leave it out")
    _check(out, overwrite)
    fit = load_fit(model, threads)
    users, items = read_pairs(pairs, {"user": user, "item": item}, **layout)
    places = _ids(fit, "user", users, str(pairs)), _ids(fit, "item", items, str(pairs))
    asked = Pairs(users, items, rows=places)
    table = fit.probabilities(asked) if probabilities else fit.predict(asked, clip=clip)
    _show(table, out, as_json)


def advance(bar: Progress, task: TaskID) -> Callable[[int, int], None]:
    """What moves a bar."""
    return lambda done, total: bar.update(task, completed=done, total=total)


@click.command()
@MODEL
@click.option("--user", "users", multiple=True, metavar="ID", help="Whom; all users if left out.")
@click.option(
    "-n", "count", type=click.IntRange(1), default=10, show_default=True, help="How many."
)
@click.option("--rank-by", type=click.Choice(["mean", "lower", "thompson"]), default="mean",
              show_default=True, help="Expected rating, a cautious one, or a draw.")  # fmt: skip
@click.option(
    "--seen", metavar="DATA", shell_complete=data_names, help="Ratings whose items are left out."
)
@ratings_options
@click.option("--with-seen", is_flag=True, help="Items that were rated may be recommended.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="For --rank-by thompson.")  # fmt: skip
@OUT
@OVERWRITE
@click.option("--quiet", is_flag=True, help="No progress bar.")
@JSON
def recommend(
    model: Path, users: tuple[str, ...], count: int, rank_by: str, seen: str | None,
    with_seen: bool, seed: int, out: Path | None, overwrite: bool, quiet: bool, as_json: bool,
    **reading: Any,
) -> None:  # fmt: skip
    """Recommend the best items to users.

    Example: bayesmf recommend my-fit --user 42 -n 10
    """
    if with_seen and seen is not None:
        raise DataError("--seen has no meaning with --with-seen; leave one of them out")
    _check(out, overwrite)
    fit = load_fit(model)
    rated = ratings_for(fit, seen, reading) if seen is not None else None
    asked = _users(fit, users) if users else None
    console = Console(stderr=True)
    with Progress(console=console, transient=True,
                  disable=quiet or not console.is_terminal) as bar:  # fmt: skip
        task = bar.add_task("users", total=None)
        table = fit.recommend(asked, count, rank_by=rank_by, exclude_seen=not with_seen, seen=rated,
                              seed=seed, progress=advance(bar, task))  # fmt: skip
    _show(table, out, as_json)


@click.command("fold-in")
@MODEL
@click.argument("ratings", shell_complete=data_names)
@ratings_options
@click.option("--side", type=click.Choice(["user", "item"]), default="user", show_default=True,
              help="Who is new.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Those who are known are known by these alone.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draws.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The new model.")
@click.option("--overwrite", is_flag=True, help="Replace a model that is there.")
@THREADS
@JSON
def fold_in(
    model: Path, ratings: str, side: str, replace: bool, seed: int, out: Path, overwrite: bool,
    threads: int | None, as_json: bool, **reading: Any,
) -> None:  # fmt: skip
    """Add new users, or items, to a model from their RATINGS, without refitting.

    Example: bayesmf fold-in my-fit new-users.csv --out my-fit-2
    """
    with leaving_at_once():
        from bayesmf.fit.files import check_place_of
    check_place_of(out, overwrite)
    fit = load_fit(model, threads)
    given, known = ratings_for(fit, ratings, reading), fit.posterior
    more = fit.fold_in(given, side, replace_known=replace, seed=seed)
    more.save(out, overwrite=overwrite)
    if side == "user":
        other, mine, used = "item", given.users, given.onto(given.users, known.items)
    else:
        other, mine, used = "user", given.items, given.onto(known.users, given.items)
    new = len(more.posterior.ids(side)) - len(known.ids(side))
    facts = {"new": new, "known anew": len(mine) - new, "left out": len(given) - len(used),
             "out": str(out)}  # fmt: skip
    if as_json:
        click.echo(to_json(facts))
        return
    anew = f", {facts['known anew']:,} known anew" if facts["known anew"] else ""
    left = (f"; {facts['left out']:,} ratings of {other}s that the model does not know were left "
            "out" if facts["left out"] else "")  # fmt: skip
    click.echo(f"{new:,} new {side}{'' if new == 1 else 's'}{anew}{left}; written to {out}")


COMMANDS = (predict, recommend, fold_in)
