"""A coarse copy of the items' rows in all draws, which rules out most items for a list.

The rows of thousands of items in a hundred draws are read from memory for every list, and that is
most of the time that a list takes. Here a number is one byte, a quarter of what it is otherwise:

    y_kja ~ s_ka q_kja,   q = -127 ... 127,   s_ka the largest |y_kja| over the items / 127,

so that the sum of x_ka y_kja over draws k and columns a is known to within the sum of |x_ka| s_ka
/ 2, besides rounding. What cannot be among the best n by that is left out, and the few that are
left are scored as they would be without it: the list is the same, and scores are so to rounding.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.ranking import STEP, add_coarse

Floats = NDArray[np.float32]
LEAST = 1 << 20  # numbers of an array below which it is read as fast as it is
LONGEST = 1 << 13  # draws times columns
SLACK = 0.6  # of a scale: half of it, and LONGEST 127 2^-24 = 0.06 for the rounding of the sums


class Coarse(NamedTuple):
    """An array (draw, item, column) in bytes."""

    cells: NDArray[np.int8]  # (draw and column, item), with zeros up to a whole number of steps
    scale: Floats  # (draw, column)

    @classmethod
    def of(cls, y: Floats) -> Coarse:
        """Make the coarse copy, draw after draw."""
        draws, items, size = y.shape
        cells = np.zeros((-(-draws * size // STEP) * STEP, items), np.int8)
        scale = np.empty((draws, size), np.float32)
        for k in range(draws):
            columns = y[k].T
            scale[k] = np.abs(columns).max(axis=1) / np.float32(127)
            unit = np.where(scale[k] > 0, scale[k], 1)[:, None]
            cells[k * size : (k + 1) * size] = np.rint(columns / unit)
        return cls(cells, scale)

    def sum_products(self, x: Floats) -> tuple[Floats, float]:
        """The sum of x_k'y_kj over the draws for every item, and by how much it may be wrong."""
        weight = np.zeros(len(self.cells), np.float32)
        weight[: x.size] = (x * self.scale).ravel()
        out = np.empty(self.cells.shape[1], np.float32)
        add_coarse(self.cells, weight, out)
        return out, SLACK * float(np.abs(weight).sum(dtype=float))


_found: dict[int, tuple[Any, Coarse | None]] = {}  # by the id of an array, as long as it lives


def find_coarse(y: Floats) -> Coarse | None:
    """Return the coarse copy of an array; None if it is small, or is asked for the first time.

    Draws that were left in a folder, so that they take no memory, have none.

    Making it takes as long as a few dozen lists, so who wants a single list does not wait for it.
    It is kept beside the array and goes with it. The array must not change. Two threads may both
    make it: there is no lock that a forked process could find closed.
    """
    if y.size < LEAST or y.shape[0] * y.shape[2] > LONGEST or isinstance(y, np.memmap):
        return None
    key = id(y)
    known, coarse = _found.get(key, (None, None))
    if known is None or known() is not y:
        _found[key] = weakref.ref(y, lambda _: _found.pop(key, None)), None
        return None
    if coarse is None:
        coarse = Coarse.of(y)
        _found[key] = known, coarse
    return coarse
