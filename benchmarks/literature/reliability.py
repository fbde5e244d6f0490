"""How far P(rating = r) can be trusted: of what is given 30 %, do 30 % happen?"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.plots.look import LOOK
from literature import variants
from literature.runs import arrays_of, log_probability, stored
from literature.tables import NOTHING, markdown, notes

BINS = 10
FEW = 100  # ratings of a bin: with fewer it is not drawn
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
Array = np.ndarray


class Curve(NamedTuple):
    """Bins of equal width of a predicted probability; empty ones are left out."""

    predicted: Array  # mean probability of each bin
    observed: Array  # share of it that happened
    count: Array


def curve(probability: Array, happened: Array) -> Curve:
    """Compare predicted probabilities of an event with how often it happened."""
    number = np.minimum((np.asarray(probability, float) * BINS).astype(int), BINS - 1)
    count = np.bincount(number, minlength=BINS)
    sums = (np.bincount(number, weight, BINS) for weight in (probability, happened))
    predicted, observed = (total[count > 0] / count[count > 0] for total in sums)
    return Curve(predicted, observed, count[count > 0])


def calibration_error(probability: Array, happened: Array) -> float:
    """The mean distance of predicted and observed, each bin weighted by its ratings."""
    found = curve(probability, happened)
    return float(np.average(np.abs(found.predicted - found.observed), weights=found.count))


class Outcomes:
    """The test ratings of one fit, with the probability of every level."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.levels, self.probability = arrays["levels"], arrays["probability"].astype(float)
        self.happened = np.isclose(arrays["value"][:, None], self.levels)
        self.log_probability = log_probability(arrays)
        self.bins = FrequencyBins.at_quantiles(arrays["total"])

    def error(self, rows: Array | slice = slice(None)) -> float:
        """The calibration error, as a mean over the levels."""
        each = [calibration_error(self.probability[rows, k], self.happened[rows, k])
                for k in range(len(self.levels))]  # fmt: skip
        return float(np.mean(each))


def by_level(fits: dict[str, Outcomes]) -> str:
    first = next(iter(fits.values()))
    head = ["rating", "share of test"]
    head += [f"{what}, {name}" for name in fits for what in ("mean P", "calibration error")]
    rows = []
    for k, level in enumerate(first.levels):
        row = [f"{level:g}", f"{first.happened[:, k].mean():.4f}"]
        for fit in fits.values():
            p = fit.probability[:, k]
            error = calibration_error(p, fit.happened[:, k])
            row += [f"{p.mean():.4f}", f"{error:.4f}"]
        rows.append(row)
    rows.append(
        ["all", "1"] + [cell for fit in fits.values() for cell in ("", f"{fit.error():.4f}")]
    )
    return markdown(head, rows)


def by_frequency(fits: dict[str, Outcomes]) -> str:
    bins = next(iter(fits.values())).bins
    head = ["ratings of the user", "test ratings"]
    head += [
        f"{what}, {name}" for name in fits for what in ("calibration error", "log probability")
    ]
    rows = []
    for k, (label, count) in enumerate(zip(bins.labels, bins.counts, strict=True)):
        row = [label, f"{count:,}"]
        for fit in fits.values():
            mine = bins.index == k
            row += [f"{fit.error(mine):.4f}", f"{fit.log_probability[mine].mean():.4f}"]
        rows.append(row)
    return markdown(head, rows)


def draw(fits: dict[str, Outcomes], path: Path) -> None:
    """A panel for each rating: the diagonal is what is promised."""
    levels = next(iter(fits.values())).levels
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(2.1 * len(levels) + 0.4, 2.9), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(levels), squeeze=False)[0]
        for k, (axes, level) in enumerate(zip(panels, levels, strict=True)):
            most = 0.1  # of the axes, where no bin is full enough to be drawn
            for colour, (name, fit) in zip(COLOURS, fits.items(), strict=False):
                found = curve(fit.probability[:, k], fit.happened[:, k])
                shown = found.count >= FEW
                axes.plot(found.predicted[shown], found.observed[shown], "o-", color=colour,
                          markersize=3.5, linewidth=1.2, label=name)  # fmt: skip
                most = max([most, *found.predicted[shown], *found.observed[shown]])
            axes.axline((0, 0), slope=1, color="#888888", linewidth=0.8, zorder=0)
            axes.set(xlim=(0, 1.05 * most), ylim=(0, 1.05 * most), title=f"rating {level:g}",
                     xlabel="predicted", aspect="equal")  # fmt: skip
        panels[0].set_ylabel("share that happened")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
        figure.savefig(path.with_suffix(".png"), dpi=130)


def report(models: list[str], rank: int, path: Path) -> str:
    """Both tables, of the longest run of each model on fold 0; the figure goes to ``path``."""
    records = [r for r in stored("fold") if r["case"] == "fold 0" and r["rank"] == rank]
    longest = {r["model"]: r for r in sorted(records, key=lambda r: r["chains"] * r["sweeps"])}
    chosen = [longest[name] for name in models if name in longest]
    if not chosen:
        return NOTHING
    fits = {variants.words(r["model"]): Outcomes(arrays_of(r["key"])) for r in chosen}
    draw(fits, path)
    told = "; ".join(f"{variants.words(r['model'])}: rank {r['rank']}, {r['chains']} x "
                     f"{r['sweeps']} sweeps" for r in chosen)  # fmt: skip
    return "\n\n".join([by_level(fits), by_frequency(fits), told + ".", notes(chosen)])
