"""Designs: what shifts the prior mean of a row.

A design is a sparse matrix X with a row for each user (or item) and a vector W_k for each column.
The prior mean of row i becomes mu + sum over the designs of X_i W. Rated sets are the first design;
another one is a class with ``matrix`` that is passed to ``Model``, and registered if models with it
are to be saved and read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bayesmf.checks import check_number
from bayesmf.choices import Side
from bayesmf.data.ids import Ids
from bayesmf.errors import DataError
from bayesmf.kernels.designs import Sparse

Array = NDArray[np.float64]
Name = Side
SIDES: tuple[Name, Name] = ("user", "item")
MOST_DESIGNS = 3  # on one side: so many have random streams of their own


class SideFacts(NamedTuple):
    """What a design may look at: the rows of its side."""

    name: Name
    ids: Ids  # the ids of the rows, in their order
    counts: NDArray[np.int64]  # ratings of each row


@dataclass(frozen=True)
class Matrix:
    """The matrix X of a design: X_ik = scale_i v_ik.

    Without ``rows`` and ``columns`` the entries are the rated pairs, each with v_ik = 1, and the
    columns are the rows of the other side.
    """

    scale: Array  # one number for each row
    rows: Sparse | None = None  # v by row: the columns of each row
    columns: Sparse | None = None  # v by column: the rows of each column

    @classmethod
    def from_sparse(cls, matrix: Any) -> Matrix:
        """From a scipy sparse matrix with a row for each row of the side."""
        by_row, by_column = matrix.tocsr(), matrix.tocsc()
        by_row.sort_indices()
        by_column.sort_indices()
        return cls(np.ones(matrix.shape[0]), _sparse(by_row), _sparse(by_column))

    def to_sparse(self) -> Any:
        """X as a scipy sparse array, of a design that does not depend on ratings."""
        assert self.rows is not None
        assert self.columns is not None
        starts, index, values = self.rows
        values = (values if len(values) else 1.0) * np.repeat(self.scale, np.diff(starts))
        shape = len(self.scale), len(self.columns.starts) - 1
        return sparse.csr_array((values, index, starts), shape=shape)

    def length(self, counts: NDArray[np.int64]) -> float:
        """The root mean square length of the rows that have entries; ``counts`` are their ratings.

        Where the weights W have the standard deviation 1, this is that of what they add to a row.
        """
        squares = self.scale**2 * counts
        if self.rows is not None:
            values, starts = self.rows.values, self.rows.starts
            row = np.repeat(np.arange(len(self.scale)), np.diff(starts))
            squares = self.scale**2 * np.bincount(row, values**2, len(self.scale))
        squares = squares[squares > 0]
        return float(np.sqrt(squares.mean())) if len(squares) else 1.0

    def cut(self, begin: int, end: int) -> Matrix:
        """The rows from ``begin`` to ``end``, for a part of the side; the columns stay behind."""
        rows = None
        if self.rows is not None:
            starts = self.rows.starts[begin : end + 1]
            span = slice(int(starts[0]), int(starts[-1]))
            rows = frozen(
                Sparse(
                    starts - starts[0], self.rows.index[span].copy(), self.rows.values[span].copy()
                )
            )
        return Matrix(self.scale[begin:end], rows)


def frozen(sparse: Sparse) -> Sparse:
    """The same with read-only arrays, as ratings are: the kernels are compiled for that."""
    for array in sparse:
        array.flags.writeable = False
    return sparse


def _sparse(matrix: Any) -> Sparse:
    values = matrix.data.astype(float)
    return frozen(Sparse(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values))


@runtime_checkable
class Design(Protocol):
    """What ``Model`` takes as a design of users or items."""

    name: ClassVar[str]

    def matrix(self, side: SideFacts) -> Matrix:
        """The matrix for these rows."""


@dataclass(frozen=True)
class RatedSet:
    """The rated set of a row: X_ik = n_i^-power for every k that row i rated.

    The paper has power 1, so that a row is shifted by the mean of W over what it rated. With 1/2
    the strength of the evidence keeps growing with the number of ratings.
    """

    power: float = 0.5

    name: ClassVar[str] = "rated-set"

    def __post_init__(self) -> None:
        check_number("power", self.power)
        if not 0 <= self.power <= 2:
            raise DataError(f"power={self.power}: choose 0 to 2")

    def matrix(self, side: SideFacts) -> Matrix:
        """The rated pairs themselves, scaled by n_i^-power; 0 for a row without ratings."""
        n = np.maximum(side.counts, 1).astype(float)
        return Matrix(np.where(side.counts > 0, n**-self.power, 0.0))


PARTS: dict[str, type[Any]] = {}
"""Designs, likelihoods and effects by name, so that a saved model finds them again."""
Part = TypeVar("Part", bound=type[Any])


def register(kind: Literal["design", "likelihood", "effect"]) -> Callable[[Part], Part]:
    """Class decorator: a model with this design, likelihood or effect can be saved and read."""

    def add(part: Part) -> Part:
        PARTS[f"{kind} {part.name}"] = part
        return part

    return add


register("design")(RatedSet)
