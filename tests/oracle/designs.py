"""A design with real values, for the checks that run over the variants."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from bayesmf.model.designs import Matrix, SideFacts, register

NOBODY = 0  # the label of a column without entries


@register("design")
@dataclass(frozen=True)
class Labelled:
    """X_ik = c_i v_ik, where v_ik and c_i follow from the id of row i and the label of column k.

    So rows keep their entries however they are numbered, and rows that training has not seen have
    theirs. Some entries are empty, and all of the column ``NOBODY``.
    """

    labels: tuple[int, ...] = (1, 2, NOBODY)

    name: ClassVar[str] = "labelled"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))

    def matrix(self, side: SideFacts) -> Matrix:
        c, v = self.numbers(side.ids.values)
        return replace(Matrix.from_sparse(sparse.csr_array(v)), scale=c)

    def numbers(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """c and v of the rows with these ids."""
        c = np.array([0.5 + generator(one, "scale").random() for one in ids])
        v = np.array([entry(one, label) for one in ids for label in self.labels])
        return c, v.reshape(len(ids), len(self.labels))


def entry(one: Any, label: int) -> float:
    rng = generator(one, label)
    return 0.0 if label == NOBODY or rng.random() < 0.3 else rng.normal()


def generator(*words: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(" ".join(map(str, words)).encode()))
