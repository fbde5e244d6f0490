"""What commands on a fitted model share: how it is loaded, what is asked of it, how it answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bayesmf.choices import SIDES, Side
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.options import PATH, Options
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError, visible

MODEL = click.argument("model", type=PATH)
NEW_ATTRIBUTES = Options(
    *(
        click.option(
            f"--{side}-attributes",
            type=PATH,
            help=f"A table with attributes of new {side}s, for a model that was fitted with them.",
        )
        for side in SIDES
    )
)
TITLES = Options(
    *(
        click.option(
            f"--{side}s",
            type=PATH,
            metavar="FILE",
            help=f"A table of {side}s with their titles, which are shown beside the ids.",
        )
        for side in SIDES
    )
)
WHERE = click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="A condition on the attributes of items, such as genres=Drama, genres!=Horror or "
    "'year>=1990'; may be given several times, and all have to hold.",
)
EXCLUDE = click.option(
    "--exclude", type=PATH, metavar="FILE", help="A table of items that may not be in the answer."
)
COUNT = click.option(
    "-n",
    "count",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="How many to find, for each user or item that is asked about.",
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


def ratings_for(fit: Any, path: str, reading: dict[str, Any]) -> Any:
    """Load ratings whose ids are of the model's kind; columns may be called as in training."""
    import bayesmf

    user, item = (fit.posterior.ids(name).kind == "text" for name in SIDES)
    kinds = {True: "text", False: "auto"}
    if os.path.exists(path):  # and no data set
        roles = {role: reading[role] for role in ("user", "item", "rating", "time", "weight")}
        reading = {**reading, **fit.posterior.labels.named(**roles)}
    return bayesmf.load(path, ids=(kinds[user], kinds[item]), **reading)  # type: ignore[arg-type]


def with_attributes(
    fit: Any, user_attributes: Path | None = None, item_attributes: Path | None = None
) -> Any:
    """The fit with attributes of more users and items, if there are files of them."""
    user, item = user_attributes, item_attributes
    return fit if user is None and item is None else fit.with_attributes(user=user, item=item)


def with_titles(fit: Any, users: Path | None = None, items: Path | None = None) -> Any:
    """The fit with titles of users and items, if there are files of them."""
    return fit if users is None and items is None else fit.with_titles(users=users, items=items)


def list_file(fit: Any, side: Side, path: Path) -> tuple[Any, list[Any]]:
    """Read the users or items that a file lists; the fit knows their titles if it has some."""
    from bayesmf.fitted.explore.names import has_titles, list_ids, read_rows

    raw, posterior = read_rows(path), fit.posterior
    ids = list_ids(raw, side, posterior.ids(side), posterior.labels.columns.get(side))
    if has_titles(raw):
        fit = fit.with_titles(**{f"{side}s": raw})
    return fit, ids


def read_one(fit: Any, side: Side, text: str) -> Any:
    """Read the id of --user or --item as the model knows it: a number or text."""
    from bayesmf.data.ids import read_id

    known = fit.posterior.ids(side)
    found = read_id(text, known.kind)
    if found is None:
        raise DataError(
            f"--{side} {text}: the {side}s of this model are numbers, such as {known[0]}; give one "
            "of them"
        )
    return found


def check_out(out: Path | None, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before the work."""
    from bayesmf.data.io.write import check_table

    if out is not None:
        check_table(out, overwrite)


def show(table: Any, out: Path | None, as_json: bool, overwrite: bool, most: int = SHOWN) -> None:
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
    print_rows(table.slice(0, most).to_pylist(), table.column_names)
    if table.num_rows > most:
        click.echo(f"... and {table.num_rows - most:,} more rows; write all of them with --out")


def print_rows(rows: list[dict[str, Any]], names: list[str]) -> None:
    """Print a table for people; what is not known is left blank."""
    shown = Table(box=None, header_style="bold")
    for name in names:
        number = any(isinstance(row[name], float) for row in rows)
        shown.add_column(visible(name), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        texts = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        plain = ("" if v is None else t for v, t in zip(row.values(), texts, strict=True))
        shown.add_row(*(Text(visible(text)) for text in plain))  # an id is no markup
    Console().print(shown)
