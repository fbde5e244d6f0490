"""``bayesmf fit``: parse, call, print."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import bayesmf
from bayesmf.errors import DataError

if TYPE_CHECKING:
    from bayesmf.inference.gibbs import GibbsFit
    from bayesmf.inference.run import Callback
    from bayesmf.model.spec import Model

FEATURES = {"none": "none", "no-side": "user-item", "side": "side", "side-only": "side-only"}


def model_of(
    name: str | None, rank: int, side_of: str | None, side_power: float | None,
    precision: str | None, bounds: str | None, prior: str | None, bias: str | None,
) -> Model:  # fmt: skip
    """The model that the options describe; none of them given, the best known."""
    from bayesmf.model.spec import Model

    given: dict[str, Any] = {
        "side_of": side_of, "side_power": side_power, "precision": precision, "prior": prior,
        "bias": bias, "bounds": None if bounds is None else _bounds(bounds),
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    if name is None:
        best = Model.best(rank)
        return Model(**{**vars(best), **given})
    return Model(rank=rank, features=FEATURES[name], **given)  # type: ignore[arg-type]


def _bounds(text: str) -> tuple[float, float]:
    """LOW:HIGH, or one number n for 1/n:n."""
    try:
        numbers = [float(part) for part in text.split(":")]
        low, high = numbers if len(numbers) == 2 else (1 / numbers[0], numbers[0])
    except (ValueError, ZeroDivisionError):
        raise DataError(f"bounds {text!r}: write LOW:HIGH, or N for 1/N:N") from None
    return low, high


def fit_with_progress(sampler: Any, train: Any, test: Any, quiet: bool, **options: Any) -> GibbsFit:
    """Run the sampler under a progress bar on the error stream."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[rmse]}"),
               TimeRemainingColumn())  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("sampling", total=sampler.sweeps * sampler.chains, rate="", rmse="")

        def show(progress: Any) -> None:
            done = progress.chain * progress.sweeps + progress.sweep
            bar.update(
                task, completed=done, rate=f"{done / progress.seconds:.1f} sweeps/s",
                rmse="" if progress.rmse is None else f"RMSE {progress.rmse:.4f}",
            )  # fmt: skip

        callback: Callback = show
        fit: GibbsFit = sampler.fit(train, test, callbacks=[callback], **options)
        return fit


def save(folder: Path, facts: dict[str, Any], fit: GibbsFit, test: Any, replaces: Any) -> None:
    """fit.json, and the held-out ratings with their predictions as a table."""
    import pyarrow as pa
    from pyarrow import csv

    from bayesmf.atomic import whole_folder

    with whole_folder(folder, replaces) as made:
        details = {**facts, "diagnostics": fit.diagnostics(), "rmse_by_sweep": fit.rmse_by_sweep}
        (made / "fit.json").write_text(json.dumps(details, indent=2) + "\n", encoding="utf-8")
        if fit.predictions is not None:
            table = test.to_arrow().append_column("mean", pa.array(fit.predictions.mean))
            table = table.append_column("sd_of_mean", pa.array(fit.predictions.sd))
            csv.write_csv(table, made / "predictions.csv")


def is_fit(folder: Path) -> bool:
    """Whether a folder holds what ``save`` writes, and nothing else."""
    names = {entry.name for entry in folder.iterdir()}
    return "fit.json" in names and names <= {"fit.json", "predictions.csv"}


def facts_of(model: Model, sampler: Any, fit: GibbsFit, holdout: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a fit."""
    settings = {key: getattr(sampler, key) for key in
                ("sweeps", "burn_in", "thin", "chains", "seed", "form")}  # fmt: skip
    return {
        "test_rmse": fit.test_rmse,
        "sweeps": fit.sweeps,
        "seconds": round(fit.seconds, 3),
        "stopped": fit.stopped,
        "model": asdict(model),
        "inference": {"algorithm": "gibbs", **settings},
        "holdout": holdout,
        "version": bayesmf.__version__,
    }
