"""What a study runs: the paper's experiments, and those beyond it, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bayesmf.choices import FEATURES, PRECISIONS, Features, Inference, Precision, Side
from bayesmf.errors import DataError
from bayesmf.model.attributes import Attributes, with_attributes
from bayesmf.model.designs import RatedSet
from bayesmf.model.spec import Model

Kind = Inference | Literal["predictive", "cold-start"]
UNBOUNDED: tuple[Precision, ...] = ("constant", "robust")
WIDTHS = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)  # n of the bounds 1/n and n
HELD = 0.1  # of the training ratings, where something is chosen by validation
Variant = Features | Literal["both-sides", "default", "default-attributes"]
Compared = Literal["default", "default-chain", "default-ordinal", "default-chain-ordinal"]
Tables = Mapping[Side, Attributes]  # of attributes; a side without a table is not in it
NO_TABLES: Tables = {}
GIVEN = (0, 1, 2, 5, 10, 20, 50)  # ratings known of a new user or a new item
COLD: tuple[Variant, ...] = ("default", "none", "no-side", "side", "both-sides")
COLD_ATTRIBUTES: Variant = "default-attributes"  # one more where there are attributes
NEW: tuple[Side, ...] = ("user", "item")  # who is new
TIME_AND_SCALE: dict[Compared, dict[str, Any]] = {  # what each has beyond the default model
    "default": {},
    "default-chain": {"time": "chain"},
    "default-ordinal": {"likelihood": "ordinal"},
    "default-chain-ordinal": {"time": "chain", "likelihood": "ordinal"},
}


@dataclass(frozen=True)
class Lengths:
    """How long the runs of a study are, and how large their models."""

    rank: int = 20
    sweeps: int = 400
    burn_in: int = 20
    updates: int = 60
    descent: int = 1000  # steps of MAP by momentum, at most
    cold: int = 200  # sweeps of a run that keeps draws
    keep: int = 40  # draws that it keeps
    side_only: int = 100  # sweeps without own features, whose draws cost O(rank^2) a rating

    @classmethod
    def of(cls, data: str, quick: bool, rank: int = 20) -> Lengths:
        """The lengths for a data set; Epinions has eighteen times the rows of MovieLens 1M."""
        if quick:
            return cls(rank, 60, 10, 15, 200, 60, 20, 40)
        if data == "epinions":
            return cls(rank, 150, 20, 15, 150, 60, 20, 30)
        return cls(rank)


@dataclass(frozen=True)
class Run:
    """One fit, and what is written down of it beyond its errors."""

    name: str
    kind: Kind
    model: Model
    features: Variant | Compared
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the algorithm
    start: str = ""  # the run whose state this one begins from
    penalty_of: str = ""  # the run whose penalty it takes
    validation: float = 0.0  # of the training ratings, held out
    record: frozenset[str] = frozenset()  # "state", "precisions", "correlation", "variance"
    new: Side | None = None  # who is new, in a cold start

    def describe(self) -> dict[str, Any]:
        """Describe the run for its result file."""
        changed = {
            "model": self.model.to_dict(),
            "settings": dict(self.settings),
            "record": sorted(self.record),
        }
        return {**vars(self), **changed}

    @property
    def needs(self) -> list[str]:
        """The names of the runs that must be done before this one."""
        return [name for name in (self.start, self.penalty_of) if name]

    @property
    def cost(self) -> float:
        """Roughly its time, where a Gibbs sweep without rated-set features is 1."""
        truncated = self.model.precision == "truncated"
        if self.kind == "map":
            if "method" not in self.settings:
                return 5.0  # precisions only
            if self.settings["method"] == "coordinate":
                return COSTS["coordinate"][self.features]
            return COSTS["momentum"][self.features] * float(self.settings["sweeps"])
        if self.kind == "vi":
            cost = COSTS["vi"][self.features] * float(self.settings["sweeps"])
            return cost + (80.0 if truncated else 0.0)
        slow = 1.5 if truncated and self.features != "side-only" else 1.0
        folding = 1.8 if self.kind == "cold-start" else 1.0
        return COSTS["gibbs"][self.features] * slow * folding * float(self.settings["sweeps"])


COSTS = {  # of one sweep; of a whole run by coordinates
    "gibbs": {
        "none": 0.3,
        "no-side": 1.0,
        "side": 1.35,
        "side-only": 12.0,
        "both-sides": 1.7,
        "default": 4.0,  # the rows of its kept draws are drawn again
        "default-attributes": 4.5,
        "default-chain": 5.0,
        "default-ordinal": 8.0,
        "default-chain-ordinal": 9.0,
    },
    "vi": {"none": 1.0, "no-side": 6.0, "side": 14.0, "side-only": 13.0},
    "momentum": {"none": 0.01, "no-side": 0.3, "side": 0.45, "side-only": 0.5},
    "coordinate": {"none": 10.0, "no-side": 250.0, "side": 800.0, "side-only": 400.0},
}


def paper_model(
    features: Features, precision: Precision, lengths: Lengths, width: float = 2.0
) -> Model:
    """A model of the paper's; ``width`` is n of the bounds 1/n and n of truncated precisions."""
    return Model.paper(features, precision, lengths.rank, bounds=(1 / width, width))


def gibbs(features: Features, precision: Precision, lengths: Lengths) -> Run:
    """A run of Gibbs sampling; the features' variances are kept where the paper plots them."""
    record = {"precisions"} if precision != "constant" else set()
    if (features, precision) == ("no-side", "constant"):
        record.add("variance")
    sweeps = lengths.side_only if features == "side-only" else lengths.sweeps
    return Run(
        f"gibbs-{features}-{precision}",
        "gibbs",
        paper_model(features, precision, lengths),
        features,
        {"sweeps": sweeps, "burn_in": lengths.burn_in},
        record=frozenset(record),
    )


def both_sides_model(precision: Precision, lengths: Lengths) -> Model:
    """Rated-set features of users and items, p = 1/2, and a joint bias, with the paper's priors."""
    designs = (RatedSet(0.5),)
    return Model.paper(
        "side", precision, lengths.rank, user_designs=designs, item_designs=designs, bias="joint"
    )


def both_sides(precision: Precision, lengths: Lengths) -> Run:
    """A run of Gibbs sampling of the model with rated-set features of both sides."""
    model = both_sides_model(precision, lengths)
    settings = {"sweeps": lengths.sweeps, "burn_in": lengths.burn_in}
    return Run(f"gibbs-both-sides-{precision}", "gibbs", model, "both-sides", settings)


def start(features: Features, lengths: Lengths, validation: float = 0.0) -> Run:
    """The run at whose end variational inference begins: MAP by coordinates.

    It minimises the paper's energy, so the penalty that the paper's descent chose is right for it.
    """
    return Run(
        f"start-{'validation-' if validation else ''}{features}",
        "map",
        paper_model(features, "constant", lengths),
        features,
        {"method": "coordinate"},
        penalty_of=descent(features, "constant", lengths).name,
        validation=validation,
        record=frozenset({"state"}),
    )


def vi(
    features: Features,
    precision: Precision,
    lengths: Lengths,
    *,
    prior: str = "map-driven",
    printed: bool = False,
    width: float = 2.0,
    validation: float = 0.0,
) -> Run:
    """A run of variational inference from MAP by coordinates; ``printed``: as the paper has it."""
    name = "vi"
    settings: dict[str, Any] = {"sweeps": lengths.updates, "tolerance": 0.0, "prior": prior}
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
        name,
        "vi",
        paper_model(features, precision, lengths, width),
        features,
        settings,
        start(features, lengths, validation).name,
        validation=validation,
        record=frozenset(record),
    )


def descent(features: Features, precision: Precision, lengths: Lengths) -> Run:
    """A run of the paper's MAP by gradient descent, stopped by validation.

    Only the run with constant precisions finds features. The others begin where it ended, because
    the paper finds precisions after the features.
    """
    model = paper_model(features, precision, lengths)
    name = f"map-{features}-{precision}"
    if precision != "constant":
        return Run(name, "map", model, features, {}, f"map-{features}-constant", validation=HELD)
    settings = {"method": "momentum", "sweeps": lengths.descent}
    return Run(name, "map", model, features, settings, validation=HELD, record=frozenset({"state"}))


def cold_start_model(variant: Variant, lengths: Lengths, tables: Tables = NO_TABLES) -> Model:
    """The default model, without or with attributes, or one with the paper's priors."""
    if variant == "default":
        return Model(rank=lengths.rank)
    if variant == "default-attributes":
        return with_attributes(Model(rank=lengths.rank), tables.get("user"), tables.get("item"))
    if variant == "both-sides":
        return both_sides_model("robust", lengths)
    return paper_model(variant, "constant", lengths)


def cold_start(variant: Variant, lengths: Lengths, new: Side, tables: Tables = NO_TABLES) -> Run:
    """A run of Gibbs sampling without a tenth of the users (or items), who are then folded in."""
    settings = {"sweeps": lengths.cold, "burn_in": lengths.burn_in, "keep": lengths.keep}
    model = cold_start_model(variant, lengths, tables)
    return Run(f"cold-start-{new}-{variant}", "cold-start", model, variant, settings, new=new)


def predictive(variant: Compared, lengths: Lengths) -> Run:
    """A run of Gibbs sampling that keeps draws, and is measured by what they predict."""
    settings = {"sweeps": lengths.cold, "burn_in": lengths.burn_in, "keep": lengths.keep}
    model = Model(rank=lengths.rank, **TIME_AND_SCALE[variant])
    return Run(variant, "predictive", model, variant, settings)


def _table_2(lengths: Lengths) -> list[Run]:
    return [
        make(features, precision, lengths)
        for features in FEATURES
        for precision in PRECISIONS
        for make in (gibbs, vi, descent)
    ]


def _widths(lengths: Lengths, validation: float = 0.0) -> list[Run]:
    return [
        vi("no-side", "truncated", lengths, width=width, validation=validation) for width in WIDTHS
    ]


def _no_side_vi(lengths: Lengths) -> list[Run]:
    return [vi("no-side", precision, lengths) for precision in PRECISIONS]


def _calibration(lengths: Lengths) -> list[Run]:
    return [*_table_2(lengths), *_both(lengths)]


def _both(lengths: Lengths) -> list[Run]:
    return [both_sides("constant", lengths), both_sides("robust", lengths)]


def _cold_start(lengths: Lengths) -> list[Run]:
    return [cold_start(variant, lengths, new) for new in NEW for variant in COLD]


def _bounds(lengths: Lengths) -> list[Run]:
    short = replace(lengths, updates=max(lengths.updates // 2, 5))
    return [*_widths(lengths), *_widths(short, validation=HELD)]


Maker = Callable[[Lengths], list[Run]]
EXPERIMENTS: dict[str, Maker] = {
    "table-1": lambda lengths: [],
    "table-2": _table_2,
    "table-3": lambda lengths: [gibbs("side", p, lengths) for p in UNBOUNDED],
    "table-4": lambda lengths: [gibbs(f, "constant", lengths) for f in ("no-side", "side")],
    "fig-2": lambda lengths: [
        vi("no-side", "constant", lengths, prior="default"),
        *_no_side_vi(lengths)[:2],
    ],
    "fig-3": lambda lengths: [
        gibbs("no-side", "constant", lengths),
        vi("no-side", "constant", lengths),
        descent("no-side", "constant", lengths),
    ],
    "fig-4": lambda lengths: [
        gibbs("no-side", "robust", lengths),
        vi("no-side", "robust", lengths),
        vi("no-side", "robust", lengths, printed=True),
    ],
    "fig-5": lambda lengths: [*_no_side_vi(lengths), *_widths(lengths)],
    "fig-6": lambda lengths: [
        vi("no-side", "robust", lengths),
        vi("no-side", "robust", lengths, printed=True),
    ],
    "fig-7": lambda lengths: [
        gibbs("no-side", "constant", lengths),
        *(gibbs("side", p, lengths) for p in UNBOUNDED),
    ],
    "printed": lambda lengths: [
        *_no_side_vi(lengths),
        *(vi("no-side", p, lengths, printed=True) for p in PRECISIONS),
    ],
    "calibration": _calibration,
    "bounds": _bounds,
    "both-sides": _both,
    "cold-start": _cold_start,
    "time-and-scale": lambda lengths: [predictive(v, lengths) for v in TIME_AND_SCALE],
}
ON_EVERY_SPLIT = ("table-2", "table-3", "table-4", "both-sides")
"""The experiments that are repeated on every split; the others have the first one alone."""


def runs_of(names: Sequence[str], lengths: Lengths, tables: Tables = NO_TABLES) -> list[Run]:
    """The runs that some experiments need, each once and after the runs that it needs itself.

    A name may also be the name of a single run. With tables of attributes, the cold start has a run
    for each kind of newcomers more.
    """
    experiments = {name: make(lengths) for name, make in EXPERIMENTS.items()}
    if tables:
        more = [cold_start(COLD_ATTRIBUTES, lengths, new, tables) for new in NEW]
        experiments["cold-start"] += more
    every = {run.name: run for runs in experiments.values() for run in runs}
    for features in FEATURES:
        helpers = (
            start(features, lengths),
            start(features, lengths, HELD),
            descent(features, "constant", lengths),
        )
        every.update({run.name: run for run in helpers})
    found: dict[str, Run] = {}
    for name in names:
        if name not in experiments and name not in every:
            raise DataError(
                f"there is no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}"
            )
        for run in experiments[name] if name in experiments else [every[name]]:
            _add(run, every, found)
    return list(found.values())


def _add(run: Run, every: Mapping[str, Run], found: dict[str, Run]) -> None:
    for name in run.needs:
        _add(every[name], every, found)
    found.setdefault(run.name, run)
