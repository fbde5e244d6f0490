"""How good predictions and their intervals are, overall and by user frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.evaluation.calibration import LEVELS, crps, inside, log_score
from bayesmf.evaluation.frequency import FrequencyBins

Array = NDArray[np.float64]


def scores(values: Array, bins: FrequencyBins, mean: Array, variance: Array) -> dict[str, Any]:
    """RMSE, MAE, log score, CRPS and coverage of Gaussian predictions."""
    sd = np.sqrt(variance)
    error = mean - values
    measured = {
        "mae": np.abs(error),
        "log score": log_score(values, mean, sd),
        "crps": crps(values, mean, sd),
        **{f"coverage {level:g}": inside(values, mean, sd, level).astype(float)
           for level in LEVELS},
    }  # fmt: skip
    facts: dict[str, Any] = {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "by bin": {"rmse": bins.rmse(error).tolist()},
    }
    for name, each in measured.items():
        facts[name] = float(each.mean())
        facts["by bin"][name] = bins.mean(each).tolist()
    return facts
