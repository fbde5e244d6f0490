"""What there is to see of a fit, each drawn on axes from plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bayesmf.plots.look import BLUE, GREY, ORANGE, PALETTE, bins_axis

Array = NDArray[np.float64]
LONGEST = 34  # letters of a name beside a bar


def trace(axes: Axes, chains: Array, name: str) -> Axes:
    """The values of each chain (chain, sweep), one line each: lines that mix have converged."""
    for number, values in enumerate(chains):
        axes.plot(
            np.arange(1, len(values) + 1),
            values,
            color=PALETTE[number % len(PALETTE)],
            linewidth=1.0,
            alpha=0.85,
            label=f"chain {number + 1}",
        )
    axes.set(xlabel="sweep after the warm-up", ylabel=name)
    return axes


def calibration(axes: Axes, levels: Array, shares: Array) -> Axes:
    """The share of ratings inside intervals of each probability; right is the diagonal."""
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), label="perfect")
    axes.plot(levels, shares, color=BLUE, marker="o", markersize=3.5, label="this fit")
    axes.set(
        xlabel="probability of the interval",
        ylabel="share of the ratings inside",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.legend(loc="upper left")
    return axes


def by_frequency(
    axes: Axes,
    labels: Sequence[str],
    values: Mapping[str, Sequence[float]],
    what: str,
    wanted: float | None = None,
) -> Axes:
    """A measure by how many ratings a user has, one line for each name, and what it should be."""
    places = bins_axis(axes, list(labels))
    for number, (name, each) in enumerate(values.items()):
        axes.plot(places, each, marker="o", markersize=4, color=PALETTE[number], label=name)
    if wanted is not None:
        axes.axhline(wanted, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), label="perfect")
    axes.set_ylabel(what)
    if len(values) > 1 or wanted is not None:
        axes.legend()
    return axes


def prior_posterior(axes: Axes, draws: Array, prior: Callable[[Array], Array], what: str) -> Axes:
    """A histogram of draws over the density of their prior."""
    low, high = (float(end) for end in np.quantile(draws, (0.001, 0.999)))
    width = max(high - low, 1e-3 * abs(high) or 1e-3)
    count = int(np.clip(np.sqrt(draws.size), 8, 40))
    bins = np.linspace(low - 0.02 * width, high + 0.02 * width, count + 1).tolist()
    axes.hist(draws, bins, density=True, color=BLUE, alpha=0.75, label="posterior")
    grid = np.linspace(max(low - width, 0.01 * abs(low)), high + width, 400)
    axes.plot(grid, prior(grid), color=ORANGE, label="prior")
    axes.set(xlabel=what, ylabel="density", xlim=(grid[0], grid[-1]))
    axes.set_ylim(bottom=0)
    axes.legend()
    return axes


def intervals(
    axes: Axes,
    names: Sequence[str],
    mean: Array,
    inner: tuple[Array, Array],
    outer: tuple[Array, Array],
    scale: tuple[float, float],
) -> Axes:
    """The expected rating of each name, with its 50 % and its 90 % interval; the first on top."""
    places = np.arange(len(names))[::-1]
    axes.hlines(places, *outer, color=BLUE, linewidth=1.4, alpha=0.45, label="90 %")
    axes.hlines(places, *inner, color=BLUE, linewidth=4.5, alpha=0.75, label="50 %")
    axes.plot(mean, places, "o", color="white", markeredgecolor=BLUE, markersize=5, label="mean")
    axes.set_yticks(places, [shorten(name) for name in names], fontsize=8.5)
    axes.set_xlabel("rating")
    axes.grid(visible=False, axis="y")
    for end in scale:
        axes.axvline(end, color=GREY, linewidth=0.8, linestyle=":")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, fontsize=8)
    return axes


def shares(axes: Axes, levels: Array, values: Mapping[str, Array], xlabel: str = "rating") -> Axes:
    """How often each rating of a scale occurs, as bars of each name side by side."""
    step = float(np.min(np.diff(levels))) if len(levels) > 1 else 1.0
    width = 0.8 * step / len(values)
    for number, (name, each) in enumerate(values.items()):
        middle = levels + (number - (len(values) - 1) / 2) * width
        axes.bar(middle, each, width, color=(BLUE, ORANGE)[number % 2], alpha=0.85, label=name)
    if len(levels) <= 11:
        axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.set(xlabel=xlabel, ylabel="share")
    axes.grid(visible=False, axis="x")
    axes.legend()
    return axes


def shorten(name: Any) -> str:
    """A name that has room beside a bar; its dollars are no formula."""
    text = str(name)
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return text.replace("$", r"\$")
