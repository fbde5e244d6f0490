"""Observations sorted, grouped and merged: arrays with an entry for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.choices import Duplicates
from bayesmf.data.values import MOST

FEW = 1 << 12  # positions that are sorted at once


def take(values: NDArray[Any] | None, keep: Any) -> NDArray[Any] | None:
    """Return the values at some positions, if there are any."""
    return None if values is None else values[keep]


def equal(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Whether both are equal, or neither is there."""
    return one is other if one is None or other is None else np.array_equal(one, other)


def group(codes: NDArray[np.int32], n: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the row starts, and the stable order that groups the positions by code.

    A counting sort in compiled code: the csc matrix whose column k holds one entry in row
    codes[k] becomes, as csr, the list of columns of each row.
    """
    size = len(codes)
    if size < FEW:  # the same order without a matrix, which takes longer to make
        starts = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(codes, minlength=n), out=starts[1:])
        return starts, np.argsort(codes, kind="stable").astype(np.int32)

    from scipy import sparse

    index = np.int32 if size < np.iinfo(np.int32).max else np.int64
    pointers = np.arange(size + 1, dtype=index)
    ones = np.ones(size, np.int8)
    grouped = sparse.csc_array((ones, codes, pointers), shape=(n, size)).tocsr()
    return grouped.indptr.astype(np.int64), grouped.indices


def sort(
    user: NDArray[np.int32], item: NDArray[np.int32], n_users: int, n_items: int
) -> NDArray[np.int32]:
    """Return the stable order by user, then item."""
    by_item = group(item, n_items)[1]
    return by_item[group(user[by_item], n_users)[1]]


def merge(
    values: NDArray[Any],
    weights: NDArray[Any] | None,
    order: NDArray[np.int32],
    again: NDArray[np.int64],
    how: Duplicates,
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.bool_]]:
    """Keep one observation of each pair: the last in the input, with the mean value if asked.

    With weights that is the weighted mean, and its weight their sum, if a weight may be so large.
    """
    first = np.ones(len(order), bool)
    first[again] = False
    last = np.append(first[1:], True)
    if how == "mean":
        start = np.flatnonzero(first)
        each = np.ones(len(order)) if weights is None else weights[order]
        total = np.add.reduceat(each, start)
        values = values.copy()
        values[order[last]] = np.add.reduceat(each * values[order], start) / total
        if weights is not None:
            weights = weights.copy()
            weights[order[last]] = np.minimum(total, MOST)
    return values, weights, last
