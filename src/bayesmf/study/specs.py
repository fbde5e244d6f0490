"""What is run: the paper's experiments, and those beyond it, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from bayesmf.errors import DataError
from bayesmf.model.spec import Features, Model, Precision

Kind = Literal["gibbs", "vi", "map", "cold-start"]
FEATURES: dict[str, Features] = {
    "none": "none", "no-side": "user-item", "side": "side", "side-only": "side-only",
}  # fmt: skip
PRECISIONS: tuple[Precision, ...] = ("constant", "robust", "truncated")
WIDTHS = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)  # n of the bounds 1/n and n
HELD = 0.1  # of the training ratings, where something is chosen by validation
GIVEN = (0, 1, 2, 5, 10, 20)  # ratings known of a new user


@dataclass(frozen=True)
class Lengths:
    """How long things run."""

    rank: int = 20
    sweeps: int = 400
    burn_in: int = 20
    updates: int = 60
    descent: int = 1000  # steps of MAP by momentum, at most
    cold: int = 200  # sweeps of a cold-start run
    keep: int = 40  # draws that new users are folded into
    side_only: int = 100  # sweeps without own features, whose draws cost O(rank^2) a rating

    @classmethod
    def of(cls, data: str, quick: bool, rank: int = 20) -> Lengths:
        """For a data set; Epinions has eighteen times the rows of MovieLens 1M."""
        if quick:
            return cls(rank, 60, 10, 15, 200, 60, 20, 40)
        if data == "epinions":
            return cls(rank, 150, 20, 15, 150, 40, 10, 30)
        return cls(rank)


@dataclass(frozen=True)
class Run:
    """One fit, and what is written down of it beyond its errors."""

    name: str
    kind: Kind
    model: Model
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the algorithm
    start: str = ""  # the run whose state this one begins from
    penalty_of: str = ""  # the run whose penalty it takes
    validation: float = 0.0  # of the training ratings, held out
    record: frozenset[str] = frozenset()  # "state", "precisions", "correlation", "variance"

    def describe(self) -> dict[str, Any]:
        """For its result file."""
        return {**asdict(self), "settings": dict(self.settings), "record": sorted(self.record)}

    @property
    def needs(self) -> list[str]:
        """The runs that must be done before."""
        return [name for name in (self.start, self.penalty_of) if name]

    @property
    def cost(self) -> float:
        """Its time, roughly, where a Gibbs sweep without side features is 1."""
        features = self.model.features
        both = self.model.side_of == "both"
        if self.kind == "map":
            if "method" not in self.settings:
                return 5.0  # precisions only
            if self.settings["method"] == "coordinate":
                return {"none": 10.0, "user-item": 250.0, "side": 800.0, "side-only": 400.0}[
                    features
                ]
            sizes = {"none": 0.01, "user-item": 0.3, "side": 0.45, "side-only": 0.5}
            return float(sizes[features] * self.settings["sweeps"])
        if self.kind == "vi":
            sizes = {"none": 1.0, "user-item": 6.0, "side": 14.0, "side-only": 13.0}
            slow = 80.0 if self.model.precision == "truncated" else 0.0
            return float(sizes[features] * self.settings["updates"] + slow)
        sizes = {"none": 0.3, "user-item": 1.0, "side": 1.7 if both else 1.35, "side-only": 12.0}
        slow = 1.5 if self.model.precision == "truncated" and features != "side-only" else 1.0
        folding = 1.8 if self.kind == "cold-start" else 1.0
        return float(sizes[features] * slow * folding * self.settings["sweeps"])


def model_of(features: str, precision: Precision, lengths: Lengths, width: float = 2.0) -> Model:
    """A member of the paper's family."""
    return Model(lengths.rank, FEATURES[features], precision=precision, bounds=(1 / width, width))


def gibbs(features: str, precision: Precision, lengths: Lengths) -> Run:
    """Sampling; the variances of features are written down where the paper plots them."""
    record = {"precisions"} if precision != "constant" else set()
    if (features, precision) == ("no-side", "constant"):
        record.add("variance")
    sweeps = lengths.side_only if features == "side-only" else lengths.sweeps
    return Run(
        f"gibbs-{features}-{precision}", "gibbs", model_of(features, precision, lengths),
        {"sweeps": sweeps, "burn_in": lengths.burn_in}, record=frozenset(record),
    )  # fmt: skip


def both_sides_model(precision: Precision, lengths: Lengths) -> Model:
    """Side features of users and items, p = 1/2, bias as a feature; the paper's priors."""
    return Model(lengths.rank, "side", "both", 0.5, precision, bias="joint")


def both_sides(precision: Precision, lengths: Lengths) -> Run:
    """Sampling of the model with side features of both."""
    model = both_sides_model(precision, lengths)
    settings = {"sweeps": lengths.sweeps, "burn_in": lengths.burn_in}
    return Run(f"gibbs-both-sides-{precision}", "gibbs", model, settings)


def start(features: str, lengths: Lengths, validation: float = 0.0) -> Run:
    """Where variational inference begins: MAP by coordinates, the energy being the paper's.

    So the penalty that the paper's descent has chosen is the right one here, too.
    """
    return Run(
        f"start-{'validation-' if validation else ''}{features}", "map",
        model_of(features, "constant", lengths), {"method": "coordinate"},
        penalty_of=descent(features, "constant", lengths).name, validation=validation,
        record=frozenset({"state"}),
    )  # fmt: skip


def vi(
    features: str, precision: Precision, lengths: Lengths, *, prior: str = "map-driven",
    printed: bool = False, width: float = 2.0, validation: float = 0.0,
) -> Run:  # fmt: skip
    """Variational inference, from MAP by coordinates."""
    name = "vi"
    settings: dict[str, Any] = {"updates": lengths.updates, "tolerance": 0.0, "prior": prior}
    record = set()
    if printed:
        name, settings["moments"] = "vi-printed", "first"
        settings["clamp"] = precision == "truncated"
    if prior == "default":
        name = "vi-default"
    if validation:
        name = "vi-validation"
    if precision == "robust" and features == "no-side":
        record.add("correlation")
    if precision != "constant":
        record.add("precisions")
    if (name, features, precision) == ("vi", "no-side", "constant"):
        record.add("variance")
    name = f"{name}-{features}-{precision}" + (f"-{width:g}" if width != 2 else "")
    return Run(
        name, "vi", model_of(features, precision, lengths, width), settings,
        start(features, lengths, validation).name, validation=validation,
        record=frozenset(record),
    )  # fmt: skip


def descent(features: str, precision: Precision, lengths: Lengths) -> Run:
    """The paper's MAP, stopped by validation; only the run with constant precisions makes features.

    Precisions come after the features, so the others begin where that one ended.
    """
    model = model_of(features, precision, lengths)
    name = f"map-{features}-{precision}"
    if precision != "constant":
        return Run(name, "map", model, {}, f"map-{features}-constant", validation=HELD)
    settings = {"method": "momentum", "sweeps": lengths.descent}
    return Run(name, "map", model, settings, validation=HELD, record=frozenset({"state"}))


def cold_start(name: str, model: Model, lengths: Lengths) -> Run:
    """Sampling without a tenth of the users, who are then folded in from a few ratings."""
    settings = {"sweeps": lengths.cold, "burn_in": lengths.burn_in, "keep": lengths.keep}
    return Run(f"cold-start-{name}", "cold-start", model, settings)


def _table_2(lengths: Lengths) -> list[Run]:
    return [
        make(features, precision, lengths)
        for features in FEATURES
        for precision in PRECISIONS
        for make in (gibbs, vi, descent)
    ]


def _widths(lengths: Lengths, validation: float = 0.0) -> list[Run]:
    return [vi("no-side", "truncated", lengths, width=width, validation=validation)
            for width in WIDTHS]  # fmt: skip


def _no_side_vi(lengths: Lengths) -> list[Run]:
    return [vi("no-side", precision, lengths) for precision in PRECISIONS]


def _calibration(lengths: Lengths) -> list[Run]:
    return [*_table_2(lengths), *_both(lengths)]


def _both(lengths: Lengths) -> list[Run]:
    return [both_sides("constant", lengths), both_sides("robust", lengths)]


def _cold_start(lengths: Lengths) -> list[Run]:
    models = {
        "none": model_of("none", "constant", lengths),
        "no-side": model_of("no-side", "constant", lengths),
        "side": model_of("side", "constant", lengths),
        "both-sides": both_sides_model("robust", lengths),
    }
    return [cold_start(name, model, lengths) for name, model in models.items()]


def _bounds(lengths: Lengths) -> list[Run]:
    short = replace(lengths, updates=max(lengths.updates // 2, 5))
    return [*_widths(lengths), *_widths(short, validation=HELD)]


Maker = Callable[[Lengths], list[Run]]
EXPERIMENTS: dict[str, Maker] = {
    "table-1": lambda lengths: [],
    "table-2": _table_2,
    "table-3": lambda lengths: [gibbs("side", p, lengths) for p in PRECISIONS[:2]],
    "table-4": lambda lengths: [gibbs(f, "constant", lengths) for f in ("no-side", "side")],
    "fig-2": lambda lengths: [
        vi("no-side", "constant", lengths, prior="default"), *_no_side_vi(lengths)[:2],
    ],
    "fig-3": lambda lengths: [
        gibbs("no-side", "constant", lengths), vi("no-side", "constant", lengths),
        descent("no-side", "constant", lengths),
    ],
    "fig-4": lambda lengths: [
        gibbs("no-side", "robust", lengths), vi("no-side", "robust", lengths),
        vi("no-side", "robust", lengths, printed=True),
    ],
    "fig-5": lambda lengths: [*_no_side_vi(lengths), *_widths(lengths)],
    "fig-6": lambda lengths: [
        vi("no-side", "robust", lengths), vi("no-side", "robust", lengths, printed=True),
    ],
    "fig-7": lambda lengths: [
        gibbs("no-side", "constant", lengths), *(gibbs("side", p, lengths) for p in PRECISIONS[:2]),
    ],
    "printed": lambda lengths: [
        *_no_side_vi(lengths),
        *(vi("no-side", p, lengths, printed=True) for p in PRECISIONS),
    ],
    "calibration": _calibration,
    "bounds": _bounds,
    "both-sides": _both,
    "cold-start": _cold_start,
}  # fmt: skip
ON_EVERY_SPLIT = ("table-2", "table-3", "table-4", "both-sides")
"""The others need one split, and have the first."""


def runs_of(names: Sequence[str], lengths: Lengths) -> list[Run]:
    """The runs that some experiments need, each once, a start before those who begin there.

    A name may also be that of a run.
    """
    every = {run.name: run for make in EXPERIMENTS.values() for run in make(lengths)}
    for features in FEATURES:
        for run in (start(features, lengths), start(features, lengths, HELD),
                    descent(features, "constant", lengths)):  # fmt: skip
            every[run.name] = run
    found: dict[str, Run] = {}
    for name in names:
        if name not in EXPERIMENTS and name not in every:
            raise DataError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
        for run in EXPERIMENTS[name](lengths) if name in EXPERIMENTS else [every[name]]:
            _add(run, every, found)
    return list(found.values())


def _add(run: Run, every: Mapping[str, Run], found: dict[str, Run]) -> None:
    for name in run.needs:
        _add(every[name], every, found)
    found.setdefault(run.name, run)
