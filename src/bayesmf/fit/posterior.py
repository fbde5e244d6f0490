"""What a fit is kept for: predictions and their uncertainty, for known rows and new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.data.io.shards import Shards
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.errors import DataError
from bayesmf.fit.fold_in import joined
from bayesmf.kernels.reduce import predict
from bayesmf.model.data import Data
from bayesmf.model.designs import Name
from bayesmf.model.effects import Effect, Parameters
from bayesmf.model.likelihood import Moments, Predictive
from bayesmf.model.spec import Model
from bayesmf.model.state import State, from_arrays, to_arrays

Array = NDArray[np.float64]
Index = NDArray[np.int32]
SIDES: tuple[Name, Name] = ("user", "item")
BYTES = 1 << 29
CHUNK = 1 << 16  # pairs predicted together


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of every parameter, and whose they are.

    ``draws`` are arrays of ``to_arrays`` with the draw as their first axis: many for Gibbs and for
    variational inference (drawn from Q), one for MAP. ``centre`` is the mean itself where that is
    known better than from draws. A user or item that was not in training is at its prior: its mean
    is that of all users, and its variance that of a user about whom nothing is known.
    """

    model: Model
    users: Ids
    items: Ids
    scale: Scale
    mean: float  # of the training ratings
    draws: Mapping[str, NDArray[np.float32]]
    user_counts: NDArray[np.int64]  # training ratings of each
    item_counts: NDArray[np.int64]
    centre: Mapping[str, NDArray[np.float32]] | None = None
    seen: Ratings | None = None  # the training ratings, while they are at hand

    @classmethod
    def of(
        cls, model: Model, train: Ratings | Shards, draws: Mapping[str, NDArray[np.float32]],
        centre: State | None = None,
    ) -> Posterior:  # fmt: skip
        """Of a fit to some ratings."""
        point = None
        if centre is not None:
            point = {name: values[0] for name, values in draws_of(centre).items()}
        return cls(model, train.users, train.items, train.scale, train.mean, draws,
                   train.by_user.counts, train.by_item.counts, point,
                   train if isinstance(train, Ratings) else None)  # fmt: skip

    def __len__(self) -> int:
        return len(self.draws["tau"])

    def state(self, number: int) -> State:
        """One draw."""
        return from_arrays({name: values[number] for name, values in self.draws.items()})

    def ids(self, name: Name) -> Ids:
        """Of the users, or of the items."""
        return self.users if name == "user" else self.items

    @cached_property
    def _stranger_variance(self) -> float:
        """E[1 / alpha] of a row of which nothing is known."""
        shape, rate = self.model.precision_prior
        if self.model.precision == "constant":
            return 1.0
        if self.model.precision == "robust":
            return rate / max(shape - 1, 0.5)
        low, high = self.model.bounds
        x = np.exp(np.linspace(np.log(max(low, 1e-6)), np.log(high), 2001))
        weight = x ** (shape - 1) * np.exp(-rate * x)
        return float(np.trapezoid(weight / x, x) / np.trapezoid(weight, x))

    def moments(self, cells: Cells) -> Moments:
        """Moments of the linear predictors of pairs; row -1 is somebody who is not known."""
        out = Moments(*(np.empty(len(cells.user)) for _ in range(3)))
        for begin in range(0, len(cells.user), CHUNK):
            span = slice(begin, begin + CHUNK)
            for whole, part in zip(out, self._average(cells.take(span)), strict=True):
                whole[span] = part
        return out

    def predictive(self, cells: Cells) -> Predictive:
        """The predictive distribution of the ratings of pairs."""
        return self.model.likelihood.predictive(self.moments(cells))

    def _average(self, cells: Cells) -> Moments:
        """Means over the draws; doubt is their variance, and what is in doubt given a draw."""
        total, squares, doubt, noise_variance = np.zeros((4, len(cells.user)))
        for draw in self._each_draw(self.draws, cells):
            total += draw.mean
            squares += draw.mean**2
            doubt += draw.doubt
            noise_variance += draw.noise_variance
        count = len(self)
        mean = total / count
        between = np.maximum(squares / count - mean**2, 0.0) * count / max(count - 1, 1)
        if self.centre is not None:
            one = {name: values[None] for name, values in self.centre.items()}
            mean = next(self._each_draw(one, cells)).mean
        return Moments(mean, between + doubt / count, noise_variance / count)

    def _each_draw(
        self, draws: Mapping[str, NDArray[np.float32]], cells: Cells
    ) -> Iterator[Moments]:
        """Mean and variance of the linear predictors given each draw."""
        rows: dict[Name, Index] = {"user": cells.user, "item": cells.item}
        new = {name: index < 0 for name, index in rows.items()}
        for number in range(len(draws["tau"])):
            x: dict[Name, NDArray[np.float32]] = {}
            variance: dict[Name, Array] = {}
            for name in SIDES:
                values = draws[f"{name}.x"][number]
                mean = self.stranger(draws, number, name)[0] if new[name].any() else values[0]
                x[name] = np.vstack([values, mean[None]])  # the last row stands for all others
                alpha = draws[f"{name}.alpha"][number].astype(float)
                variance[name] = np.append(1 / alpha, self._stranger_variance)
            found = {name: np.where(new[name], len(x[name]) - 1, rows[name]) for name in rows}
            f = np.empty(len(cells.user))
            predict(found["user"], found["item"], x["user"], x["item"], self.mean, f)
            doubt = self._doubt(draws, number, new, x, found)
            for effect, parameters in self._effects(draws, number):
                f += effect.contribution(parameters, cells)
                doubt += effect.doubt(parameters, cells)
            noise_variance = variance["user"][found["user"]] * variance["item"][found["item"]]
            yield Moments(f, doubt, noise_variance / float(draws["tau"][number][0]))

    def _doubt(
        self, draws: Mapping[str, NDArray[np.float32]], number: int, new: Mapping[Name, Any],
        x: Mapping[Name, Any], found: Mapping[Name, Any],
    ) -> Array:  # fmt: skip
        """The variance that the rows of strangers add, given a draw."""
        doubt = np.zeros(len(new["user"]))
        covariance = {}
        for name, other in zip(SIDES, SIDES[::-1], strict=True):
            k = np.flatnonzero(new[name])
            if len(k):
                C = covariance[name] = self.stranger(draws, number, name)[1]
                z = x[other][found[other][k], : self.model.size].astype(float)
                z[:, 0] = 1.0
                doubt[k] += np.einsum("ka,ab,kb->k", z, C, z)
        both = new["user"] & new["item"]
        if both.any():
            C, D = covariance["user"], covariance["item"]
            doubt[both] += np.sum(C[1:, 1:] * D[1:, 1:])
        return doubt

    def _effects(
        self, draws: Mapping[str, NDArray[np.float32]], number: int
    ) -> Iterator[tuple[Effect, Parameters]]:
        """The effects of the model with their parameters in one draw."""
        for k, effect in enumerate(self.model.effects):
            start = f"effect {k}."
            yield effect, {name.removeprefix(start): values[number].astype(float)
                           for name, values in draws.items() if name.startswith(start)}  # fmt: skip

    def stranger(
        self, draws: Mapping[str, NDArray[np.float32]], number: int, name: Name
    ) -> tuple[NDArray[np.float32], Array]:
        """Mean and covariance of a row of which nothing is known: those of its prior.

        With designs the prior depends on what the row rated, which is not known either; then a
        stranger is like one of the rows that are known, nobody knows which.
        """
        model = self.model
        if model.designs(name):
            rows = draws[f"{name}.x"][number]
            return rows.mean(axis=0), np.atleast_2d(np.cov(rows.T.astype(float)))
        out = np.zeros((model.size, model.size))
        Lambda = draws[f"{name}.Lambda"][number].astype(float)
        for group in model.groups(name):
            columns = slice(group.first, group.end)
            inverse = np.linalg.inv(Lambda[columns, columns])
            if model.prior == "student-t" and group.end > 1:
                degrees = model.hyper.student_degrees
                inverse *= degrees / max(degrees - 2, 0.5)
            out[columns, columns] = inverse
        return draws[f"{name}.mu"][number], out

    def probabilities(self, cells: Cells) -> Array:
        """P(rating = r) for every r of a scale with steps, pair by pair; a mixture over draws."""
        levels = self.levels
        out = np.zeros((len(cells.user), len(levels)))
        for draw in self._each_draw(self.draws, cells):
            out += self.model.likelihood.probabilities(draw, levels)
        return out / len(self)

    @property
    def levels(self) -> Array:
        """The ratings that there are, for a discrete scale."""
        if self.scale.step is None or self.scale.low == self.scale.high:
            raise DataError(
                f"the scale {self.scale} has no steps, so no rating has a probability; ask for "
                "quantiles instead"
            )
        steps = round((self.scale.high - self.scale.low) / self.scale.step)
        return np.asarray(self.scale.low + self.scale.step * np.arange(steps + 1), float)

    def where(self, name: Name, ids: Any) -> Index:
        """The index of each id, -1 where it is unknown."""
        return self.ids(name).index(ids, f"{name} ids")

    def rated(self, name: Name, ids: Any) -> Index:
        """The same, and -1 too for those who have an id but no rating: they are strangers."""
        counts = np.append(self.user_counts if name == "user" else self.item_counts, 0)
        found = self.where(name, ids)
        return np.where(counts[found] > 0, found, -1).astype(np.int32)

    def fold_in(
        self, ratings: Ratings, side: Name = "user", *, replace_known: bool = False, seed: int = 0
    ) -> Posterior:
        """The posterior with new users (or items) in it, each given their ratings; no refit.

        Ratings of items that the fit does not know say nothing and are left out. A user who is
        known already is refused, or from now on known by these ratings alone.
        """
        ratings = ratings.drop_unused()  # a part of a split has the ids of everybody
        mine = ratings.users if side == "user" else ratings.items
        known = self.rated(side, mine.values) >= 0
        if known.any() and not replace_known:
            raise DataError(
                f"the {side} {mine.values.item(int(np.argmax(known)))!r} is known already; leave "
                "their ratings out, or have what is known replaced (replace_known=True, --replace)"
            )
        given = ratings.onto(mine, self.items) if side == "user" else ratings.onto(self.users, mine)
        return joined(self, side, mine, Data.of(given, self.model, self.mean), seed)


def affordable(model: Model, train: Ratings | Shards, most: int) -> int:
    """How many draws fit into half a gigabyte: at most so many, and at least a tenth of it."""
    W = len(model.user_designs) * train.n_items + len(model.item_designs) * train.n_users
    size = 4 * (model.size + 2) * (train.n_users + train.n_items + W)
    return min(most, max(BYTES // size, most // 10))


def draws_of(state: State) -> dict[str, NDArray[np.float32]]:
    """One state as draws: of a MAP estimate there is but one."""
    return {name: np.asarray(values, np.float32)[None] for name, values in to_arrays(state).items()}
