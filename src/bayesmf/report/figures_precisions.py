"""The paper's figures of precisions, each a list of panels, from results alone."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from bayesmf.choices import SIDES
from bayesmf.plots.look import Panel, legend, log_axis
from bayesmf.report.draw import colour, style
from bayesmf.report.figures import Array, by_frequency, lines, updates_of
from bayesmf.report.read import CONSTANT, GIBBS_ROBUST, PRINTED, ROBUST, TRUNCATED, Reader
from bayesmf.study.record import SCATTER_AT, log_correlation
from bayesmf.study.specs import WIDTHS


def fig_4(read: Reader) -> list[Panel]:
    """Precisions of users and items under Gibbs and VI."""
    return [
        *(_histogram(read, *each) for each in zip("ab", SIDES, strict=True)),
        *(_traces(read, *each) for each in zip("cd", SIDES, strict=True)),
        *(_distribution(read, *each) for each in zip("ef", SIDES, strict=True)),
    ]


def _histogram(read: Reader, letter: str, side: str) -> Panel:
    values = read(GIBBS_ROBUST).array(f"{side}_precision")

    def draw(axes: Axes) -> None:
        axes.hist(values, bins=60, color=colour(GIBBS_ROBUST))
        axes.set(xlabel=f"{side} precision", ylabel=f"{side}s")

    title = f"({letter}) {side} precisions, one Gibbs draw"
    return Panel(f"fig-4{letter}", title, _range(values, side), draw)


def _traces(read: Reader, letter: str, side: str) -> Panel:
    traces = read(GIBBS_ROBUST).array(f"{side}_precision_traces")

    def draw(axes: Axes) -> None:
        for k, place in enumerate(np.linspace(0, 1, traces.shape[1])):
            shade = _shade(place)
            axes.plot(updates_of(traces), traces[:, k], linewidth=0.8, alpha=0.9, color=shade)
        axes.set(xlabel="sweep", ylabel=f"{side} precision")
        log_axis(axes, "y")

    alt = f"Traces of six {side}s from rare, dark, to frequent, light."
    return Panel(f"fig-4{letter}", f"({letter}) traces of six {side}s, Gibbs", alt, draw)


def _distribution(read: Reader, letter: str, side: str) -> Panel:
    runs = {GIBBS_ROBUST: "Gibbs, one draw", ROBUST: "VI, corrected", PRINTED: "VI, as printed"}
    found = {run: np.sort(read(run).array(f"{side}_precision")) for run in runs}

    def draw(axes: Axes) -> None:
        for run, label in runs.items():
            share = np.arange(1, len(found[run]) + 1) / len(found[run])
            axes.plot(found[run], share, label=label, **style(run))
        axes.set(xlabel=f"{side} precision", ylabel=f"share of {side}s below")
        log_axis(axes, "x")
        axes.legend()

    alt = " ".join(f"{label}: {_range(found[run], side)}" for run, label in runs.items())
    return Panel(f"fig-4{letter}", f"({letter}) distribution of {side} precisions", alt, draw)


def _shade(place: float) -> Any:
    """A colour from dark to light."""
    return mpl.colormaps["viridis"](0.9 * place)


def _range(values: Array, side: str) -> str:
    return f"{side} precisions from {values.min():.3g} to {values.max():.3g}."


def fig_5(read: Reader) -> list[Panel]:
    """Truncated precisions under VI."""
    runs = {CONSTANT: "constant", ROBUST: "robust", TRUNCATED: "truncated, n = 2"}
    return [
        lines(read, "fig-5a", "(a) VI, by update", runs, "test_rmse", "update"),
        by_frequency(
            read,
            "fig-5b",
            "(b) by user, after the last update",
            "Errors by user frequency of constant, robust and truncated precisions.",
            {run: read(run).array("by_bin")[-1] for run in runs},
            runs,
            "test RMSE, last update",
        ),
        _widths(read),
    ]


def _widths(read: Reader) -> Panel:
    """Draw the error of VI by update for every choice of the bounds."""
    widths = {w: f"vi-no-side-truncated{'' if w == 2 else f'-{w:g}'}" for w in WIDTHS}

    def draw(axes: Axes) -> None:
        for k, (width, run) in enumerate(widths.items()):
            curve, shade = read(run).array("test_rmse"), _shade(k / (len(widths) - 1))
            label = f"n = {width:g}"
            axes.plot(updates_of(curve), curve, color=shade, linewidth=1.2, label=label)
        for run, label in ((CONSTANT, "constant"), (ROBUST, "robust")):
            curve = read(run).array("test_rmse")
            axes.plot(updates_of(curve), curve, label=label, **style(run))
        axes.set(xlabel="update", ylabel="test RMSE")
        legend(axes, len(widths) + 2)

    ends = ", ".join(f"n = {w:g} {read(run)['rmse']:.4f}" for w, run in widths.items())
    return Panel("fig-5c", "(c) VI, bounds 1/n and n", f"Test RMSE at the end: {ends}.", draw)


def fig_6(read: Reader) -> list[Panel]:
    """Precision against error of users and items, in training and test."""
    pairs = [(side, part) for part in ("train", "test") for side in SIDES]
    return [
        *(_scatter(read, letter, *pair) for letter, pair in zip("abcd", pairs, strict=True)),
        _correlations(read, "e", ROBUST, "corrected"),
        _correlations(read, "f", PRINTED, "as printed"),
    ]


def _scatter(read: Reader, letter: str, side: str, part: str) -> Panel:
    precision, error = read(ROBUST).array(f"scatter_{side}_{part}")

    def draw(axes: Axes) -> None:
        axes.scatter(
            precision,
            np.sqrt(error),
            s=4,
            alpha=0.3,
            color=colour(ROBUST),
            edgecolors="none",
            rasterized=True,
        )
        axes.set(xlabel=f"{side} precision", ylabel="root mean weighted square")
        if len(precision):
            log_axis(axes, "x", "y")

    told = "training" if part == "train" else "test"
    value = log_correlation(precision, error)
    return Panel(
        f"fig-6{letter}",
        f"({letter}) {side}s, {told}, update {SCATTER_AT}",
        f"The correlation of the logs of precision and error is {value:.2f}.",
        draw,
    )


def _correlations(read: Reader, letter: str, run: str, told: str) -> Panel:
    curves = {
        (side, part): read(run).array(f"correlation_{side}_{part}")
        for side in SIDES
        for part in ("train", "test")
    }

    def draw(axes: Axes) -> None:
        for (side, part), curve in curves.items():
            axes.plot(
                updates_of(curve),
                curve,
                label=f"{side}s, {part}",
                color="#0072B2" if side == "user" else "#D55E00",
                linestyle="-" if part == "train" else (0, (3, 1.5)),
            )
        axes.set(xlabel="update", ylabel="correlation of logs")
        axes.set_ylim(min(0.0, *(float(c.min()) for c in curves.values())), 1.02)
        axes.legend(ncols=2)

    ends = ", ".join(f"{s}s in {p} {c[-1]:.2f}" for (s, p), c in curves.items())
    title = f"({letter}) correlation by update, {told}"
    return Panel(f"fig-6{letter}", title, f"At the end: {ends}.", draw)
