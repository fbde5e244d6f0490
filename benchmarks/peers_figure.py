"""The figure: test RMSE against seconds, a curve or a point for each entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bayesmf.plots.look import LOOK, log_axis
from peers_entries import ENTRIES, TOOLS
from peers_table import done, results

COLOURS = {"bayesmf": "#D55E00", "smurff": "#0072B2", "myfm": "#009E73", "surprise": "#CC79A7",
           "cornac": "#E69F00", "lenskit": "#56B4E9", "spark": "#7f7f7f", "numpyro": "#000000",
           "cmfrec": "#8c564b"}  # fmt: skip
TOP = 0.90


def draw(folder: Path, path: Path) -> None:
    """Write path.svg and path.png; the run with the middle time stands for all rounds."""
    found = {key: done(runs) for key, runs in results(folder).items()}
    shown = {key: sorted(runs, key=lambda r: r["seconds"])[len(runs) // 2]["curve"]
             for key, runs in found.items() if runs}  # fmt: skip
    shown = {key: curve for key, curve in shown.items() if curve}
    if not shown:
        return
    lowest = min(point["rmse"] for curve in shown.values() for point in curve)
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(9.2, 5.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        labels = []
        for entry in ENTRIES:
            if entry.key in shown:
                at = _one(axes, shown[entry.key], COLOURS[entry.peer], entry.peer == "bayesmf")
                labels.append((*at, f"{TOOLS[entry.peer]}, {entry.model}", COLOURS[entry.peer]))
        axes.set(xlabel="seconds of fitting", ylabel="test RMSE, unclipped",
                 ylim=(lowest - 0.004, TOP))  # fmt: skip
        low, high = axes.get_xlim()
        first = min(at[0] for at in labels)
        axes.set_xlim(max(low, min(first, 0.5) / 3, 0.05), high * 1.05)
        log_axis(axes, "x")
        _direct_labels(axes, labels)
        figure.savefig(path.with_name(path.name + ".svg"), metadata={"Date": None})
        figure.savefig(path.with_name(path.name + ".png"), dpi=130)


def _one(axes: Any, curve: list[Any], colour: str, strong: bool) -> tuple[float, float]:
    x, y = ([point[name] for point in curve] for name in ("seconds", "rmse"))
    if len(curve) > 2:
        axes.plot(x, y, color=colour, linewidth=2.2 if strong else 1.3, zorder=3 if strong else 2)
    axes.plot(x[-1], y[-1], "o", color=colour, markersize=6 if strong else 4.5, zorder=4)
    return x[-1], y[-1]


def _direct_labels(axes: Any, labels: list[Any]) -> None:
    """Names in a column at the right, spread so that none overlaps, each tied to its end."""
    low, high = axes.get_ylim()
    gap = (high - low) / 27
    rows = sorted(labels, key=lambda label: label[1])
    heights: list[float] = []
    for _, y, _, _ in rows:
        lowest = heights[-1] + gap if heights else low + gap / 2
        heights.append(max(min(y, high), lowest))
    over = heights[-1] - (high - gap / 2)
    if over > 0:  # push down from the top, as far as is needed
        heights[-1] -= over
        for k in range(len(heights) - 2, -1, -1):
            heights[k] = min(heights[k], heights[k + 1] - gap)
    right = axes.get_xlim()[1]
    for (x, y, name, colour), height in zip(rows, heights, strict=True):
        axes.annotate(
            name, (x, min(y, high)), xytext=(right * 1.15, height), textcoords="data",
            va="center", fontsize=8.5, color=colour, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6,
                        "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 3},
        )  # fmt: skip
