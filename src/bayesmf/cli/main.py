"""The command line: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

import bayesmf
from bayesmf.cli import data as cli_data
from bayesmf.cli import judge as cli_judge
from bayesmf.cli import study as cli_study
from bayesmf.cli import use as cli_model
from bayesmf.cli.interrupts import leaving_at_once
from bayesmf.cli.options import DATA, Cli, reading_options
from bayesmf.data.io.atomic import to_json
from bayesmf.errors import DataError


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(bayesmf.__version__)
def main() -> None:
    """Bayesian matrix factorization of ratings.

    DATA is the name of a data set (see `bayesmf data list`) or the path of a ratings file: csv,
    tsv, parquet, MovieLens '::' or space-separated; plain, .gz, .bz2 or .zip.
    """


@main.command()
@DATA
@reading_options
@click.option(
    "--model",
    type=click.Choice(["none", "no-side", "side", "side-only"]),
    help="Features.  [default: the best known: side, both, 0.5, robust, joint, and a sharper "
    "prior of the precisions]",
)
@click.option("--rank", type=int, default=20, show_default=True, help="Number of features.")
@click.option("--side-of", type=click.Choice(["user", "item", "both"]), help="Whom they shift.")
@click.option("--side-power", type=float, help="p of the weight n^-p of side features.")
@click.option(
    "--precision",
    type=click.Choice(["constant", "robust", "truncated"]),
    help="Of the noise, by user and item.",
)
@click.option("--bounds", metavar="LOW:HIGH|N", help="Of truncated precisions.")
@click.option("--prior", type=click.Choice(["gaussian", "student-t"]), help="Of the features.")
@click.option(
    "--bias",
    type=click.Choice(["learned", "fixed", "joint"]),
    help="Prior of the biases; joint: one with the features.",
)
@click.option(
    "--inference",
    type=click.Choice(["gibbs", "vi", "map"]),
    default="gibbs",
    show_default=True,
    help="Sampling, variational inference or a MAP estimate.",
)
@click.option("--sweeps", type=int, help="At most.  [default: 400; vi 100; map 60 or 1000]")
@click.option("--burn-in", type=int, help="gibbs: sweeps not averaged.  [default: 20]")
@click.option("--thin", type=int, help="gibbs: average every so many.  [default: 1]")
@click.option("--chains", type=int, help="gibbs: independent runs.  [default: 1]")
@click.option(
    "--side-form",
    type=click.Choice(["centred", "non-centred", "interwoven"]),
    help="gibbs: how side features are drawn.  [default: centred]",
)
@click.option(
    "--start",
    type=click.Choice(["random", "map"]),
    help="gibbs, vi: where to begin.  [default: gibbs random, vi map]",
)
@click.option(
    "--prior-scale",
    type=click.Choice(["default", "map-driven"]),
    help="vi: of the features' hyperprior; map-driven: from the start.  [default: default]",
)
@click.option(
    "--moments",
    type=click.Choice(["second", "first"]),
    help="vi: first leaves covariances out, as the paper prints it.  [default: second]",
)
@click.option("--clamp", is_flag=True, default=None, help="vi: truncated precisions by clamping.")
@click.option(
    "--method",
    type=click.Choice(["coordinate", "momentum"]),
    help="map: one row at a time, or the paper's descent.  [default: coordinate]",
)
@click.option("--penalty", type=float, help="map: of the features.  [default: by validation]")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Of the split and of the draws.",
)
@click.option("--threads", type=int, help="The result does not depend on it.  [default: all]")
@click.option("--engine", type=click.Choice(["threads", "ray"]), help="gibbs: where a sweep runs.")
@click.option("--workers", type=int, help="ray: on this machine.  [default: one a core]")
@click.option("--address", metavar="HOST:PORT", help="ray: a cluster that is running.")
@click.option("--budget", type=float, metavar="SECONDS",
              help="Stop in time; a MAP start with --checkpoint is finished first.")  # fmt: skip
@click.option(
    "--holdout",
    type=click.Choice(["paper", "random", "none"]),
    default="paper",
    show_default=True,
    help="Which ratings to test on.",
)
@click.option(
    "--validation",
    type=float,
    metavar="FRACTION",
    help="Of the training ratings, to stop by: see --patience.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    metavar="SWEEPS",
    help="End when the validation error has not fallen for so long.",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="gibbs: save the run there, so that it survives a kill.",
)
@click.option(
    "--checkpoint-every",
    metavar="SECONDS",
    help="gibbs: how often, such as 90, 90s or 5m.  [default: 60]",
)
@click.option("--resume", is_flag=True, help="gibbs: go on from the checkpoint, if there is one.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--with-ratings", is_flag=True, help="Keep the training ratings in the model.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier fit in the folder.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def fit(
    data: str, model: str | None, rank: int, side_of: str | None, side_power: float | None,
    precision: str | None, bounds: str | None, prior: str | None, bias: str | None,
    inference: str, seed: int, threads: int | None, budget: float | None, holdout: str,
    validation: float | None, patience: int | None, start: str | None,
    checkpoint: Path | None, checkpoint_every: str | None, resume: bool, out: Path | None,
    with_ratings: bool, overwrite: bool, quiet: bool, as_json: bool, **rest: Any,
) -> None:  # fmt: skip
    """Fit a model to DATA and test it on held-out ratings.

    Example: bayesmf fit ml-1m --model side --precision robust --sweeps 400 --out side-robust
    """
    with leaving_at_once():
        from bayesmf.cli import fit as cli_fit
        from bayesmf.data.io.atomic import check_folder

    replaces = cli_fit.is_fit if overwrite else None
    if out is not None:
        check_folder(out, replaces)
    chosen = cli_fit.model_of(model, rank, side_of, side_power, precision, bounds, prior, bias)
    rest["engine"] = cli_fit.engine_of(**{key: rest.pop(key) for key in cli_fit.PLACES})
    reading = {key: rest.pop(key) for key in list(rest) if key not in cli_fit.SETTINGS}
    algorithm = cli_fit.algorithm_of(inference, chosen, seed, threads, rest)
    options: dict[str, Any] = {"start": start, "patience": patience, "budget": budget}
    if inference == "map" and start is not None:
        raise DataError("--start is for --inference gibbs and vi; leave it out")
    options.update(cli_fit.saving(inference, checkpoint, checkpoint_every, resume))
    train, test, judge, held = cli_fit.parts_of(data, reading, holdout, validation, seed)
    if with_ratings and not isinstance(train, bayesmf.Ratings):
        raise DataError("--with-ratings is not for shards, which are not in memory; leave it out")
    done = cli_fit.fit_with_progress(
        algorithm, train, test, quiet, validation=judge,
        **{key: value for key, value in options.items() if value is not None},
    )  # fmt: skip
    facts = {"data": data, **cli_fit.facts_of(inference, algorithm, done, held)}
    if test is not None:
        parts = [train, test] if judge is None else [train, judge, test]
        facts["by_frequency"] = cli_fit.by_frequency(done, parts, test)
        if inference == "gibbs" and done.predictions is not None:
            facts["coverage"] = cli_fit.coverage(done, test)
    if out is not None:
        cli_fit.save(out, facts, done, test, replaces, with_ratings)
    if as_json:
        click.echo(to_json(facts))
        return
    error = "" if done.test_rmse is None else f"test RMSE {done.test_rmse:.4f} "
    ended = f" ({done.stopped})" if done.stopped else ""
    click.echo(f"{error}after {done.sweeps} sweeps in {done.seconds:.1f} s{ended}")
    for line in cli_fit.remarks(done):
        click.echo(line)
    if "coverage" in facts:
        shares = ", ".join(f"{float(k):.0%}: {v:.1%}" for k, v in facts["coverage"].items())
        click.echo(f"test ratings inside their intervals: {shares}")
    if facts.get("by_frequency"):
        Console().print(cli_fit.frequency_table(facts["by_frequency"]))
    if out is not None:
        click.echo(f"written to {out}")


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script with which SHELL completes commands, options, data sets and files.

    To have it in every new shell, run one of these once:

    \b
      bayesmf completion bash >> ~/.bashrc
      bayesmf completion zsh >> ~/.zshrc
      bayesmf completion fish > ~/.config/fish/completions/bayesmf.fish

    Example: source <(bayesmf completion bash)
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "bayesmf", "_BAYESMF_COMPLETE").source())


main.command()(DATA(reading_options(cli_study.study)))
main.command()(cli_study.report)
for command in (*cli_data.COMMANDS, *cli_model.COMMANDS, *cli_judge.COMMANDS):
    main.add_command(command)
