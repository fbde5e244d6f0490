"""How far is too far: bounds on many z scores at once, and standard errors of chains."""

from __future__ import annotations

import numpy as np
from scipy import stats

from bayesmf.evaluation.diagnostics import effective_draws


def bound(count: int, level: float = 1e-3) -> float:
    """|z| beyond this has probability ``level`` over all ``count`` scores, if all is well."""
    return float(stats.norm.isf(level / count / 2))


def standard_error(trace: np.ndarray) -> float:
    """Of the mean of a trace, (draw) or (chain, draw); never better than independent draws."""
    size = min(float(effective_draws(np.atleast_2d(trace))), trace.size)
    return float(trace.std(ddof=1) / np.sqrt(size))
