"""The paper's figures of errors and bounds, each a list of panels, from results alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesmf.plots.look import Panel, bins_axis, legend, log_axis
from bayesmf.report.draw import colour, style
from bayesmf.report.read import (
    CONSTANT,
    DEFAULT,
    GIBBS,
    INFERENCES,
    MAXIMUM,
    ROBUST,
    SIDE,
    SIDE_ROBUST,
    Reader,
)

Array = NDArray[np.float64]


def updates_of(curve: Array) -> Array:
    """The numbers of the updates, counted from 1."""
    return np.arange(1.0, len(curve) + 1)


def lines(
    read: Reader,
    name: str,
    title: str,
    runs: dict[str, str],
    key: str,
    xlabel: str,
    ylabel: str = "test RMSE",
    top: float | None = None,
    log: bool = False,
    scale: float = 1.0,
) -> Panel:
    """Draw a curve of several runs; the words beside it say where each ends."""
    curves = {run: scale * read(run).array(key) for run in runs}

    def draw(axes: Axes) -> None:
        for run, label in runs.items():
            axes.plot(updates_of(curves[run]), curves[run], label=label, **style(run))
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if top is not None:
            lowest = min(float(np.min(curve)) for curve in curves.values())
            axes.set_ylim(lowest - 0.04 * (top - lowest), top)
            seen = min(int(np.argmax(curve < top)) for curve in curves.values())
            axes.set_xlim(left=max(seen, 1))
        if log:
            log_axis(axes, "x")
        legend(axes, len(runs))

    ends = ", ".join(f"{label} ends at {curves[run][-1]:.4g}" for run, label in runs.items())
    return Panel(name, title, f"{title}: {ends}.", draw)


def by_frequency(
    read: Reader,
    name: str,
    title: str,
    alt: str,
    errors: Mapping[str, Array],
    labels: Mapping[str, str],
    ylabel: str = "test RMSE",
) -> Panel:
    """Draw the errors of several runs by user frequency."""

    def draw(axes: Axes) -> None:
        places = bins_axis(axes, read.labels)
        for run, values in errors.items():
            axes.plot(places, values, marker="o", markersize=4, label=labels[run], **style(run))
        axes.set_ylabel(ylabel)
        axes.legend(fontsize=8 if len(errors) > 3 else None)

    return Panel(name, title, alt, draw)


def fig_2(read: Reader) -> list[Panel]:
    """Bound and errors by update, for three choices of prior and precision."""
    shown = {
        DEFAULT: "constant, default prior",
        CONSTANT: "constant, MAP-driven",
        ROBUST: "robust, MAP-driven",
    }
    bounds = [
        _two(read, f"fig-2{letter}", f"({letter}) lower bound: {told}", run, "bound")
        for letter, (run, told) in zip("abc", shown.items(), strict=True)
    ]
    errors = [
        _two(read, f"fig-2{letter}", f"({letter}) RMSE: {told}", run, "rmse")
        for letter, (run, told) in zip("def", shown.items(), strict=True)
    ]
    return [*bounds, *errors]


def _two(read: Reader, name: str, title: str, run: str, what: str) -> Panel:
    """Draw the bound or the error of a run on the training and on the test ratings."""
    is_bound = what == "bound"
    keys = ("bound", "test_bound") if is_bound else ("train_rmse", "test_rmse")
    train, test = ((1e-3 if is_bound else 1.0) * read(run).array(key) for key in keys)

    def draw(axes: Axes) -> None:
        axes.plot(updates_of(train), train, color=colour(run), label="training", alpha=0.55)
        axes.plot(updates_of(test), test, color=colour(run), linestyle=(0, (5, 1.5)), label="test")
        if not is_bound:
            least = int(np.argmin(test))
            axes.plot(least + 1, test[least], "o", color=colour(run), markersize=5)
            late = least > len(test) / 2
            axes.annotate(
                f"{test[least]:.4f} at {least + 1}",
                (least + 1, test[least]),
                textcoords="offset points",
                xytext=(-4 if late else 6, -13),
                ha="right" if late else "left",
                fontsize=8.5,
            )
        axes.set(xlabel="update", ylabel="lower bound / 1000" if is_bound else "RMSE")
        axes.legend()

    end = f"largest value is {test.max():.5g}" if is_bound else f"lowest value is {test.min():.5g}"
    alt = f"{title}: training ends at {train[-1]:.5g}, test at {test[-1]:.5g}; the test's {end}."
    return Panel(name, title, alt, draw)


def equal_errors(read: Reader) -> tuple[int, int]:
    """The Gibbs sweep and the VI update, counted from 0, whose overall errors are nearest."""
    gibbs, vi = (read(name).array("test_rmse") for name in (GIBBS, CONSTANT))
    burnt = read(GIBBS)["run"]["settings"]["burn_in"]
    update = int(np.argmin(vi))
    sweep = burnt + int(np.argmin(np.abs(gibbs[burnt:] - vi[update])))
    return sweep, update


def fig_3(read: Reader) -> list[Panel]:
    """Gibbs, VI and MAP without rated-set features."""
    labels = {GIBBS: INFERENCES["gibbs"], CONSTANT: INFERENCES["vi"]}
    sweep, update = equal_errors(read)
    at = {
        GIBBS: read(GIBBS).array("by_bin")[sweep],
        CONSTANT: read(CONSTANT).array("by_bin")[update],
    }
    nearest = by_frequency(
        read,
        "fig-3b",
        f"(b) by user, Gibbs at {sweep + 1}, VI at {update + 1}",
        "Errors by user frequency where the overall errors are nearest.",
        at,
        labels,
    )
    return [_three_errors(read, labels), nearest, _variances(read, labels)]


def _three_errors(read: Reader, labels: Mapping[str, str]) -> Panel:
    """Draw the error of Gibbs and VI by sweep, and that of MAP as a line."""
    curves = {run: read(run).array("test_rmse") for run in labels}
    point = read(MAXIMUM)["rmse"]

    def draw(axes: Axes) -> None:
        for run, curve in curves.items():
            axes.plot(updates_of(curve), curve, label=labels[run], **style(run))
        axes.axhline(point, label="MAP", **style(MAXIMUM))
        lowest = min(float(curve.min()) for curve in curves.values())
        axes.set(xlabel="sweep or update", ylabel="test RMSE", ylim=(lowest - 0.003, point + 0.02))
        log_axis(axes, "x")
        axes.legend()

    alt = (
        f"Gibbs ends at {curves[GIBBS][-1]:.4f}, VI at {curves[CONSTANT][-1]:.4f}, MAP is "
        f"{point:.4f}."
    )
    return Panel("fig-3a", "(a) test error by sweep or update", alt, draw)


def _variances(read: Reader, labels: Mapping[str, str]) -> Panel:
    """Draw the largest variance of each user's features under Gibbs and VI."""
    counts = read("users").array("user_train")
    variance = {run: read(run).array("user_variance") for run in labels}
    looks = {GIBBS: (".", colour(GIBBS)), CONSTANT: ("x", "#444444")}

    def draw(axes: Axes) -> None:
        for run, (marker, shade) in looks.items():
            axes.scatter(
                counts,
                variance[run],
                s=9,
                marker=marker,
                alpha=0.5,
                linewidths=0.6,
                rasterized=True,
                color=shade,
                label=labels[run],
            )
        axes.set(xlabel="training ratings of the user", ylabel="largest feature variance")
        log_axis(axes, "x", "y")
        axes.legend(markerscale=2)

    ratio = np.median(variance[GIBBS] / variance[CONSTANT])
    alt = f"The variance under Gibbs is {ratio:.2g} times that under VI, at the median."
    return Panel("fig-3c", "(c) largest variance of a user's features", alt, draw)


def fig_7(read: Reader) -> list[Panel]:
    """Gibbs with side features: precisions; with and without side features."""
    top = max(read(name)["rmse"] for name in (GIBBS, SIDE, SIDE_ROBUST)) + 0.03
    shown = {
        "a": ("Gibbs with side features", {SIDE: "constant", SIDE_ROBUST: "robust"}),
        "b": ("Gibbs, constant precision", {GIBBS: "no side", SIDE: "side"}),
    }
    return [
        lines(
            read,
            f"fig-7{letter}",
            f"({letter}) {title}",
            runs,
            "test_rmse",
            "sweep",
            top=top,
            log=True,
        )
        for letter, (title, runs) in shown.items()
    ]
