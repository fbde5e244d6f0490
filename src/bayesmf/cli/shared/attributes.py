"""Tables of attributes on the command line: the options that name them, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import bayesmf
from bayesmf.choices import ATTRIBUTE_KINDS, SIDES
from bayesmf.cli.shared.options import PATH, Options
from bayesmf.errors import DataError, Option

if TYPE_CHECKING:
    from bayesmf.model.attributes import Attributes

ATTRIBUTES = Options(
    *(
        click.option(
            f"--{side}-attributes",
            type=PATH,
            metavar="FILE",
            help=f"A table of what is known about {side}s beforehand, with a row for each.",
        )
        for side in SIDES
    ),
    *(
        click.option(
            f"--{side}-kinds",
            metavar="COL:KIND,...",
            help=f"What columns of --{side}-attributes are: id, {', '.join(ATTRIBUTE_KINDS)}; none "
            "leaves the column out. COL is a name, or a number from 1.  [default: recognised]",
        )
        for side in SIDES
    ),
)


def load_attributes(**options: Any) -> dict[str, Attributes | None]:
    """Read the tables that the options name, by side; None where there is no table."""
    tables: dict[str, Attributes | None] = {}
    for side in SIDES:
        path, kinds = options[f"{side}_attributes"], options[f"{side}_kinds"]
        if path is None and kinds is not None:
            raise DataError(f"--{side}-kinds is about a table; name it with --{side}-attributes")
        tables[side] = None if path is None else _load(side, path, kinds)
    return tables


def _load(side: str, path: Path, text: str | None) -> Attributes:
    """Read a table; its columns are named as the option has it, and so in messages."""
    found: dict[str, str] = {}
    for part in [] if text is None else text.split(","):
        column, colon, kind = part.rpartition(":")
        if not (colon and column) or kind not in ("id", *ATTRIBUTE_KINDS):
            raise DataError(
                f"--{side}-kinds {part!r}: write COLUMN:KIND, where the kinds are id, "
                f"{', '.join(ATTRIBUTE_KINDS)}"
            )
        found[column] = kind
    ids = [column for column, kind in found.items() if kind == "id"]
    if len(ids) > 1:
        raise DataError(f"--{side}-kinds names {len(ids)} columns as the id; name one")
    kinds: Any = {column: kind for column, kind in found.items() if kind != "id"}

    def spell(option: Option) -> str:
        if option.name == "kinds" and isinstance(option.value, Mapping):
            pairs = (f"{column}:{kind}" for column, kind in option.value.items())
            return f"--{side}-kinds {','.join(pairs)}"
        if option.name == "id":
            return f"--{side}-kinds NAME:id"
        return f"{option.in_python()} in Python"

    try:
        table = bayesmf.Attributes.load(path, id=ids[0] if ids else None, kinds=kinds)
    except DataError as error:
        raise DataError(error.render(spell)) from None
    for note in table.notes:
        click.echo(f"Warning: {path}: {note}", err=True)
    return table
