"""What a fit is kept for: predictions and their uncertainty, for known rows and new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ids import Ids
from bayesmf.data.io.shards import Shards
from bayesmf.data.pairs import Cells, Pairs
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.errors import DataError, Option
from bayesmf.fitted.explore.names import Labels
from bayesmf.fitted.newcomers import Newcomers, drawn_rows
from bayesmf.fitted.store.kept import Deferred, kept_as, put_arrays, take_rows
from bayesmf.kernels.reduce import predict
from bayesmf.model.data import count_weights
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.likelihood import Discrete, Moments, Normal, Predictive
from bayesmf.model.spec import Model
from bayesmf.model.state import LIKELIHOOD, State, from_arrays, to_arrays

Array = NDArray[np.float64]
Index = NDArray[np.int32]
BYTES = 1 << 29
CHUNK = 1 << 16  # pairs predicted together
MOST_LEVELS = 1000  # steps of a scale whose ratings have a probability each
BY_ROW = ("x", "noise", "alpha", "newness", "query")  # what a prediction asks of a row


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of every parameter, and the ids of the users and items they belong to.

    ``draws`` are arrays of ``to_arrays`` with the draw as their first axis: many for Gibbs sampling
    and variational inference (drawn from Q), one for MAP. ``centre`` is the mean itself where it is
    known better than from draws. Users and items not seen in training get the prior predictive of
    ``NewRows``. What that takes is among the draws of a posterior that was saved, or takes in rows,
    and is computed when it is asked for otherwise: ``new_mean`` and ``new_cov``, the moments of a
    row of which nothing is known, and ``query`` and ``newness``, one number for each row.

    ``train`` and ``held_out`` are the ratings that the fit has seen. Both are left out of
    recommendations; explanations rest on ``train`` alone.
    """

    model: Model
    users: Ids
    items: Ids
    scale: Scale
    mean: float  # what was taken off the training ratings: as a rule their mean
    draws: Mapping[str, NDArray[np.float32]]
    user_counts: NDArray[np.int64]  # training ratings of each
    item_counts: NDArray[np.int64]
    centre: Mapping[str, NDArray[np.float32]] | None = None
    train: Deferred[Ratings] = Deferred()  # what users' rows were learned from; None: not at hand
    held_out: Deferred[Ratings] = Deferred()  # what else was rated: test, validation, new items
    updates: int = 0  # that it has had; each has random numbers of its own
    labels: Labels = Labels()  # what users, items and columns are called

    @classmethod
    def of(
        cls,
        model: Model,
        train: Ratings | Shards,
        draws: Mapping[str, NDArray[np.float32]],
        centre: State | None = None,
        held_out: Sequence[Ratings | None] = (),
    ) -> Posterior:
        """Make the posterior of a fit to ``train``, which knew ``held_out`` but did not use it."""
        point = None
        if centre is not None:
            point = {name: values[0] for name, values in draws_of(centre).items()}
        return cls(
            model,
            train.users,
            train.items,
            train.scale,
            model.likelihood.centre(train.mean),
            draws,
            train.by_user.counts,
            train.by_item.counts,
            point,
            train if isinstance(train, Ratings) else None,
            merge_ratings(held_out, train.users, train.items),
            labels=Labels(columns=getattr(train, "columns", {})),  # shards do not know them
        )

    @property
    def is_point(self) -> bool:
        """Whether this is one point, a MAP estimate: its only draw is its centre."""
        return len(self) == 1 and self.centre is not None

    def __len__(self) -> int:
        return len(self.draws["tau"])

    def state(self, number: int) -> State:
        """Return one draw, as predictions take it: some of its rows may be conditional means."""
        return from_arrays({name: values[number] for name, values in self.draws.items()})

    def drawn(self, number: int) -> State:
        """Return one draw, all of it drawn."""
        state = self.state(number)
        for name in SIDES:
            side, _ = state.sides(name)
            side.x[:, : side.size] = drawn_rows(self.draws, number, name)
        return state

    def counts(self, name: Name) -> NDArray[np.int64]:
        """Return the training ratings of each user, or item."""
        return self.user_counts if name == "user" else self.item_counts

    def ids(self, name: Name) -> Ids:
        """Return the ids of the users, or of the items."""
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
        if self.model.likelihood.latent:
            return Discrete(self.levels, self.probabilities(cells))
        found = self.moments(cells)
        return Normal(found.mean, found.sd)

    def centred(self) -> Posterior:
        """The same with the centre as its only draw, if there is one: the same expectations."""
        if self.centre is None:
            return self
        return replace(self, draws={name: values[None] for name, values in self.centre.items()})

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
        if any((index < 0).any() for index in rows.values()):
            draws = self.newcomers.add_to(draws)
        sizes = {name: len(self.ids(name)) for name in SIDES}
        for name in SIDES:
            if len(cells.user) < sizes[name] // 4:  # a copy of so few rows is soon made
                draws, rows[name], sizes[name] = _narrow(draws, name, rows[name])
        # nobody known stands behind all rows, then the strangers with attributes
        found = {n: np.where(rows[n] < 0, sizes[n] - 1 - rows[n], rows[n]) for n in SIDES}
        plain = cells.plain()
        where = [
            effect.locate(train, plain)
            for effect, train in zip(self.model.every_effect, self.prepared, strict=True)
        ]
        for number in range(len(draws["tau"])):
            x = {name: self._rows(draws, number, name, cells.given) for name in SIDES}
            f = np.empty(len(cells.user))
            predict(found["user"], found["item"], x["user"], x["item"], self.mean, f)
            f += self._answer(draws, number, found)
            doubt = self._doubt(draws, number, rows, x, found) + self._noise(
                draws, number, x, found
            )
            for k, effect in enumerate(self.model.every_effect):
                parameters = parameters_of(draws, number, f"effect {k}.")
                f += effect.contribution(parameters, where[k])
                doubt += effect.doubt(parameters, where[k])
            noise_variance = np.full(len(f), 1 / float(draws["tau"][number][0]))
            for name in SIDES:
                alpha = draws[f"{name}.alpha"][number].astype(float)
                noise_variance *= _behind(1 / alpha, len(x[name]), self._stranger_variance)[
                    found[name]
                ]
            yield Moments(f, doubt, noise_variance)

    def _rows(
        self,
        draws: Mapping[str, NDArray[np.float32]],
        number: int,
        name: Name,
        given: Mapping[str, Any] | None,
    ) -> NDArray[np.float32]:
        """The rows of one side; behind them the mean of a stranger, and of those with attributes.

        Where nothing of newcomers is among the draws, nobody asks for these.
        """
        values: NDArray[np.float32] = draws[f"{name}.x"][number]
        if f"{name}.new_mean" not in draws:
            return values
        parts = [values, draws[f"{name}.new_mean"][number][None]]
        if given is not None and name in given:
            added = self.newcomers.offsets(draws[f"{name}.new_W"][number], name, given[name])
            parts.append((draws[f"{name}.row_mean"][number] + added).astype(np.float32))
        return np.vstack(parts)

    def _answer(
        self, draws: Mapping[str, NDArray[np.float32]], number: int, found: Mapping[Name, Any]
    ) -> Any:
        """newness_i b_j, and the same the other way: what it says that the pair is asked about."""
        total: Any = 0.0
        for name, other in zip(SIDES, SIDES[::-1], strict=True):
            if f"{other}.query" in draws:
                last = [int(found[side].max(initial=0)) + 1 for side in (name, other)]
                newness = _behind(draws[f"{name}.newness"][number], last[0], 1.0)
                query = _behind(draws[f"{other}.query"][number], last[1], 0.0)
                total = total + newness[found[name]] * query[found[other]]
        return total

    def answers(self, user: int, item: int) -> Array:
        """newness_i b_j of one pair, and the same the other way, by draw or at the centre."""
        draws = self.centred().draws
        rows: dict[Name, Any] = {"user": np.array([user]), "item": np.array([item])}
        found = [self._answer(draws, number, rows) for number in range(len(draws["tau"]))]
        return np.array([np.sum(each) for each in found])

    def _doubt(
        self,
        draws: Mapping[str, NDArray[np.float32]],
        number: int,
        rows: Mapping[Name, Any],
        x: Mapping[Name, Any],
        found: Mapping[Name, Any],
    ) -> Array:
        """The variance that the rows of strangers add, given a draw."""
        doubt = np.zeros(len(rows["user"]))
        strangers: dict[Name, list[tuple[Any, Array]]] = {"user": [], "item": []}
        for name, other in zip(SIDES, SIDES[::-1], strict=True):
            for mine, cov in ((rows[name] == -1, "new_cov"), (rows[name] < -1, "row_cov")):
                if mine.any():
                    C = draws[f"{name}.{cov}"][number].astype(float)
                    strangers[name].append((mine, C))
                    z = x[other][found[other][mine], : self.model.size].astype(float)
                    z[:, 0] = 1.0
                    doubt[mine] += np.einsum("ka,ab,kb->k", z, C, z)
        for mine, C in strangers["user"]:
            for theirs, D in strangers["item"]:
                doubt[mine & theirs] += np.sum(C[1:, 1:] * D[1:, 1:])
        return doubt

    def _noise(
        self,
        draws: Mapping[str, NDArray[np.float32]],
        number: int,
        x: Mapping[Name, Any],
        found: Mapping[Name, Any],
    ) -> Any:
        """(e_i' z_j)^2 of rows that are means, where e_i is what a draw would add to them."""
        total: Any = 0.0
        for name, other in zip(SIDES, SIDES[::-1], strict=True):
            if f"{name}.noise" in draws:
                noise = draws[f"{name}.noise"][number]
                mine = np.minimum(
                    found[name], len(noise) - 1
                )  # strangers have a doubt of their own
                added = np.empty(len(mine))
                predict(mine, found[other], noise, x[other], 0.0, added)
                added -= x[other][found[other], 0]  # z_j has 1 in place of the bias
                total = total + np.where(found[name] < len(noise), added**2, 0.0)
        return total

    @cached_property
    def prepared(self) -> list[Any]:
        """The training ratings as each effect of the model takes them; None if not at hand."""
        if self.train is None:
            return [None] * len(self.model.every_effect)
        rows = self.train.by_user
        cells = Cells(rows.row_index, rows.index, rows.times)
        return [effect.prepare(cells) for effect in self.model.every_effect]

    def complete(self) -> Posterior:
        """The same with what is known of newcomers among its draws, so that it can be saved."""
        if "user.newness" in self.draws:
            return self
        centre = None
        if self.centre is not None:
            whole = self.newcomers.add_to({name: v[None] for name, v in self.centre.items()})
            centre = {name: values[0] for name, values in whole.items()}
        return replace(self, draws=self.newcomers.add_to(self.draws), centre=centre)

    def without_selection(self) -> Posterior:
        """The same without what it says that somebody rates an item: nobody has chosen to yet."""
        whole = self.complete()

        def silent(arrays: Mapping[str, NDArray[np.float32]]) -> Mapping[str, NDArray[np.float32]]:
            return put_arrays(arrays, {k: 0 * arrays[k] for k in arrays if k.endswith(".query")})

        centre = None if whole.centre is None else silent(whole.centre)
        return replace(whole, draws=silent(whole.draws), centre=centre)

    @cached_property
    def newcomers(self) -> Newcomers:
        """What the draws say of users and items that are not in them."""
        ids = {name: self.ids(name) for name in SIDES}
        counts = {name: self.counts(name) for name in SIDES}
        return Newcomers(self.model, ids, counts, partial(getattr, self, "train"))

    def probabilities(self, cells: Cells) -> Array:
        """P(rating = r) for every r of a scale with steps, pair by pair; a mixture over draws."""
        out = np.zeros((len(cells.user), len(self.levels)))
        for begin in range(0, len(cells.user), CHUNK):
            span = slice(begin, begin + CHUNK)
            for chances in self.each_chances(cells.take(span)):
                out[span] += chances
        return out / len(self)

    def each_chances(self, cells: Cells) -> Iterator[Array]:
        """P(rating = r) given each draw."""
        levels, user = self.levels, np.maximum(cells.user, -1)
        for number, draw in enumerate(self._each_draw(self.draws, cells)):
            own = parameters_of(self.draws, number, LIKELIHOOD)
            yield self.model.likelihood.probabilities(own, user, draw, levels)

    def each_expected(self, cells: Cells) -> Iterator[Array]:
        """The expected rating given each draw."""
        if self.model.likelihood.latent:
            return (chances @ self.levels for chances in self.each_chances(cells))
        return (draw.mean for draw in self._each_draw(self.draws, cells))

    def check(self, ratings: Ratings) -> None:
        """Refuse ratings that are not on the scale, or that the likelihood cannot explain."""
        check_on_scale(ratings, self.scale)
        self.model.likelihood.check(ratings)

    @property
    def has_levels(self) -> bool:
        """Whether ratings are one of ``levels``."""
        steps = self.scale.step is not None and self.scale.low < self.scale.high
        return self.model.likelihood.latent or steps

    @property
    def levels(self) -> Array:
        """The ratings that there are, for a discrete scale."""
        if self.model.likelihood.latent:
            return np.array(self.model.likelihood.levels)
        if self.scale.step is None or not self.has_levels:
            raise DataError(
                f"the scale {self.scale} has no steps, so no rating has a probability; ask for "
                "quantiles instead"
            )
        steps = round((self.scale.high - self.scale.low) / self.scale.step)
        if steps >= MOST_LEVELS:
            raise DataError(
                f"the scale {self.scale} has {steps + 1:,} steps, more than the {MOST_LEVELS:,} "
                "that can have a probability each; ask for quantiles instead"
            )
        return np.asarray(self.scale.low + self.scale.step * np.arange(steps + 1), float)

    def row_of(self, name: Name, ids: Any) -> Index:
        """Find the row of each id of a user (or item); -1 where the id is unknown."""
        return self.ids(name).index(ids, f"{name} ids")

    def warm_row_of(self, name: Name, ids: Any) -> Index:
        """Find the row of each id that has training ratings; -1 for all others."""
        return self._warm(name, self.row_of(name, ids))

    def _warm(self, name: Name, rows: Index) -> Index:
        counts = np.append(self.counts(name), 0)
        return np.where(counts[rows] > 0, rows, -1).astype(np.int32)

    def cells(self, asked: Pairs | Ratings) -> Cells:
        """Find the rows of pairs or ratings; -1 for who has no training ratings.

        The times of pairs are read only if the model has a use for them.
        """
        timed = isinstance(asked, Ratings) or bool(self.model.every_effect)
        found = Cells.of(asked, self.users, self.items, timed=timed)
        user, item = self._warm("user", found.user), self._warm("item", found.item)
        given = self.newcomers.number_strangers(asked, {"user": user, "item": item})
        return Cells(user, item, found.time, given or None)


def parameters_of(
    draws: Mapping[str, NDArray[Any]], number: int, start: str
) -> dict[str, NDArray[np.float64]]:
    """The parameters of an effect or of the likelihood in one draw, by their own names."""
    return {
        name.removeprefix(start): draws[name][number].astype(float)
        for name in draws
        if name.startswith(start)
    }


def _narrow(
    draws: Mapping[str, NDArray[np.float32]], name: Name, rows: Index
) -> tuple[Mapping[str, NDArray[np.float32]], Index, int]:
    """Draws with no more rows of one side than are asked for, where these are, and how many.

    Strangers keep their numbers.
    """
    known, numbers = rows >= 0, rows.copy()
    distinct, numbers[known] = np.unique(rows[known], return_inverse=True)
    if not len(distinct):
        distinct = np.zeros(1, np.int32)  # no side is empty
    keys = [key for part in BY_ROW if (key := f"{name}.{part}") in draws]
    few = {key: take_rows(draws, key, distinct) for key in keys}
    return put_arrays(draws, few), numbers, len(distinct)


def _behind(values: NDArray[Any], rows: int, value: float) -> NDArray[Any]:
    """The values of all rows, with one value for the strangers behind them."""
    return np.append(values, np.full(max(rows - len(values), 0), value))


def check_on_scale(ratings: Ratings, scale: Scale) -> None:
    """Refuse ratings that are not on a scale.

    The ends of a scale without steps are often no more than the least and the largest rating seen,
    so that a rating may lie beyond them, but not by more than the width of the scale.
    """
    values = np.asarray(ratings.values, float)
    slack = scale.high - scale.low if scale.step is None else 0.0
    held = Scale(scale.low - slack, scale.high + slack, scale.step).holds(values)
    if not held.all():
        k = int(np.argmin(held))
        rows = ratings.by_user
        user = ratings.users.values.item(int(rows.row_index[k]))
        item = ratings.items.values.item(int(rows.index[k]))
        raise DataError(
            f"the rating {values[k]:g} of item {item!r} by user {user!r} is not on the scale "
            f"{scale} of this fit; correct it, or fit with a wider scale: "
            f"{Option('scale', function='load')}"
        )


def merge_ratings(parts: Sequence[Ratings | None], users: Ids, items: Ids) -> Ratings | None:
    """Join ratings under the numbers of these ids; None if there are no parts.

    If two parts rate the same pair, the later part counts. Times are kept if all parts have them.
    """
    there = [part.onto(users, items) for part in parts if part is not None]
    return reduce(Ratings.put, there) if there else None


def affordable(model: Model, train: Ratings | Shards, most: int) -> int:
    """Count the draws that fit into half a gigabyte: at most ``most``, at least a tenth of it."""
    W = count_weights(model, train.users, train.items)
    noise = train.n_users if model.redraw else 0
    size = 4 * (model.size + 2) * (train.n_users + train.n_items + W + noise)
    size += 2 * len(train) * len(model.every_effect)  # those of single ratings, in half precision
    return min(most, max(BYTES // size, most // 10))


def draws_of(state: State) -> dict[str, NDArray[np.float32]]:
    """Return one state as draws: a MAP estimate has but one."""
    return {name: np.asarray(v, kept_as(name))[None] for name, v in to_arrays(state).items()}
