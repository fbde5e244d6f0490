"""Commands that look into a fitted model: similar, map, explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bayesmf.choices import SIDES
from bayesmf.cli.shared.models import (
    AT,
    COUNT,
    EXCLUDE,
    MODEL,
    OUT,
    OVERWRITE,
    TITLES,
    WHERE,
    check_out,
    list_file,
    load_fit,
    print_rows,
    read_one,
    show,
    with_titles,
)
from bayesmf.cli.shared.options import JSON, PATH
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError, visible


@click.command()
@MODEL
@click.option("--item", metavar="ID", help="The item whose neighbours to find.")
@click.option("--user", metavar="ID", help="The user whose neighbours to find.")
@COUNT
@click.option(
    "--items",
    type=PATH,
    metavar="FILE",
    help="A table of the items that may be found; titles in it are shown.  [default: all items of "
    "the model]",
)
@click.option(
    "--users", type=PATH, metavar="FILE", help="A table of users with their titles, to be shown."
)
@EXCLUDE
@WHERE
@OUT
@OVERWRITE
@JSON
def similar(
    model: Path,
    item: str | None,
    user: str | None,
    count: int,
    items: Path | None,
    users: Path | None,
    exclude: Path | None,
    where: tuple[str, ...],
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Find the items that are most like one item, or the users that are most like one user.

    The similarity is the correlation over users of how they like two items, averaged over the
    draws; the probability is the share of draws in which an item is among the -n nearest.

    Example: bayesmf similar my-fit --item 42 -n 10
    """
    if (item is None) == (user is None):
        raise DataError("similar compares items or users; name one of them with --item or --user")
    given = {"--items": items, "--exclude": exclude, "--where": where or None}
    for option, value in given.items():
        if user is not None and value is not None:
            raise DataError(f"{option} is about items; leave it out, or --user")
    check_out(out, overwrite)
    fit, options = with_titles(load_fit(model), users), dict[str, Any](where=where or None)
    if items is not None:
        fit, options["items"] = list_file(fit, "item", items)
    if exclude is not None:
        _, options["exclude"] = list_file(fit, "item", exclude)
    if user is not None:
        table = fit.similar(user=read_one(fit, "user", user), n=count)
    else:
        table = fit.similar(item=read_one(fit, "item", item or ""), n=count, **options)
    show(table, out, as_json, overwrite)


@click.command("map")
@MODEL
@click.option(
    "-n",
    "count",
    type=click.IntRange(1),
    help="Only so many items with the most ratings.  [default: all]",
)
@click.option(
    "--side",
    type=click.Choice(SIDES),
    default="item",
    show_default=True,
    help="Whether to lay out the items or the users.",
)
@TITLES
@OUT
@OVERWRITE
@JSON
def lay_out(
    model: Path,
    count: int | None,
    side: str,
    users: Path | None,
    items: Path | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Lay the items of a model out in two dimensions, like ones near each other.

    Example: bayesmf map my-fit --out map.csv
    """
    check_out(out, overwrite)
    fit = with_titles(load_fit(model), users, items)
    show(fit.map(count, side), out, as_json, overwrite)


@click.command()
@MODEL
@click.option("--user", metavar="ID", required=True, help="The user of the prediction.")
@click.option("--item", metavar="ID", required=True, help="The item of the prediction.")
@click.option(
    "--most",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="How many of the user's ratings, and of the attributes, to show.",
)
@AT
@TITLES
@JSON
def explain(
    model: Path,
    user: str,
    item: str,
    most: int,
    at: str | None,
    users: Path | None,
    items: Path | None,
    as_json: bool,
) -> None:
    """Explain one prediction: its parts, and what the user's own ratings add to it.

    Example: bayesmf explain my-fit --user 42 --item 7
    """
    fit = with_titles(load_fit(model), users, items)
    found = fit.explain(read_one(fit, "user", user), read_one(fit, "item", item), most, at=at)
    if as_json:
        click.echo(to_json(found))
        return
    told = [
        f"{side} {one}" + (f" ({title})" if title else "")
        for side, one, title in (
            ("user", user, found.get("user_title")),
            ("item", item, found.get("title")),
        )
    ]
    expected = found.get("expected", found["prediction"])
    click.echo(visible(f"{', '.join(told)}: expected rating {expected:.3f}"))
    parts = [
        {"part": name.replace("_", " "), **numbers} for name, numbers in found["parts"].items()
    ]
    for rows in (parts, found.get("ratings"), found.get("attributes")):
        if rows:
            click.echo()
            print_rows(rows, list(rows[0]))


COMMANDS = (similar, lay_out, explain)
