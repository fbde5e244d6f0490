"""Rows that are not in a posterior: what its draws say of them, and which attributes they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bayesmf.data.ids import Ids, read_id
from bayesmf.data.pairs import Pairs, ids_of
from bayesmf.data.ratings import Ratings
from bayesmf.fitted.new_rows import NewRows, Rated
from bayesmf.kernels.designs import Sparse
from bayesmf.model.data import design_matrices
from bayesmf.model.designs import SIDES, Matrix, Name, RatedSet, SideFacts, frozen
from bayesmf.model.spec import Model

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]
POWER = 0.5  # of the numbers of ratings of training's rows: their weights, chosen on validation


class Measured(NamedTuple):
    """What all draws, and the centre if there is one, say of the rows of a side."""

    draws: NewRows
    centre: NewRows | None


def drawn_rows(draws: Arrays, number: int, name: Name) -> Array:
    """The rows of one side in one draw, with what is kept apart of rows that are means."""
    rows: Array = draws[f"{name}.x"][number].astype(float)
    if f"{name}.noise" in draws:
        rows += draws[f"{name}.noise"][number]
    return rows


def join_given(matrices: Iterable[Matrix]) -> Any:
    """Given designs side by side, as one sparse matrix; None if there are none among these."""
    given = [matrix.to_sparse() for matrix in matrices if matrix.rows is not None]
    return sparse.hstack(given, format="csr") if given else None


class Newcomers:
    """What draws say of users and items that are not in them; computed once, when asked for.

    Designs that depend on ratings, the rated sets, are a part of what ``NewRows`` measures. Given
    designs, such as attributes, are known of newcomers as well: rows are measured without what
    these add, and it is added again to the prior mean of a newcomer.
    """

    def __init__(
        self,
        model: Model,
        ids: Mapping[Name, Ids],
        counts: Mapping[Name, NDArray[np.int64]],
        train: Callable[[], Ratings | None],
    ) -> None:
        self.model, self.ids, self.counts, self.train = model, ids, counts, train
        self._found: dict[int, Arrays] = {}  # by the number of draws, which a centre has one of
        self.known_rows: dict[Name, Measured] = {}  # a posterior that is updated hands it on
        self.unseen_rows: dict[Name, Measured] = {}  # and this, one that takes in rows

    def add_to(self, draws: Arrays) -> Arrays:
        """Draws with the moments of a stranger, and b_j and newness of all rows."""
        count = len(draws["tau"])
        if "user.newness" in draws:
            return draws
        if count not in self._found:
            found: dict[str, list[Array]] = {}
            for number in range(count):
                for name in SIDES:
                    for key, values in self._measure(draws, number, name).items():
                        found.setdefault(key, []).append(values)
            self._found[count] = {key: np.array(v, np.float32) for key, v in found.items()}
        return {**draws, **self._found[count]}

    def _measure(self, draws: Arrays, number: int, name: Name) -> dict[str, Array]:
        """What one draw says of strangers of one side, and of what they are asked about.

        A stranger of whom no attributes are known has those of somebody, nobody knows whom.
        """
        other: Name = "item" if name == "user" else "user"
        new = self.new_rows(draws, number, name)
        out = {
            f"{name}.new_mean": new.stranger,
            f"{name}.new_cov": new.cov,
            f"{name}.newness": np.zeros(len(self.ids[name])),
            f"{other}.query": new.query(draws[f"{other}.x"][number].astype(float)),
        }
        if self.given[name]:
            added, n = self.offsets(new.W, name), self.counts[name]
            mean = n @ added / max(n.sum(), 1)
            cov = ((added - mean) * n[:, None]).T @ (added - mean) / max(n.sum(), 1)
            out.update({f"{name}.row_mean": new.stranger, f"{name}.row_cov": new.cov})
            out[f"{name}.new_W"] = new.W
            out.update({f"{name}.new_mean": new.stranger + mean, f"{name}.new_cov": new.cov + cov})
        return out

    def new_rows(
        self, draws: Arrays, number: int, name: Name, cov: Array | None = None, power: float = 1.0
    ) -> NewRows:
        """What one draw says of new users (or items); ``cov``, ``power``: see ``NewRows.of``."""
        rows, given = drawn_rows(draws, number, name), self.given_matrix[name]
        others = drawn_rows(draws, number, "item" if name == "user" else "user")
        prior_cov = np.linalg.inv(draws[f"{name}.Lambda"][number].astype(float))
        return NewRows.of(rows, self.rated[name], others, prior_cov, power, cov, given)

    def measure_known_rows(self, draws: Arrays, centre: Arrays | None, name: Name) -> Measured:
        """Measure the prior of rows of training on every draw, and on the centre; only once."""
        if name not in self.known_rows:
            self.known_rows[name] = self._measure_all(draws, centre, name, POWER, True)
        return self.known_rows[name]

    def measure_unseen_rows(self, draws: Arrays, centre: Arrays | None, name: Name) -> Measured:
        """Measure the prior of rows that training has not seen in the same way; only once."""
        if name not in self.unseen_rows:
            self.unseen_rows[name] = self._measure_all(draws, centre, name, 1.0, False)
        return self.unseen_rows[name]

    def _measure_all(
        self, draws: Arrays, centre: Arrays | None, name: Name, power: float, told: bool
    ) -> Measured:
        """Measure every draw, and the centre; ``told`` tells whether q_i is kept."""

        def measure(arrays: Arrays, number: int, cov: Array | None = None) -> NewRows:
            found = self.new_rows(arrays, number, name, cov, power)
            return found if told else replace(found, told=found.told[:0])

        found = NewRows.stack(measure(draws, number) for number in range(len(draws["tau"])))
        if centre is None:
            return Measured(found, None)
        one = {key: values[None] for key, values in centre.items()}
        return Measured(found, NewRows.stack([measure(one, 0, found.cov.mean(axis=0))]))

    @cached_property
    def rated(self) -> dict[Name, Rated]:
        """What training rated, by side; where that is not at hand, only how much."""
        train = self.train()
        if train is None:
            nothing = np.empty(0, np.int32)
            user, item = (
                frozen(Sparse(np.zeros(len(self.ids[name]) + 1, np.int64), nothing, np.empty(0)))
                for name in SIDES
            )
        else:
            rows = train.by_user, train.by_item
            user, item = (Sparse(side.starts, side.index) for side in rows)
        return {
            "user": Rated(user, item, self.counts["user"]),
            "item": Rated(item, user, self.counts["item"]),
        }

    @cached_property
    def given(self) -> dict[Name, dict[int, Matrix]]:
        """The designs of each side that do not depend on ratings, by their number."""
        return {name: self.given_of(name, self.ids[name]) for name in SIDES}

    @cached_property
    def given_matrix(self) -> dict[Name, Any]:
        """These side by side, for each side; None if there are none."""
        return {name: join_given(self.given[name].values()) for name in SIDES}

    def given_of(self, name: Name, ids: Ids) -> dict[int, Matrix]:
        """The same designs for rows with these ids, whether training has them or not."""
        if all(isinstance(design, RatedSet) for design in self.model.designs(name)):
            return {}
        nothing: NDArray[np.int64] = np.zeros(len(ids), np.int64)
        matrices = design_matrices(self.model, SideFacts(name, ids, nothing))
        return {k: matrix for k, matrix in enumerate(matrices) if matrix.rows is not None}

    def offsets(self, W: Array, name: Name, given: Mapping[int, Matrix] | None = None) -> Array:
        """What given designs add to the rows of training, or to those of other matrices."""
        X = self.given_matrix[name] if given is None else join_given(given.values())
        if X is None:
            return np.zeros((len(self.ids[name]), self.model.size))
        return np.asarray(X @ W)

    def row_offsets(self, W: Array, name: Name, rows: NDArray[Any]) -> Array:
        """What given designs add to some rows of training in each of many draws."""
        X = self.given_matrix[name]
        if X is None:
            return np.zeros((len(W), len(rows), self.model.size))
        return np.stack([X[rows] @ one for one in W])

    def number_strangers(
        self, asked: Pairs | Ratings, rows: Mapping[Name, NDArray[np.int32]]
    ) -> dict[str, dict[int, Matrix]]:
        """Give strangers of whom something is known numbers from -2 down, in place of -1.

        Returns their given designs, by side.
        """
        out: dict[str, dict[int, Matrix]] = {}
        for name, mine in rows.items():
            strangers = mine < 0
            if not strangers.any() or not self.given[name]:
                continue
            kind = self.ids[name].kind
            asked_for = [read_id(str(one), kind) for one in ids_of(asked, name)[strangers]]
            distinct = sorted({one for one in asked_for if one is not None})
            ids = Ids(np.array(distinct, np.int64 if kind == "integer" else object))
            out[name] = self.given_of(name, ids)
            entries = np.zeros(len(ids), np.int64)
            for matrix in out[name].values():
                assert matrix.rows is not None
                entries += np.diff(matrix.rows.starts)
            number = {one: -2 - k for k, one in enumerate(distinct) if entries[k]}
            mine[strangers] = [number.get(one, -1) for one in asked_for]  # type: ignore[arg-type]
        return out
