"""How runs look in figures: every model has one colour, and every algorithm one line style."""

from __future__ import annotations

from typing import Any

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
