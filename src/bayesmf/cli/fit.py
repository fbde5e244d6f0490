"""``bayesmf fit``: the command, and what its options ask for. The work is in ``fit_run``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import bayesmf
from bayesmf.choices import INFERENCES, Cuts, Inference
from bayesmf.cli.shared.attributes import ATTRIBUTES, load_attributes
from bayesmf.cli.shared.fit_options import ALGORITHM, ENGINE, HOLDING_OUT, MODEL, SAVING, STOPPING
from bayesmf.cli.shared.interrupts import leaving_at_once
from bayesmf.cli.shared.models import TITLES
from bayesmf.cli.shared.options import DATA, PATH, QUIET, SEEDS, THREADS, reading_options
from bayesmf.errors import DataError

if TYPE_CHECKING:
    from bayesmf.model.designs import RatedSet
    from bayesmf.model.spec import Model


@click.command()
@DATA
@reading_options
@MODEL
@ATTRIBUTES
@TITLES
@click.option(
    "--inference",
    type=click.Choice(INFERENCES),
    default="gibbs",
    show_default=True,
    help="The algorithm: Gibbs sampling, variational inference or a MAP estimate.",
)
@ALGORITHM
@ENGINE
@click.option(
    "--seed",
    type=SEEDS,
    default=0,
    show_default=True,
    help="The seed of what is held out and of the draws.",
)
@THREADS
@HOLDING_OUT
@STOPPING
@SAVING
@click.option("--out", type=PATH, help="The folder to write the fit to.")
@click.option(
    "--without-ratings",
    is_flag=True,
    help="Leave the ratings out of the saved model; recommend then needs them again, as --seen.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier fit in the folder.")
@QUIET
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def fit(
    data: str,
    inference: Inference,
    seed: int,
    threads: int | None,
    out: Path | None,
    without_ratings: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Fit a model to the ratings in DATA.

    It is trained on all ratings, unless --holdout keeps some of them to test the model on.

    Example: bayesmf fit ml-1m --holdout paper --out my-fit
    """
    with leaving_at_once():
        from bayesmf.cli import fit_run
        from bayesmf.data.io.atomic import check_folder
        from bayesmf.model.attributes import with_attributes

    replaces = fit_run.is_fit if overwrite else None
    if out is not None:
        check_folder(out, replaces)
    elif without_ratings:
        raise DataError("--without-ratings is about the saved model; name its folder with --out")
    model = model_from_options(**MODEL.take(values))
    model = with_attributes(model, **load_attributes(**ATTRIBUTES.take(values)))
    settings = {**ALGORITHM.take(values), "engine": make_engine(**ENGINE.take(values))}
    algorithm = fit_run.make_algorithm(inference, model, seed, threads, settings)
    options = _run_options(inference, **STOPPING.take(values), **SAVING.take(values))
    holding = HOLDING_OUT.take(values)
    parts = fit_run.read_parts(data, reading_options.take(values), seed=seed, **holding)
    titles = fit_run.read_titles(parts.train, **TITLES.take(values))
    done = fit_run.fit_with_progress(algorithm, parts, quiet, options)
    done = done.with_titles(**titles) if titles else done
    facts = {"data": data, **fit_run.describe_fit(inference, algorithm, done, parts)}
    if out is not None:
        fit_run.save(out, facts, done, parts, replaces, without_ratings)
    if as_json:
        fit_run.print_json(facts)
    else:
        fit_run.print_report(facts, done, parts, out)
    if done.stopped == fit_run.INTERRUPTED:  # the model is kept, but whoever waits has to know
        raise KeyboardInterrupt


def model_from_options(
    paper: str | None,
    rank: int,
    user_designs: str | None,
    item_designs: str | None,
    own_features: bool | None,
    precision: str | None,
    bounds: str | None,
    prior: str | None,
    bias: str | None,
    time_effect: str | None = None,
    likelihood: str | None = None,
    cuts: Cuts | None = None,
) -> Model:
    """Make the model that the options describe; without any of them it is the default model."""
    given: dict[str, Any] = {
        "user_designs": _parse_designs("--user-designs", user_designs),
        "item_designs": _parse_designs("--item-designs", item_designs),
        "own_features": own_features,
        "precision": precision,
        "prior": prior,
        "bias": bias,
        "time": time_effect,
        "likelihood": choose_likelihood(likelihood, cuts),
        "bounds": None if bounds is None else _parse_bounds(bounds),
    }
    given = {key: value for key, value in given.items() if value is not None}
    if paper is None:
        return bayesmf.Model(rank, **given)
    return bayesmf.Model.paper(paper, rank=rank, **given)  # type: ignore[arg-type]


def choose_likelihood(word: str | None, cuts: Cuts | None) -> Any:
    """Return what ``Model`` takes as a likelihood: the word, unless it is told whose cuts."""
    from bayesmf.model.ordinal import Ordinal

    if cuts is None:
        return word
    if word != "ordinal":
        raise DataError(
            "--cuts is for --likelihood ordinal; add --likelihood ordinal, or leave it out"
        )
    return Ordinal(cuts=cuts)


def _parse_designs(option: str, text: str | None) -> tuple[RatedSet, ...] | None:
    """Read the designs of one side; None if the option was not given."""
    from bayesmf.model.designs import RatedSet

    if text is None:
        return None
    if text == "none":
        return ()
    found = re.fullmatch(r"rated:(\d*\.?\d+)", text)
    if found is None:
        raise DataError(f"{option} {text!r}: write 'none', or 'rated:P', as in rated:0.5")
    return (RatedSet(float(found[1])),)


def _parse_bounds(text: str) -> tuple[float, float]:
    """Read LOW:HIGH, or one number N for 1/N:N."""
    try:
        numbers = [float(part) for part in text.split(":")]
        if len(numbers) > 2:
            raise ValueError
        low, high = numbers if len(numbers) == 2 else (1 / numbers[0], numbers[0])
    except (ValueError, ZeroDivisionError):
        raise DataError(f"--bounds {text!r}: write LOW:HIGH, or N for 1/N:N") from None
    return low, high


def make_engine(engine: str | None, workers: int | None, address: str | None) -> Any:
    """Make the engine on which a sweep is to run; None means threads."""
    if engine == "ray":
        return bayesmf.Ray(address, workers)
    for option, value in (("--workers", workers), ("--address", address)):
        if value is not None:
            raise DataError(f"{option} is for --engine ray; add --engine ray, or leave it out")
    return engine


def _run_options(
    inference: Inference,
    checkpoint: Path | None,
    checkpoint_every: str | None,
    resume: bool,
    **options: Any,
) -> dict[str, Any]:
    """Make the arguments of ``fit`` beside the ratings; refuse those of other algorithms."""
    if inference == "map" and options["start"] is not None:
        raise DataError("--start is for --inference gibbs and vi; leave it out")
    saving = {
        "checkpoint": checkpoint,
        "checkpoint-every": checkpoint_every,
        "resume": resume or None,
    }
    for option, value in saving.items():
        if value is not None and inference != "gibbs":
            raise DataError(f"--{option} is for --inference gibbs; leave it out")
        if value is not None and checkpoint is None:
            raise DataError(f"--{option} needs a folder; name it with --checkpoint DIR")
    if checkpoint is not None:
        options.update(checkpoint=checkpoint, resume=resume)
        if checkpoint_every is not None:
            options["every"] = _seconds(checkpoint_every)
    return {key: value for key, value in options.items() if value is not None}


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(text: str) -> float:
    """Read 90, 90s, 5m or 1h as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise DataError(f"--checkpoint-every {text!r}: write seconds, such as 90, 90s or 5m")
    return float(found[1]) * UNITS[found[2]]


COMMANDS = (fit,)
