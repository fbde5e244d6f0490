"""How a notebook shows a fit: what it is, the verdict on its chains, and two small drawings."""

from __future__ import annotations

import io
from typing import Any

from markupsafe import Markup

from bayesmf.errors import DataError

MARKS = {True: ("#17653a", "converged"), False: ("#a1242e", "not converged")}
WIDE, HIGH = 3.0, 2.0  # inches of a small drawing


def show(fit: Any) -> str:
    """The HTML of a fit; every text in it is escaped."""
    facts = [f"{type(fit).__name__}", *_describe(fit)]
    lines = [Markup("<div style='max-width: 46rem'>")]
    lines.append(Markup("<p style='margin: 0.2rem 0'><b>{}</b> {}</p>").format(
        facts[0], " · ".join(facts[1:])
    ))  # fmt: skip
    if fit._traces():
        verdict = fit.diagnostics().verdict
        colour, _ = MARKS.get(verdict.converged, ("#7c4d00", ""))
        dot = Markup("<span style='color: {}' aria-hidden='true'>●</span> ").format(colour)
        lines.append(Markup("<p style='margin: 0.2rem 0'>{}{}</p>").format(dot, verdict.words))
    pictures = Markup("").join(_pictures(fit))
    if pictures:
        lines.append(
            Markup("<div style='display: flex; flex-wrap: wrap; gap: 0.5rem'>{}</div>").format(
                pictures
            )
        )
    lines.append(Markup("</div>"))
    return str(Markup("\n").join(lines))


def _describe(fit: Any) -> list[str]:
    """What was fitted to what, in a few words each."""
    try:
        posterior = fit.posterior
    except DataError:  # no draws were kept
        return [f"rank {fit.model.rank}"]
    told = [
        f"rank {posterior.model.rank}",
        f"{posterior.model.precision} precision",
        f"{posterior.model.likelihood.name} ratings",
        f"{len(posterior.users):,} users, {len(posterior.items):,} items",
        f"{len(posterior):,} draws",
    ]
    error = getattr(fit, "test_rmse", None)
    return told if error is None else [*told, f"test RMSE {error:.4f}"]


def _pictures(fit: Any) -> list[Markup]:
    """The chains, and the calibration on held-out ratings, where there are any."""
    found = []
    for draw, title in ((fit.plot.trace, "chains"), (fit.plot.calibration, "calibration")):
        try:
            found.append(_small(draw, title))
        except DataError:  # there is nothing of the kind to draw
            continue
    return found


def _small(draw: Any, title: str) -> Markup:
    """A drawing as an image of its own, on white, since its ink is dark."""
    import base64

    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from bayesmf.plots.look import LOOK

    with mpl.rc_context({**LOOK, "font.size": 7.5, "legend.fontsize": 6.5}):
        figure = Figure(figsize=(WIDE, HIGH), layout="constrained")
        FigureCanvasAgg(figure)
        draw(ax=figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=160, metadata={"Software": None})
    data = base64.b64encode(file.getvalue()).decode()
    image = Markup("<img alt='{}' style='width: {}px; max-width: 100%' src='{}'>")
    return image.format(title, round(96 * WIDE), f"data:image/png;base64,{data}")
