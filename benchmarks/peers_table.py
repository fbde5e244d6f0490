"""The table of a folder of results, in Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bayesmf.evaluation.diagnostics import effective_draws
from peers_entries import ENTRIES, TOOLS, Entry
from peers_environments import WANTED

HERE = Path(__file__).resolve().parent
TARGETS = (0.850, 0.845, 0.835)
Runs = list[dict[str, Any]]


def results(folder: Path) -> dict[str, Runs]:
    """Of every entry, the runs of all rounds."""
    found: dict[str, Runs] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        found.setdefault(record["entry"], []).append(record)
    return {entry.key: found[entry.key] for entry in ENTRIES if entry.key in found}


def done(runs: Runs) -> Runs:
    return [run for run in runs if "error" not in run]


def seconds_to(run: dict[str, Any], error: float) -> float | None:
    """Until the curve is first at or below an error; None if it never is."""
    return next((p["seconds"] for p in run["curve"] if p["rmse"] <= error), None)


def effective(run: dict[str, Any]) -> float | None:
    """Effective draws a second of a sampler, by single draws' test errors in its second half."""
    late = [p for p in run["curve"] if "draw" in p and p["sweep"] > run["sweeps"] / 2]
    if len(late) < 20:
        return None
    trace = np.array([[point["draw"] for point in late]])
    return float(effective_draws(trace)) / len(late) / run["sweep_seconds"]


def mixing(folder: Path) -> str:
    """Effective draws a second, after a fifth of the sweeps: of predictions and the noise."""
    lines = ["| | seconds a sweep | predictions, median | predictions, worst 1 % | noise |",
             "|---|--:|--:|--:|--:|"]  # fmt: skip
    for key, runs in results(folder).items():
        for run in done(runs):
            if "traces" not in run:
                continue
            late = run["sweeps"] // 5
            seconds = (run["sweeps"] - late) * run["sweep_seconds"]
            ess = effective_draws(np.array([run["traces"]["predictions"][late:]]))
            noise = effective_draws(np.array([run["traces"]["precision"][late:]]))
            cells = (np.median(ess), np.quantile(ess, 0.01), float(noise))
            told = " | ".join(f"{cell / seconds:.2f}" for cell in cells)
            lines.append(f"| {key}, round {run['round']} | {run['sweep_seconds']:.4f} | {told} |")
    return "\n".join(lines)


def middle(values: list[Any]) -> float | None:
    """The median; None if it is one of the runs that never got there."""
    known = sorted(v for v in values if v is not None)
    return median(known) if len(known) > len(values) / 2 else None


def user_lines(entry: Entry) -> int:
    """Lines between `# user code` and `# end`, without blank lines, comments and bookkeeping.

    What is marked `# not counted` is left out, with the block that it opens.
    """
    text = (HERE / "peers" / f"run_{entry.peer}.py").read_text(encoding="utf-8")
    parts = [re.split(r" *# end\n", part)[0] for part in re.split(r" *# user code\n", text)[1:]]
    count, left_out = 0, None  # the indent of what is left out
    for line in "\n".join(parts).splitlines():
        indent = len(line) - len(line.lstrip())
        if left_out is not None and indent > left_out:
            continue
        left_out = indent if "# not counted" in line else None
        count += left_out is None and bool(line.strip()) and not line.strip().startswith("#")
    return count


def version(peer: str) -> str:
    return WANTED[peer]["pins"][0].split("==")[1] if peer in WANTED else ""


def _cell(value: float | None, form: str = ".1f", none: str = "-") -> str:
    return none if value is None else format(value, form)


def table(folder: Path, speed: Path, title: str, notes: dict[str, str]) -> str:
    """Everything that is known; what did not run is a line that says so."""
    found, quick = results(folder), results(speed)
    ours = {t: [s for key, runs in found.items() if key.startswith("bayesmf")
                if (s := middle([seconds_to(r, t) for r in done(runs)])) is not None]
            for t in TARGETS}  # fmt: skip
    best = {t: min(times, default=None) for t, times in ours.items()}
    head = ["tool", "model", "test RMSE", "s a sweep", "of ours, no side", "effective draws a s",
            *(f"s to {t:.3f} (of our best)" for t in TARGETS), "s in all", "start s", "peak MB",
            "fit alone MB", "in 90 %", "lines", "threads"]  # fmt: skip
    lines = [f"# {title}", "", "| " + " | ".join(head) + " |",
             "| :-- | :-- |" + " --: |" * (len(head) - 2)]  # fmt: skip
    for entry in ENTRIES:
        if entry.key not in found and entry.key not in quick:
            continue
        runs, short = done(found.get(entry.key, [])), done(quick.get(entry.key, []))
        name = f"{TOOLS[entry.peer]} {version(entry.peer)}".strip()
        if not runs and not short:
            error = (found.get(entry.key) or quick[entry.key])[-1]["error"]
            lines.append(f"| {name} | {entry.model} | {error} |" + " |" * (len(head) - 3))
            continue
        lines.append("| " + " | ".join(_row(entry, name, runs, short, best)) + " |")
    lines += ["", *_legend(), *(f"- {name}: {why}." for name, why in notes.items())]
    return "\n".join(lines) + "\n"


def _row(
    entry: Entry, name: str, runs: Runs, short: Runs, best: dict[float, float | None]
) -> list[str]:
    curves = [run for run in runs if run["curve"]]
    timed = short or runs
    each = middle([run["sweep_seconds"] for run in timed])
    ratios = [run["sweep_seconds"] / run["ours beside"] for run in timed if run["ours beside"]]
    row = [name, entry.model,
           _cell(middle([r["curve"][-1]["rmse"] for r in curves]), ".4f"),
           _cell(each, ".3g") + ("" if entry.step == "sweep" else f" ({entry.step})"),
           _cell(middle(ratios) if ratios else None, ".2f"),
           _cell(middle([effective(r) for r in runs]) if runs else None, ".2f")]  # fmt: skip
    for target in TARGETS:
        at = middle([seconds_to(run, target) for run in runs]) if runs else None
        least = best[target]
        ratio = f" ({at / least:.1f})" if at is not None and least else ""
        row.append(_cell(at) + ratio)
    shares = [run["coverage"] for run in runs if "coverage" in run]
    row += [_cell(middle([r["seconds"] for r in runs]) if runs else None),
            _cell(middle([r["start"] for r in (runs or short)])),
            _cell(max((r["peak mb"] for r in runs), default=None), ".0f"),
            _cell(max((r["peak mb"] for r in short), default=None), ".0f"),
            _cell(100 * median(shares) if shares else None, ".1f"), str(user_lines(entry)),
            str(timed[0]["threads"])]  # fmt: skip
    return row


def _legend() -> list[str]:
    return [
        "- Test RMSE is unclipped, for everybody. Of samplers it is that of the mean of the draws",
        "  so far, after the best of burn-ins of 5, 10, 20, 50 and 100 sweeps: tools need more or",
        "  less.",
        "- The clock starts with plain arrays in memory; building a tool's own structures counts,",
        "  predicting the test ratings does not. `start` is what comes before: process, imports,",
        "  compilation, the JVM.",
        "- `of ours`: seconds a sweep, as a ratio to a short run of bayesmf without side features",
        "  made just before.",
        "- `effective draws`: of the trace of single draws' test errors in the second half.",
        "- `fit alone` is the peak memory of a short run that predicts no test ratings.",
        "- `in 90 %`: test ratings inside a 90 % interval from the tool's own draws and noise.",
        "- `lines`: what a user writes to come from arrays to predictions.",
    ]
