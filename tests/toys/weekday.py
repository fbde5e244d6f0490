"""An effect with a time: every day of the week has a mood of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayesmf.model.designs import register

DAY = 86_400  # seconds


@register("effect")
@dataclass(frozen=True)
class Weekday:
    """x_p = mood_d on weekday d; mood_d ~ N(0, precision)."""

    precision: float = 4.0

    name: ClassVar[str] = "weekday"

    def start(self, cells, draws):
        return {"mood": np.zeros(7)}

    def update(self, parameters, cells, residual, weight, draws):
        day = cells.time // DAY % 7
        P = self.precision + np.bincount(day, weight, 7)
        linear = np.bincount(day, weight * residual, 7)
        return {"mood": linear / P + draws.normals(7)[:, 0] / np.sqrt(P)}

    def contribution(self, parameters, cells):
        if cells.time is None:
            return np.zeros(len(cells.user))
        return parameters["mood"][cells.time // DAY % 7]

    def doubt(self, parameters, cells):
        return np.full(len(cells.user), 1 / self.precision if cells.time is None else 0.0)
