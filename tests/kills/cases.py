"""The commands that are killed, each in a folder of its own beside its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

QUICK = ["--sweeps", "8", "--chains", "2", "--threads", "1", "--quiet"]
FIT = ["fit", "../r.csv", "--rank", "2", "--sweeps", "40", "--burn-in", "5", "--chains", "2",
       "--holdout", "random", "--threads", "1", "--quiet", "--overwrite", "--out",
       "out"]  # fmt: skip


@dataclass
class Case:
    """A command in a folder of its own, beside the data."""

    name: str
    words: list[str]
    replaces: tuple[str, ...] = ()  # what is replaced whole: the old or the new bytes, no others
    first: Callable[[], object] | None = None  # done by its process before the command
    seconds: float = 0.0
    steps: int = 0
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)


MODEL = ("../m", "--threads", "1", "--overwrite", "--out")
CASES = [
    Case("fit", FIT, ("out",)),
    Case("fit, checkpoint", [*FIT, "--checkpoint", "run", "--checkpoint-every", "0", "--resume"],
         ("out",)),
    Case("fit, vi", [*FIT[:4], "--inference", "vi", "--sweeps", "5", *FIT[10:]], ("out",)),
    Case("predict", ["predict", "../m", "../pairs.csv", *MODEL[1:], "p.csv"], ("p.csv",)),
    Case("recommend", ["recommend", "../m", "--overwrite", "--quiet", "--out", "l.parquet"],
         ("l.parquet",)),
    Case("similar", ["similar", "../m", "--item", "3", "--overwrite", "--out", "s.tsv.gz"],
         ("s.tsv.gz",)),
    Case("map", ["map", "../m", "--overwrite", "--out", "map.csv"], ("map.csv",)),
    Case("fold-in, folder", ["fold-in", "../m", "../new.csv", *MODEL[1:], "out"], ("out",)),
    Case("update, zip", ["update", "../m", "../more.csv", *MODEL[1:], "out.zip"], ("out.zip",)),
    Case("update, folder", ["update", "../m", "../more.csv", *MODEL[1:], "out"], ("out",)),
    Case("summary", ["summary", *MODEL, "page.html"], ("page.html",)),
    Case("split", ["split", "../r.csv", "--overwrite", "--out", "out"], ("out",)),
    Case("shard", ["shard", "../r.csv", "--blocks", "3", "--out", "new/out"], ("new/out",)),
    Case("cross-validate", ["cross-validate", "../r.csv", "--ranks", "1,2", "--folds", "2", *QUICK,
                            "--resume", "--out", "out"]),
    Case("tune", ["tune", "../r.csv", "--ranks", "1,2", *QUICK, "--no-refit", "--resume", "--out",
                  "new/out"]),
    Case("study", ["study", "../r.csv", "--quick", "--rank", "2", "--only", "map-no-side-constant",
                   "--workers", "1", "--quiet", "--resume", "--out", "out"]),
    Case("report", ["report", "../study", "--out", "out"],
         ("out/figures", "out/tables", "out/report.html", "out/report.md")),
    Case("compare", ["compare", "../m", "../m2", "--threads", "1"]),
]  # fmt: skip
