"""Figures of what goes beyond the paper, from results alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesmf.choices import PRECISIONS
from bayesmf.plots.look import Panel, bins_axis, legend, log_axis
from bayesmf.report.draw import colour, style
from bayesmf.report.figures import Array, by_frequency, lines, updates_of
from bayesmf.report.read import NEWCOMERS, Reader, title_of
from bayesmf.study.specs import COLD_ATTRIBUTES

COLD_COLOURS = {  # the run whose colour a model has, wherever it is drawn
    "default": "gibbs-default",
    "default-attributes": "gibbs-default-attributes",
    "none": "gibbs-none-constant",
    "no-side": "gibbs-no-side-constant",
    "side": "gibbs-side-constant",
    "both-sides": "gibbs-both-sides-robust",
}


def printed(read: Reader) -> list[Panel]:
    """VI as the paper prints it, without covariances in its updates, against corrected VI."""
    corrected = {f"vi-no-side-{p}": f"{p}, corrected" for p in PRECISIONS}
    runs = {**corrected, **{f"vi-printed-no-side-{p}": f"{p}, as printed" for p in PRECISIONS}}
    spans: dict[str, Array] = {
        run: read(run).array("user_precision_quantiles")
        for run in ("vi-no-side-robust", "vi-printed-no-side-robust")
    }

    def span(axes: Axes) -> None:
        for run, told in (
            ("vi-no-side-robust", "corrected"),
            ("vi-printed-no-side-robust", "as printed"),
        ):
            values = spans[run]
            for column, label in ((0, f"{told}: least and most"), (-1, None)):
                axes.plot(updates_of(values), values[:, column], label=label, **style(run))
        axes.set(xlabel="update", ylabel="user precision, robust")
        log_axis(axes, "y")
        axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.62))

    told = "; ".join(
        f"{title_of(run)} {v[-1, 0]:.2g} to {v[-1, -1]:.3g}" for run, v in spans.items()
    )
    bound = "lower bound / 1000"
    return [
        lines(read, "printed-a", "(a) test error", runs, "test_rmse", "update"),
        lines(read, "printed-b", "(b) lower bound", runs, "bound", "update", bound, scale=1e-3),
        Panel("printed-c", "(c) range of the user precisions", f"At the end: {told}.", span),
    ]


def calibration(read: Reader) -> list[Panel]:
    """Coverage and log score by user frequency."""
    names = (
        "gibbs-no-side-constant",
        "gibbs-side-constant",
        "gibbs-side-robust",
        "gibbs-both-sides-robust",
        "vi-no-side-robust",
        "map-no-side-constant",
    )
    runs = [name for name in names if read.has(name)]
    panels = []
    for letter, key, title in (
        ("a", "coverage_80", "(a) inside the 80 % interval, %"),
        ("b", "coverage_95", "(b) inside the 95 % interval, %"),
        ("c", "log_score", "(c) mean log score"),
    ):
        scale = 100 if "coverage" in key else 1

        def draw(axes: Axes, key: str = key, scale: int = scale) -> None:
            places = bins_axis(axes, read.labels)
            for run in runs:
                values = scale * np.array(read(run)["by_bin"][key], float)
                axes.plot(
                    places, values, marker="o", markersize=3.5, label=title_of(run), **style(run)
                )
            if scale == 100:
                axes.axhline(float(key.removeprefix("coverage_")), color="#888888", linewidth=1)
            axes.set_ylabel("per cent" if scale == 100 else "log density")
            legend(axes, len(runs))

        overall = ", ".join(f"{title_of(run)} {scale * read(run)[key]:.3g}" for run in runs)
        panels.append(Panel(f"calibration-{letter}", title, f"Overall: {overall}.", draw))
    return panels


def cold_start(read: Reader) -> list[Panel]:
    """The error of newcomers and the coverage of their intervals, by how much of them is known."""
    measures = (("rmse", "test RMSE"), ("coverage_80", "inside the 80 % interval, %"))
    pairs = [(new, *measure) for measure in measures for new in read.new_sides]
    return [_newcomers(read, "abcd"[k], *pair) for k, pair in enumerate(pairs)]


def _newcomers(read: Reader, letter: str, new: str, key: str, told: str) -> Panel:
    scale = 100 if key.startswith("coverage") else 1
    runs = {name: read.by_given(new, name, key) for name in read.cold}
    numbers = list(runs["default"])
    tests = read.by_given(new, "default", "test_ratings")
    same = [given for given in numbers if tests[given] == tests[0]]

    def draw(axes: Axes) -> None:
        for name, found in runs.items():
            values = scale * np.array([found[given] for given in numbers])
            look: dict[str, Any] = {
                "color": colour(COLD_COLOURS[name]),
                "marker": "s" if name == COLD_ATTRIBUTES else "o",
                "markersize": 4.0,
                "zorder": 3 if name == "default" else 2,  # above those that it is compared with
            }
            width = 2.6 if name.startswith("default") else 1.5
            places = range(len(same))
            axes.plot(places, values[: len(same)], label=NEWCOMERS[name], linewidth=width, **look)
            for place in range(len(same), len(numbers)):
                axes.plot(place, values[place], markerfacecolor="white", linestyle="", **look)
        if scale == 100:
            axes.axhline(80, color="#888888", linewidth=1)
        axes.set_xticks(range(len(numbers)), [str(given) for given in numbers])
        axes.set(xlabel=f"ratings given of the new {new}", ylabel=told)
        legend(axes, len(runs))

    last = ", ".join(f"{NEWCOMERS[n]} {scale * v[same[-1]]:.4g}" for n, v in runs.items())
    return Panel(
        f"cold-start-{letter}",
        f"({letter}) new {new}s" + (", 80 % intervals" if scale == 100 else ""),
        f"Of new {new}s given {same[-1]} ratings, {told}: {last}.",
        draw,
    )


def both_sides(read: Reader) -> list[Panel]:
    """Rated-set features of users and items at once."""
    runs = {
        "gibbs-no-side-constant": "no side",
        "gibbs-side-constant": "side of users",
        "gibbs-side-robust": "side of users, robust",
        "gibbs-both-sides-constant": "both sides",
        "gibbs-both-sides-robust": "both sides, robust",
    }
    runs = {run: label for run, label in runs.items() if read.has(run)}
    splits = read.shared(*runs)
    top = max(read(run)["rmse"] for run in runs) + 0.03
    title = "(a) Gibbs, by sweep"
    return [
        lines(read, "both-sides-a", title, runs, "test_rmse", "sweep", top=top, log=True),
        by_frequency(
            read,
            "both-sides-b",
            "(b) by user frequency",
            f"Test RMSE by user frequency of {len(runs)} models.",
            {run: read.by_bin(run, splits) for run in runs},
            runs,
        ),
    ]
