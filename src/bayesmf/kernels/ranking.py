"""The best columns of each row of scores; each thread has rows of its own."""

from __future__ import annotations

import numpy as np

from bayesmf.machine import serial

STEP = 6  # lines that are added together; ``add_coarse`` names them one by one
PANEL = 2048  # columns at a time, whose sums stay in the first cache


@serial
def leave_out(scores, user, starts, index, column_of):
    """Sets scores to -inf where the user of the row has rated.

    ``column_of`` holds the column of each item, or -1 if it has none.
    """
    for r in range(len(user)):
        if user[r] >= 0:
            for p in range(starts[user[r]], starts[user[r] + 1]):
                column = column_of[index[p]]
                if column >= 0:
                    scores[r, column] = -np.inf


@serial
def _sift(value, column, at, end):
    """Lets the entry ``at`` of a heap sink below all that are smaller; the least is at 0.

    Of equal values the later column is the smaller.
    """
    v, c = value[at], column[at]
    while 2 * at + 1 < end:
        down = 2 * at + 1
        other = down + 1
        if other < end and (
            value[other] < value[down]
            or (value[other] == value[down] and column[other] > column[down])
        ):
            down = other
        if v < value[down] or (v == value[down] and c > column[down]):
            break
        value[at], column[at] = value[down], column[down]
        at = down
    value[at], column[at] = v, c


@serial
def largest(scores, out):
    """Fills out_r with the columns of the largest entries of scores_r, the largest first."""
    width = out.shape[1]
    for r in range(len(out)):
        row = scores[r]
        value = row[:width].copy()
        column = np.arange(width)
        for at in range(width // 2 - 1, -1, -1):
            _sift(value, column, at, width)
        for c in range(width, len(row)):
            if row[c] > value[0]:
                value[0], column[0] = row[c], c
                _sift(value, column, 0, width)
        for end in range(width - 1, -1, -1):  # the least goes last, and so on
            out[r, end] = column[0]
            value[0], column[0] = value[end], column[end]
            _sift(value, column, 0, end)


@serial
def add_coarse(cells, weight, out):
    """Fills out with sum_k weight_k cells_k over the lines of bytes, a whole number of steps."""
    out[:] = 0
    for begin in range(0, len(out), PANEL):
        end = min(begin + PANEL, len(out))
        total = out[begin:end]
        for k in range(0, len(weight), STEP):
            a, b, c = cells[k, begin:end], cells[k + 1, begin:end], cells[k + 2, begin:end]
            d, e, f = cells[k + 3, begin:end], cells[k + 4, begin:end], cells[k + 5, begin:end]
            u, v, w = weight[k], weight[k + 1], weight[k + 2]
            x, y, z = weight[k + 3], weight[k + 4], weight[k + 5]
            for j in range(end - begin):
                total[j] += (
                    (u * np.float32(a[j]) + v * np.float32(b[j]))
                    + (w * np.float32(c[j]) + x * np.float32(d[j]))
                    + (y * np.float32(e[j]) + z * np.float32(f[j]))
                )
