"""A design: numbers that are known of each user, or item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from bayesmf.model.designs import Matrix, register


@register("design")
@dataclass(frozen=True)
class Attributes:
    """X_ik is attribute k of row i; a row that is not listed has none."""

    rows: tuple[tuple[int | str, tuple[float, ...]], ...]  # (id, its attributes)

    name: ClassVar[str] = "toy-attributes"

    def matrix(self, side):
        listed = dict(self.rows)
        nothing = np.zeros(len(self.rows[0][1]))
        values = [listed.get(who, nothing) for who in side.ids.values.tolist()]
        return Matrix.from_sparse(sparse.csr_array(np.array(values, float)))
