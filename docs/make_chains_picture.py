"""Draw docs/figures/traces.svg and docs/figures/ranks.svg: four chains on the demo data; seed 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import rankdata

import bayesmf
from bayesmf.evaluation.diagnostics import PREDICTIONS, SPREAD, TAU, find_warm_up, measure
from bayesmf.plots.look import LOOK
from bayesmf.report.draw import COLOURS

FIGURES = Path(__file__).parent / "figures"
CHAINS = [COLOURS[name] for name in ("no-side-constant", "no-side-robust", "no-side-truncated",
                                     "side-robust")]  # fmt: skip
SWEEPS, BEGIN, BINS = 400, 12, 10


def sample() -> bayesmf.inference.gibbs.GibbsFit:
    """Four chains of the default model at rank 6."""
    train, _ = bayesmf.split(bayesmf.load("demo"), "paper", seed=0)
    return bayesmf.Gibbs(bayesmf.Model(rank=6), chains=4, sweeps=SWEEPS).fit(train)


def draw_traces(traces: dict[str, Any], warm_up: int, path: Path) -> None:
    """Three quantities by sweep; the warm-up is grey."""
    predictions = traces[PREDICTIONS]
    ess = measure(predictions[:, warm_up:]).ess
    middle = int(np.argsort(ess)[len(ess) // 2])
    shown = [
        ("The noise precision", traces[TAU]),
        ("The variance of the linear predictor", traces[SPREAD]),
        (f"The prediction of one pair, of {len(ess)}", predictions[:, :, middle]),
    ]
    figure = _figure(8.6, 5.2)
    panels = figure.subplots(3, 1, sharex=True)
    for axes, (title, trace) in zip(panels, shown, strict=True):
        found = measure(trace[:, warm_up:])
        for chain, values in enumerate(trace):
            axes.plot(np.arange(1, len(values) + 1), values, color=CHAINS[chain], lw=0.8,
                      label=f"chain {chain + 1}")  # fmt: skip
        _zoom(axes, trace)
        axes.axvspan(0.5, warm_up + 0.5, color="#bbbbbb", alpha=0.45, lw=0)
        told = f"R-hat {found.r_hat:.3f}, {found.ess:,.0f} effective draws"
        axes.set_title(f"{title}: {told}", fontsize=10, loc="left")
        axes.set_xlim(0, trace.shape[1])
    panels[-1].set_xlabel(f"sweep of each chain (grey: the warm-up, {warm_up} sweeps)")
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=4)
    for line in legend.get_lines():
        line.set_linewidth(2.5)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _zoom(axes: Axes, trace: Any) -> None:
    """Leave the first few sweeps out of the picture where they would flatten all others."""
    late = trace[:, BEGIN:]
    low, high = late.min(), late.max()
    axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))


def draw_ranks(traces: dict[str, Any], warm_up: int, path: Path) -> None:
    """Histograms by chain of the ranks that its draws have among those of all chains."""
    shown = [
        ("The variance of the linear predictor", traces[SPREAD][:, warm_up:]),
        ("The noise precision", traces[TAU][:, warm_up:]),
    ]
    figure = _figure(8.6, 4.2)
    for (title, part), row in zip(shown, figure.subfigures(2, 1), strict=True):
        found = measure(part)
        told = f"R-hat {found.r_hat:.3f}, {found.ess:,.0f} effective draws"
        row.suptitle(f"{title}: {told}", fontsize=10, x=0.01, ha="left")
        ranks = rankdata(part).reshape(part.shape)
        ends = 0, ranks.size
        for chain, axes in enumerate(row.subplots(1, len(part), sharey=True)):
            axes.hist(ranks[chain], BINS, range=ends, color=CHAINS[chain], ec="white", lw=0.6)
            axes.axhline(part.shape[1] / BINS, color="#333333", lw=1, ls=(0, (4, 2)))
            axes.set_xticks(ends, [f"{end:,}" for end in ends])
            axes.grid(visible=False)
            axes.set_xlabel(f"rank of draws of chain {chain + 1}")
            if not chain:
                axes.set_ylabel("draws")
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def main() -> None:
    """Sample once, and draw both."""
    fit = sample()
    warm_up = find_warm_up(fit.traces)
    with mpl.rc_context(LOOK):
        draw_traces(fit.traces, warm_up, FIGURES / "traces.svg")
        draw_ranks(fit.traces, warm_up, FIGURES / "ranks.svg")


if __name__ == "__main__":
    main()
