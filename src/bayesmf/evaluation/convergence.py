"""What ``fit.diagnostics()`` returns: the verdict on the chains, and a table behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.pairs import frame_like
from bayesmf.evaluation.diagnostics import (
    PREDICTIONS,
    SUMMARIES,
    UNKNOWN,
    Measures,
    Run,
    Targets,
    Verdict,
    judge,
    measure_judged,
)

MEDIAN, WORST = "predictions, median", "predictions, worst 1 %"
COLUMNS = ("mean", "sd", "mcse", "r_hat", "ess", "ess_tail")
HEADINGS = ("", "mean", "sd", "error", "R-hat", "ESS", "tail ESS")
NONE = Measures(*(np.empty(0) for _ in COLUMNS))


@dataclass(frozen=True, repr=False)
class Diagnostics:
    """Whether the chains of a fit have converged: printed, it is the verdict and a table.

    ``to_dict()`` has the same for JSON. Quantities that never change are left out. The columns of
    the table are ``mean``, ``sd``, ``mcse`` (the simulation error of the mean), ``r_hat``, ``ess``
    (effective draws in the bulk) and ``ess_tail`` (those of the 5 % and 95 % quantiles), and
    ``predictions`` has an array for each of them. The predictions have two rows: the median over
    pairs of each measure, and what all but the worst 1 % of the pairs reach.
    """

    verdict: Verdict  # ``.converged``, ``.words`` and the numbers behind them
    summaries: Mapping[str, Measures]  # of the noise and the linear predictor, by name
    predictions: Measures  # one number for each pair that was followed
    targets: Targets  # what was asked of them

    @classmethod
    def from_traces(
        cls,
        traces: Mapping[str, NDArray[Any]],
        targets: Targets | None = None,
        run: Run = UNKNOWN,
    ) -> Diagnostics:
        """Measure and judge the traces after the warm-up."""
        targets, measured = targets or Targets(), measure_judged(traces)
        verdict = judge(traces, targets, run=run, measured=measured)
        summaries = {name: measured[name] for name in SUMMARIES if name in measured}
        return cls(verdict, summaries, measured.get(PREDICTIONS, NONE), targets)

    @classmethod
    def of_fit(
        cls,
        traces: Mapping[str, NDArray[Any]],
        facts: Mapping[str, Any],
        targets: Targets | None,
    ) -> Diagnostics:
        """Judge a fit, by its own targets if None are given; ``facts`` say how it was made."""
        asked = facts.get("targets") or {}
        names = [one.name for one in fields(Targets)]
        own = Targets(**{name: asked[name] for name in names if name in asked})
        chains = len(next(iter(traces.values()))) if traces else 1
        stopped = str(facts.get("stopped") or "")
        run = Run(
            int(facts.get("sweeps") or 0) // max(chains, 1),
            str(facts.get("until") or "sweeps"),
            "" if stopped.startswith("the targets were") else stopped,
        )
        return cls.from_traces(traces, targets or own, run)

    @property
    def table(self) -> Any:
        """A pyarrow table of the measures, one row for each quantity."""
        rows = self._rows()
        columns = {name: [row[k] for row in rows.values()] for k, name in enumerate(COLUMNS)}
        return frame_like({"name": np.array(list(rows), object), **columns})

    def _rows(self) -> dict[str, list[float | None]]:
        """The numbers of each row of the table; None where there is none."""
        found = {
            name: [float(getattr(each, column)) for column in COLUMNS]
            for name, each in self.summaries.items()
        }
        if len(self.predictions.ess):
            found[MEDIAN] = [float(np.median(getattr(self.predictions, c))) for c in COLUMNS]
            found[WORST] = [
                *(math.nan, math.nan),  # no mean is better than another
                *(float(np.quantile(getattr(self.predictions, c), 0.99)) for c in COLUMNS[2:4]),
                *(float(np.quantile(getattr(self.predictions, c), 0.01)) for c in COLUMNS[4:]),
            ]
        return {
            name: [value if math.isfinite(value) else None for value in row]
            for name, row in found.items()
        }

    def format_table(self) -> str:
        """The table as text; nothing if it has no rows."""
        forms = ("#.4g", "#.3g", "#.2g", ".3f", ",.0f", ",.0f")
        lines: list[tuple[str, ...]] = [HEADINGS]
        for name, row in self._rows().items():
            cells = zip(row, forms, strict=True)
            lines.append((name, *("-" if v is None else f"{v:{form}}" for v, form in cells)))
        if len(lines) == 1:
            return ""
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        )

    def __repr__(self) -> str:
        return "\n\n".join(filter(None, (self.verdict.words, self.format_table())))

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the numbers of single pairs, ready for JSON."""
        verdict, rows = self.verdict, self._rows()
        named = {name: dict(zip(COLUMNS, row, strict=True)) for name, row in rows.items()}
        share = verdict.share if math.isfinite(verdict.share) else None
        return {
            "converged": verdict.converged,
            "words": verdict.words,
            "chains": verdict.chains,
            "draws": verdict.draws,
            "predictions": {
                "count": verdict.predictions,
                "share": share,
                "median": named.pop(MEDIAN, None),
                "worst_1_percent": named.pop(WORST, None),
            },
            "summaries": {name.replace(" ", "_"): row for name, row in named.items()},
            "targets": asdict(self.targets),
        }
