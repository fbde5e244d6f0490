"""Figures of what goes beyond the paper, from results alone."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from bayesmf.choices import PRECISIONS
from bayesmf.report.draw import Panel, bins_axis, colour, legend, log_axis, style
from bayesmf.report.figures import Array, by_frequency, lines, updates_of
from bayesmf.report.read import FEATURES, Reader, title_of
from bayesmf.study.specs import COLD, GIVEN


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
    """The error of new users by the number of their ratings that are known."""
    runs = {f"cold-start-{name}": name for name in COLD}

    def draw(axes: Axes) -> None:
        places = range(len(GIVEN))
        for run, name in runs.items():
            errors = [read(run)["rmse_by_given"][str(given)] for given in GIVEN]
            kind = "robust" if name == "both-sides" else "constant"
            axes.plot(
                places,
                errors,
                marker="o",
                markersize=4,
                color=colour(f"gibbs-{name}-{kind}"),
                label=FEATURES.get(name, "both sides, robust"),
            )
        axes.set_xticks(places, [str(given) for given in GIVEN])
        axes.set(xlabel="ratings known of the new user", ylabel="test RMSE")
        axes.legend()

    last = ", ".join(
        f"{name} {read(run)['rmse_by_given'][str(GIVEN[-1])]:.4f}" for run, name in runs.items()
    )
    return [
        Panel(
            "cold-start-a",
            "New users, folded in",
            f"Errors from {GIVEN[-1]} ratings: {last}.",
            draw,
        )
    ]


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
