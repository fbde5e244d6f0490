"""A likelihood: thumbs up or down, by a probit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from bayesmf import DataError
from bayesmf.model.designs import register


@register("likelihood")
@dataclass(frozen=True)
class Thumbs:
    """r = 1 where a latent z ~ N(f, 1 / (alpha_i beta_j)) is above 0, else 0; tau stays 1."""

    name: ClassVar[str] = "thumbs"
    latent: ClassVar[bool] = True

    levels = (0.0, 1.0)

    def settle(self, ratings):
        return self

    def check(self, ratings):
        if not np.isin(ratings.values, (0, 1)).all():
            raise DataError("thumbs are 0 or 1; choose another likelihood")

    def centre(self, mean):
        return 0.0

    def unit(self, sd):
        return 1.0

    def start(self, users):
        return {}

    def begin(self, parameters, users):
        return {}

    def update(self, parameters, tau, hyper, seen, draws, shared):
        return parameters, tau

    def respond(self, parameters, seen, draws):
        sign, sd = np.where(seen.centred > 0, 1.0, -1.0), 1 / np.sqrt(seen.weight)
        u = draws.uniforms(len(seen.f))[:, 0]
        return seen.f - sign * sd * ndtri(u * ndtr(sign * seen.f / sd))  # z on its side of 0

    def tau(self, hyper, size, total):
        return None

    def probabilities(self, parameters, user, f, levels):
        up = ndtr(f.mean / f.sd)
        return np.stack([1 - up, up], axis=1)
