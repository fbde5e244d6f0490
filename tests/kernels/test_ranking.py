"""The best columns of each row, against sorting."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmf.kernels.ranking import largest, leave_out


@pytest.mark.parametrize("width", [1, 2, 7, 16, 40])
def test_the_largest_entries_come_first_and_of_equals_the_earlier(width):
    rng = np.random.default_rng(width)
    scores = rng.integers(-3, 4, (50, 40)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    out = np.empty((50, width), np.int64)
    largest(scores, out)
    np.testing.assert_array_equal(out, np.argsort(-scores, axis=1, kind="stable")[:, :width])


def test_what_was_rated_is_left_out_and_nothing_else():
    starts, index = np.array([0, 2, 2, 5]), np.array([4, 0, 1, 4, 2], np.int32)
    place = np.array([3, -1, 0, 1, 2])  # the column of each item; item 1 is no candidate
    scores = np.zeros((4, 4), np.float32)
    leave_out(scores, np.array([2, -1, 0, 1], np.int32), starts, index, place)
    expected = np.zeros((4, 4))
    expected[0, [2, 0]] = expected[2, [2, 3]] = -np.inf
    np.testing.assert_array_equal(scores, expected)
