"""The training ratings as a sweep takes them: both ways, with the matrices of the designs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings, Rows
from bayesmf.kernels.designs import NO_VALUES, Sparse, pattern
from bayesmf.kernels.response.rated import reorder
from bayesmf.kernels.rows import Observed, batches
from bayesmf.model.designs import Matrix, Name, SideFacts
from bayesmf.model.spec import Model

Array = NDArray[np.float64]
Values = tuple[Any, ...]
Work = Callable[..., tuple[Array, ...]]


@dataclass(frozen=True)
class RowPriors:
    """A Gaussian for each row, known beforehand: x_i ~ N(P_i^-1 h_i, P_i)."""

    precision: Array  # P_i, lower triangles row by row
    linear: Array  # h_i = P_i times the mean


@dataclass(frozen=True)
class SideData:
    """The ratings by the rows of one side; an item is a user of the transposed data."""

    name: Name
    observed: Any  # Observed; an engine may keep it elsewhere
    counts: NDArray[np.int64]
    matrices: tuple[Matrix, ...] = ()  # of the designs
    column_counts: tuple[NDArray[np.int64], ...] = ()  # entries in each column of each design
    columns: tuple[Sparse, ...] = ()  # the designs by column; an engine may keep them elsewhere
    priors: RowPriors | None = None  # in place of the hierarchical prior, which learns

    def pattern(self, number: int) -> Sparse:
        """The entries of a design by row."""
        given = self.matrices[number].rows
        return pattern(self.observed) if given is None else given

    def run(
        self, work: Work, shared: Values, by_row: Values, *, reads: bool = False
    ) -> tuple[Array, ...]:
        """Return arrays with an entry for each row: work(self, *shared, *by_row).

        ``by_row`` are arrays with an entry for each row. What comes out for a row may not depend on
        the others, so that another engine may do the work in parts of the rows. ``reads`` tells
        the engine that the work reads the ratings, or the working response in their place.
        """
        return work(self, *shared, *by_row)

    def run_strips(
        self, number: int, work: Work, shared: Values, by_strip: Values
    ) -> tuple[Array, ...]:
        """The same for strips of columns: work(columns, first strip, *shared, *by_strip)."""
        return work(self.columns[number], 0, *shared, *by_strip)


def side_data(
    rows: Rows, name: Name, mean: float, matrices: tuple[Matrix, ...] = (), first: int = 0
) -> SideData:
    """Rows of one side, of which ``first`` is the number of the first."""
    order = batches(rows.counts)
    order.flags.writeable = False  # as the ratings are: the kernels are compiled for that
    weights = NO_VALUES if rows.weights is None else rows.weights
    observed = Observed(rows.starts, rows.index, rows.values, mean, order, first, weights)
    return SideData(name, observed, rows.counts, matrices)


@dataclass(frozen=True)
class Response:
    """The working response of every rating, where it is not the rating itself.

    A likelihood or an effect changes it in every sweep; the kernels read it by user and by item.
    """

    cells: Cells  # user, item and time of each rating, in by-user order
    centred: Array  # the ratings less the model's centre
    by_user: Array
    by_item: Array
    order: NDArray[np.int64]  # by_item[k] is by_user[order[k]]
    scratch: Array  # four rows, overwritten in every sweep: memory asked for anew would be slower
    prepared: tuple[Any, ...] = ()  # the ratings as each effect of the model takes them
    weights: Array | None = None  # those given with the ratings

    @classmethod
    def of(cls, ratings: Ratings, model: Model, mean: float) -> Response:
        """That of ratings before anything is known of them: their values about the mean."""
        rows = ratings.by_user
        cells = Cells(rows.row_index, rows.index, rows.times)
        centred = np.asarray(rows.values, float) - mean
        order = np.argsort(rows.index, kind="stable")
        prepared = tuple(effect.prepare(cells) for effect in model.every_effect)
        by_item = centred[order]
        scratch = np.empty((4, len(centred)))
        return cls(cells, centred, centred.copy(), by_item, order, scratch, prepared, rows.weights)

    def put(self, target: Array, explained: Array | None = None) -> None:
        """Hand a new response to the kernels: the target without what is explained already."""
        if explained is None:
            self.by_user[:] = target
        else:
            np.subtract(target, explained, out=self.by_user)
        reorder(self.by_user, self.order, self.by_item)


@dataclass(frozen=True)
class Data:
    """Training ratings, both ways, and what is taken off them."""

    user: SideData
    item: SideData
    mean: float  # what is taken off every rating: as a rule the mean rating
    size: int
    response: Response | None = None  # where the model does not read the ratings themselves

    @classmethod
    def of(
        cls, ratings: Ratings, model: Model, mean: float | None = None, designs: bool = True
    ) -> Data:
        """Prepare ratings for a model; ``mean`` is that of the training ratings if others are.

        ``designs`` is False for rows whose prior is known, which ask for no designs.
        """
        model.likelihood.check(ratings)
        mean = model.likelihood.centre(ratings.mean) if mean is None else mean
        user, item = ratings.by_user, ratings.by_item
        response, read = None, mean  # what the kernels take off what they read
        if model.responds:
            response, read = Response.of(ratings, model, mean), 0.0
            user = _with_values(user, response.by_user)
            item = _with_values(item, response.by_item)
        users: tuple[Matrix, ...] = ()
        items: tuple[Matrix, ...] = ()
        if designs:
            users = design_matrices(model, SideFacts("user", ratings.users, user.counts))
            items = design_matrices(model, SideFacts("item", ratings.items, item.counts))
        one, two = side_data(user, "user", read, users), side_data(item, "item", read, items)
        sides = with_columns(one, two), with_columns(two, one)
        return cls(*sides, mean, len(ratings), response)


def _with_values(rows: Rows, values: Array) -> Rows:
    """The same pairs with other values, which the kernels may read but not change."""
    return replace(rows, values=values.view())


def design_matrices(model: Model, side: SideFacts) -> tuple[Matrix, ...]:
    """The matrices of all designs of a side."""
    return tuple(design.matrix(side) for design in model.designs(side.name))


def count_weights(model: Model, users: Ids, items: Ids) -> int:
    """How many vectors W_k all designs together have.

    A rated set has one for each row of the other side. Any other design says how many it has by its
    matrix of a single row.
    """
    total, one = 0, np.zeros(1, np.int64)
    sides: tuple[tuple[Name, Ids, Ids], ...] = (("user", users, items), ("item", items, users))
    for name, mine, others in sides:
        for matrix in design_matrices(model, SideFacts(name, mine.take(one), one)):
            columns = matrix.columns
            total += len(others) if columns is None else len(columns.starts) - 1
    return total


def column_counts(matrices: tuple[Matrix, ...], others: NDArray[np.int64]) -> Any:
    """Entries in each column of each design; ``others`` counts the ratings of the other side."""
    return tuple(others if one.columns is None else np.diff(one.columns.starts) for one in matrices)


def with_columns(mine: SideData, other: SideData) -> SideData:
    """A side with its designs by column: the rated pairs by column are the other side's rows."""
    rated = pattern(other.observed)
    columns = tuple(rated if one.columns is None else one.columns for one in mine.matrices)
    counts = column_counts(mine.matrices, other.counts)
    return replace(mine, columns=columns, column_counts=counts)
