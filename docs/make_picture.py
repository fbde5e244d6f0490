"""Draw docs/figures/predictions.svg: one user's test ratings, and what was predicted; seed 0.

The fit is that of the README:
`bayesmf fit demo --holdout paper --rank 6 --sweeps 200 --burn-in 100`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import bayesmf
from bayesmf.plots.look import LOOK
from bayesmf.report.draw import COLOURS

PICTURE = Path(__file__).parent / "figures" / "predictions.svg"
USER, STRANGER, SHOWN = 1321, 7_000_000, 24
QUANTILES = (0.05, 0.25, 0.75, 0.95)


def draw(path: Path) -> None:
    """Two panels: a user whom the fit knows well, and somebody it does not know."""
    train, test = bayesmf.split(bayesmf.load("demo"), "paper", seed=0)
    fit = bayesmf.Gibbs(bayesmf.Model(rank=6), sweeps=200, burn_in=100, chains=1).fit(train)
    place = int(train.users.index([USER])[0])
    rows = test.by_user
    span = slice(rows.starts[place], rows.starts[place + 1])
    chosen = np.linspace(0, rows.counts[place] - 1, SHOWN).astype(int)
    items, ratings = test.items.values[rows.index[span]][chosen], rows.values[span][chosen]
    tables = [
        fit.predict([(user, item) for item in items.tolist()], quantiles=QUANTILES).to_pandas()
        for user in (USER, STRANGER)
    ]
    order = np.argsort(tables[0]["mean"].to_numpy())
    known = int(train.by_user.counts[place])
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(8.6, 3.5), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, table in ((left, tables[0]), (right, tables[1])):
            _intervals(axes, table.iloc[order])
        left.plot(range(SHOWN), ratings[order], "x", color=COLOURS["side-constant"], ms=5.5,
                  mew=1.6, label="the rating, not used for the fit")  # fmt: skip
        left.set_title(f"A user with {known} training ratings", fontsize=10, loc="left")
        right.set_title("The same items for somebody unknown", fontsize=10, loc="left")
        left.set_ylabel("rating")
        left.set_yticks(range(1, 6))
        left.set_xlabel(f"{SHOWN} of the user's test ratings, by predicted mean")
        right.set_xlabel(f"the same {SHOWN} items")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _intervals(axes: Axes, table: Any) -> None:
    x, blue = range(SHOWN), COLOURS["no-side-constant"]
    columns = {name: table[name].to_numpy() for name in ("mean", "q05", "q25", "q75", "q95")}
    axes.vlines(x, columns["q05"], columns["q95"], color=blue, lw=1.2, label="90 % interval")
    axes.vlines(x, columns["q25"], columns["q75"], color=blue, lw=5, alpha=0.45,
                label="50 % interval")  # fmt: skip
    axes.plot(x, columns["mean"], "o", color=blue, ms=3.5, label="predicted mean")
    axes.set_xticks([])
    axes.grid(axis="x", visible=False)


if __name__ == "__main__":
    draw(PICTURE)
