"""The literature's protocols in one command: ``python benchmarks/literature [PART ...]``.

Every fit is stored under ``.bench/literature`` at once, and what is stored is not fitted again. The
tables of all that is stored are printed, written to ``.bench/literature/tables.md``, and with
``--page`` into docs/results/literature.md.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from literature import binary, cost, protocols, reliability, runs, tables, variants
from literature.protocols import Case

BEST = ["default", "chain", "chain+attributes", "chain+attributes+ordinal"]
MODELS = {"fold": BEST, "ml-100k": BEST, "paper": BEST, "monti": ["default", "ordinal"],
          "forecast": list(variants.GRID), "reliability": ["default", "ordinal"],
          "binary": ["binary", "chain+binary"], "cost": list(cost.MODELS[1:])}  # fmt: skip
PICTURE = ("![Predicted probability of each rating against the share that happened: points on the "
           "diagonal are calibrated](../figures/reliability.svg)")  # fmt: skip
FIGURE = tables.PAGE.parents[1] / "figures" / "reliability.svg"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], prog="literature")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(MODELS)}; all")
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="MODEL",
        help="default, or parts joined by +: " + ", ".join(variants.PARTS),
    )
    parser.add_argument("--folds", default="0", help="of the part fold: 0,1,2 or all")
    parser.add_argument("--splits", default="u1,u2", help="of the part ml-100k")
    parser.add_argument("--data", default="ml-1m,ml-100k", help="of the part forecast")
    parser.add_argument("--files", nargs="+", type=Path, help="of the part monti: .mat files")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--sweeps", type=int, help=f"of each chain; {runs.SWEEPS} if left out")
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="all if left out; of the part cost, 2")
    parser.add_argument("--keep", type=int, help="draws of each chain to predict from")
    parser.add_argument("--rounds", type=int, default=cost.ROUNDS, help="of the part cost")
    parser.add_argument("--again", action="store_true", help="also fit what is stored")
    parser.add_argument("--page", action="store_true", help="write the tables into the page")
    parser.add_argument("--tables", action="store_true", help="fit nothing")
    asked = parser.parse_args()
    for part in asked.parts:
        if part not in MODELS:
            parser.error(f"no part {part!r}; there are {', '.join(MODELS)}")
    for path in asked.files or []:
        if not path.is_file():
            parser.exit(2, f"--files {path}: there is no such file; name a .mat file that exists\n")
    return asked


def cases_of(part: str, asked: argparse.Namespace) -> list[Case]:
    """The splits of a part."""
    folds = range(protocols.FOLDS) if asked.folds == "all" else map(int, asked.folds.split(","))
    if part in ("fold", "reliability"):
        return [protocols.fold(k) for k in (folds if part == "fold" else [0])]
    if part == "ml-100k":
        return [protocols.published(name) for name in asked.splits.split(",")]
    if part == "forecast":
        return [protocols.forecast(data) for data in asked.data.split(",")]
    if part == "monti":
        paths = asked.files or list(protocols.find_monti())
        if not paths:
            print(
                "monti: no files; give them with --files, or put them into BAYESMF_DATA as "
                + ", ".join(f"{name}/training_test_dataset.mat" for name in protocols.MONTI)
            )
        return [protocols.monti(path) for path in paths]
    return [protocols.paper() if part == "paper" else protocols.thumbs()]


def fit_part(part: str, asked: argparse.Namespace) -> None:
    """Fit what the part needs and is not stored."""
    models = asked.models or MODELS[part]
    if part == "cost":
        cost.run([m for m in models if m != "default"], asked.rank, asked.threads or 2,
                 asked.rounds)  # fmt: skip
        return
    settings = runs.Settings(asked.rank, asked.sweeps, asked.chains, asked.seed, asked.threads,
                             asked.keep, asked.again)  # fmt: skip
    for case in cases_of(part, asked):
        parts = case.split()
        times = parts[0].by_user.times is not None
        for model in models:
            if variants.suits(model, times=times, attributes=bool(case.data)):
                runs.run(case, model, settings, parts)
            else:
                print(f"{case.key}: no times or attributes for {model}", flush=True)
        if part == "binary":
            binary.run_myfm(case, settings, parts)


def report(asked: argparse.Namespace) -> dict[str, str]:
    """Every table of what is stored."""
    blocks = {part: tables.errors(part) for part in ("fold", "ml-100k", "paper", "monti")}
    models = MODELS["reliability"]
    if asked.models and "reliability" in asked.parts:
        models = asked.models
    figure = runs.ROOT / "reliability"
    trusted = reliability.report(models, asked.rank, figure)
    return blocks | {
        "forecast": tables.forecasts(),
        "reliability": trusted if trusted == tables.NOTHING else f"{PICTURE}\n\n{trusted}",
        "binary": binary.report(),
        "cost": cost.report(),
    }


def main() -> None:
    asked = options()
    if not asked.tables:
        for part in asked.parts or MODELS:
            fit_part(part, asked)
    runs.ROOT.mkdir(parents=True, exist_ok=True)
    blocks = report(asked)
    text = "\n\n".join(f"## {name}\n\n{block}" for name, block in blocks.items()) + "\n"
    (runs.ROOT / "tables.md").write_text(text, encoding="utf-8")
    shown = {name: block for name, block in blocks.items() if name in (asked.parts or blocks)}
    print("\n\n".join(f"## {name}\n\n{block}" for name, block in shown.items()))
    if asked.page:
        page = tables.fill(tables.PAGE.read_text(encoding="utf-8"), blocks)
        tables.PAGE.write_text(page, encoding="utf-8")
        if blocks["reliability"] != tables.NOTHING:
            shutil.copy(runs.ROOT / "reliability.svg", FIGURE)
