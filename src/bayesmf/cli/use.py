"""Commands that use a fitted model: predict, recommend, fold in, update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from bayesmf.choices import RANK_BY, SIDES, UPDATED
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import (
    JSON,
    PATH,
    QUIET,
    SEEDS,
    THREADS,
    data_names,
    new_model_options,
    pairs_options,
    ratings_options,
)
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError, visible

MODEL = click.argument("model", type=PATH)


USER_ATTRIBUTES, ITEM_ATTRIBUTES = (
    click.option(
        f"--{side}-attributes",
        type=PATH,
        help=f"A table with attributes of new {side}s, for a model that was fitted with them.",
    )
    for side in SIDES
)
AT = click.option(
    "--at",
    metavar="TIME",
    help="When the ratings would be given, for a model with a time chain: a date such as "
    "2026-11-17, seconds since 1970, or now.",
)
OUT = click.option("--out", type=PATH, help="The csv, tsv or parquet file to write.")
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
SHOWN = 20  # rows printed for people


def load_fit(path: Path, threads: int | None = None) -> Any:
    """Load a saved model, and before it the compiler."""
    with leaving_at_once():
        from bayesmf.fitted.base import load_model
    return load_model(path, threads)


def _ids(fit: Any, name: str, column: Any, where: str) -> Any:
    """Return the index of each id of a file; what the model does not know is -1."""
    from bayesmf.data.ids import look_up

    return look_up(fit.posterior.ids(name), column, name, lambda row: f"{where}, pair {row + 1}")


def ratings_for(fit: Any, path: str, reading: dict[str, Any]) -> Any:
    """Load ratings whose ids are of the model's kind."""
    import bayesmf

    user, item = (fit.posterior.ids(name).kind == "text" for name in SIDES)
    kinds = {True: "text", False: "auto"}
    return bayesmf.load(path, ids=(kinds[user], kinds[item]), **reading)  # type: ignore[arg-type]


def _users(fit: Any, asked: tuple[str, ...]) -> Any:
    """The users of --user as the model knows them: numbers or text."""
    from bayesmf.data.ids import read_id
    from bayesmf.fitted.recommend import Asked

    known = fit.posterior.users
    users = [read_id(user, known.kind) for user in asked]
    if None in users:
        raise DataError(
            f"--user {asked[users.index(None)]}: the users of this model are numbers, such as "
            f"{known[0]}; give one of them"
        )
    for user, row in zip(users, Asked.of(fit.posterior, "user", users).row, strict=True):
        if row < 0:
            told = "what most users like" if row == -1 else "what users with such attributes like"
            click.echo(f"user {user!r} was not in training, and gets {told}", err=True)
    return users


def _check(out: Path | None, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before the work."""
    from bayesmf.data.io.write import check_table

    if out is not None:
        check_table(out, overwrite)


def _show(table: Any, out: Path | None, as_json: bool, overwrite: bool, most: int = SHOWN) -> None:
    """Write a pyarrow table to a file, or print it as JSON lines or for people."""
    if out is not None:
        from bayesmf.data.io.write import write_table

        write_table(table, out, overwrite)
        facts = to_json({"rows": table.num_rows, "out": str(out)})
        click.echo(facts if as_json else f"{table.num_rows:,} rows written to {out}")
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
        texts = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        shown.add_row(*(Text(visible(text)) for text in texts))  # an id is no markup
    Console().print(shown)
    if table.num_rows > most:
        click.echo(f"... and {table.num_rows - most:,} more rows; write all of them with --out")


@click.command()
@MODEL
@click.argument("pairs", type=PATH)
@pairs_options
@USER_ATTRIBUTES
@ITEM_ATTRIBUTES
@click.option(
    "--probabilities",
    is_flag=True,
    help="Print the probability of every rating of the scale instead of a mean and an interval.",
)
@click.option("--clip", is_flag=True, help="Cut means and quantiles off at the ends of the scale.")
@AT
@OUT
@OVERWRITE
@THREADS
@JSON
def predict(
    model: Path,
    pairs: Path,
    user: str | None,
    item: str | None,
    time: str | None,
    probabilities: bool,
    clip: bool,
    at: str | None,
    user_attributes: Path | None,
    item_attributes: Path | None,
    out: Path | None,
    overwrite: bool,
    threads: int | None,
    as_json: bool,
    **layout: Any,
) -> None:
    """Predict the ratings of PAIRS, a file with a user and an item column.

    Example: bayesmf predict my-fit pairs.csv --out predictions.csv
    """
    with leaving_at_once():
        from bayesmf.data.io.text import read_pairs
        from bayesmf.data.pairs import Pairs
    if probabilities and clip:
        raise DataError("--clip has no meaning with --probabilities; leave it out")
    _check(out, overwrite)
    fit = _with_attributes(load_fit(model, threads), user_attributes, item_attributes)
    named: Any = {"user": user, "item": item, "time": time}
    timed = time is not None or (at is None and bool(fit.model.every_effect))
    columns = read_pairs(pairs, named, timed=timed, **layout)
    users, items = columns["user"], columns["item"]
    places = _ids(fit, "user", users, str(pairs)), _ids(fit, "item", items, str(pairs))
    asked = Pairs(users, items, columns.get("time"), rows=places).at(at)
    table = fit.probabilities(asked) if probabilities else fit.predict(asked, clip=clip)
    _show(table, out, as_json, overwrite)


def _with_attributes(fit: Any, user: Path | None = None, item: Path | None = None) -> Any:
    """The fit with attributes of more users and items, if there are files of them."""
    return fit if user is None and item is None else fit.with_attributes(user=user, item=item)


def advance(bar: Progress, task: TaskID) -> Callable[[int, int], None]:
    """A callback that moves a bar."""
    return lambda done, total: bar.update(task, completed=done, total=total)


@click.command()
@MODEL
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="ID",
    help="The user to recommend to; may be given several times.  [default: all users]",
)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="How many items to recommend to each user.",
)
@click.option(
    "--rank-by",
    type=click.Choice(RANK_BY),
    default="mean",
    show_default=True,
    help="What to rank by: the expected rating, one standard deviation below it, or a random draw "
    "of it.",
)
@click.option(
    "--seen",
    metavar="DATA",
    shell_complete=data_names,
    help="The ratings whose items are left out.  [default: the ratings in the model]",
)
@ratings_options
@USER_ATTRIBUTES
@AT
@click.option(
    "--exclude-seen/--no-exclude-seen",
    default=True,
    show_default=True,
    help="Leave out the items that the user has rated.",
)
@click.option(
    "--seed",
    type=SEEDS,
    default=0,
    show_default=True,
    help="The seed of the draws of --rank-by thompson.",
)
@OUT
@OVERWRITE
@QUIET
@JSON
def recommend(
    model: Path,
    users: tuple[str, ...],
    count: int,
    rank_by: str,
    seen: str | None,
    exclude_seen: bool,
    seed: int,
    user_attributes: Path | None,
    at: str | None,
    out: Path | None,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Recommend to each user the best items that they have not rated.

    Example: bayesmf recommend my-fit --user 42 -n 10
    """
    if not exclude_seen and seen is not None:
        raise DataError("--seen has no meaning with --no-exclude-seen; leave one of them out")
    _check(out, overwrite)
    fit = _with_attributes(load_fit(model), user_attributes)
    rated = ratings_for(fit, seen, reading) if seen is not None else None
    asked = _users(fit, users) if users else None
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("users", total=None)
        table = fit.recommend(
            asked,
            count,
            rank_by=rank_by,
            exclude_seen=exclude_seen,
            seen=rated,
            at=at,
            seed=seed,
            progress=advance(bar, task),
        )
    _show(table, out, as_json, overwrite)


def _make_model(
    model: Path,
    ratings: str,
    out: Path,
    change: Callable[[Any, Any, int], Any],
    words: dict[str, Any],
    *attributes: Path | None,
) -> tuple[Any, Any, Any]:
    """Save the model that ratings make of another one.

    ``change`` makes it of a fit, ratings and a seed. ``words`` are the command's other options.
    Returns the ratings, and the posteriors before and after.
    """
    with leaving_at_once():
        from bayesmf.fitted.store.files import check_place_of
    reading = ratings_options.take(words)
    check_place_of(out, words["overwrite"])
    fit = _with_attributes(load_fit(model, words["threads"]), *attributes)
    given = ratings_for(fit, ratings, reading)
    more = change(fit, given, words["seed"])
    more.save(out, overwrite=words["overwrite"])
    return given, fit.posterior, more.posterior


@click.command("fold-in")
@MODEL
@click.argument("ratings", shell_complete=data_names)
@ratings_options
@USER_ATTRIBUTES
@ITEM_ATTRIBUTES
@click.option(
    "--side",
    type=click.Choice(SIDES),
    default="user",
    show_default=True,
    help="Whether the ratings are of new users or of new items.",
)
@click.option(
    "--replace-known",
    is_flag=True,
    help="Allow users that the model knows; from now on it knows them by these ratings alone.",
)
@new_model_options
def fold_in(
    model: Path,
    ratings: str,
    side: str,
    replace_known: bool,
    user_attributes: Path | None,
    item_attributes: Path | None,
    out: Path,
    as_json: bool,
    **words: Any,
) -> None:
    """Add new users, or items, to a model from their RATINGS, without refitting.

    Example: bayesmf fold-in my-fit new-users.csv --out my-fit-2
    """

    def change(fit: Any, given: Any, seed: int) -> Any:
        return fit.fold_in(given, side, replace_known=replace_known, seed=seed)

    attributes = user_attributes, item_attributes
    given, known, more = _make_model(model, ratings, out, change, words, *attributes)
    if side == "user":
        other, mine, used = "item", given.users, given.onto(given.users, known.items)
    else:
        other, mine, used = "user", given.items, given.onto(known.users, given.items)
    new = len(more.ids(side)) - len(known.ids(side))
    again, left_out = len(mine) - new, len(given) - len(used)
    if as_json:
        click.echo(to_json({"new": new, "replaced": again, "left_out": left_out, "out": str(out)}))
        return
    told = f"{new:,} new {side}{'' if new == 1 else 's'}"
    if again:
        told += f", {again:,} replaced"
    if left_out:
        told += f"; {left_out:,} ratings of {other}s that the model does not know were left out"
    click.echo(f"{told}; written to {out}")


@click.command()
@MODEL
@click.argument("ratings", shell_complete=data_names)
@ratings_options
@click.option(
    "--side",
    type=click.Choice(UPDATED),
    default="user",
    show_default=True,
    help="Whose rows the ratings change: those of their users, of their items, or of both.",
)
@new_model_options
def update(
    model: Path,
    ratings: str,
    side: str,
    out: Path,
    as_json: bool,
    **words: Any,
) -> None:
    """Add new RATINGS of users that a model knows to it, without refitting.

    A rating of a pair that has one already replaces it. Users that the model does not know are
    added as fold-in does.

    Example: bayesmf update my-fit today.csv --out my-fit-2
    """

    def change(fit: Any, given: Any, seed: int) -> Any:
        return fit.update(given, side, seed=seed)

    given, known, more = _make_model(model, ratings, out, change, words)
    facts: dict[str, int] = {}
    for name in SIDES if side == "both" else (side,):
        ids = (given.users if name == "user" else given.items).values
        was, found = (int((one.warm_row_of(name, ids) >= 0).sum()) for one in (known, more))
        facts |= {f"updated_{name}s": was, f"new_{name}s": found - was}
    facts["left_out"] = len(given) - len(given.onto(more.users, more.items))
    if as_json:
        click.echo(to_json({**facts, "out": str(out)}))
        return
    left_out = facts.pop("left_out")
    told = [
        f"{count:,} {name.replace('_', ' ').removesuffix('s' if count == 1 else '')}"
        for name, count in facts.items()
        if count
    ]
    if left_out:
        told.append(f"{left_out:,} ratings of what the model does not know were left out")
    click.echo("; ".join([*told, f"written to {out}"]))


COMMANDS = (predict, recommend, fold_in, update)
