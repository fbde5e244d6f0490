"""``bayesmf fit``: parse, call, print."""

from __future__ import annotations

import re
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import bayesmf
from bayesmf.data.io.atomic import to_json
from bayesmf.data.io.shards import FACTS, Shards
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import carve
from bayesmf.errors import DataError, OverfittingWarning
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.map.fit import MAP
from bayesmf.inference.variational.fit import Variational
from bayesmf.model.spec import Model

LONG = 20  # seconds from which a run is worth a forecast
FEATURES = {"none": "none", "no-side": "user-item", "side": "side", "side-only": "side-only"}


def model_of(
    name: str | None, rank: int, side_of: str | None, side_power: float | None,
    precision: str | None, bounds: str | None, prior: str | None, bias: str | None,
) -> Model:  # fmt: skip
    """The model that the options describe; none of them given, the best known."""
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
        if len(numbers) > 2:
            raise ValueError
        low, high = numbers if len(numbers) == 2 else (1 / numbers[0], numbers[0])
    except (ValueError, ZeroDivisionError):
        raise DataError(f"bounds {text!r}: write LOW:HIGH, or N for 1/N:N") from None
    return low, high


SETTINGS = {  # option: (algorithm, its field)
    "sweeps": {"gibbs": "sweeps", "vi": "updates", "map": "sweeps"},
    "burn_in": {"gibbs": "burn_in"},
    "thin": {"gibbs": "thin"},
    "chains": {"gibbs": "chains"},
    "side_form": {"gibbs": "form"},
    "engine": {"gibbs": "engine"},
    "prior_scale": {"vi": "prior"},
    "moments": {"vi": "moments"},
    "clamp": {"vi": "clamp"},
    "method": {"map": "method"},
    "penalty": {"map": "penalty"},
}


def algorithm_of(
    name: str, model: Model, seed: int, threads: int | None, given: dict[str, Any]
) -> Any:
    """The algorithm that the options describe; an option of another algorithm is refused."""
    fields = {}
    for option, value in given.items():
        if value is None:
            continue
        if name not in SETTINGS[option]:
            told = " or ".join(SETTINGS[option])
            raise DataError(f"--{option.replace('_', '-')} is for --inference {told}; leave it out")
        fields[SETTINGS[option][name]] = value
    kinds: dict[str, Any] = {"gibbs": Gibbs, "vi": Variational, "map": MAP}
    return kinds[name](model, seed=seed, threads=threads, **fields)


PLACES = ("engine", "workers", "address")


def engine_of(engine: str | None, workers: int | None, address: str | None) -> Any:
    """Where a sweep is to run; None is for threads."""
    if engine == "ray":
        from bayesmf.engines.ray.cluster import Ray

        return Ray(address, workers)
    for option, value in (("--workers", workers), ("--address", address)):
        if value is not None:
            raise DataError(f"{option} is for --engine ray; leave it out")
    return engine


def parts_of(
    data: str, reading: dict[str, Any], holdout: str, validation: float | None, seed: int
) -> tuple[Any, Ratings | None, Ratings | None, dict[str, Any]]:
    """Training, test and validation ratings, and how they were cut."""
    test = judge = None
    if (Path(data) / FACTS).is_file():
        if holdout != "none" or validation is not None:
            raise DataError(
                f"{data} holds shards, which are fitted as they are: say --holdout none, and leave "
                "--validation out"
            )
        train: Any = Shards.open(data)
        return train, None, None, {"protocol": "none", "train": len(train)}
    ratings = bayesmf.load(data, **reading)
    if holdout == "none":
        train = ratings.drop_unused()
        held: dict[str, Any] = {"protocol": "none", "train": len(train)}
    else:
        cut = bayesmf.split(ratings, holdout, seed)  # type: ignore[arg-type]
        train, test = cut
        held = cut.describe()
    if validation is not None:
        train, judge = carve(train, validation, seed)
        held = {**held, "train": len(train), "validation": len(judge)}
    return train, test, judge, held


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def saving(inference: str, folder: Path | None, every: str | None, resume: bool) -> dict[str, Any]:
    """The options of ``Gibbs.fit`` for a run that survives a kill."""
    given = {"checkpoint": folder, "checkpoint-every": every, "resume": resume or None}
    for option, value in given.items():
        if value is not None and inference != "gibbs":
            raise DataError(f"--{option} is for --inference gibbs; leave it out")
        if value is not None and folder is None:
            raise DataError(f"--{option} needs a folder; name it with --checkpoint DIR")
    if folder is None:
        return {}
    seconds = {} if every is None else {"every": _seconds(every)}
    return {"checkpoint": folder, "resume": resume, **seconds}


def _seconds(text: str) -> float:
    """Of 90, 90s, 5m or 1h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise DataError(f"--checkpoint-every {text!r}: write seconds, such as 90, 90s or 5m")
    return float(found[1]) * UNITS[found[2]]


def fit_with_progress(algorithm: Any, train: Any, test: Any, quiet: bool, **options: Any) -> Any:
    """Run an algorithm under a progress bar on the error stream."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[rmse]}"),
               TimeRemainingColumn())  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("preparing", total=None, rate="", rmse="")
        stage: dict[str, Any] = {}

        def show(progress: Any) -> None:
            done = progress.chain * progress.sweeps + progress.sweep
            total = progress.chains * progress.sweeps
            if progress.stage != stage.get("name"):
                bar.reset(task, total=total, description=progress.stage, rate="", rmse="")
                stage.update(name=progress.stage, since=progress.seconds, first=done)
            seconds = progress.seconds - stage["since"]
            rate = (done - stage["first"]) / seconds if seconds > 0 else 0.0
            if done - stage["first"] == 2 and not quiet and total / rate > LONG:
                bar.console.print(_forecast(algorithm, train, total, rate), highlight=False)
            bar.update(
                task, completed=done, total=total, rate=f"{rate:.1f} sweeps/s" if rate else "",
                rmse="" if progress.rmse is None else f"RMSE {progress.rmse:.4f}",
            )  # fmt: skip

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", OverfittingWarning)
            fit = algorithm.fit(train, test, callbacks=[show], **options)
    for warning in caught:
        console.print(f"Warning: {warning.message}", style="yellow", highlight=False)
    return fit


def _forecast(algorithm: Any, train: Any, total: int, rate: float) -> str:
    """What a long run will take."""
    model, rows = algorithm.model, train.n_users + train.n_items
    W = model.has_side("user") * train.n_items + model.has_side("item") * train.n_users
    numbers = (rows + W) * (model.size + 8)
    if hasattr(algorithm, "updates"):  # covariances, of W and of what W adds as well
        numbers += (rows + 3 * W) * model.size * (model.size + 1) // 2
    elif hasattr(algorithm, "chains"):
        numbers += (rows + W) * (model.size + 2) * algorithm.kept(train) * algorithm.chains // 2
    memory = (8 * numbers + 2 * train.nbytes) / 1e9
    left = total / rate
    time = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
    size = f"{memory:.1f} GB" if memory >= 1 else f"{1000 * memory:.0f} MB"
    return f"{total} sweeps at {1 / rate:.2g} s: about {time}; about {size} of memory"


def by_frequency(fit: Any, parts: list[Any], test: Any) -> list[dict[str, Any]]:
    """The test error by how many ratings the user has in all."""
    from bayesmf.evaluation.frequency import FrequencyBins

    if fit.predictions is None:
        return []
    mean = fit.predictions.mean if hasattr(fit.predictions, "sd") else fit.predictions
    bins = FrequencyBins.of(parts, test)
    errors = bins.rmse(mean - test.by_user.values)
    return [
        {"user_ratings": label, "test_ratings": int(count), "rmse": round(float(error), 5)}
        for label, count, error in zip(bins.labels, bins.counts, errors, strict=True)
    ]


def coverage(fit: Any, test: Any) -> dict[str, float]:
    """The share of test ratings inside the intervals of a sampled fit, by what they promise."""
    from bayesmf.evaluation.metrics import LEVELS, inside

    p, values = fit.predictions, test.by_user.values
    return {f"{level:g}": round(float(inside(values, p.mean, p.rating_sd, level).mean()), 4)
            for level in LEVELS}  # fmt: skip


def frequency_table(rows: list[dict[str, Any]]) -> Table:
    """For a person to read."""
    table = Table(box=None, header_style="")
    for heading in ("ratings of the user", "test ratings", "test RMSE"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row["user_ratings"], f"{row['test_ratings']:,}", f"{row['rmse']:.4f}")
    return table


def remarks(fit: Any) -> list[str]:
    """What a person should know of a fit beyond its error."""
    if hasattr(fit, "traces"):
        noise = fit.diagnostics().get("noise precision")
        if noise is None:
            return []
        return [f"noise precision: R-hat {noise['r_hat']:.3f}, {noise['ess']:.0f} effective draws"]
    if hasattr(fit, "penalty"):
        return [f"penalty {fit.penalty:g}"]
    bound = fit.trace["bound"][fit.best - 1]
    return [f"lower bound {bound:.1f} at update {fit.best}"]


def save(
    folder: Path, facts: dict[str, Any], fit: Any, test: Any, replaces: Any, with_ratings: bool
) -> None:
    """fit.json, the model, and the held-out ratings with their predictions as a table."""
    import pyarrow as pa
    from pyarrow import csv

    from bayesmf.data.io.atomic import whole_folder
    from bayesmf.fit.files import INSIDE

    with whole_folder(folder, replaces) as made:
        fit.save(made / INSIDE, without_ratings=not with_ratings)
        if hasattr(fit, "trace"):
            details = {**facts, "trace": fit.trace}
        else:
            curve = {"rmse_by_sweep": fit.rmse_by_sweep}
            details = {**facts, "diagnostics": fit.diagnostics(), **curve}
        (made / "fit.json").write_text(to_json(details, indent=2) + "\n", encoding="utf-8")
        if fit.predictions is not None:
            table = test.to_arrow()
            if hasattr(fit.predictions, "sd"):
                table = table.append_column("mean", pa.array(fit.predictions.mean))
                table = table.append_column("sd_of_mean", pa.array(fit.predictions.sd))
                table = table.append_column("sd_of_rating", pa.array(fit.predictions.rating_sd))
            else:
                table = table.append_column("mean", pa.array(fit.predictions))
            csv.write_csv(table, made / "predictions.csv")


def is_fit(folder: Path) -> bool:
    """Whether a folder holds what ``save`` writes, and nothing else."""
    names = {entry.name for entry in folder.iterdir()}
    return "fit.json" in names and names <= {"fit.json", "predictions.csv", "model"}


def facts_of(name: str, algorithm: Any, fit: Any, holdout: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a fit."""
    settings = {key: value for key, value in vars(algorithm).items()
                if key not in ("model", "threads", "engine")}  # fmt: skip
    facts: dict[str, Any] = {
        "test_rmse": fit.test_rmse,
        "sweeps": fit.sweeps,
        "seconds": round(fit.seconds, 3),
        "stopped": fit.stopped,
    }
    if name == "map":
        facts["penalty"] = fit.penalty
    if name == "vi":
        errors = fit.trace.get("test rmse")
        facts.update(update=fit.best, bound=fit.trace["bound"][fit.best - 1])
        if errors:
            facts.update(least_test_rmse=min(errors), least_at=errors.index(min(errors)) + 1)
    return {
        **facts,
        "model": asdict(algorithm.model),
        "inference": {"algorithm": name, **settings},
        "holdout": holdout,
        "version": bayesmf.__version__,
    }
