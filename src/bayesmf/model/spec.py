"""A model is a value: which parts it has, and their fixed priors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DataError
from bayesmf.model.distributions import NormalWishart

Features = Literal["none", "user-item", "side", "side-only"]
SideOf = Literal["user", "item", "both"]
Precision = Literal["constant", "robust", "truncated"]
Prior = Literal["gaussian", "student-t"]
Bias = Literal["learned", "fixed", "joint"]
CHOICES = {
    "features": ("none", "user-item", "side", "side-only"),
    "side_of": ("user", "item", "both"),
    "precision": ("constant", "robust", "truncated"),
    "prior": ("gaussian", "student-t"),
    "bias": ("learned", "fixed", "joint"),
}


@dataclass(frozen=True)
class Hyper:
    """Fixed numbers at the top of the model; the defaults are the paper's."""

    feature_mean: float = 0.0  # mu_0
    feature_count: float = 1.0  # beta_0
    feature_degrees: float | None = None  # nu_0; None is one more than the dimension
    feature_scale: float | tuple[float, ...] = 1.0  # the diagonal of scale_0
    noise_shape: float = 2.0  # of tau
    noise_rate: float = 2.0
    precision_shape: float = 2.0  # of alpha_i and beta_j, when they are not constant
    precision_rate: float = 2.0
    bias_shape: float = 1.0  # of a learned bias precision
    bias_rate: float = 1.0
    bias_mean: float = 0.0  # of a fixed bias prior
    bias_precision: float = 1.0
    student_degrees: float = 4.0  # of a Student-t prior


@dataclass(frozen=True)
class Group:
    """Columns of a row that share one Gaussian prior with unknown mean and precision."""

    first: int
    end: int
    hyper: NormalWishart | None  # None: the prior is fixed


@dataclass(frozen=True)
class Model:
    """One member of the family.

    Row i of a side is x_i = (bias, features); r_ij ~ N(gamma_i + eta_j + S_i'T_j, alpha_i beta_j
    tau). ``bias="joint"`` puts bias and features under one Gaussian-Wishart prior, and lets side
    features shift the bias too; "learned" gives the biases a Normal-Gamma prior of their own.
    """

    rank: int = 20  # number of features
    features: Features = "side"  # biases only; own; own and side; side alone
    side_of: SideOf = "user"  # whose rows side features shift
    side_power: float = 1.0  # p of the weight n^-p of side features
    precision: Precision = "constant"  # alpha and beta: 1; Gamma; Gamma cut to the bounds
    bounds: tuple[float, float] = (0.5, 2.0)  # of truncated precisions
    prior: Prior = "gaussian"  # of the own features
    bias: Bias = "learned"  # prior of the biases
    hyper: Hyper = field(default_factory=Hyper)  # the fixed numbers at the top

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                told = ", ".join(allowed)
                raise DataError(f"{name}={getattr(self, name)!r}: choose one of {told}")
        if self.features == "none":
            object.__setattr__(self, "rank", 0)
        elif self.rank < 1:
            raise DataError(f"rank={self.rank}: choose 1 or more, or features='none'")
        low, high = self.bounds
        if not 0 <= low < high < float("inf"):
            raise DataError(f"bounds={self.bounds}: choose 0 <= low < high, both finite")
        if not 0 <= self.side_power <= 2:
            raise DataError(f"side_power={self.side_power}: choose 0 to 2")
        if self.features == "side-only" and self.bias == "joint":
            raise DataError(
                "side-only rows have no features to share a prior with their bias; choose "
                "bias='learned' or 'fixed'"
            )

    @classmethod
    def best(cls, rank: int = 20) -> Model:
        """The best member known: side features of both sides, p = 0.5, robust, joint bias.

        Its alpha_i and beta_j ~ Gamma(20, 20), where the paper has Gamma(2, 2).
        """
        hyper = Hyper(precision_shape=20.0, precision_rate=20.0)
        return cls(rank, "side", "both", 0.5, "robust", bias="joint", hyper=hyper)

    @property
    def size(self) -> int:
        """Columns of a row: the bias and the features."""
        return self.rank + 1

    @property
    def first_side(self) -> int:
        """The first column that side features shift."""
        return 0 if self.bias == "joint" else 1

    def has_side(self, side: Literal["user", "item"]) -> bool:
        """Whether side features shift the rows of this side."""
        return self.features in ("side", "side-only") and self.side_of in (side, "both")

    def has_own(self, side: Literal["user", "item"]) -> bool:
        """Whether the rows of this side have features of their own (deltaU = 1)."""
        return self.features != "none" and not (
            self.features == "side-only" and self.has_side(side)
        )

    def groups(self, side: Literal["user", "item"]) -> list[Group]:
        """How the prior of a row falls into independent groups of columns."""
        if self.bias == "joint":
            return [Group(0, self.size, self.wishart(self.size))]
        groups = [Group(0, 1, None if self.bias == "fixed" else self._bias_hyper())]
        if self.has_own(side):
            groups.append(Group(1, self.size, self.wishart(self.rank)))
        return groups

    def wishart(self, size: int) -> NormalWishart:
        """The Gaussian-Wishart prior of a block of features."""
        h = self.hyper
        degrees = size + 1.0 if h.feature_degrees is None else h.feature_degrees
        mean: NDArray[np.float64] = np.full(size, h.feature_mean)
        inverse = np.diag(np.broadcast_to(1 / np.asarray(h.feature_scale), size))
        return NormalWishart(mean, h.feature_count, inverse, degrees)

    def _bias_hyper(self) -> NormalWishart:
        """Gamma(a, b) on a precision is the one-dimensional Wishart(1 / 2b, 2a)."""
        h = self.hyper
        return NormalWishart(np.zeros(1), h.feature_count, np.full((1, 1), 2 * h.bias_rate),
                             2 * h.bias_shape)  # fmt: skip
