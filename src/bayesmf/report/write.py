"""``bayesmf report``: a results folder in, one page with its figures and tables out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesmf.data.io.atomic import whole_file, whole_folder
from bayesmf.report import figures, figures_beyond, tables
from bayesmf.report.draw import Panel
from bayesmf.report.findings import findings
from bayesmf.report.markdown import to_markdown
from bayesmf.report.page import Code, Drawing, Facts, Figure, Page, Section, Table, Text, render
from bayesmf.report.read import Reader
from bayesmf.study.results import Results
from bayesmf.study.specs import EXPERIMENTS, Lengths

PAPER = (
    "Severinski and Salakhutdinov, Bayesian Probabilistic Matrix Factorization: A User Frequency "
    "Analysis"
)
FIGURES: dict[str, tuple[str, str, Callable[[Reader], list[Panel]]]] = {
    "fig-2": ("Figure 2. Lower bound and error of VI, by update",
              "No side features. The dot marks the lowest test error. The test bound is the bound "
              "with the test ratings in place of the training ratings.", figures.fig_2),
    "fig-3": ("Figure 3. Gibbs, VI and MAP without side features",
              "Constant precision. The error of Gibbs is that of the mean of all draws so far. "
              "Panel (b) compares them where their overall errors are nearest.", figures.fig_3),
    "fig-4": ("Figure 4. Precisions of users and items",
              "Robust precisions, no side features. Traces go from the rarest (dark) to the most "
              "frequent (light).", figures.fig_4),
    "fig-5": ("Figure 5. Truncated precisions under VI",
              "No side features, MAP-driven prior.", figures.fig_5),
    "fig-6": ("Figure 6. Does a precision tell the error?",
              "Robust precisions under VI, no side features. The error of a user is weighted by "
              "the precisions of the items and of the noise, as in the update of the precision; "
              "the correlation is that of minus log precision and log error.", figures.fig_6),
    "fig-7": ("Figure 7. Gibbs sampling with side features",
              "Test RMSE of the mean prediction so far. Each chain burns its first sweeps: until "
              "then the curve is that of single draws.", figures.fig_7),
    "printed": ("VI as printed and corrected",
                "No side features, MAP-driven prior. As printed, the updates leave out the "
                "covariances; truncated precisions are clamped.", figures_beyond.printed),
    "both-sides": ("Side features of both sides",
                   "Both sides: weights n^-1/2, and the bias as a feature.",
                   figures_beyond.both_sides),
    "calibration": ("Calibration by user frequency",
                    "The grey line is what the interval promises. First split.",
                    figures_beyond.calibration),
    "cold-start": ("New users", "A tenth of the users with more than twenty ratings, left out of "
                   "training, then folded in. Side features shift a user by the mean of W over the "
                   "items they rated: with one rating by a whole W, learnt from users with "
                   "many.", figures_beyond.cold_start),
}  # fmt: skip


@dataclass
class Report:
    """What is written."""

    page: Page
    figures: dict[str, list[Panel]]
    tables: list[Table]


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page, figures and tables beside the results or elsewhere; returns the page."""
    report = make_report(Results.open(folder))
    out = out or folder
    with whole_folder(out / "figures", _is_ours(".svg", ".png")) as made:
        for panel in (panel for panels in report.figures.values() for panel in panels):
            (made / f"{panel.name}.svg").write_text(panel.svg, encoding="utf-8")
            (made / f"{panel.name}.png").write_bytes(panel.png)
    with whole_folder(out / "tables", _is_ours(".csv", ".md")) as made:
        for table in report.tables:
            (made / f"{table.id}.csv").write_text(table.to_csv(), encoding="utf-8")
            (made / f"{table.id}.md").write_text(table.to_markdown(), encoding="utf-8")
    images = {name: [f"figures/{panel.name}.svg" for panel in panels]
              for name, panels in report.figures.items()}  # fmt: skip
    page = out / "report.html"
    for place, text in (
        (out / "report.md", to_markdown(report.page, images)), (page, render(report.page)),
    ):  # fmt: skip
        with whole_file(place) as path:
            path.write_text(text, encoding="utf-8")
    return page


def _is_ours(*endings: str) -> Callable[[Path], bool]:
    """Whether a folder holds nothing but what an earlier report wrote."""
    return lambda folder: all(entry.suffix in endings for entry in folder.iterdir())


def make_report(results: Results) -> Report:
    """Everything that the results allow; experiments that were not run are named."""
    read = Reader(results)
    lengths = Lengths(**read.study["lengths"])
    there = {name for name, make in EXPERIMENTS.items()
             if read.has("users", *(run.name for run in make(lengths)))}  # fmt: skip
    if _skipped(read):
        there.discard("cold-start")
    panels: dict[str, list[Panel]] = {}
    made: list[Table] = []

    def drawn(name: str) -> list[Figure]:
        if name not in there:
            return []
        title, caption, draw = FIGURES[name]
        found = panels[name] = draw(read)
        return [Figure(name, title, caption, [Drawing(p.svg, p.alt) for p in found])]

    def tabled(name: str, *make: Callable[[Reader], Table | None]) -> list[Table]:
        found = [table for one in make if name in there and (table := one(read)) is not None]
        made.extend(found)
        return found

    sections = [
        Section("data", "The data", tabled("table-1", tables.table_1)),
        Section("overall", "Overall error", tabled("table-2", tables.glance, tables.table_2)),
        Section("frequency", "Error by user frequency", [
            *tabled("table-3", lambda r: tables.change_table(
                r, "table-3", "Table 3. Constant against robust precisions, with side features",
                "gibbs-side-constant", "gibbs-side-robust", ("constant", "robust"))),
            *tabled("table-4", lambda r: tables.change_table(
                r, "table-4", "Table 4. Without and with side features",
                "gibbs-no-side-constant", "gibbs-side-constant", ("no side", "side"))),
        ]),
        Section("figures", "The paper's figures", [
            figure for name in FIGURES if name.startswith("fig-") for figure in drawn(name)
        ]),
        Section("beyond", "Beyond the paper", [
            *drawn("printed"), *drawn("both-sides"),
            *tabled("both-sides", _both_table),
            *tabled("bounds", tables.bounds),
            *drawn("cold-start"), *tabled("cold-start", tables.cold_start),
        ]),
        Section("calibration-section", "Calibration", [
            *drawn("calibration"),
            *tabled("calibration", *(_calibration(key, title, ideal)
                                     for key, title, ideal in CALIBRATION)),
        ]),
    ]  # fmt: skip
    shown = [section for section in sections if section.blocks]
    shown.append(_methods(read, there))
    page = Page(
        f"A user frequency analysis of {read.data}",
        f"The experiments of {PAPER}, and some beyond it.",
        findings(read), shown,
        f"Made by bayesmf {read.study['version']} from the results in this folder.",
    )  # fmt: skip
    return Report(page, panels, made)


CALIBRATION: tuple[tuple[str, str, float | None], ...] = (
    ("coverage_50", "Coverage of 50 % intervals", 0.5),
    ("coverage_80", "Coverage of 80 % intervals", 0.8),
    ("coverage_95", "Coverage of 95 % intervals", 0.95),
    ("log_score", "Log score", None),
)


def _calibration(key: str, title: str, ideal: float | None) -> Callable[[Reader], Table]:
    return lambda read: tables.calibration(read, key, title, ideal)


def _both_table(read: Reader) -> Table | None:
    if not read.has("gibbs-side-robust"):
        return None
    return tables.change_table(
        read, "both-sides-table", "Side features of users, and of both sides",
        "gibbs-side-robust", "gibbs-both-sides-robust", ("users", "both sides"),
    )  # fmt: skip


def _skipped(read: Reader) -> str:
    name = "cold-start-side"
    return str(read(name).facts.get("skipped", "")) if read.has(name) else ""


def _methods(read: Reader, there: set[str]) -> Section:
    study, lengths = read.study, read.study["lengths"]
    split = study["split"]
    facts: list[tuple[str, str]] = [
        ("data", f"{read.data}, sha256 {study['summary']['sha256'][:16]}…"),
        ("split", f"the paper's: {split['train']:,} training and {split['test']:,} test ratings, "
         f"every user and item in training; seeds {study['seed']} to "
         f"{study['seed'] + study['splits'] - 1}"),
        ("rank", str(lengths["rank"])),
        ("Gibbs", f"one chain of {lengths['sweeps']} sweeps from a random start; predictions are "
         f"averaged after the first {lengths['burn_in']}; side only has {lengths['side_only']} "
         "sweeps"),
        ("VI", f"{lengths['updates']} updates from MAP by coordinates, robust and truncated "
         "precisions from the paper's third stage"),
        ("MAP", f"momentum, at most {lengths['descent']} steps; its penalty is one of 5, 10, 20 "
         "and 40, by the error on a tenth of the training ratings"),
        ("intervals", "Gaussian about the mean prediction: the spread of the draws (Gibbs) or of Q "
         "(VI) and the noise; MAP has the noise alone"),
        ("bayesmf", str(study["version"])),
    ]  # fmt: skip
    if study["quick"]:
        facts.append(("length", "quick: the runs are far too short to judge the models by"))
    missing = [name for name in EXPERIMENTS if name not in there]
    if missing:
        facts.append(("not shown", ", ".join(missing) + _why(read)))
    seconds = [time for time in read.results.times() if "seconds" in time]
    if seconds:
        total = sum(time["seconds"] for time in seconds)
        facts.append(("time", f"{total / 60:.0f} minutes of one core, {len(seconds)} runs"))
    commands = [
        f"{_base(read)} --splits {study['splits']} --out FOLDER",
        "bayesmf report FOLDER",
    ]
    runs = sorted(_commands(read))
    return Section("methods", "How it was done", [
        Text(["Every number on this page comes from the files in this folder: result.json and "
              "arrays.npz of each run. The same command gives the same files, on any number of "
              "cores and after any interruption."]),
        Facts(facts),
        Code(commands, "All of it"),
        Code(runs, "One result at a time"),
        _times(seconds),
    ])  # fmt: skip


def _why(read: Reader) -> str:
    reason = _skipped(read)
    return f" (cold-start: {reason})" if reason else ""


def _base(read: Reader) -> str:
    for command in _commands(read):
        return command.split(" --only ")[0].split(" --splits ")[0]
    return f"bayesmf study {read.data} --seed {read.study['seed']}"


def _commands(read: Reader) -> list[str]:
    places = sorted((read.results.folder / "split-0").iterdir())
    found = (read(p.name).facts.get("command") for p in places if not p.name.startswith("."))
    return [f"{command} --out FOLDER" for command in found if command]


def _times(seconds: list[dict[str, Any]]) -> Table:
    rows = [[str(time["run"]), str(time["split"]), f"{time['seconds']:.1f}"] for time in seconds]
    return Table("times", "Seconds of each run", "On one core of the machine that did it, other "
                 "work going on beside it.", ["run", "split", "seconds"], rows)  # fmt: skip
