"""How figures look: every model has one colour, and every algorithm one line style."""

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
COLOURS = {
    "none-constant": "#7f7f7f",
    "no-side-constant": "#0072B2",
    "no-side-robust": "#E69F00",
    "no-side-truncated": "#009E73",
    "side-constant": "#D55E00",
    "side-robust": "#CC79A7",
    "side-truncated": "#56B4E9",
    "both-sides-robust": "#000000",
    "both-sides-constant": "#5a5a5a",
    "default": "#882255",
    "default-attributes": "#44AA99",
}
STYLES: dict[str, Any] = {
    "gibbs": "-",
    "vi": (0, (5, 1.5)),
    "map": ":",
    "vi-printed": (0, (3, 1.5, 1, 1.5)),
    "vi-default": (0, (1.5, 1.5)),
    "cold-start": "-",
}
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


def model_of(run: str) -> str:
    """The name of the model of a run, which is the key of its colour."""
    for kind in sorted(STYLES, key=len, reverse=True):
        if run.startswith(kind + "-"):
            return run.removeprefix(kind + "-")
    return run


def colour(run: str) -> str:
    """The colour of the model of a run."""
    return COLOURS.get(model_of(run), "#444444")


def style(run: str) -> dict[str, Any]:
    """The colour and the line style of a run."""
    kind = max((k for k in STYLES if run.startswith(k + "-")), key=len, default="gibbs")
    return {"color": colour(run), "linestyle": STYLES[kind]}


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
