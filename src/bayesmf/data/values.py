"""Ratings, times and weights as numbers: checked, and ratings and times in small types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bayesmf.data.ids import Locate
from bayesmf.data.scale import Scale
from bayesmf.errors import DataError, Option, clause

LEAST, MOST = 1e-9, 1e9  # of a weight: beyond, rounding decides what the ratings together say


def check_values(
    column: pa.ChunkedArray, locate: Locate, declared: Scale | None
) -> NDArray[np.float64]:
    """Return the ratings as floats; refuse any that is not finite, or not on a declared scale."""
    _refuse_text(column, "rating", locate)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DataError(f"{locate(row)}: the rating is missing; leave out pairs without a rating")
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(
            f"{locate(row)}: the rating is {values[row]}; leave out the row or give a finite number"
        )
    if declared is not None:
        held = declared.holds(values)
        if not held.all():
            row = int(np.argmin(held))
            raise DataError(
                f"{locate(row)}: the rating {values[row]:g} is not on the scale {declared}; "
                "correct it" + clause(f", or declare another scale with {Option('scale')}")
            )
    return values


def check_times(
    column: pa.ChunkedArray, locate: Locate, remedy: str = "leave the times out"
) -> NDArray[np.int64]:
    """Return times as integers: dates as seconds since 1970, whole numbers as they are.

    ``remedy`` ends the message about a time that is neither: it says how to do without times.
    """
    kind = column.type
    row = 0
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        dates = column.cast(pa.timestamp("s", getattr(kind, "tz", None)), safe=False)
        return dates.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
    elif pa.types.is_integer(kind):
        if kind != pa.uint64() or pc.max(column).as_py() < 2**63:
            return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
        row = int(np.argmax(column.to_numpy()))
    elif pa.types.is_floating(kind):
        numbers = column.to_numpy()
        whole = np.abs(numbers) < 2.0**53
        whole &= numbers == np.round(numbers)
        if whole.all():
            return numbers.astype(np.int64)  # type: ignore[no-any-return]
        row = int(np.argmin(whole))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        row = next((k for k, value in enumerate(column) if not _is_date(value)), 0)
    raise DataError(
        f"{locate(row)}: the time {column[row].as_py()!r} is neither whole seconds since 1970 nor "
        f"a date like the others; correct it, or {remedy}"
    )


def check_weights(
    column: pa.ChunkedArray, locate: Locate, remedy: str = "leave the weights out"
) -> NDArray[np.float64]:
    """Return weights as floats; refuse any that is not a number from ``LEAST`` to ``MOST``.

    ``remedy`` ends the message: it says how to do without weights.
    """
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise wrong_weight(locate(row), "", remedy)
    _refuse_text(column, "weight", locate, f", or {remedy}")
    weights: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    right = (weights >= LEAST) & (weights <= MOST)
    if not right.all():
        row = int(np.argmin(right))
        raise wrong_weight(locate(row), float(weights[row]), remedy)
    return weights


def wrong_weight(where: str, value: str | float, remedy: str) -> DataError:
    """Return the error that says what is wrong with a weight, given as a number or as a text."""
    if isinstance(value, str):
        wrong = f"the weight {value!r} is not a number; write it like 2 or 0.5"
        if not value.strip():
            wrong = "the weight is missing; give every rating one"
    elif not 0 < value < np.inf:
        wrong = f"the weight {value:g} is not above 0 and finite; correct it, leave out the row"
    else:
        wrong = (
            f"the weight {value:g} is not from {LEAST:g} to {MOST:g}; divide all weights by the "
            "same number"
        )
    return DataError(f"{where}: {wrong}, or {remedy}")


def _refuse_text(column: pa.ChunkedArray, what: str, locate: Locate, remedy: str = "") -> None:
    """Refuse a column that does not hold numbers."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(
            f"{locate(0)}: the {what} {column[0].as_py()!r} is {kind}, not a number; convert the "
            f"column first{remedy}"
        )


def _is_date(text: pa.Scalar) -> bool:
    try:
        return text.cast(pa.timestamp("s")) is not None
    except pa.ArrowInvalid:
        return False


def compact(values: NDArray[np.float64]) -> NDArray[Any]:
    """Convert to the smallest of int8, float32 and float64 that holds every value exactly."""
    whole = (values == np.round(values)).all() and values.min() >= -128 and values.max() <= 127
    if whole:
        return values.astype(np.int8)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values) else values


def compact_times(times: NDArray[np.int64]) -> NDArray[Any]:
    """Convert to the smaller of int32 and int64 that holds every time."""
    bounds = np.iinfo(np.int32)
    fits = times.min() >= bounds.min and times.max() <= bounds.max
    return times.astype(np.int32) if fits else times
