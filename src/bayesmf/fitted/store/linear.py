"""The linear predictors of pairs in every draw: only the rows that are asked for are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import Cells
from bayesmf.fitted.newcomers import Newcomers
from bayesmf.fitted.store.kept import take_rows
from bayesmf.kernels.reduce import predict_draws
from bayesmf.model.designs import Name
from bayesmf.model.effects import BY_RATING
from bayesmf.model.likelihood import Moments
from bayesmf.model.spec import Model

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]
TOGETHER = 1 << 18  # predictors that are computed together, of all draws


class AskedRows:
    """The rows of one side that pairs ask for: each once, and strangers behind them."""

    def __init__(self, draws: Arrays, name: Name, rows: NDArray[Any], given: Any = None) -> None:
        """``given`` are the designs of the strangers -2, -3, ..., if there are any."""
        self.draws, self.name, self.rows, self.given = draws, name, rows, given
        known = rows >= 0
        self.strange = not known.all()
        self.distinct, numbers = np.unique(rows[known], return_inverse=True)
        # nobody known stands behind all rows, then the strangers with attributes
        self.numbers = np.where(known, 0, len(self.distinct) - 1 - rows.astype(np.int64))
        self.numbers[known] = numbers

    def has(self, part: str) -> bool:
        """Whether the draws have such an array of this side."""
        return f"{self.name}.{part}" in self.draws

    def take(self, part: str, span: slice) -> NDArray[np.float32]:
        """An array of the known rows in some draws: (draw, row, ...)."""
        return take_rows(self.draws, f"{self.name}.{part}", self.distinct, span)

    def spread(self, values: NDArray[Any], stranger: float) -> Array:
        """Give each pair the value of its row, or that of a stranger: (draw, pair)."""
        if self.strange:
            behind = int(self.numbers.max()) + 1 - values.shape[1]
            values = np.append(values, np.full((len(values), behind), stranger), axis=1)
        return np.asarray(values[:, self.numbers], float)

    def means(self, span: slice, newcomers: Newcomers) -> NDArray[np.float32]:
        """The rows; behind them the mean of a stranger, and of those with attributes."""
        known = self.take("x", span)
        if not self.strange:
            return known
        new = {
            part: self.draws[key][span]
            for part in ("new_mean", "row_mean", "new_W")
            if (key := f"{self.name}.{part}") in self.draws
        }
        parts = [known, new["new_mean"][:, None]]
        if self.given:
            added = [newcomers.offsets(W, self.name, self.given) for W in new["new_W"]]
            parts.append((new["row_mean"][:, None] + np.array(added)).astype(np.float32))
        return np.concatenate(parts, axis=1)

    def noise(self, span: slice, rows: int) -> NDArray[np.float32]:
        """What a draw would add to rows that are means; nothing to strangers behind them."""
        known = self.take("noise", span)
        if rows == known.shape[1]:
            return known
        found = np.zeros((len(known), rows, known.shape[2]), np.float32)
        found[:, : known.shape[1]] = known
        return found


@dataclass(frozen=True)
class Linear:
    """What a posterior knows of linear predictors, besides its draws."""

    model: Model
    mean: float
    newcomers: Newcomers
    stranger_variance: float  # E[1 / alpha] of a row of which nothing is known
    prepared: list[Any]  # the training ratings as each effect takes them

    def blocks(self, draws: Arrays, cells: Cells) -> Iterator[Moments]:
        """Yield mean and variance of the predictors given each draw: (draw, pair), in blocks.

        What comes out for a pair does not depend on the others.
        """
        if min(cells.user.min(initial=0), cells.item.min(initial=0)) < 0:
            draws = self.newcomers.add_to(draws)
        given = cells.given or {}
        user = AskedRows(draws, "user", cells.user, given.get("user"))
        item = AskedRows(draws, "item", cells.item, given.get("item"))
        effects = self._locate(cells)
        count, together = len(draws["tau"]), max(1, TOGETHER // max(len(cells.user), 1))
        for begin in range(0, count, together):
            span = slice(begin, min(begin + together, count))
            found = self._given_draws(draws, span, user, item)
            for number, (effect, at) in enumerate(effects):
                _add_effect(found, effect, _take_parameters(draws, number, span), at)
            yield found

    def effects(self, draws: Arrays, cells: Cells) -> Iterator[tuple[Any, Array]]:
        """Yield every effect with what it adds to pairs in every draw: (draw, pair)."""
        every = slice(0, len(draws["tau"]))
        for number, (effect, at) in enumerate(self._locate(cells)):
            found = Moments(*np.zeros((3, every.stop, len(cells.user))))
            _add_effect(found, effect, _take_parameters(draws, number, every), at)
            yield effect, found.mean

    def _locate(self, cells: Cells) -> list[tuple[Any, Any]]:
        """Return every effect with where pairs lie among the ratings that it has prepared."""
        both, plain = zip(self.model.every_effect, self.prepared, strict=True), cells.plain()
        return [(effect, effect.locate(train, plain)) for effect, train in both]

    def _given_draws(self, draws: Arrays, span: slice, user: AskedRows, item: AskedRows) -> Moments:
        """Mean and variance of the predictors in some draws, without effects."""
        x, y = (side.means(span, self.newcomers) for side in (user, item))
        f = predict_all(user.numbers, item.numbers, x, y, self.mean)
        f += answers(user, item, span)
        doubt = self._doubt(draws, span, (user, x), (item, y))
        noise: Any = 0.0
        noise_variance = np.tile(1 / draws["tau"][span].astype(float), len(user.rows))
        for mine, other, z in ((user, item, y), (item, user, x)):
            if mine.has("noise"):
                e = mine.noise(span, (x if mine is user else y).shape[1])
                added = predict_all(mine.numbers, other.numbers, e, z, 0.0)
                added -= z[:, other.numbers, 0]  # z_j has 1 in place of the bias
                noise = noise + added**2
            alpha = mine.take("alpha", span).astype(float)
            noise_variance *= mine.spread(1 / alpha, self.stranger_variance)
        doubt += noise
        return Moments(f, doubt, noise_variance)

    def _doubt(
        self,
        draws: Arrays,
        span: slice,
        user: tuple[AskedRows, NDArray[np.float32]],
        item: tuple[AskedRows, NDArray[np.float32]],
    ) -> Array:
        """The variance that the rows of strangers add, given a draw."""
        doubt = np.zeros((span.stop - span.start, len(user[0].rows)))
        strangers: dict[Name, list[tuple[Any, Array]]] = {"user": [], "item": []}
        for (mine, _), (other, z) in ((user, item), (item, user)):
            kinds = (mine.rows == -1, "new_cov"), (mine.rows < -1, "row_cov")
            for who, cov in kinds if mine.strange else ():
                if who.any():
                    C = draws[f"{mine.name}.{cov}"][span].astype(float)
                    strangers[mine.name].append((who, C))
                    asked = z[:, other.numbers[who]].astype(float)
                    asked[..., 0] = 1.0
                    doubt[:, who] += np.einsum("dka,dab,dkb->dk", asked, C, asked)
        for who, C in strangers["user"]:
            for whom, D in strangers["item"]:
                both = [np.sum(c[1:, 1:] * d[1:, 1:]) for c, d in zip(C, D, strict=True)]
                doubt[:, who & whom] += np.array(both)[:, None]
        return doubt


def answers(user: AskedRows, item: AskedRows, span: slice) -> Any:
    """newness_i b_j, and the same the other way: what it says that a pair is asked about."""
    total: Any = 0.0
    for mine, other in ((user, item), (item, user)):
        if other.has("query"):
            newness = mine.spread(mine.take("newness", span), 1.0)
            total = total + newness * other.spread(other.take("query", span), 0.0)
    return total


def predict_all(
    user: NDArray[np.int64], item: NDArray[np.int64], x: Any, y: Any, mean: float
) -> Array:
    """mean + gamma_i + eta_j + S_i'T_j of every pair in every draw: (draw, pair)."""
    f = np.empty((len(x), len(user)))
    predict_draws(user, item, x, y, mean, f)
    return f


def _take_parameters(draws: Arrays, number: int, span: slice) -> dict[str, NDArray[Any]]:
    """Return the parameters of an effect in some draws, by their own names."""
    start = f"effect {number}."
    names = [name for name in draws if name.startswith(start)]
    return {name.removeprefix(start): draws[name][span] for name in names}


def _add_effect(
    found: Moments, effect: Any, parameters: Mapping[str, NDArray[Any]], where: Any
) -> None:
    """Add what an effect adds to the predictors of each draw, and what it leaves in doubt.

    Of parameters of single ratings, those that the pairs ask for are read, if the effect tells.
    """
    if hasattr(effect, "narrow"):
        where, ratings = effect.narrow(where)
        parameters = {
            name: np.take(values, ratings, axis=1) if name.startswith(BY_RATING) else values
            for name, values in parameters.items()
        }
    for number in range(len(found.mean)):
        own = {name: values[number].astype(float) for name, values in parameters.items()}
        found.mean[number] += effect.contribution(own, where)
        found.doubt[number] += effect.doubt(own, where)
