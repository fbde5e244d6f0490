"""Commands that add ratings to a fitted model: fold in, update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bayesmf.choices import SIDES, UPDATED
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.models import MODEL, NEW_ATTRIBUTES, load_fit, ratings_for, with_attributes
from bayesmf.cli.shared.options import data_names, new_model_options, ratings_options
from bayesmf.data.io.atomic import to_json


def _make_model(
    model: Path,
    ratings: str,
    out: Path,
    change: Callable[[Any, Any, int], Any],
    words: dict[str, Any],
) -> tuple[Any, Any, Any]:
    """Save the model that ratings make of another one.

    ``change`` makes it of a fit, ratings and a seed. ``words`` are the command's other options.
    Returns the ratings, and the posteriors before and after.
    """
    with leaving_at_once():
        from bayesmf.fitted.store.files import check_place_of
    reading, attributes = ratings_options.take(words), NEW_ATTRIBUTES.take(words)
    check_place_of(out, words["overwrite"])
    fit = with_attributes(load_fit(model, words["threads"]), **attributes)
    given = ratings_for(fit, ratings, reading)
    more = change(fit, given, words["seed"])
    more.save(out, overwrite=words["overwrite"])
    return given, fit.posterior, more.posterior


@click.command("fold-in")
@MODEL
@click.argument("ratings", shell_complete=data_names)
@ratings_options
@NEW_ATTRIBUTES
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
    out: Path,
    as_json: bool,
    **words: Any,
) -> None:
    """Add new users, or items, to a model from their RATINGS, without refitting.

    Example: bayesmf fold-in my-fit new-users.csv --out my-fit-2
    """

    def change(fit: Any, given: Any, seed: int) -> Any:
        return fit.fold_in(given, side, replace_known=replace_known, seed=seed)

    given, known, more = _make_model(model, ratings, out, change, words)
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
@NEW_ATTRIBUTES
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


COMMANDS = (fold_in, update)
