"""Steps of an ordinal likelihood's parameters."""

from __future__ import annotations

import numpy as np

from bayesmf.model.ordinal import Curve, newton_step
from bayesmf.random.draws import Draws


def test_a_step_to_where_no_precision_can_be_computed_is_refused():
    """Far out in a tail rounding leaves a precision that is none; Geweke's test came upon one."""
    spoilt = np.diag([-3.3e8, 9.7e5])

    def curve(at: np.ndarray) -> Curve:
        home = not at.any()
        return Curve(0.0 if home else 1e9, np.zeros(2), np.eye(2) if home else spoilt)

    at, accepted = newton_step(np.zeros(2), curve, Draws(1))
    assert not accepted
    np.testing.assert_array_equal(at, 0)
