"""Small runs to save and resume, ways to end them, and all that a fit holds as bytes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from bayesmf import Gibbs
from bayesmf.inference.gibbs import GibbsFit
from bayesmf.inference.loop import Progress
from bayesmf.model.state import Side
from oracle.variants import VARIANTS, small_ratings

NAMES = ("no side", "both sides, joint bias, robust, student-t", "user side only",
         "no side, truncated")  # fmt: skip
ALL = small_ratings(30, 20)
PART = np.arange(len(ALL)) % 5
TRAIN, TEST, JUDGE = ALL.select(PART < 3), ALL.select(PART == 3), ALL.select(PART == 4)
SWEEPS = 4


def sampler(name: str = "no side", **others) -> Gibbs:
    given = {"sweeps": SWEEPS, "burn_in": 1, "thin": 2, "chains": 2, "keep": 2, "seed": 3,
             "form": "interwoven", **others}  # fmt: skip
    return Gibbs(VARIANTS[name], **given)


def fitted(gibbs: Gibbs, folder=None, **options) -> GibbsFit:
    if folder is not None:
        options = {"checkpoint": folder, "every": 0, **options}
    return gibbs.fit(TRAIN, TEST, **{"validation": JUDGE, "patience": 3, **options})


def content(fit: GibbsFit) -> dict[str, object]:
    """Everything in a fit but the time it took, as bytes or text."""
    out: dict[str, object] = {}
    for number, state in enumerate(fit.states):
        out[f"{number} tau, sweep"] = repr((state.tau, state.sweep))
        for name, side in (("user", state.user), ("item", state.item)):
            for part, values in arrays(side).items():
                out[f"{number} {name} {part}"] = (values.shape, values.tobytes())
    out.update({f"trace {name}": values.tobytes() for name, values in fit.traces.items()})
    if fit.predictions is not None:
        p = fit.predictions
        out["predictions"] = [v.tobytes() for v in (p.mean, p.squares, p.noise_variance)]
        out["predictions counted"] = p.count
    if fit.draws is not None:
        out["chains of draws"] = fit.draws.chains
        out.update({f"draws {name}": v.tobytes() for name, v in fit.draws.arrays.items()})
        out.update({f"known {name}": v.tobytes() for name, v in fit.posterior.draws.items()})
    out["curves"] = repr((fit.rmse_by_sweep, fit.validation_by_sweep, fit.test_rmse))
    out["facts"] = repr((fit.sweeps, fit.stopped, fit.burn_in))
    out["diagnostics"] = repr(fit.diagnostics())
    return out


def arrays(side: Side) -> dict[str, np.ndarray]:
    """Everything that one side has, the offsets of its designs too."""
    out = {part.name: getattr(side, part.name) for part in fields(side) if part.name != "shifts"}
    for number, shift in enumerate(side.shifts):
        out.update({f"shift {number} {name}": values for name, values in vars(shift).items()})
    return out


class Stop:
    """Ends a run at its sweep number ``at``, counted over the sweeps of this call."""

    def __init__(self, at: int, how: str) -> None:
        self.at, self.how = at, how
        self.seen: list[tuple[int, int]] = []

    def __call__(self, progress: Progress) -> bool:
        self.seen.append((progress.chain, progress.sweep))
        if len(self.seen) != self.at:
            return False
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "fail":
            raise RuntimeError
        return True
