"""The work of ``bayesmf fit``: cut the ratings, run under a progress bar, tell, save."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import bayesmf
from bayesmf.choices import Inference
from bayesmf.cli.shared.options import print_warning, say
from bayesmf.data.io.atomic import to_json, whole_folder
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import AttributesWarning, DataError, OverfittingWarning
from bayesmf.evaluation.diagnostics import Targets
from bayesmf.fitted.store.files import INSIDE
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.loop import INTERRUPTED as INTERRUPTED
from bayesmf.inference.one_call import ALGORITHMS, Parts
from bayesmf.inference.one_call import read_parts as read_parts
from bayesmf.inference.one_call import read_titles as read_titles
from bayesmf.inference.variational.fit import Variational
from bayesmf.model.data import count_weights
from bayesmf.model.spec import Model
from bayesmf.study.results import snake_case

LONG = 20  # seconds from which a run is worth a forecast
SETTINGS = {  # the field of each algorithm that an option sets
    "sweeps": {"gibbs": "sweeps", "vi": "sweeps", "map": "sweeps"},
    "burn_in": {"gibbs": "burn_in"},
    "thin": {"gibbs": "thin"},
    "chains": {"gibbs": "chains"},
    "until": {"gibbs": "until"},
    "r_hat": {"gibbs": "r_hat"},
    "ess": {"gibbs": "ess"},
    "form": {"gibbs": "form"},
    "engine": {"gibbs": "engine"},
    "prior_scale": {"vi": "prior"},
    "moments": {"vi": "moments"},
    "clamp": {"vi": "clamp"},
    "method": {"map": "method"},
    "penalty": {"map": "penalty"},
}


def make_algorithm(
    name: Inference, model: Model, seed: int, threads: int | None, given: dict[str, Any]
) -> Any:
    """Make the algorithm that the options describe; refuse options of other algorithms."""
    fields = {}
    for option, value in given.items():
        if value is None:
            continue
        if name not in SETTINGS[option]:
            others = " or ".join(SETTINGS[option])
            flag = option.replace("_", "-")
            raise DataError(f"--{flag} is for --inference {others}; leave it out")
        fields[SETTINGS[option][name]] = value
    wanted = {key: fields.pop(key) for key in ("r_hat", "ess") if key in fields}
    if wanted:
        fields["targets"] = Targets(**wanted)
        if fields.setdefault("until", "converged") == "sweeps":
            flag = "--r-hat" if "r_hat" in wanted else "--ess"
            raise DataError(f"{flag} is for --until converged; leave {flag} out, or --until sweeps")
    return ALGORITHMS[name](model, seed=seed, threads=threads, **fields)


def fit_with_progress(algorithm: Any, parts: Parts, quiet: bool, options: dict[str, Any]) -> Any:
    """Run an algorithm under a progress bar on the error stream."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[rmse]}"),
        _TimeLeft(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        show = _make_callback(
            bar, quiet, lambda *told: describe_forecast(algorithm, parts.train, *told)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", OverfittingWarning)
            warnings.simplefilter("default", AttributesWarning)  # once, also with a MAP start
            fit = algorithm.fit(
                parts.train, parts.test, validation=parts.validation, callbacks=[show], **options
            )
    for warning in caught:
        print_warning(console, warning.message)
    return fit


class _TimeLeft(TimeRemainingColumn):
    """The time that is left, where anybody can know: not until chains have converged."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["known"] else Text("")


def _make_callback(bar: Progress, quiet: bool, forecast: Callable[[int, float], str]) -> Any:
    """Make a callback that moves the bar, and prints a forecast when a long run has begun."""
    nothing: dict[str, Any] = {"count": "", "rate": "", "rmse": "", "known": True}
    task = bar.add_task("preparing", total=None, **nothing)
    stage: dict[str, Any] = {}

    def show(progress: Any) -> None:
        done = progress.chains * (progress.sweep - 1) + progress.chain + 1  # chains take turns
        total = progress.chains * progress.sweeps
        if progress.stage != stage.get("name"):
            bar.reset(task, total=total, description=progress.stage, **nothing)
            stage.update(name=progress.stage, since=progress.seconds, first=done)
        seconds = progress.seconds - stage["since"]
        rate = (done - stage["first"]) / seconds if seconds > 0 else 0.0
        if done - stage["first"] == 2 and not quiet and total / rate > LONG:
            bar.console.print(forecast(total, rate), highlight=False)
        bar.update(
            task,
            completed=done,
            total=total,
            count=describe_progress(progress),
            known=progress.targets is None,
            rate=f"{rate:.1f} sweeps/s" if rate else "",
            rmse="" if progress.rmse is None else f"RMSE {progress.rmse:.4f}",
        )

    return show


def describe_progress(progress: Any) -> str:
    """How far a run is: its sweeps, and the targets that it approaches if it goes on for them."""
    if progress.targets is None:
        chains = f" of {progress.chains} chains" if progress.chains > 1 else ""
        return f"{progress.sweep}/{progress.sweeps} sweeps{chains}"
    told = f"sweep {progress.sweep} of at most {progress.sweeps}"
    found, targets = progress.check, progress.targets
    if found is None or math.isnan(found.r_hat):
        return told
    told += f" · R-hat {found.r_hat:.3f} ({targets.r_hat:g})"
    told += f" · effective draws {found.ess:.0f} ({targets.ess:g})"
    if found.share is not None:
        told += f" · predictions {math.floor(100 * found.share)}% ({targets.share:.0%})"
    return told


def describe_forecast(algorithm: Any, train: Any, total: int, rate: float) -> str:
    """Say how much time and memory a long run will take."""
    model, rows = algorithm.model, train.n_users + train.n_items
    W = count_weights(model, train.users, train.items)
    numbers = (rows + W) * (model.size + 8)
    if isinstance(algorithm, Variational):  # covariances, of W and of what W adds as well
        numbers += (rows + 3 * W) * model.size * (model.size + 1) // 2
    elif isinstance(algorithm, Gibbs):
        numbers *= algorithm.chains
        held = algorithm.chains * algorithm.room_for(algorithm.draws_kept(train))
        numbers += (rows + W) * (model.size + 2) * held // 2
        noise = train.n_users * model.size if model.redraw else 0  # of users who are drawn again
        numbers += noise * algorithm.chains * algorithm.draws_kept(train) // 2
    memory = (8 * numbers + 2 * train.nbytes) / 1e9
    left = total / rate
    time = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
    size = f"{memory:.1f} GB" if memory >= 1 else f"{1000 * memory:.0f} MB"
    most = "at most " if getattr(algorithm, "until", "sweeps") == "converged" else ""
    return f"{most}{total} sweeps at {1 / rate:.2g} s: {most}about {time}; about {size} of memory"


def describe_fit(name: str, algorithm: Any, fit: Any, parts: Parts) -> dict[str, Any]:
    """Make the JSON object of a fit; every test error in it comes from ``fit.evaluate``."""
    settings = {
        key: value
        for key, value in vars(algorithm).items()
        if key not in ("model", "threads", "engine")
    }
    if name == "gibbs":
        settings["targets"] = asdict(algorithm.targets)
    facts: dict[str, Any] = {"test_rmse": None}
    if parts.test is not None:
        facts["evaluation"] = fit.evaluate(parts.test)
        facts["test_rmse"] = facts["evaluation"]["rmse"]
    facts.update(sweeps=fit.sweeps, seconds=round(fit.seconds, 3), stopped=fit.stopped)
    if name == "gibbs":
        facts.update(chains=len(fit.states), burn_in=fit.burn_in)
        facts.update(endless_rmse=fit.endless_rmse, endless_rmse_error=fit.endless_rmse_error)
    if name == "map":
        facts["penalty"] = fit.penalty
    if name == "vi":
        errors = fit.trace.get("test rmse")
        facts.update(best_sweep=fit.best, bound=fit.trace["bound"][fit.best - 1])
        if errors:
            facts.update(least_test_rmse=min(errors), least_at=errors.index(min(errors)) + 1)
    return {
        **facts,
        "model": algorithm.model.to_dict(),
        "inference": {"algorithm": name, **settings},
        "holdout": parts.facts,
        "version": bayesmf.__version__,
    }


def print_json(facts: dict[str, Any]) -> None:
    """Print one line for machines."""
    click.echo(to_json(facts))


def print_report(facts: dict[str, Any], fit: Any, parts: Parts, out: Path | None) -> None:
    """Print what a person should know of a fit."""
    click.echo(str(parts))
    took = f"{fit.sweeps} sweeps in {fit.seconds:.1f} s"
    chains = facts.get("chains", 1)
    if chains > 1:
        took = f"{fit.sweeps} sweeps of {chains} chains in {fit.seconds:.1f} s"
    if fit.stopped:
        took += f" ({fit.stopped})"
    tested = facts.get("evaluation")
    if tested:
        click.echo(f"test RMSE {tested['rmse']:.4f}{_describe_endless(facts)} after {took}")
    else:
        click.echo(f"finished {took}")
    for line in _remarks(fit):
        click.echo(line)
    if tested:
        shares = ", ".join(
            f"{name.removeprefix('coverage_')}%: {share:.1%}"
            for name, share in tested.items()
            if name.startswith("coverage_")
        )
        click.echo(f"test ratings inside their intervals: {shares}")
        Console().print(_frequency_table(tested["by_user_frequency"]))
    if out is not None:
        click.echo(f"written to {out}")


def _describe_endless(facts: dict[str, Any]) -> str:
    """The error that endless draws would have, in brackets, if chains were compared."""
    error, sd = facts.get("endless_rmse"), facts.get("endless_rmse_error")
    if error is None:
        return ""
    about = "" if sd is None else f" ± {sd:.4f}"
    return f" ({error:.4f}{about} with endless draws)"


def _remarks(fit: Any) -> list[str]:
    """How far the algorithm can be trusted, in its own terms."""
    if hasattr(fit, "traces"):
        return [say(fit.diagnostics().verdict.message)]
    if hasattr(fit, "penalty"):
        return [f"penalty {fit.penalty:g}"]
    bound = fit.trace["bound"][fit.best - 1]
    return [f"lower bound {bound:.1f} at sweep {fit.best}"]


def _frequency_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="")
    for heading in ("ratings of the user", "test ratings", "test RMSE"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row["user_ratings"], f"{row['test_ratings']:,}", f"{row['rmse']:.4f}")
    return table


def save(
    folder: Path,
    facts: dict[str, Any],
    fit: Any,
    parts: Parts,
    replaces: Callable[[Path], bool] | None,
    without_ratings: bool,
) -> None:
    """Write fit.json, the model, and the test ratings with their predictions as a table."""
    details = dict(facts)
    if hasattr(fit, "trace"):
        details["trace"] = {snake_case(name): curve for name, curve in fit.trace.items()}
    else:
        found = fit.diagnostics()
        details["diagnostics"] = {**found.to_dict(), "words": say(found.verdict.message)}
        details["rmse_by_sweep"] = fit.rmse_by_sweep
    with whole_folder(folder, replaces) as made:
        on_disk = isinstance(parts.train, Shards)  # where they stay
        fit.save(made / INSIDE, without_ratings=without_ratings or on_disk)
        (made / "fit.json").write_text(to_json(details, indent=2) + "\n", encoding="utf-8")
        if parts.test is not None:
            _write_predictions(fit, parts.test, made / "predictions.csv")


def _write_predictions(fit: Any, test: Ratings, path: Path) -> None:
    """Write the test ratings beside what ``fit.predict`` says of them."""
    from pyarrow import csv

    table, predicted = test.to_arrow(), fit.predict(test)
    for name in predicted.column_names:
        if name not in ("user", "item"):
            table = table.append_column(name, predicted[name])
    csv.write_csv(table, path)


def is_fit(folder: Path) -> bool:
    """Whether a folder holds what ``save`` writes, and nothing else."""
    names = {entry.name for entry in folder.iterdir()}
    return "fit.json" in names and names <= {"fit.json", "predictions.csv", INSIDE}
