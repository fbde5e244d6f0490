"""Every random stream of a fit in one table: which parameter draws from which number.

A draw is fixed by (seed, chain, sweep, number, row), so two purposes that can meet in one fit must
not share a number. There are 64.
"""

from __future__ import annotations

from typing import Literal

from bayesmf.choices import Side as Name
from bayesmf.random.draws import Draws

OF_A_SIDE = {"rows": 0, "alpha": 1, "scale": 2, "hyper": 3, "W": 5, "W_hyper": 6, "W_free": 7}
"""Of the users; the items' are ITEM later. A second group of hyper has 4; see A_DESIGN."""
ITEM, A_DESIGN = 16, 3  # W, W_hyper and W_free of the next design are A_DESIGN later
GLOBAL = {"effect": 32, "tau": 40, "response": 41}
START = {("user", "rows"): 48, ("item", "rows"): 49, ("user", "W"): 50, ("item", "W"): 51}
"""Of the start, by side; further designs start from their own W at sweep 0."""
FROM_Q = {"tau": 52, ("user", "x"): 53, ("user", "W"): 54, ("user", "alpha"): 55,
          ("item", "x"): 57, ("item", "W"): 58, ("item", "alpha"): 59}  # fmt: skip
"""Of the draws from a variational Q."""
STRANGERS = 60  # W of somebody of whom nothing is known
THOMPSON = 61  # the draw that each user is recommended by
PROPAGATED = {"user": 62, "item": 63}  # rows from the product of propagated posteriors


def stream(draws: Draws, side: Name | None, what: str, group: int = 0) -> Draws:
    """The random numbers of one parameter, of one side unless it is global."""
    if side is None:
        return draws.of(GLOBAL[what] + group)
    step = A_DESIGN if what.startswith("W") else 1
    return draws.of(OF_A_SIDE[what] + step * group + (ITEM if side == "item" else 0))


def start_stream(draws: Draws, side: Name, what: Literal["rows", "W"], design: int = 0) -> Draws:
    """The random numbers that the rows of a side, or the W of a design, begin with."""
    if design:
        return stream(draws, side, "W", design)
    return draws.of(START[side, what])
