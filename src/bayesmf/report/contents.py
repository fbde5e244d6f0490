"""What a report holds: every figure, table and sentence that the results allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bayesmf.plots.look import Panel
from bayesmf.report import figures, figures_beyond, figures_precisions
from bayesmf.report.findings import findings
from bayesmf.report.page import Block, Code, Drawing, Facts, Figure, Page, Section, Table, Text
from bayesmf.report.read import GIBBS, SIDE, SIDE_ROBUST, Reader
from bayesmf.report.tables import beyond, of_paper
from bayesmf.study.results import Results
from bayesmf.study.specs import EXPERIMENTS, NEW, Lengths, runs_of

MADE_BY = "Made by bayesmf"  # every page ends so
PAPER = (
    "Severinski and Salakhutdinov, Bayesian Probabilistic Matrix Factorization: A User Frequency "
    "Analysis"
)
FIGURES: dict[str, tuple[str, str, Callable[[Reader], list[Panel]]]] = {
    "fig-2": (
        "Figure 2. Lower bound and error of VI, by update",
        "Without side features. The dot marks the lowest test error. The test bound is the bound "
        "with the test ratings in place of the training ratings.",
        figures.fig_2,
    ),
    "fig-3": (
        "Figure 3. Gibbs, VI and MAP without side features",
        "Constant precision. The error of Gibbs is that of the mean of all draws so far. "
        "Panel (b) compares them where their overall errors are nearest.",
        figures.fig_3,
    ),
    "fig-4": (
        "Figure 4. Precisions of users and items",
        "Robust precisions, without side features. The traces are of six users, or items, from the "
        "rarest (dark) to the most frequent (light).",
        figures_precisions.fig_4,
    ),
    "fig-5": (
        "Figure 5. Truncated precisions under VI",
        "Without side features, with the MAP-driven prior.",
        figures_precisions.fig_5,
    ),
    "fig-6": (
        "Figure 6. Does a precision predict the error?",
        "Robust precisions under VI, without side features. The error of a user is weighted by the "
        "precisions of the items and of the noise, as in the update of the precision. The "
        "correlation is that of minus log precision and log error.",
        figures_precisions.fig_6,
    ),
    "fig-7": (
        "Figure 7. Gibbs sampling with side features",
        "Test RMSE of the mean prediction so far. During the burn-in, the curve is that of single "
        "draws.",
        figures.fig_7,
    ),
    "printed": (
        "VI as printed and corrected",
        "Without side features, with the MAP-driven prior. As printed, the updates leave out the "
        "covariances, and truncated precisions are clamped.",
        figures_beyond.printed,
    ),
    "both-sides": (
        "Rated-set features of both sides",
        "The models of both sides have the weights n^-1/2, and the bias is one of the features.",
        figures_beyond.both_sides,
    ),
    "calibration": (
        "Calibration by user frequency",
        "The grey line is the share that the interval should hold. First split.",
        figures_beyond.calibration,
    ),
    "cold-start": (
        "New users and new items",
        "A tenth of the users with more than twenty ratings, and of the items, are left out of "
        "training and then folded in. Newcomers with more than fifty ratings are also given fifty. "
        "Those points stand alone, because the test ratings are not the same. The grey line is the "
        "share that an interval should hold.",
        figures_beyond.cold_start,
    ),
}


KEEPS_DRAWS = {"cold-start": "newcomers", "predictive": "time and scale"}  # kinds of runs
CALIBRATION: tuple[tuple[str, str, float | None], ...] = (
    ("coverage_50", "Coverage of 50 % intervals", 0.5),
    ("coverage_80", "Coverage of 80 % intervals", 0.8),
    ("coverage_95", "Coverage of 95 % intervals", 0.95),
    ("log_score", "Log score", None),
)


@dataclass
class Report:
    """A page, and the figures and tables in it, which are also written as files."""

    page: Page
    figures: dict[str, list[Panel]]
    tables: list[Table]


@dataclass
class _Maker:
    """Draws figures and makes tables, if their experiments were run, and remembers them."""

    read: Reader
    there: set[str]  # the experiments that were run
    figures: dict[str, list[Panel]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)

    def figure(self, name: str) -> list[Figure]:
        """A figure, or nothing if its experiment was not run."""
        if name not in self.there:
            return []
        title, caption, draw = FIGURES[name]
        found = self.figures[name] = draw(self.read)
        return [Figure(name, title, caption, [Drawing(p.svg, p.alt) for p in found])]

    def table(self, name: str, *make: Callable[[Reader], Table | None]) -> list[Table]:
        """The tables of an experiment, or nothing if it was not run."""
        if name not in self.there:
            return []
        found = [table for one in make if (table := one(self.read)) is not None]
        self.tables.extend(found)
        return found


def make_report(results: Results) -> Report:
    """Make everything that the results allow; experiments that were not run are named."""
    read = Reader(results)
    lengths = Lengths(**read.study["lengths"])
    there = {
        name
        for name, make in EXPERIMENTS.items()
        if read.has("users", *(run.name for run in make(lengths)))
    }
    if "cold-start" in there and not read.new_sides:
        there.discard("cold-start")
    maker = _Maker(read, there)
    sections = [section for section in _sections(maker) if section.blocks]
    page = Page(
        f"A user frequency analysis of {read.data}",
        f"The experiments of {PAPER}, and some beyond it.",
        findings(read),
        [*sections, _methods(read, there)],
        f"{MADE_BY} {read.study['version']} from the results in this folder.",
    )
    return Report(page, maker.figures, maker.tables)


def _sections(make: _Maker) -> list[Section]:
    frequency = [
        *make.table("table-3", _table_3),
        *make.table("table-4", _table_4),
    ]
    new: list[Block] = [
        *make.figure("printed"),
        *make.figure("both-sides"),
        *make.table("both-sides", _both_table),
        *make.table("bounds", beyond.bounds),
        *make.figure("cold-start"),
        *make.table(
            "cold-start",
            beyond.cold_start,
            beyond.cold_start_intervals,
            beyond.cold_start_scores,
        ),
        *make.table("time-and-scale", beyond.time_and_scale, beyond.time_and_scale_scores),
    ]
    calibration: list[Block] = [
        *make.figure("calibration"),
        *make.table("calibration", *(_calibration(*each) for each in CALIBRATION)),
    ]
    papers = [figure for name in FIGURES if name.startswith("fig-") for figure in make.figure(name)]
    overall = make.table("table-2", of_paper.glance, of_paper.table_2)
    return [
        Section("data", "The data", make.table("table-1", of_paper.table_1)),
        Section("overall", "Overall error", overall),
        Section("frequency", "Error by user frequency", frequency),
        Section("figures", "The paper's figures", papers),
        Section("beyond", "Beyond the paper", new),
        Section("calibration-section", "Calibration", calibration),
    ]


def _table_3(read: Reader) -> Table:
    title = "Table 3. Constant against robust precisions, with side features"
    names = ("constant", "robust")
    return of_paper.change_table(read, "table-3", title, SIDE, SIDE_ROBUST, names)


def _table_4(read: Reader) -> Table:
    title = "Table 4. Without and with side features"
    return of_paper.change_table(read, "table-4", title, GIBBS, SIDE, ("no side", "side"))


def _both_table(read: Reader) -> Table | None:
    both = "gibbs-both-sides-robust"
    if not read.has(SIDE_ROBUST):
        return None
    title, names = "Rated-set features of users, and of both sides", ("users", "both sides")
    return of_paper.change_table(read, "both-sides-table", title, SIDE_ROBUST, both, names)


def _calibration(key: str, title: str, ideal: float | None) -> Callable[[Reader], Table]:
    return lambda read: of_paper.calibration(read, key, title, ideal)


def _skipped(read: Reader) -> str:
    """Why the cold-start experiment could not be done, or nothing."""
    if not read.has(*(f"cold-start-{new}-side" for new in NEW)) or read.new_sides:
        return ""
    return "; ".join(read.not_held_out.values())


def _methods(read: Reader, there: set[str]) -> Section:
    study = read.study
    seconds = [time for time in read.results.times() if "seconds" in time]
    facts = _settings(read)
    if study["quick"]:
        facts.append(("length", "quick: the runs are far too short to judge the models by"))
    missing = [name for name in EXPERIMENTS if name not in there]
    if missing:
        reason = _skipped(read)
        why = f" (cold-start: {reason})" if reason else ""
        facts.append(("not shown", ", ".join(missing) + why))
    if seconds:
        total = sum(time["seconds"] for time in seconds)
        facts.append(("time", f"{total / 60:.0f} minutes of one core, {len(seconds)} runs"))
    whole = [
        f"{_base(read)} --splits {study['splits']} --out FOLDER",
        "bayesmf report FOLDER",
    ]
    about = (
        "Every number on this page comes from the files in this folder: result.json and arrays.npz "
        "of each run. The same command gives the same files, on any number of cores and after any "
        "interruption."
    )
    blocks: list[Block] = [
        Text([about]),
        Facts(facts),
        Code(whole, "The whole study"),
        Code(sorted(_commands(read)), "One result at a time"),
        _times(seconds),
    ]
    return Section("methods", "How it was done", blocks)


def _settings(read: Reader) -> list[tuple[str, str]]:
    study, lengths, split = read.study, read.study["lengths"], read.study["split"]
    first, last = study["seed"], study["seed"] + study["splits"] - 1
    seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
    return [
        ("data", f"{read.data}, sha256 {study['summary']['sha256'][:16]}…"),
        (
            "split",
            f"the paper's: {split['train']:,} training and {split['test']:,} test ratings, with "
            f"every user and item in training; {seeds}",
        ),
        ("rank", str(lengths["rank"])),
        *_gibbs(read),
        (
            "VI",
            f"{lengths['updates']} updates from MAP by coordinates; robust and truncated "
            "precisions begin at the paper's third stage",
        ),
        (
            "MAP",
            f"gradient descent with momentum, at most {lengths['descent']} steps; its penalty is "
            "one of 5, 10, 20 and 40, chosen by the error on a tenth of the training ratings",
        ),
        (
            "intervals",
            "Gaussian about the mean prediction: the variance of the draws (Gibbs) or of Q (VI) "
            "plus that of the noise; MAP has the noise alone",
        ),
        *_tables_of_attributes(read),
        ("bayesmf", str(study["version"])),
    ]


def _gibbs(read: Reader) -> list[tuple[str, str]]:
    """How long the chains were that the report has, and what their predictions average."""
    lengths = Lengths(**read.study["lengths"])
    done = [run for run in runs_of(list(EXPERIMENTS), lengths) if read.was_run(run.name)]
    side_only = {run.features == "side-only" for run in done if run.kind == "gibbs"}
    after = f"after the first {lengths.burn_in}"
    found = []
    if side_only:
        sweeps = lengths.sweeps if False in side_only else lengths.side_only
        text = f"one chain of {sweeps} sweeps from a random start; predictions are averaged {after}"
        more = f"; side only has {lengths.side_only} sweeps" if len(side_only) == 2 else ""
        found.append(("Gibbs", text + more))
    if any(run.kind in KEEPS_DRAWS for run in done):
        text = (
            f"one chain of {lengths.cold} sweeps from a random start; predictions are the average "
            f"of {lengths.keep} draws kept {after}"
        )
        kinds = [KEEPS_DRAWS[kind] for kind in KEEPS_DRAWS if any(run.kind == kind for run in done)]
        found.append((f"Gibbs, {' and '.join(kinds)}" if found else "Gibbs", text))
    return found


def _tables_of_attributes(read: Reader) -> list[tuple[str, str]]:
    found = read.study.get("attributes", {})
    return [
        (f"{side} attributes", f"{table['rows']:,} rows: {', '.join(table['columns'])}")
        for side, table in found.items()
    ]


def _base(read: Reader) -> str:
    """The command of the whole study, without its splits and its folder."""
    for command in _commands(read):
        return command.split(" --only ")[0].split(" --splits ")[0]
    return f"bayesmf study {read.data} --seed {read.study['seed']}"


def _commands(read: Reader) -> list[str]:
    places = sorted((read.results.folder / "split-0").iterdir())
    found = (read(p.name).facts.get("command") for p in places if not p.name.startswith("."))
    return [f"{command} --out FOLDER" for command in found if command]


def _times(seconds: list[dict[str, Any]]) -> Table:
    rows = [[str(time["run"]), str(time["split"]), f"{time['seconds']:.1f}"] for time in seconds]
    return Table(
        "times",
        "Seconds of each run",
        "Measured on one core of the machine that did the run, with other work beside it.",
        ["run", "split", "seconds"],
        rows,
    )
