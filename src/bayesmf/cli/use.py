"""Commands that use a fitted model: predict, recommend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from bayesmf.choices import RANK_BY
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.models import (
    AT,
    COUNT,
    EXCLUDE,
    NEW_ATTRIBUTES,
    OUT,
    OVERWRITE,
    TITLES,
    WHERE,
    check_out,
    list_file,
    read_one,
    show,
    with_attributes,
    with_titles,
)
from bayesmf.cli.shared.models import MODEL as MODEL
from bayesmf.cli.shared.models import load_fit as load_fit
from bayesmf.cli.shared.models import ratings_for as ratings_for
from bayesmf.cli.shared.options import (
    JSON,
    PATH,
    QUIET,
    SEEDS,
    THREADS,
    data_names,
    pairs_options,
    ratings_options,
)
from bayesmf.errors import DataError


def _ids(fit: Any, name: str, column: Any, where: str) -> Any:
    """Return the index of each id of a file; what the model does not know is -1."""
    from bayesmf.data.ids import look_up

    return look_up(fit.posterior.ids(name), column, name, lambda row: f"{where}, pair {row + 1}")


def _parse_quantiles(text: str) -> list[float]:
    """Read probabilities with commas between them."""
    try:
        found = [float(part) for part in text.split(",")]
        if not all(0 < one < 1 for one in found):
            raise ValueError
    except ValueError:
        raise DataError(
            f"--quantiles {text!r}: write numbers between 0 and 1, as in 0.1,0.5,0.9"
        ) from None
    return found


def _users(fit: Any, asked: tuple[str, ...]) -> Any:
    """The users of --user as the model knows them: numbers or text."""
    from bayesmf.fitted.recommend import Asked

    users = [read_one(fit, "user", user) for user in asked]
    for user, row in zip(users, Asked.of(fit.posterior, "user", users).row, strict=True):
        if row < 0:
            told = "what most users like" if row == -1 else "what users with such attributes like"
            click.echo(f"user {user!r} was not in training, and gets {told}", err=True)
    return users


@click.command()
@MODEL
@click.argument("pairs", type=PATH)
@pairs_options
@TITLES
@NEW_ATTRIBUTES
@click.option(
    "--probabilities",
    is_flag=True,
    help="Print the probability of every rating of the scale instead of a mean and an interval.",
)
@click.option(
    "--quantiles",
    metavar="P,...",
    help="The probabilities whose quantiles are printed, such as 0.1,0.5,0.9.  "
    "[default: 0.05,0.95]",
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
    users: Path | None,
    items: Path | None,
    probabilities: bool,
    quantiles: str | None,
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

    Other columns of the file follow those of the prediction.

    Example: bayesmf predict my-fit pairs.csv --out predictions.csv
    """
    with leaving_at_once():
        from bayesmf.data.io.text import read_pairs
        from bayesmf.data.pairs import Pairs
    if probabilities and clip:
        raise DataError("--clip has no meaning with --probabilities; leave it out")
    if probabilities and quantiles is not None:
        raise DataError("--quantiles has no meaning with --probabilities; leave it out")
    asked_for = {} if quantiles is None else {"quantiles": _parse_quantiles(quantiles)}
    check_out(out, overwrite)
    fit = with_titles(load_fit(model, threads), users, items)
    fit = with_attributes(fit, user_attributes, item_attributes)
    named = fit.posterior.labels.named(user=user, item=item, time=time)
    timed = time is not None or (at is None and bool(fit.model.every_effect))
    columns, others = read_pairs(pairs, named, timed=timed, **layout)
    user_ids, item_ids = columns["user"], columns["item"]
    rows = _ids(fit, "user", user_ids, str(pairs)), _ids(fit, "item", item_ids, str(pairs))
    asked = Pairs(user_ids, item_ids, columns.get("time"), others=others, rows=rows)
    if probabilities:
        table = fit.probabilities(asked, at=at)
    else:
        table = fit.predict(asked, clip=clip, at=at, **asked_for)
    show(table, out, as_json, overwrite)


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
    "--users",
    "users_file",
    type=PATH,
    metavar="FILE",
    help="A table of the users to recommend to; titles in it are shown.",
)
@COUNT
@click.option(
    "--items",
    type=PATH,
    metavar="FILE",
    help="A table of the items that may be recommended; titles in it are shown.  [default: all "
    "items of the model]",
)
@EXCLUDE
@WHERE
@click.option(
    "--diversify",
    type=float,
    default=0.0,
    show_default=True,
    metavar="0..1",
    help="How different the items of a list should be: 0 takes the best, 1 the most different ones "
    "among ten times as many.",
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
@NEW_ATTRIBUTES
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
    users_file: Path | None,
    count: int,
    items: Path | None,
    exclude: Path | None,
    where: tuple[str, ...],
    diversify: float,
    rank_by: str,
    seen: str | None,
    exclude_seen: bool,
    seed: int,
    user_attributes: Path | None,
    item_attributes: Path | None,
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
    if users and users_file is not None:
        raise DataError("--user and --users both say whom to recommend to; leave one of them out")
    check_out(out, overwrite)
    fit = with_attributes(load_fit(model), user_attributes, item_attributes)
    rated = ratings_for(fit, seen, reading) if seen is not None else None
    asked, allowed, excluded = (_users(fit, users) if users else None), None, None
    if users_file is not None:
        fit, asked = list_file(fit, "user", users_file)
    if items is not None:
        fit, allowed = list_file(fit, "item", items)
    if exclude is not None:
        _, excluded = list_file(fit, "item", exclude)
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
            items=allowed,
            exclude=excluded,
            where=where or None,
            diversify=diversify,
            at=at,
            seed=seed,
            progress=advance(bar, task),
        )
    show(table, out, as_json, overwrite)


COMMANDS = (predict, recommend)
