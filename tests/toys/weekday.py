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

    def prepare(self, cells):
        return cells

    def locate(self, train, cells):
        return cells

    def start(self, train, draws):
        return {"mood": np.zeros(7)}

    def begin(self, parameters, train):
        return parameters

    def update(self, parameters, train, residual, weight, draws, shared):
        if not shared:
            return parameters
        day = train.time // DAY % 7
        P = self.precision + np.bincount(day, weight, 7)
        linear = np.bincount(day, weight * residual, 7)
        return {"mood": linear / P + draws.normals(7)[:, 0] / np.sqrt(P)}

    def fitted(self, parameters, train):
        return self.contribution(parameters, train)

    def contribution(self, parameters, where):
        if where.time is None:
            return np.zeros(len(where.user))
        return parameters["mood"][where.time // DAY % 7]

    def doubt(self, parameters, where):
        return np.full(len(where.user), 1 / self.precision if where.time is None else 0.0)
