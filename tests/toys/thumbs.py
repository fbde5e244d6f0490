"""A likelihood: thumbs up or down, by a probit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from bayesmf import DataError
from bayesmf.model.designs import register


class Chances:
    """The predictive distribution: a thumb is up with probability ``mean``."""

    def __init__(self, mean):
        self.mean, self.sd = mean, np.sqrt(mean * (1 - mean))

    def quantile(self, level):
        return (1 - self.mean < level).astype(float)

    def log_density(self, ratings):
        return np.log(np.where(ratings > 0, self.mean, 1 - self.mean))


@register("likelihood")
@dataclass(frozen=True)
class Thumbs:
    """r = 1 where a latent z ~ N(f, 1 / (alpha_i beta_j)) is above 0, else 0; tau stays 1."""

    name: ClassVar[str] = "thumbs"
    latent: ClassVar[bool] = True

    def check(self, ratings):
        if not np.isin(ratings.values, (0, 1)).all():
            raise DataError("thumbs are 0 or 1; choose another likelihood")

    def centre(self, mean):
        return 0.0

    def respond(self, centred, f, weight, draws):
        sign, sd = np.where(centred > 0, 1.0, -1.0), 1 / np.sqrt(weight)
        u = draws.uniforms(len(f))[:, 0]
        return f - sign * sd * ndtri(u * ndtr(sign * f / sd))  # z on its side of 0

    def tau(self, hyper, size, total):
        return None

    def predictive(self, f):
        return Chances(ndtr(f.mean / f.sd))

    def probabilities(self, f, levels):
        up = ndtr(f.mean / f.sd)
        return np.stack([1 - up, up], axis=1)
