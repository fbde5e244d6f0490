"""Figures of what goes beyond the paper, from results alone."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from bayesmf.report.draw import Panel, bins_axis, colour, legend, log_axis, style
from bayesmf.report.figures import Array, lines, updates_of
from bayesmf.report.read import FEATURES, PRECISIONS, Reader, title_of
from bayesmf.study.specs import GIVEN


def printed(read: Reader) -> list[Panel]:
    """VI as printed, without covariances in its updates, against VI corrected."""
    corrected = {f"vi-no-side-{p}": f"{p}, corrected" for p in PRECISIONS}
    runs = {**corrected, **{f"vi-printed-no-side-{p}": f"{p}, as printed" for p in PRECISIONS}}
    spans: dict[str, Array] = {
        run: read(run).array("user precision, quantiles")
        for run in ("vi-no-side-robust", "vi-printed-no-side-robust")
    }

    def span(axes: Axes) -> None:
        for run, told in (("vi-no-side-robust", "corrected"),
                          ("vi-printed-no-side-robust", "as printed")):  # fmt: skip
            values = spans[run]
            for column, label in ((0, f"{told}: least and most"), (-1, None)):
                axes.plot(updates_of(values), values[:, column], label=label, **style(run))
        axes.set(xlabel="update", ylabel="user precision, robust")
        log_axis(axes, "y")
        axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.62))

    told = "; ".join(f"{title_of(run)} {v[-1, 0]:.2g} to {v[-1, -1]:.3g}"
                     for run, v in spans.items())  # fmt: skip
    return [
        lines(read, "printed-a", "(a) test error", runs, "test rmse", "update"),
        lines(
            read,
            "printed-b",
            "(b) lower bound",
            runs,
            "bound",
            "update",
            "lower bound / 1000",
            scale=1e-3,
        ),
        Panel("printed-c", "(c) range of the user precisions", f"At the end: {told}.", span),
    ]


def calibration(read: Reader) -> list[Panel]:
    """Coverage and log score by user frequency."""
    names = ("gibbs-no-side-constant", "gibbs-side-constant", "gibbs-side-robust",
             "gibbs-both-sides-robust", "vi-no-side-robust", "map-no-side-constant")  # fmt: skip
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
                axes.plot(places, values, marker="o", markersize=3.5, label=title_of(run),
                          **style(run))  # fmt: skip
            if scale == 100:
                axes.axhline(float(key.removeprefix("coverage_")), color="#888888", linewidth=1)
            axes.set_ylabel("per cent" if scale == 100 else "log density")
            legend(axes, len(runs))

        overall = ", ".join(f"{title_of(run)} {scale * read(run)[key]:.3g}" for run in runs)
        panels.append(Panel(f"calibration-{letter}", title, f"Overall: {overall}.", draw))
    return panels


def cold_start(read: Reader) -> list[Panel]:
    """Error of new users by the number of their ratings that are known."""
    runs = {f"cold-start-{name}": name for name in ("none", "no-side", "side", "both-sides")}

    def draw(axes: Axes) -> None:
        places = range(len(GIVEN))
        for run, name in runs.items():
            errors = [read(run)["rmse by given"][str(given)] for given in GIVEN]
            kind = "robust" if name == "both-sides" else "constant"
            axes.plot(places, errors, marker="o", markersize=4,
                      color=colour(f"gibbs-{name}-{kind}"),
                      label=FEATURES.get(name, "both sides, robust"))  # fmt: skip
        axes.set_xticks(places, [str(given) for given in GIVEN])
        axes.set(xlabel="ratings known of the new user", ylabel="test RMSE")
        axes.legend()

    last = ", ".join(f"{name} {read(run)['rmse by given'][str(GIVEN[-1])]:.4f}"
                     for run, name in runs.items())  # fmt: skip
    return [Panel("cold-start-a", "New users, folded in", f"From 20 ratings: {last}.", draw)]


def both_sides(read: Reader) -> list[Panel]:
    """Side features of users and items at once."""
    runs = {
        "gibbs-no-side-constant": "no side", "gibbs-side-constant": "side of users",
        "gibbs-side-robust": "side of users, robust",
        "gibbs-both-sides-constant": "both sides", "gibbs-both-sides-robust": "both sides, robust",
    }  # fmt: skip
    runs = {run: label for run, label in runs.items() if read.has(run)}
    splits = read.shared(*runs)

    def frequency(axes: Axes) -> None:
        places = bins_axis(axes, read.labels)
        for run, label in runs.items():
            axes.plot(places, read.by_bin(run, splits), marker="o", markersize=3.5, label=label,
                      **style(run))  # fmt: skip
        axes.set_ylabel("test RMSE")
        axes.legend(fontsize=8)

    top = max(read(run)["rmse"] for run in runs) + 0.03
    return [
        lines(read, "both-sides-a", "(a) Gibbs, by sweep", runs, "test rmse", "sweep", top=top,
              log=True),
        Panel("both-sides-b", "(b) by user frequency",
              "Test RMSE by user frequency of five models.", frequency),
    ]  # fmt: skip
