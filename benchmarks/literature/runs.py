"""One fit of one model to one split: measured, and stored at once, so that a run can go on."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import bayesmf
from bayesmf import Ratings
from bayesmf.evaluation.frequency import totals_of
from literature import variants
from literature.protocols import Case

ROOT = Path(__file__).resolve().parents[2] / ".bench" / "literature"
SWEEPS = {"fold": 150, "ml-100k": 400, "paper": 200, "forecast": 150, "monti": 400, "binary": 150}
FEW = 5000  # ratings
LEAST = 1e-300  # probability, so that a logarithm exists


@dataclass(frozen=True)
class Settings:
    """How the chains are run."""

    rank: int = 20
    sweeps: int | None = None  # None: those of the part
    chains: int = 1
    seed: int = 0
    threads: int | None = None
    keep: int | None = None  # draws of each chain to predict from; None: 100 of all chains
    again: bool = False  # also what is stored already

    def of(self, part: str) -> int:
        return self.sweeps or SWEEPS[part]

    def key(self, case: Case, model: str) -> str:
        run = f"{self.chains}x{self.of(case.part)}" + (f"-keep-{self.keep}" if self.keep else "")
        return f"{case.key}-{model}-rank-{self.rank}-{run}-seed-{self.seed}"

    def is_done(self, key: str) -> bool:
        """Whether the run is stored, and not asked for again."""
        done = (ROOT / f"{key}.json").exists() and not self.again
        if done:
            print(f"{key}: stored already", flush=True)
        return done


def describe_run() -> dict[str, Any]:
    """The command and the versions, as the page tells them."""
    told = [f"{name} {version(name)}" for name in ("numpy", "numba")]
    ours = f"bayesmf {bayesmf.__version__}"
    return {
        "command": shlex.join(["python", "benchmarks/literature", *sys.argv[1:]]),
        "versions": ", ".join([ours, f"Python {platform.python_version()}", *told]),
    }


def run(case: Case, model: str, settings: Settings, parts: tuple[Ratings, Ratings]) -> None:
    """Fit, measure and store, unless it is stored already."""
    key = settings.key(case, model)
    if settings.is_done(key):
        return
    train, test = parts
    made = variants.make(model, settings.rank, case.data)
    compile_for(made, train, settings)
    sampler = bayesmf.Gibbs(made, sweeps=settings.of(case.part), chains=settings.chains,
                            seed=settings.seed, threads=settings.threads,
                            keep=settings.keep)  # fmt: skip
    fit = sampler.fit(train, test)
    arrays = predict(fit, train, test)
    record = {
        "part": case.part, "case": case.name, "model": model, "rank": settings.rank,
        "sweeps": settings.of(case.part), "chains": settings.chains, "seed": settings.seed,
        "keep": settings.keep, "threads": settings.threads, "seconds": fit.seconds,
        "train": len(train), "test": len(test), "new": count_new(train, test),
        **measure(arrays, test), **describe_run(),
    }  # fmt: skip
    store(key, record, arrays)
    print(f"{key}: {tell(record)}", flush=True)


def compile_for(model: bayesmf.Model, train: Ratings, settings: Settings) -> None:
    """Fit a few ratings, so that the seconds of the fit are those of sweeps."""
    few = train.select(np.arange(0, len(train), max(len(train) // FEW, 1)))
    bayesmf.Gibbs(model, sweeps=2, chains=1, threads=settings.threads).fit(few, few)


def predict(fit: Any, train: Ratings, test: Ratings) -> dict[str, np.ndarray]:
    """What is needed of each test rating, in the order of the test ratings."""
    arrays = {
        "mean": fit.predict(test, quantiles=())["mean"].to_numpy(),
        "value": np.asarray(test.by_user.values, float),
        "user": test.by_user.row_index,
        "total": totals_of((train, test), test),
    }
    if test.scale.step is not None:
        table = fit.probabilities(test).drop_columns(["user", "item"])
        arrays["levels"] = np.array([float(name[1:]) for name in table.column_names])
        columns = [column.to_numpy() for column in table.columns]
        arrays["probability"] = np.column_stack(columns).astype(np.float32)
    return arrays


def measure(arrays: dict[str, np.ndarray], test: Ratings) -> dict[str, float]:
    """RMSE as it is and clipped to the scale, and the mean log probability."""
    value, scale = arrays["value"], test.scale
    clipped = np.clip(arrays["mean"], scale.low, scale.high)
    found = {
        "rmse": float(np.sqrt(np.mean((arrays["mean"] - value) ** 2))),
        "clipped": float(np.sqrt(np.mean((clipped - value) ** 2))),
    }
    if "probability" in arrays:
        found["log_probability"] = float(np.mean(log_probability(arrays)))
    return found


def log_probability(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """log P(rating) of each test rating."""
    level = np.argmin(np.abs(arrays["value"][:, None] - arrays["levels"]), axis=1)
    chosen = arrays["probability"][np.arange(len(level)), level]
    return np.log(np.maximum(chosen.astype(float), LEAST))


def count_new(train: Ratings, test: Ratings) -> int:
    """Test ratings of users or items that training has not seen."""
    rows = test.by_user
    known = (train.by_user.counts > 0)[rows.row_index] & (train.by_item.counts > 0)[rows.index]
    return int((~known).sum())


def store(key: str, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """The arrays first: what has a record is whole."""
    ROOT.mkdir(parents=True, exist_ok=True)
    np.savez(ROOT / f"{key}.npz", **arrays)
    part = ROOT / f"{key}.part"
    part.write_text(json.dumps(record, indent=1))
    part.rename(ROOT / f"{key}.json")


def tell(record: dict[str, Any]) -> str:
    known = f", mean log probability {record['log_probability']:.4f}"
    return (f"RMSE {record['rmse']:.4f} (clipped {record['clipped']:.4f})"
            + (known if "log_probability" in record else "")
            + f" in {record['seconds']:.0f} s")  # fmt: skip


def stored(part: str) -> list[dict[str, Any]]:
    """The records of a part, each with its key."""
    paths = sorted(ROOT.glob(f"{part}-*.json"))
    return [{"key": path.stem, **json.loads(path.read_text())} for path in paths]


def arrays_of(key: str) -> dict[str, np.ndarray]:
    with np.load(ROOT / f"{key}.npz") as found:
        return dict(found)
