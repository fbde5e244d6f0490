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
from bayesmf.fitted.store.kept import Deferred, kept_as, leave_out, take_rows
from bayesmf.fitted.store.linear import Linear
from bayesmf.fitted.store.pending import Pending
from bayesmf.kernels.reduce import add_draws
from bayesmf.model.data import count_weights
from bayesmf.model.designs import SIDES, Name
from bayesmf.model.effects import BY_USER
from bayesmf.model.likelihood import Discrete, Moments, Normal, Predictive
from bayesmf.model.spec import Model
from bayesmf.model.state import LIKELIHOOD, State, from_arrays, to_arrays
from bayesmf.model.time_chain import check_more_ratings

Array = NDArray[np.float64]
Index = NDArray[np.int32]
BYTES = 1 << 29
CHUNK = 1 << 16  # pairs predicted together
MOST_LEVELS = 1000  # steps of a scale whose ratings have a probability each


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
    parts: tuple[Ratings, ...] | None = None  # ``train`` and ``held_out`` before they are joined

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

    def __repr__(self) -> str:
        sizes = f"{len(self.users):,} users, {len(self.items):,} items"
        return f"Posterior({len(self)} draws of {sizes}; {self.model!r})"

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

    @property
    def seen(self) -> tuple[Ratings, ...] | None:
        """All that has been rated, in parts that may have fewer ids; None: it is not at hand."""
        if self.parts is not None:
            return self.parts
        held = self.pending_train
        if held is None:
            return None
        train = held.parts if isinstance(held, Pending) else (held,)
        return train if self.held_out is None else (*train, self.held_out)

    @property
    def pending_train(self) -> Ratings | Pending | None:
        """``train``, or what it is going to be made of."""
        held = vars(self)["_train"]
        return held if isinstance(held, Pending) else self.train

    def change(self, **changes: Any) -> Posterior:
        """The same but for some fields; ratings that are not joined yet are not joined for it."""
        for name in ("train", "held_out"):
            held = vars(self)[f"_{name}"]
            waits = callable(held) and not isinstance(held, Pending)
            changes.setdefault(name, partial(getattr, self, name) if waits else held)
        return replace(self, **changes)

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
        return self.change(draws={name: values[None] for name, values in self.centre.items()})

    def _average(self, cells: Cells) -> Moments:
        """Means over the draws; doubt is their variance, and what is in doubt given a draw."""
        total, squares, doubt, noise_variance = np.zeros((4, len(cells.user)))
        for block in self._linear.blocks(self.draws, cells):
            add_draws(block.mean, total)
            add_draws(block.mean**2, squares)
            add_draws(block.doubt, doubt)
            add_draws(block.noise_variance, noise_variance)
        count = len(self)
        mean = total / count
        between = np.maximum(squares / count - mean**2, 0.0) * count / max(count - 1, 1)
        if self.centre is not None:
            one = {name: values[None] for name, values in self.centre.items()}
            mean = next(self._linear.blocks(one, cells)).mean[0]
        return Moments(mean, between + doubt / count, noise_variance / count)

    def effects(
        self, draws: Mapping[str, NDArray[np.float32]], cells: Cells
    ) -> Iterator[tuple[str, Array]]:
        """Yield what each effect is called, and what it adds to pairs in such draws: (draw, pair).

        An effect that has a ``part`` is called so, and the others by their name.
        """
        for effect, added in self._linear.effects(draws, cells):
            yield getattr(effect, "part", effect.name), added

    @cached_property
    def _linear(self) -> Linear:
        """What predictions take besides the draws."""
        facts = self.model, self.mean, self.newcomers, self._stranger_variance, self.prepared
        return Linear(*facts)

    @cached_property
    def prepared(self) -> list[Any]:
        """The training ratings as each effect of the model takes them; None if not at hand."""
        if not self.model.every_effect or self.train is None:
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
        return self.change(draws=self.newcomers.add_to(self.draws), centre=centre)

    def without_selection(self) -> Posterior:
        """The same without what it says that somebody rates an item: nobody has chosen to yet."""
        whole, said = self.complete(), [f"{name}.query" for name in SIDES]
        centre = None if whole.centre is None else leave_out(whole.centre, said)
        return whole.change(draws=leave_out(whole.draws, said), centre=centre)

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
        levels, draws, likelihood = self.levels, self.draws, self.model.likelihood
        known = cells.user >= 0
        rows = np.unique(cells.user[known])
        user = np.where(known, np.searchsorted(rows, cells.user), -1).astype(np.int32)
        of_users = f"{LIKELIHOOD}{BY_USER}"
        given = {
            name.removeprefix(LIKELIHOOD): take_rows(draws, name, rows)
            if name.startswith(of_users)
            else draws[name]
            for name in draws
            if name.startswith(LIKELIHOOD)
        }
        each = (Moments(*draw) for block in self._linear.blocks(draws, cells)
                for draw in zip(*block, strict=True))  # fmt: skip
        for number, draw in enumerate(each):
            own = {name: values[number].astype(float) for name, values in given.items()}
            yield likelihood.probabilities(own, user, draw, levels)

    def each_expected(self, cells: Cells) -> Iterator[Array]:
        """The expected rating given each draw."""
        if self.model.likelihood.latent:
            return (chances @ self.levels for chances in self.each_chances(cells))
        blocks = self._linear.blocks(self.draws, cells)
        return (mean for block in blocks for mean in block.mean)

    def check(self, ratings: Ratings) -> None:
        """Refuse ratings that are not on the scale, or that the likelihood cannot explain."""
        check_on_scale(ratings, self.scale)
        self.model.likelihood.check(ratings)

    def check_more(self, ratings: Ratings) -> None:
        """Refuse ratings that cannot be added to a fit: as ``check``, and for lack of times."""
        self.check(ratings)
        check_more_ratings(self.model, ratings.by_user.times)

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
        every = ids is self.ids(name).values
        rows = np.arange(len(ids), dtype=np.int32) if every else self.row_of(name, ids)
        return self._warm(name, rows)

    def _warm(self, name: Name, rows: Index) -> Index:
        seen = (rows >= 0) & (self.counts(name)[rows] > 0)
        return np.where(seen, rows, -1).astype(np.int32)

    def cells(self, asked: Pairs | Ratings) -> Cells:
        """Find the rows of pairs or ratings; -1 for who has no training ratings.

        The times of pairs are read only if the model has a use for them.
        """
        timed = isinstance(asked, Ratings) or bool(self.model.every_effect)
        found = Cells.of(asked, self.users, self.items, timed=timed)
        user, item = self._warm("user", found.user), self._warm("item", found.item)
        given = self.newcomers.number_strangers(asked, {"user": user, "item": item})
        return Cells(user, item, found.time, given or None)


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
