"""The numbers that the paper reports, to stand beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bayesmf.evaluation.frequency import PAPER

Cells = dict[tuple[str, str, str], float]  # (features, inference, precision): test RMSE


def _cells(features: str, inference: str, *errors: float) -> Cells:
    """Give each precision its value, or all of them one value, as the paper does for MAP."""
    precisions = ("constant", "robust", "truncated")
    values = errors * len(precisions) if len(errors) == 1 else errors
    return {(features, inference, p): v for p, v in zip(precisions, values, strict=False)}


OVERALL: dict[str, Cells] = {
    "ml-1m": {
        **_cells("none", "gibbs", 0.9101),
        **_cells("none", "vi", 0.9101),
        **_cells("none", "map", 0.9210),
        **_cells("no-side", "gibbs", 0.8452, 0.8448, 0.8475),
        **_cells("no-side", "vi", 0.8546, 0.8570, 0.8521),
        **_cells("no-side", "map", 0.8888),
        **_cells("side", "gibbs", 0.8407, 0.8407),
        **_cells("side", "map", 0.8805),
    },
    "epinions": {
        **_cells("none", "gibbs", 1.0460),
        **_cells("none", "vi", 1.0460),
        **_cells("none", "map", 1.1298),
        ("no-side", "gibbs", "constant"): 1.0455,
        ("no-side", "vi", "constant"): 1.0550,
        **_cells("no-side", "map", 1.1211),
        ("side", "gibbs", "constant"): 1.0457,
        **_cells("side", "map", 1.1134),
    },
}
LOWEST = (("no-side", "vi", "robust"), ("no-side", "vi", "truncated"))
"""Cells in which the paper gives the lowest error on the way, not the last."""

BINS = ("<=25", "26-71", "72-146", "147-171", "172-301", "302-484", "485-829", "830+")
BY_FREQUENCY = {  # ml-1m, Gibbs
    "no-side-constant": (0.9120, 0.8674, 0.8561, 0.8508, 0.8193, 0.8275, 0.8109, 0.7475),
    "side-constant": (0.9035, 0.8608, 0.8494, 0.8459, 0.8155, 0.8243, 0.8107, 0.7474),
    "side-robust": (0.9031, 0.8615, 0.8478, 0.8449, 0.8165, 0.8250, 0.8098, 0.7443),
}


@dataclass(frozen=True)
class Printed:
    """The paper's Table 1, with its two means in their right places."""

    ratings: int
    users: int
    items: int
    per_item: tuple[int, ...]  # min, 25 %, 50 %, mean, 75 %, max
    per_user: tuple[int, ...]
    density: float


DATA: dict[str, Printed] = {
    "ml-1m": Printed(
        1_000_209,
        6_040,
        3_952,
        (0, 23, 104, 253, 323, 3_428),
        (20, 44, 96, 166, 208, 2_314),
        0.0419,
    ),
    "epinions": Printed(
        664_824, 49_290, 139_738, (0, 1, 1, 3, 2, 1_408), (0, 1, 3, 9, 9, 724), 0.0001
    ),
}


def overall_of_bins(name: str) -> float:
    """The overall RMSE that follows from the errors by bin, whose shares define the bins."""
    ends = (0.0, *PAPER, 1.0)
    shares = [high - low for low, high in pairwise(ends)]
    squares = [share * error**2 for share, error in zip(shares, BY_FREQUENCY[name], strict=True)]
    return float(sum(squares) ** 0.5)


def by_frequency(data: str, first: str, second: str, bins: int) -> Any:
    """The paper's two columns, or None if it has none for these models and bins."""
    if data != "ml-1m" or bins != len(BINS) or not {first, second} <= set(BY_FREQUENCY):
        return None
    return BY_FREQUENCY[first], BY_FREQUENCY[second]
