"""The rating scale: its ends and, for stars, the step between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_number
from bayesmf.errors import DataError

STEPS = (1.0, 0.5, 0.25, 0.2, 0.1)
MOST_LEVELS = 101  # more distinct values than this, and the scale counts as continuous


@dataclass(frozen=True)
class Scale:
    """The numbers that a rating can be: low, low + step, ..., high.

    With ``step=None`` any number from ``low`` to ``high`` is a rating.
    """

    low: float
    high: float
    step: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # so that equal scales look equal, too
            if value is not None:
                object.__setattr__(self, name, check_number(name, value))
        ends = (self.low, self.high, self.step if self.step is not None else 1.0)
        if self.low > self.high or ends[2] <= 0:
            raise DataError(f"{self} is not a rating scale; write LOW:HIGH or LOW:HIGH:STEP")

    @classmethod
    def of(cls, given: Any) -> Scale:
        """Make a scale of a Scale, a tuple (low, high[, step]) or the text "low:high[:step]"."""
        if isinstance(given, Scale):
            return given
        parts = given.split(":") if isinstance(given, str) else given
        try:
            numbers = [float(part) for part in parts]
            return cls(*numbers)
        except (TypeError, ValueError):
            raise DataError(
                f"{given!r} is not a rating scale; write LOW:HIGH or LOW:HIGH:STEP, such as 1:5:1"
            ) from None

    @classmethod
    def infer(cls, levels: NDArray[np.float64]) -> Scale:
        """Return the narrowest scale that holds these distinct values."""
        low, high = float(levels.min()), float(levels.max())
        if levels.size <= MOST_LEVELS:
            for step in STEPS:
                scale = cls(low, high, step)
                if scale.holds(levels).all():
                    return scale
        return cls(low, high)

    def holds(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return, for each value, whether it lies on the scale."""
        inside: NDArray[np.bool_] = (values >= self.low) & (values <= self.high)
        if self.step is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # huge values are on no grid
                steps = (values - self.low) / self.step
                inside &= np.abs(steps - np.round(steps)) < 1e-6
        return inside

    def __str__(self) -> str:
        ends = f"{self.low:g}..{self.high:g}"
        return ends if self.step is None else f"{ends} by {self.step:g}"
