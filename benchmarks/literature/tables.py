"""Tables of what is stored, in Markdown, and their places on the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.evaluation.bootstrap import paired_change
from literature import variants
from literature.published import FIGURES, Figure
from literature.runs import arrays_of, stored

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "literature.md"
FIRST = "fold 0"
NOTHING = "*No results are stored yet.*"
Record = dict[str, Any]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first ``left`` columns are words."""
    marks = [":--"] * left + ["--:"] * (len(head) - left)
    lines = [head, marks, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def notes(records: list[Record]) -> str:
    """The commands and versions that made the figures."""
    commands = list(dict.fromkeys(record["command"] for record in records))
    versions = list(dict.fromkeys(record["versions"] for record in records))
    seeds = sorted({record["seed"] for record in records})
    told = [f"Seed {', '.join(map(str, seeds))}; {'; '.join(versions)}. Made by:", ""]
    return "\n".join([*told, *(f"    {command}" for command in commands)])


def setting_of(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("model", "rank", "chains", "sweeps", "seed", "keep"))


def sweeps_of(record: Record) -> str:
    one, many = f"{record['sweeps']}", f"{record['chains']} x {record['sweeps']}"
    return one if record["chains"] == 1 else many


def errors(part: str) -> str:
    """Our errors beside the published ones, the lowest first, split by split."""
    records = stored(part)
    if not records:
        return NOTHING
    head = ["split", "model", "rank", "sweeps", "test RMSE", "clipped", "log probability", "s",
            "source"]  # fmt: skip
    means = mean_rows(records)
    shown = [r for r in records if not means or r["case"] == FIRST]  # the mean tells of the others
    rows = [*map(our_row, shown), *means]
    cases = {record["case"] for record in records}
    if part == "fold":
        cases |= {figure.case for figure in FIGURES if figure.part == part}
    rows += [their_row(f) for f in FIGURES if f.part == part and f.case in cases]
    rows.sort(key=lambda row: ("" if part == "fold" else row[0], float(row[4].split()[0])))
    new = ", ".join(f"{r['new']:,} on {r['case']}" for r in one_of_each_case(records))
    new = f"Test ratings of a user or an item that is not in training: {new}."
    return "\n\n".join([markdown(head, rows, 2), new, notes(records)])


def one_of_each_case(records: list[Record]) -> list[Record]:
    return list({record["case"]: record for record in records}.values())


def our_row(record: Record) -> list[str]:
    chance = record.get("log_probability")
    return [record["case"], f"**{variants.words(record['model'])}**", str(record["rank"]),
            sweeps_of(record), f"{record['rmse']:.4f}", f"{record['clipped']:.4f}",
            "" if chance is None else f"{chance:.4f}", f"{record['seconds']:.0f}",
            "here"]  # fmt: skip


def their_row(figure: Figure) -> list[str]:
    return [figure.case, figure.method, figure.rank, figure.sweeps, figure.rmse, "", "",
            figure.seconds, figure.source]  # fmt: skip


def mean_rows(records: list[Record]) -> list[list[str]]:
    """Means over folds, with the standard deviation of one fold."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        if record["part"] == "fold":
            groups.setdefault(setting_of(record), []).append(record)
    rows = []
    for folds in groups.values():
        if len(folds) > 1:
            row = our_row(folds[0])
            row[0] = f"mean of {len(folds)} folds (sd)"
            for place, name in ((4, "rmse"), (5, "clipped"), (6, "log_probability")):
                values = [fold[name] for fold in folds]
                row[place] = f"{np.mean(values):.4f} ({np.std(values, ddof=1):.4f})"
            row[7] = f"{np.mean([fold['seconds'] for fold in folds]):.0f}"
            rows.append(row)
    return rows


def squares_of(key: str) -> np.ndarray:
    """Each user's sum of squared errors."""
    arrays = arrays_of(key)
    return np.bincount(arrays["user"], (arrays["mean"] - arrays["value"]) ** 2)


def forecasts() -> str:
    """The errors of forecasts, and what each effect changes, with paired intervals."""
    records = stored("forecast")
    if not records:
        return NOTHING
    rows = sorted((our_row(r)[:-1] for r in records), key=lambda row: (row[0], row[4]))
    head = ["data", "model", "rank", "sweeps", "test RMSE", "clipped", "log probability", "s"]
    alike: dict[Any, dict[str, str]] = {}
    for record in records:
        setting = (record["case"], *setting_of(record)[1:])
        alike.setdefault(setting, {})[record["model"]] = record["key"]
    changes = []
    for (case, rank, *_), keys in alike.items():
        for without, added, effect in variants.effects_between(list(keys)):
            change = paired_change(squares_of(keys[without]), squares_of(keys[added]))
            verdict = {1: "lower", -1: "higher", 0: "cannot be told"}[change.sign]
            changes.append([case, variants.WORDS[effect], variants.words(without), str(rank),
                            str(change), verdict])  # fmt: skip
    heads = ["data", "effect", "added to", "rank", "RMSE falls by, 95 % interval", "error"]
    return "\n\n".join([markdown(head, rows, 2), markdown(heads, changes, 3), notes(records)])


def fill(text: str, blocks: dict[str, str]) -> str:
    """Replace what stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.

    Where nothing is stored, the page keeps what it has: figures of a run elsewhere.
    """
    for name, block in blocks.items():
        pattern = rf"(<!-- begin {re.escape(name)} -->\n)(.*?)(\n<!-- end {re.escape(name)} -->)"

        def replace(found: re.Match[str], block: str = block) -> str:
            return found[1] + (found[2] if block == NOTHING else block) + found[3]

        text, count = re.subn(pattern, replace, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"the page has {count} places for {name!r}; it needs one")
    return text
