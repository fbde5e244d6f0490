"""The tables of the experiments beyond the paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesmf.report.page import Cell, Table
from bayesmf.report.read import COMPARED, NEWCOMERS, NONE, Reader, number
from bayesmf.report.tables.of_paper import (
    BOOTSTRAP_NOTE,
    FREQUENCY_HEADINGS,
    KINDS,
    frequency_rows,
    interval,
    signed,
)
from bayesmf.study.specs import GIVEN, WIDTHS

ALIKE = "\N{ALMOST EQUAL TO}"
NEWCOMER_HEADINGS = ("new", "model", *(str(given) for given in GIVEN))
FIRST = (0,)  # of the splits
BETWEEN_NOTE = (
    "The test ratings are a random part of all ratings, so most of them lie between training "
    "ratings of the same user in time. Ratings that are still to come gain less from a time chain."
)


def bounds(read: Reader) -> Table:
    """What the bounds of truncated precisions do, and which are chosen without the test ratings."""
    found = []
    for width in WIDTHS:
        suffix = "" if width == 2 else f"-{width:g}"
        run = read(f"vi-no-side-truncated{suffix}")
        judged = read(f"vi-validation-no-side-truncated{suffix}")
        found.append((width, run["bound"], judged["least"], run["rmse"], run["least"]))
    values = np.array(found)
    best = [np.argmax(values[:, 1]), *(np.argmin(values[:, k]) for k in (2, 3, 4))]
    rows: list[list[Cell | str]] = []
    for at, (width, bound, judged, rmse, least) in enumerate(found):
        cells = [f"{bound:,.0f}", *(number(v) for v in (judged, rmse, least))]
        shown: list[Cell | str] = [
            Cell(text, float(value), "best" if at == best[k] else "")
            for k, (text, value) in enumerate(zip(cells, (bound, judged, rmse, least), strict=True))
        ]
        rows.append([f"{width:g}", *shown])
    return Table(
        "bounds",
        "Choosing the bounds of truncated precisions",
        "VI without side features, with precisions between 1/n and n. The best of each column "
        "stands out.",
        ["n", "lower bound", "validation RMSE", "test RMSE, last", "test RMSE, lowest"],
        rows,
        1,
        [
            "The validation error is that on a tenth of the training ratings, held out of a run of "
            "its own, at its best update; the lower bound needs no held-out ratings."
        ],
    )


def cold_start(read: Reader) -> Table:
    """The errors of newcomers by how many of their ratings are known."""

    def mark(new: str, variant: str, given: int, text: str, value: float) -> Cell:
        best, alike = read.lowest(new, given, read.cold)
        return Cell(
            text + (f" {ALIKE}" if variant in alike else ""), value, "best" * (variant == best)
        )

    notes = [
        f"The lowest error of each column, of new users and of new items, is bold. {ALIKE} marks "
        "those from which it cannot be told apart: zero is in the 95 % interval of the difference, "
        "a paired bootstrap of the newcomers."
    ]
    if read.has_attributes:
        notes.append(
            "The default model with attributes knows those of newcomers, given any or no ratings."
        )
    notes += [_who_is_new(read, new) for new in read.new_sides]
    notes += [f"{reason.capitalize()}." for reason in read.not_held_out.values()]
    caption = (
        "Test RMSE of users and items that were not in training, by how many of their ratings are "
        "given. Given none, they have the prior predictive."
    )
    rows = _newcomer_rows(read, "rmse", 4, mark)
    return Table(
        "cold-start-table", "Newcomers, folded in", caption, NEWCOMER_HEADINGS, rows, 2, notes
    )


def cold_start_intervals(read: Reader) -> Table:
    """The coverage of newcomers' intervals by how many of their ratings are known."""
    caption = "The per cent of test ratings inside intervals that should hold 80 %."
    rows = _newcomer_rows(read, "coverage_80", 1)
    title = "Newcomers: coverage of 80 % intervals"
    return Table("cold-start-coverage-80", title, caption, NEWCOMER_HEADINGS, rows, 2)


def cold_start_scores(read: Reader) -> Table:
    """The log scores of newcomers by how many of their ratings are known."""
    caption = "The mean log density of a test rating; larger is better."
    rows = _newcomer_rows(read, "log_score", 3)
    title = "Newcomers: log score"
    return Table("cold-start-log-score", title, caption, NEWCOMER_HEADINGS, rows, 2)


def _plain(new: str, variant: str, given: int, text: str, value: float) -> Cell:
    return Cell(text, value)


def _newcomer_rows(
    read: Reader, key: str, digits: int, make: Callable[[str, str, int, str, float], Cell] = _plain
) -> list[list[Cell | str]]:
    """A row for each side and model, with a cell for each number of ratings given."""
    scale = 100 if key.startswith("coverage") else 1
    rows: list[list[Cell | str]] = []
    for new in read.new_sides:
        for variant in read.cold:
            row: list[Cell | str] = [f"{new}s", NEWCOMERS[variant]]
            found = read.by_given(new, variant, key)
            for given in GIVEN:
                if given in found:
                    value = scale * found[given]
                    row.append(make(new, variant, given, number(value, digits), value))
                else:
                    row.append(NONE)
            rows.append(row)
    return rows


def _who_is_new(read: Reader, new: str) -> str:
    """How many newcomers and test ratings there are, in a sentence."""
    count, tests = (read.by_given(new, "default", key) for key in ("newcomers", "test_ratings"))
    told = f"There are {count[0]:,.0f} new {new}s with {tests[0]:,.0f} test ratings"
    fewer = [given for given in count if tests[given] != tests[0]]
    if not fewer:
        return f"{told}, the same for every column."
    those = "; ".join(
        f"given {given}, only those with more ratings than that are tested ({count[given]:,.0f}, "
        f"on {tests[given]:,.0f} ratings), so that column cannot be compared with those before it"
        for given in fewer
    )
    return f"{told}; {those}."


def time_and_scale(read: Reader) -> Table:
    """The error of the default model by user frequency, and what other models change of it."""
    base, *others = read.compared
    rows: list[list[Cell | str]] = []
    for bin_, first in frequency_rows(read, base, FIRST):
        error = read.error(base, FIRST, bin_)
        row: list[Cell | str] = [*first, Cell(number(error), error)]
        for name in others:
            change = read.change(base, name, bin_, FIRST)
            text = f"{signed(change.value)} {interval(change)}"
            row.append(Cell(text, change.value, KINDS[change.sign]))
        rows.append(row)
    notes = [f"The model {COMPARED[name]} is left out: {why}." for name, why in read.left_out]
    notes += [BOOTSTRAP_NOTE] if others else []
    notes += [BETWEEN_NOTE] if "default-chain" in others else []
    settings = read(base)["run"]["settings"]
    notes.append(
        f"The predictions are those of {settings['keep']} draws kept from {settings['sweeps']} "
        "sweeps. Other tables average every sweep, which gives errors that are a little lower."
    )
    headings = [*FREQUENCY_HEADINGS, f"RMSE, {COMPARED[base]}"]
    return Table(
        "time-and-scale-table",
        "The default model, with time and on an ordinal scale",
        "Test RMSE of the default model, and by how many per cent other models lower it, with "
        "95 % intervals. A change above zero is a lower error. First split.",
        [*headings, *(f"{COMPARED[name]}, %" for name in others)],
        rows,
        1,
        notes,
    )


def time_and_scale_scores(read: Reader) -> Table:
    """The mean log probability of test ratings by user frequency, under each of these models."""
    names, key = read.compared, read.log_key
    rows: list[list[Cell | str]] = []
    for bin_, first in frequency_rows(read, names[0], FIRST):
        facts = [read(name).facts for name in names]
        found = [one[key] if bin_ is None else one["by_bin"][key][bin_] for one in facts]
        values = np.array(found, float)  # NaN where a bin has no test ratings
        kinds = ["best" if value == values.max() else "" for value in values]
        cells = [Cell(number(v), float(v), kind) for v, kind in zip(values, kinds, strict=True)]
        rows.append([*first, *cells])
    what = {
        "log_probability": "probability of a test rating; a Gaussian is rounded to the scale",
        "log_score": "density of a test rating, on a scale without steps",
    }[key]
    return Table(
        f"time-and-scale-{key.replace('_', '-')}",
        f"The default model, with time and on an ordinal scale: {key.replace('_', ' ')}",
        f"The mean log {what}. Larger is better. First split.",
        [*FREQUENCY_HEADINGS, *(COMPARED[name] for name in names)],
        rows,
    )
