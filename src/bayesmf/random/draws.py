"""Random numbers by their counter: (seed, chain, sweep, parameter)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DataError
from bayesmf.random import philox
from bayesmf.random.philox import Counter

Array = NDArray[np.float64]
KINDS = 4  # streams of one parameter: normals, gammas, uniforms, and one for its kernel
BLOCKS = 2**12  # parameters times kinds
LIMITS = {
    "seed": 2**64,
    "chain": 2**16,
    "sweep": 2**32,
    "parameter": BLOCKS // KINDS,
    "first": 2**48,
}


@dataclass(frozen=True)
class Draws:
    """The stream of one parameter in one sweep of one chain; drawing twice gives the same."""

    seed: int
    chain: int = 0
    sweep: int = 0
    parameter: int = 0
    first: int = 0  # the row that drawing begins with

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            if not 0 <= getattr(self, name) < limit:
                raise DataError(
                    f"{name} {getattr(self, name)}: choose a whole number from 0 to {limit - 1}"
                )

    def of(self, parameter: int) -> Draws:
        """Returns the stream of another parameter."""
        return replace(self, parameter=parameter)

    def counter(self, kind: int = 3) -> Counter:
        """Returns the counter for a kernel that draws by itself."""
        block = self.parameter * KINDS + kind
        return Counter(np.uint64(self.seed), self.chain, block, self.sweep)  # type: ignore[arg-type]

    def normals(self, rows: int, columns: int = 1) -> Array:
        """Draws standard normals."""
        out = np.empty((rows, columns))
        philox.normals(self.counter(0), self.first, out)
        return out

    def gammas(self, shapes: Array) -> Array:
        """Draws from Gamma(shape, 1) for each shape; a shape must be positive and finite."""
        out = np.empty(len(shapes))
        self._fill_gammas(shapes, out)
        wrong = np.flatnonzero(np.isnan(out))
        if len(wrong):
            row = wrong[0]
            raise ValueError(
                f"the shape of Gamma draw {row} is {shapes[row]}: it must be positive and finite"
            )
        return out

    def uniforms(self, rows: int, columns: int = 1) -> Array:
        """Draws uniforms on the open unit interval."""
        out = np.empty((rows, columns))
        self._fill_uniforms(out)
        return out

    def _fill_gammas(self, shapes: Array, out: Array) -> None:
        philox.gammas(self.counter(1), self.first, shapes, out)

    def _fill_uniforms(self, out: Array) -> None:
        philox.uniforms(self.counter(2), self.first, out)


@dataclass(frozen=True)
class StackedDraws(Draws):
    """The streams of one parameter in several chains, one after the other.

    Row s is row s % each of the chain s // each after this one.
    """

    each: int = 1

    def _fill_gammas(self, shapes: Array, out: Array) -> None:
        philox.stacked_gammas(self.counter(1), self.first, self.each, shapes, out)

    def _fill_uniforms(self, out: Array) -> None:
        philox.stacked_uniforms(self.counter(2), self.first, self.each, out)
