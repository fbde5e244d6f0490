"""A model is a value: which parts it has, and their fixed priors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice, check_kind, check_number, check_whole
from bayesmf.choices import (
    BIASES,
    FEATURES,
    LIKELIHOODS,
    PRECISIONS,
    PRIORS,
    TIMES,
    Bias,
    Features,
    LikelihoodName,
    Precision,
    Prior,
    Time,
)
from bayesmf.errors import DataError
from bayesmf.model.designs import MOST_DESIGNS, PARTS, Design, Name, RatedSet
from bayesmf.model.distributions import NormalWishart
from bayesmf.model.effects import MOST_EFFECTS, Effect
from bayesmf.model.likelihood import Gaussian, Likelihood
from bayesmf.model.ordinal import Auto, Binary, Ordinal
from bayesmf.model.time_chain import TimeChain

CHOICES = {"precision": PRECISIONS, "prior": PRIORS, "bias": BIASES, "time": TIMES}
DESIGNS = (Design, MOST_DESIGNS, "a tuple of designs, such as (RatedSet(0.5),)")
SEVERAL: dict[str, tuple[type[Any], int, str]] = {
    "user_designs": DESIGNS,
    "item_designs": DESIGNS,
    "effects": (Effect, MOST_EFFECTS, "a tuple of effects"),
}


LEAST_SD, MOST_SD = 1e-12, 1e12  # of ratings
MOST_UNITS = 1e6  # standard deviations of ratings, where a model has a unit of its own
MOST_RANK = 254  # kernels are compiled for a width, which takes minutes for this one


WORDS: dict[LikelihoodName, Likelihood] = {
    "gaussian": Gaussian(),
    "ordinal": Ordinal(),
    "binary": Binary(),
    "auto": Auto(),
}


class Chosen:
    """A field that takes a likelihood or a word for it, and holds the likelihood."""

    def __get__(self, model: Any, owner: type) -> Likelihood:
        found: Likelihood = WORDS["gaussian"] if model is None else vars(model)["likelihood"]
        return found

    def __set__(self, model: Any, given: Likelihood | LikelihoodName) -> None:
        if isinstance(given, str):
            check_choice("likelihood", given, LIKELIHOODS)
            given = WORDS[given]
        vars(model)["likelihood"] = given


@dataclass(frozen=True)
class Hyper:
    """The fixed numbers at the top of the model, in its ``unit``; the defaults are the paper's."""

    feature_mean: float = 0.0  # mu_0 of the features
    feature_count: float = 1.0  # beta_0
    feature_degrees: float | None = None  # nu_0; None is one more than the dimension
    feature_scale: float | tuple[float, ...] = 1.0  # the diagonal of W_0
    noise_shape: float = 2.0  # of tau ~ Gamma(shape, rate)
    noise_rate: float = 2.0
    bias_shape: float = 1.0  # of a learned bias precision
    bias_rate: float = 1.0
    bias_mean: float = 0.0  # of a fixed bias prior
    bias_precision: float = 1.0
    student_degrees: float = 4.0  # of a Student-t prior

    def __post_init__(self) -> None:
        for one in fields(self):
            value, above = getattr(self, one.name), -math.inf if "mean" in one.name else 0.0
            if one.name == "feature_scale" and isinstance(value, tuple):
                value = tuple(check_number(one.name, each, above) for each in value)
            elif value is not None or one.name != "feature_degrees":
                value = check_number(one.name, value, above)
            object.__setattr__(self, one.name, value)


def _check_spread(mean: float, sd: float) -> None:
    """Refuse ratings whose squares, or whose inverses, are no numbers that draws can hold."""
    for what, value, least in (("mean", abs(mean), 0.0), ("standard deviation", sd, LEAST_SD)):
        if not (value == 0 or least <= value <= MOST_SD):
            raise DataError(
                f"the training ratings have a {what} of {value:.3g}, with which nothing can be "
                f"computed; give them in other units, so that it is {LEAST_SD:g} to {MOST_SD:g}"
            )


@dataclass(frozen=True)
class Group:
    """Columns of a row that share one Gaussian prior with unknown mean and precision."""

    first: int
    end: int
    hyper: NormalWishart | None  # None: the prior is fixed


@dataclass(frozen=True)
class Model:
    """One member of the family; the defaults are the best member known.

    Row i of a side is x_i = (bias, features), and r_ij ~ N(mean + gamma_i + eta_j + S_i'T_j) with
    precision alpha_i beta_j tau. ``Model.paper`` makes the paper's models.
    """

    rank: int = 20  # number of features, up to 254; 0 leaves the biases
    user_designs: tuple[Design, ...] = (RatedSet(0.5),)  # what shifts the users' prior mean
    item_designs: tuple[Design, ...] = (RatedSet(0.5),)  # what shifts the items' prior mean
    own_features: bool = True  # False: rows with a design have no features besides it
    precision: Precision = "robust"  # of alpha and beta: 1; Gamma; Gamma cut to the bounds
    precision_prior: tuple[float, float] = (20.0, 20.0)  # shape and rate of alpha and beta
    bounds: tuple[float, float] = (0.5, 2.0)  # of truncated precisions
    prior: Prior = "gaussian"  # of the own features
    bias: Bias = "joint"  # prior of the bias: with the features, learned apart, or fixed
    likelihood: Chosen = Chosen()  # "gaussian", "ordinal", "binary", "auto", or an object
    time: Time = "none"  # "chain": moods of a user in the order of time
    effects: tuple[Effect, ...] = ()  # what else is added for single ratings
    hyper: Hyper = Hyper()  # the fixed numbers at the top
    unit: float | None = None  # theirs, in ratings; None: the training ratings' standard deviation
    redraw: bool = True  # whether kept draws have users drawn again, for those with few ratings

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", check_whole("rank", self.rank, 0, MOST_RANK))
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in ("own_features", "redraw"):
            check_kind(name, getattr(self, name), bool, "True or False")
        check_kind("hyper", self.hyper, Hyper, "a Hyper, such as Hyper(noise_shape=1)")
        for name, above in (("bounds", -math.inf), ("precision_prior", 0.0)):
            pair = getattr(self, name)
            check_kind(name, pair, (tuple, list), "a pair of numbers")
            if len(pair) != 2:
                raise DataError(f"{name}={pair}: give two numbers")
            object.__setattr__(self, name, tuple(check_number(name, v, above) for v in pair))
        if not 0 <= self.bounds[0] < self.bounds[1]:
            raise DataError(f"bounds={self.bounds}: choose 0 <= low < high")
        if self.unit is not None:
            object.__setattr__(self, "unit", check_number("unit", self.unit, 0.0))
        self._check_features()
        self._check_parts()
        self._check_designs()

    def _check_parts(self) -> None:
        """Designs, effects and the likelihood are objects with the methods of their protocols."""
        for name, (kind, most, example) in SEVERAL.items():
            check_kind(name, getattr(self, name), (tuple, list), example)
            parts = tuple(getattr(self, name))
            object.__setattr__(self, name, parts)
            for number, part in enumerate(parts):
                check_part(f"{name}[{number}]", part, kind, example)
            if len(parts) > most:
                raise DataError(f"{len(parts)} {name}: choose {most} at most")
        check_part("likelihood", self.likelihood, Likelihood, "an object, such as Gaussian()")

    def _check_features(self) -> None:
        """The Wishart priors exist in as many dimensions as features have a prior together."""
        columns, h = self.size - self.first_shifted, self.hyper
        if h.feature_degrees is not None and h.feature_degrees <= columns - 1:
            raise DataError(
                f"feature_degrees={h.feature_degrees:g}: choose more than {columns - 1}, or None, "
                f"for rank={self.rank} and bias={self.bias!r}"
            )
        if isinstance(h.feature_scale, tuple) and columns and len(h.feature_scale) != columns:
            raise DataError(
                f"feature_scale has {len(h.feature_scale)} numbers: give one, or a tuple of "
                f"{columns}, for rank={self.rank} and bias={self.bias!r}"
            )

    def _check_designs(self) -> None:
        if not (self.user_designs or self.item_designs):
            return
        if self.first_shifted == self.size:
            raise DataError(
                "rank=0 with this bias leaves a design nothing to shift; choose rank=1 or more, "
                "bias='joint', or no designs"
            )
        if not self.own_features and self.bias == "joint":
            raise DataError(
                "rows without own features have nothing to share a prior with their bias; choose "
                "bias='learned' or 'fixed'"
            )

    @classmethod
    def paper(
        cls,
        features: Features = "side",
        precision: Precision = "constant",
        rank: int = 20,
        **changes: Any,
    ) -> Model:
        """One of the paper's models, whose priors are in ratings as they are given.

        - ``features``: "none" (biases only), "no-side" (U and V), "side" (U, V and W, the features
          of what a user rated) or "side-only" (W without U).
        - ``precision``, ``rank``: those of ``Model``.
        - ``changes``: any other field of ``Model``.
        """
        check_choice("features", features, FEATURES)
        settings: dict[str, Any] = {
            "rank": 0 if features == "none" else rank,
            "user_designs": (RatedSet(1.0),) if features in ("side", "side-only") else (),
            "item_designs": (),
            "own_features": features != "side-only",
            "precision": precision,
            "precision_prior": (2.0, 2.0),
            "bias": "learned",
            "unit": 1.0,
            "redraw": False,
        }
        return cls(**{**settings, **changes})

    def __repr__(self) -> str:
        changed = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if getattr(self, one.name) != one.default
        ]
        return f"Model({', '.join(changed)})"

    def to_dict(self) -> dict[str, Any]:
        """The model as plain values; designs, likelihood and effects by their registered names."""
        out = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("user_designs", "item_designs", "effects"):
            out[name] = [_part_to_dict(part) for part in out[name]]
        return {**out, "likelihood": _part_to_dict(self.likelihood), "hyper": asdict(self.hyper)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Model:
        """Make the model of ``to_dict`` again, also after JSON has turned tuples into lists."""
        found = {
            "unit": 1.0,
            "redraw": False,
            "time": "none",
            **facts,
        }  # which models did not have at first
        hyper = dict(found["hyper"])
        if isinstance(hyper.get("feature_scale"), list):
            hyper["feature_scale"] = tuple(hyper["feature_scale"])
        found["hyper"] = Hyper(**hyper)
        for name in ("user_designs", "item_designs"):
            found[name] = tuple(_part_from_dict("design", part) for part in found[name])
        found["effects"] = tuple(_part_from_dict("effect", part) for part in found["effects"])
        found["likelihood"] = _part_from_dict("likelihood", found["likelihood"])
        return cls(**found)

    @property
    def size(self) -> int:
        """Columns of a row: the bias and the features."""
        return self.rank + 1

    @property
    def first_shifted(self) -> int:
        """The first column that designs shift."""
        return 0 if self.bias == "joint" else 1

    def settle(self, train: Any) -> Model:
        """The same model with a unit, that of the training ratings unless it has one.

        Its likelihood then knows what it has to know of the ratings, such as their scale.

        A bias is in units, and so is the product of two features, each of which is in roots of a
        unit. That makes the model equivariant: ratings a r + b have the predictions a p + b.
        """
        spread = train.sd if train.sd > 1e-9 * abs(train.mean) else 0.0  # else it is rounding
        _check_spread(train.mean, spread)
        if self.unit is not None and train.sd > MOST_UNITS * self.unit:
            raise DataError(
                f"the training ratings have a standard deviation of {train.sd:.3g}, and the priors "
                f"of this model are in units of {self.unit:g}; give the ratings in other units, or "
                "fit the default model, which has those of the ratings"
            )
        likelihood, unit = self.likelihood.settle(train), self.unit
        if unit is None:
            unit = likelihood.unit(spread) or 1.0
        if unit == self.unit and likelihood == self.likelihood:
            return self
        return replace(self, unit=unit, likelihood=likelihood)

    @property
    def units(self) -> NDArray[np.float64]:
        """The unit of each column of a row, in ratings: of a bias, and of a feature its root."""
        unit = 1.0 if self.unit is None else self.unit
        return np.array([unit, *[math.sqrt(unit)] * self.rank])

    @property
    def priors(self) -> Hyper:
        """``hyper`` with the numbers about the noise and the biases in ratings."""
        h, square = self.hyper, float(self.units[0] ** 2)
        return replace(
            h,
            noise_rate=h.noise_rate * square,
            bias_rate=h.bias_rate * square,
            bias_mean=h.bias_mean * float(self.units[0]),
            bias_precision=h.bias_precision / square,
        )

    @property
    def responds(self) -> bool:
        """Whether rows are drawn given a response of their own instead of the ratings."""
        return self.likelihood.latent or bool(self.every_effect)

    @property
    def every_effect(self) -> tuple[Effect, ...]:
        """The effects that were given, and the time chain behind them if there is one."""
        chain = (TimeChain(float(self.units[0])),) if self.time == "chain" else ()
        return (*self.effects, *chain)

    def designs(self, side: Name) -> tuple[Design, ...]:
        """What shifts the rows of this side."""
        return self.user_designs if side == "user" else self.item_designs

    def has_own(self, side: Name) -> bool:
        """Whether rows of this side are more than their designs and a bias (the paper's deltaU)."""
        return self.own_features or not self.designs(side)

    def groups(self, side: Name) -> list[Group]:
        """How the prior of a row falls into independent groups of columns."""
        if self.bias == "joint":
            return [Group(0, self.size, self.wishart(self.size))]
        groups = [Group(0, 1, None if self.bias == "fixed" else self._bias_hyper())]
        if self.rank and self.has_own(side):
            groups.append(Group(1, self.size, self.wishart(self.rank)))
        return groups

    def design_group(self) -> Group:
        """The columns of W, and their prior."""
        first = self.first_shifted
        return Group(first, self.size, self.wishart(self.size - first))

    def wishart(self, size: int) -> NormalWishart:
        """The Gaussian-Wishart prior of a block of features."""
        h = self.hyper
        degrees = size + 1.0 if h.feature_degrees is None else h.feature_degrees
        units = self.units[self.size - size :]
        mean: NDArray[np.float64] = h.feature_mean * units
        inverse = np.diag(units**2 / np.asarray(h.feature_scale))
        return NormalWishart(mean, h.feature_count, inverse, degrees)

    def _bias_hyper(self) -> NormalWishart:
        """Gamma(a, b) on a precision is the one-dimensional Wishart(1 / 2b, 2a)."""
        h = self.priors
        inverse = np.full((1, 1), 2 * h.bias_rate)
        return NormalWishart(np.zeros(1), h.feature_count, inverse, 2 * h.bias_shape)


def check_part(name: str, part: object, kind: type, example: str) -> None:
    """Refuse a class in place of an object of it, and what lacks the methods of its protocol."""
    if isinstance(part, type):
        raise TypeError(f"{name} is the class {part.__name__}: give {example}")
    check_kind(name, part, kind, example)


def _part_to_dict(part: Any) -> dict[str, Any]:
    if hasattr(part, "to_dict"):
        return {"name": part.name, **part.to_dict()}
    return {"name": part.name, **(asdict(part) if is_dataclass(part) else {})}  # type: ignore[arg-type]


def _part_from_dict(kind: str, facts: Mapping[str, Any]) -> Any:
    settings = dict(facts)
    name = settings.pop("name")
    if f"{kind} {name}" not in PARTS:
        raise DataError(
            f"the model has the {kind} {name!r}, which is not known here; import the module that "
            "registers it first"
        )
    part = PARTS[f"{kind} {name}"]
    if hasattr(part, "from_dict"):
        return part.from_dict(settings)
    return part(**{key: _tuples(value) for key, value in settings.items()})


def _tuples(value: Any) -> Any:
    """A value with tuples where JSON has lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def has_hidden_scales(model: Model) -> bool:
    """Whether a row has a precision or a Student-t scale that only its own ratings tell."""
    return model.precision != "constant" or model.prior == "student-t"


def check_gaussian(model: Model, algorithm: str) -> Model:
    """Refuse what only sampling can do: latent likelihoods, and effects.

    Returns the model, where the likelihood "auto" is the Gaussian.
    """
    if isinstance(model.likelihood, Auto):
        model = replace(model, likelihood="gaussian")
    if model.responds or model.likelihood.name != "gaussian":
        what = f"the likelihood {model.likelihood.name!r}"
        if model.every_effect:
            what = "effects" if model.effects else "a time chain"
        raise DataError(f"{algorithm} has no update for {what}; sample the model with Gibbs")
    return model
