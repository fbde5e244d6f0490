"""The figures of the paper, from results alone: each a list of panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesmf.report.draw import Panel, bins_axis, colour, legend, log_axis, style
from bayesmf.report.read import Reader, title_of
from bayesmf.study.record import SCATTER_AT, log_correlation
from bayesmf.study.specs import WIDTHS

Array = NDArray[np.float64]
CONSTANT, ROBUST, TRUNCATED = (f"vi-no-side-{p}" for p in ("constant", "robust", "truncated"))
DEFAULT, PRINTED = "vi-default-no-side-constant", "vi-printed-no-side-robust"


def updates_of(curve: Array) -> Array:
    """Numbers from 1."""
    return np.arange(1.0, len(curve) + 1)


def lines(
    read: Reader, name: str, title: str, runs: dict[str, str], key: str, xlabel: str,
    ylabel: str = "test RMSE", top: float | None = None, log: bool = False, scale: float = 1.0,
) -> Panel:  # fmt: skip
    """A curve of several runs, and the same in words."""
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


def fig_2(read: Reader) -> list[Panel]:
    """Bound and errors by update, for three choices of prior and precision."""
    panels = []
    shown = {
        DEFAULT: "constant, default prior", CONSTANT: "constant, MAP-driven", ROBUST:
        "robust, MAP-driven",
    }  # fmt: skip
    for letter, (run, told) in zip("abc", shown.items(), strict=True):
        panels.append(_two(read, f"fig-2{letter}", f"({letter}) lower bound: {told}", run,
                           ("bound", "test bound"), "lower bound / 1000", 1e-3))  # fmt: skip
    for letter, (run, told) in zip("def", shown.items(), strict=True):
        panels.append(_two(read, f"fig-2{letter}", f"({letter}) RMSE: {told}", run,
                           ("train rmse", "test rmse"), "RMSE", 1.0))  # fmt: skip
    return panels


def _two(
    read: Reader, name: str, title: str, run: str, keys: tuple[str, str], ylabel: str, scale: float
) -> Panel:
    train, test = (scale * read(run).array(key) for key in keys)

    def draw(axes: Axes) -> None:
        axes.plot(updates_of(train), train, color=colour(run), label="training", alpha=0.55)
        axes.plot(updates_of(test), test, color=colour(run), linestyle=(0, (5, 1.5)), label="test")
        if ylabel == "RMSE":
            least = int(np.argmin(test))
            axes.plot(least + 1, test[least], "o", color=colour(run), markersize=5)
            late = least > len(test) / 2
            axes.annotate(f"{test[least]:.4f} at {least + 1}", (least + 1, test[least]),
                          textcoords="offset points", xytext=(-4 if late else 6, -13),
                          ha="right" if late else "left", fontsize=8.5)  # fmt: skip
        axes.set(xlabel="update", ylabel=ylabel)
        axes.legend()

    return Panel(name, title, f"{title}: training ends at {train[-1]:.5g}, test at {test[-1]:.5g}, "
                 f"its {'most' if 'bound' in title else 'least'} is "
                 f"{(test.max() if 'bound' in title else test.min()):.5g}.", draw)  # fmt: skip


def equal_errors(read: Reader) -> tuple[int, int]:
    """The Gibbs sweep and the VI update, from 0, whose overall errors are the nearest."""
    gibbs, vi = (read(n).array("test rmse") for n in ("gibbs-no-side-constant", CONSTANT))
    burnt = read("gibbs-no-side-constant")["run"]["settings"]["burn_in"]
    update = int(np.argmin(vi))
    sweep = burnt + int(np.argmin(np.abs(gibbs[burnt:] - vi[update])))
    return sweep, update


def fig_3(read: Reader) -> list[Panel]:
    """Gibbs, VI and MAP without side features."""
    gibbs, maximum = "gibbs-no-side-constant", "map-no-side-constant"
    curves = {run: read(run).array("test rmse") for run in (gibbs, CONSTANT)}
    point = read(maximum)["rmse"]

    def errors(axes: Axes) -> None:
        for run, curve in curves.items():
            axes.plot(updates_of(curve), curve, label=title_of(run).split(",")[0], **style(run))
        axes.axhline(point, label="MAP", **style(maximum))
        lowest = min(float(curve.min()) for curve in curves.values())
        axes.set(xlabel="sweep or update", ylabel="test RMSE",
                 ylim=(lowest - 0.003, point + 0.02))  # fmt: skip
        log_axis(axes, "x")
        axes.legend()

    sweep, update = equal_errors(read)
    at = {
        gibbs: read(gibbs).array("by bin")[sweep],
        CONSTANT: read(CONSTANT).array("by bin")[update],
    }

    def frequency(axes: Axes) -> None:
        places = bins_axis(axes, read.labels)
        for run, values in at.items():
            axes.plot(places, values, marker="o", markersize=4,
                      label=title_of(run).split(",")[0], **style(run))  # fmt: skip
        axes.set_ylabel("test RMSE")
        axes.legend()

    counts = read("users").array("user train")
    spread = {run: read(run).array("user variance") for run in (gibbs, CONSTANT)}

    def variance(axes: Axes) -> None:
        for run, marker in ((gibbs, "."), (CONSTANT, "x")):
            axes.scatter(counts, spread[run], s=9, marker=marker, alpha=0.5, linewidths=0.6,
                         rasterized=True, color=colour(run) if run == gibbs else "#444444",
                         label=title_of(run).split(",")[0])  # fmt: skip
        axes.set(xlabel="training ratings of the user", ylabel="largest feature variance")
        log_axis(axes, "x", "y")
        axes.legend(markerscale=2)

    ratio = np.median(spread[gibbs] / spread[CONSTANT])
    return [
        Panel("fig-3a", "(a) test error by sweep or update",
              f"Gibbs ends at {curves[gibbs][-1]:.4f}, VI at {curves[CONSTANT][-1]:.4f}, "
              f"MAP is {point:.4f}.", errors),
        Panel("fig-3b", f"(b) by user, Gibbs at {sweep + 1}, VI at {update + 1}",
              "Errors by user frequency where the overall errors are nearest.", frequency),
        Panel("fig-3c", "(c) largest variance of a user's features",
              f"The variance under Gibbs is {ratio:.2g} times that under VI, at the median.",
              variance),
    ]  # fmt: skip


def fig_4(read: Reader) -> list[Panel]:
    """Precisions of users and items under Gibbs and VI."""
    gibbs = "gibbs-no-side-robust"
    panels = []
    for letter, side in zip("ab", ("user", "item"), strict=True):
        values = read(gibbs).array(f"{side} precision")

        def histogram(axes: Axes, values: Array = values, side: str = side) -> None:
            axes.hist(values, bins=60, color=colour(gibbs))
            axes.set(xlabel=f"{side} precision", ylabel=f"{side}s")

        panels.append(Panel(f"fig-4{letter}", f"({letter}) {side} precisions, one Gibbs draw",
                            _range(values, side), histogram))  # fmt: skip
    for letter, side in zip("cd", ("user", "item"), strict=True):
        traces = read(gibbs).array(f"{side} precision, traces")

        def trace(axes: Axes, traces: Array = traces, side: str = side) -> None:
            names = np.linspace(0, 1, traces.shape[1])
            for k, place in enumerate(names):
                axes.plot(updates_of(traces), traces[:, k], linewidth=0.8, alpha=0.9,
                          color=_shade(place))  # fmt: skip
            axes.set(xlabel="sweep", ylabel=f"{side} precision")
            log_axis(axes, "y")

        panels.append(Panel(f"fig-4{letter}", f"({letter}) traces of six {side}s, Gibbs",
                            f"Traces of six {side}s from rare, dark, to frequent, light.",
                            trace))  # fmt: skip
    for letter, side in zip("ef", ("user", "item"), strict=True):
        runs = {gibbs: "Gibbs, one draw", ROBUST: "VI, corrected", PRINTED: "VI, as printed"}
        values_of = {run: np.sort(read(run).array(f"{side} precision")) for run in runs}

        def cdf(axes: Axes, found: Any = values_of, runs: Any = runs, side: str = side) -> None:
            for run, label in runs.items():
                share = np.arange(1, len(found[run]) + 1) / len(found[run])
                axes.plot(found[run], share, label=label, **style(run))
            axes.set(xlabel=f"{side} precision", ylabel=f"share of {side}s below")
            log_axis(axes, "x")
            axes.legend()

        alt = " ".join(f"{label}: {_range(values_of[run], side)}" for run, label in runs.items())
        panels.append(Panel(f"fig-4{letter}", f"({letter}) distribution of {side} precisions", alt,
                            cdf))  # fmt: skip
    return panels


def _shade(place: float) -> Any:
    import matplotlib as mpl

    return mpl.colormaps["viridis"](0.9 * place)


def _range(values: Array, side: str) -> str:
    return f"{side} precisions from {values.min():.3g} to {values.max():.3g}."


def fig_5(read: Reader) -> list[Panel]:
    """Truncated precisions under VI."""
    runs = {CONSTANT: "constant", ROBUST: "robust", TRUNCATED: "truncated, n = 2"}

    def frequency(axes: Axes) -> None:
        places = bins_axis(axes, read.labels)
        for run, label in runs.items():
            axes.plot(places, read(run).array("by bin")[-1], marker="o", markersize=4, label=label,
                      **style(run))  # fmt: skip
        axes.set_ylabel("test RMSE, last update")
        axes.legend()

    widths = {w: f"vi-no-side-truncated{'' if w == 2 else f'-{w:g}'}" for w in WIDTHS}

    def sweep(axes: Axes) -> None:
        for k, (width, run) in enumerate(widths.items()):
            curve = read(run).array("test rmse")
            axes.plot(updates_of(curve), curve, color=_shade(k / (len(widths) - 1)), linewidth=1.2,
                      label=f"n = {width:g}")  # fmt: skip
        for run, label in ((CONSTANT, "constant"), (ROBUST, "robust")):
            curve = read(run).array("test rmse")
            axes.plot(updates_of(curve), curve, label=label, **style(run))
        axes.set(xlabel="update", ylabel="test RMSE")
        legend(axes, len(widths) + 2)

    ends = ", ".join(f"n = {w:g} {read(run)['rmse']:.4f}" for w, run in widths.items())
    return [
        lines(read, "fig-5a", "(a) VI, by update", runs, "test rmse", "update"),
        Panel("fig-5b", "(b) by user, after the last update",
              "Errors by user frequency of constant, robust and truncated precisions.", frequency),
        Panel("fig-5c", "(c) VI, bounds 1/n and n", f"Test RMSE at the end: {ends}.", sweep),
    ]  # fmt: skip


def fig_6(read: Reader) -> list[Panel]:
    """Precision against error of users and items, in training and test."""
    panels = []
    for letter, (side, part) in zip(
        "abcd", (("user", "train"), ("item", "train"), ("user", "test"), ("item", "test")),
        strict=True,
    ):  # fmt: skip
        noise, error = read(ROBUST).array(f"scatter, {side} {part}")

        def scatter(
            axes: Axes, noise: Array = noise, error: Array = error, side: str = side
        ) -> None:
            axes.scatter(noise, np.sqrt(error), s=4, alpha=0.3, color=colour(ROBUST),
                         edgecolors="none", rasterized=True)  # fmt: skip
            axes.set(xlabel=f"{side} precision", ylabel="root mean weighted square")
            if len(noise):
                log_axis(axes, "x", "y")

        told = "training" if part == "train" else "test"
        value = log_correlation(noise, error)
        panels.append(Panel(f"fig-6{letter}", f"({letter}) {side}s, {told}, update {SCATTER_AT}",
                            f"The logs of precision and error correlate by {value:.2f}.",
                            scatter))  # fmt: skip
    for letter, run, told in (("e", ROBUST, "corrected"), ("f", PRINTED, "as printed")):
        curves = {
            (side, part): read(run).array(f"correlation, {side} {part}")
            for side in ("user", "item")
            for part in ("train", "test")
        }

        def correlation(axes: Axes, curves: dict[tuple[str, str], Array] = curves) -> None:
            for (side, part), curve in curves.items():
                axes.plot(updates_of(curve), curve, label=f"{side}s, {part}",
                          color="#0072B2" if side == "user" else "#D55E00",
                          linestyle="-" if part == "train" else (0, (3, 1.5)))  # fmt: skip
            axes.set(xlabel="update", ylabel="correlation of logs")
            axes.set_ylim(min(0.0, *(float(c.min()) for c in curves.values())), 1.02)
            axes.legend(ncols=2)

        ends = ", ".join(f"{s}s in {p} {c[-1]:.2f}" for (s, p), c in curves.items())
        panels.append(Panel(f"fig-6{letter}", f"({letter}) correlation by update, {told}",
                            f"At the end: {ends}.", correlation))  # fmt: skip
    return panels


def fig_7(read: Reader) -> list[Panel]:
    """Gibbs with side features: precisions; with and without side features."""
    names = ("gibbs-side-constant", "gibbs-side-robust", "gibbs-no-side-constant")
    finals = [read(name)["rmse"] for name in names]
    top = max(finals) + 0.03
    return [
        lines(read, "fig-7a", "(a) Gibbs with side features",
              {names[0]: "constant", names[1]: "robust"}, "test rmse", "sweep", top=top, log=True),
        lines(read, "fig-7b", "(b) Gibbs, constant precision",
              {names[2]: "no side", names[0]: "side"}, "test rmse", "sweep", top=top, log=True),
    ]  # fmt: skip


def pick(names: Sequence[str], read: Reader) -> list[str]:
    """Those of some runs that are there."""
    return [name for name in names if read.has(name)]
