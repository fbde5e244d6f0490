"""The command that serves a model: a JSON service and the explorer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.models import MODEL, TITLES, ratings_for, with_titles
from bayesmf.cli.shared.options import PATH, data_names
from bayesmf.errors import DataError


@click.command()
@MODEL
@TITLES
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at; others than this machine can reach it only with a --token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port to listen at; 0 takes one that is free.",
)
@click.option(
    "--token",
    envvar="BAYESMF_TOKEN",
    show_envvar=True,
    help="What every request has to send; other users of this machine can see options, and "
    "cannot see the environment.",
)
@click.option(
    "--test",
    shell_complete=data_names,
    metavar="DATA",
    help="Ratings to show the errors and the calibration on.  [default: those that were held out "
    "when the model was fitted]",
)
@click.option(
    "--allow-updates", is_flag=True, help="Let requests add ratings to the model in memory."
)
@click.option(
    "--save",
    type=PATH,
    help="The folder or .zip to write the model to after each update; it is replaced.",
)
@click.option(
    "--reload-on-change",
    is_flag=True,
    help="Load the model again when its files are replaced, without dropping a request.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=50.0,
    show_default=True,
    help="How many requests a second a client may make; 0 sets no limit.",
)
def serve(
    model: Path,
    users: Path | None,
    items: Path | None,
    host: str,
    port: int,
    token: str | None,
    test: str | None,
    allow_updates: bool,
    save: Path | None,
    reload_on_change: bool,
    rate: float,
) -> None:
    """Serve MODEL over HTTP: a JSON service, described at /openapi.json, and the explorer.

    The explorer is a page at the address that the command prints. Both need the extra: pip install
    'bayesmf[serve]'.

    Example: bayesmf serve my-fit
    """
    with leaving_at_once():
        run = _import()
        from bayesmf.fitted.store.files import check_place_of
        from bayesmf.serve.limits import Limits
        from bayesmf.serve.served import Options, Shelf
    if save is not None:
        if not allow_updates:
            raise DataError("--save writes what updates change; add --allow-updates")
        check_place_of(save, overwrite=True)
    run.check_token(host, token)
    named = dict.fromkeys(("user", "item", "rating", "time", "weight"))
    read = None if test is None else partial(ratings_for, path=test, reading=named)
    complete = partial(with_titles, users=users, items=items)
    with run.bind(host, port) as taken:  # before the model is loaded, which takes longer
        run.serve(
            Shelf(model, Options(allow_updates, save, complete, read)),
            taken,
            host=host,
            token=token,
            limits=Limits(rate=rate),
            watch=reload_on_change,
            say=partial(click.echo, err=True),
        )


def _import() -> Any:
    """Load the server, or name the extra that has it."""
    try:
        from bayesmf.serve import run
    except ImportError as error:
        if error.name and error.name.partition(".")[0] in ("fastapi", "uvicorn", "h11", "anyio"):
            raise ImportError(
                "bayesmf serve needs FastAPI and uvicorn, which are not installed; run pip install "
                "'bayesmf[serve]'"
            ) from None
        raise
    return run


COMMANDS = (serve,)
