"""One look for every figure: letters, lines, colours and axes.

This module loads matplotlib, so nothing imports it before something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's colours, which the colour-blind can tell apart
BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7f7f7f",
)  # fmt: skip
PALETTE = (BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY)
SIZE = (4.6, 3.3)
LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "bayesmf",
    "lines.linewidth": 1.7,
}

Draw = Callable[[Axes], None]


class Panel:
    """One drawing, as SVG for the page and for print, and as PNG."""

    def __init__(self, name: str, title: str, alt: str, draw: Draw) -> None:
        self.name, self.title, self.alt = name, title, alt
        with mpl.rc_context(LOOK):
            figure = Figure(figsize=SIZE, layout="constrained")
            FigureCanvasAgg(figure)
            axes = figure.subplots()
            draw(axes)
            axes.set_title(title, fontsize=10, loc="left")
            self.svg = self._svg(figure)
            self.png = self._png(figure)

    @staticmethod
    def _svg(figure: Figure) -> str:
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return file.getvalue()

    @staticmethod
    def _png(figure: Figure) -> bytes:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=160, metadata={"Software": None})
        return file.getvalue()


def log_axis(axes: Axes, *which: str) -> None:
    """Make axes logarithmic, with powers of ten, their doubles and halves written out."""
    for name in which:
        getattr(axes, f"set_{name}scale")("log")
        axis = getattr(axes, f"{name}axis")
        low, high = getattr(axes, f"get_{name}lim")()
        subs = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=20))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def legend(axes: Axes, entries: int) -> None:
    """Put the legend among the lines if it is short, and else below them."""
    if entries <= 3:
        axes.legend()
    else:
        longest = max(len(text) for text in axes.get_legend_handles_labels()[1])
        axes.figure.legend(
            loc="outside lower center",
            ncols=2 if longest > 21 else 3,
            fontsize=7.5,
            columnspacing=1.0,
            handlelength=2.4,
        )


def bins_axis(axes: Axes, labels: list[str]) -> range:
    """Put the bins of user frequency along the bottom; return their places."""
    places = range(len(labels))
    axes.set_xticks(places, labels, rotation=35, ha="right", fontsize=8.5)
    axes.set_xlabel("ratings of the user")
    return places
