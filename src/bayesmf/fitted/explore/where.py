"""Conditions on the attributes of items, such as ``genres=Drama`` and ``year>=1990``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bayesmf.data.attributes import Column
from bayesmf.data.columns import list_names, simplify
from bayesmf.data.ids import Ids
from bayesmf.errors import DataError, Option
from bayesmf.model.attributes import Attributes
from bayesmf.model.spec import Model

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
LISTED = 12  # values of an attribute that a message lists


class Condition(NamedTuple):
    """What one attribute has to be."""

    text: str  # as it was written
    column: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: Any) -> Condition:
        """Read COLUMN=VALUE, or the same with another sign."""
        found = re.fullmatch(r"(.+?)\s*(>=|<=|!=|==?|>|<)\s*(.+)", str(text).strip(), re.S)
        if found is None:
            raise DataError(
                f"{Option('where', str(text))} is no condition; write COLUMN=VALUE, or another "
                "sign of !=, >=, <=, > and <, as in year>=1990"
            )
        sign = "=" if found[2] == "==" else found[2]
        return cls(str(text), found[1].strip(), sign, found[3].strip())


def match(model: Model, ids: NDArray[Any], given: str | Iterable[str]) -> NDArray[np.bool_]:
    """Say which items fulfil every condition; one whose attribute is not known fulfils none."""
    keep = np.ones(len(ids), bool)
    for text in [given] if isinstance(given, str) else given:
        condition = Condition.parse(text)
        design, column = _find(model, condition)
        row = design.rows_of(Ids(ids)) if len(ids) else np.empty(0, np.int32)
        held = np.append(_hold(condition, column, design.table[column.name]), False)
        keep &= held[row]
    return keep


def _find(model: Model, condition: Condition) -> tuple[Attributes, Column]:
    """Find the attribute of a condition by its name, in whatever case."""
    designs = [one for one in model.item_designs if isinstance(one, Attributes)]
    if not designs:
        raise DataError(
            f"{Option('where', condition.text)} is about attributes of items, and the model has "
            f"none; fit one with {Option('item_attributes', 'TABLE')}"
        )
    columns = [(design, column) for design in designs for column in design.columns]
    for alike in (str, simplify):
        for design, column in columns:
            if alike(column.name) == alike(condition.column):
                return design, column
    raise DataError(
        f"{Option('where', condition.text)}: the items have no attribute {condition.column!r}; "
        f"those they have are {list_names([column.name for _, column in columns])}"
    )


def _hold(condition: Condition, column: Column, values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Say in which rows of a table the condition holds."""
    compare, asked = SIGNS[condition.sign], condition.value
    if column.kind == "number":
        numbers = np.array(values.to_pylist(), float)
        return np.asarray(compare(numbers, _number(condition)) & np.isfinite(numbers))
    if condition.sign not in ("=", "!="):
        raise DataError(
            f"{Option('where', condition.text)}: {column.name!r} is no number; compare it with = "
            "or !="
        )
    if asked not in column.values:
        listed = list_names(column.values[:LISTED])
        more = " and others" if len(column.values) > LISTED else ""
        raise DataError(
            f"{Option('where', condition.text)}: no item has {asked!r} in {column.name!r}; what "
            f"there is are {listed}{more}"
        )
    several = column.kind == "set"
    inside = [
        None if value is None else asked in value if several else asked == value
        for value in values.to_pylist()
    ]
    wanted = condition.sign == "="
    return np.array([one is not None and one == wanted for one in inside], bool)


def _number(condition: Condition) -> float:
    try:
        value = float(condition.value)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise DataError(
            f"{Option('where', condition.text)}: {condition.column!r} is a number, and "
            f"{condition.value!r} is none; write it like year>=1990"
        )
    return value
