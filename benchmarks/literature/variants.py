"""Our models by name: ``default``, or parts joined by ``+``, such as ``chain+attributes``."""

from __future__ import annotations

from typing import Any

from attributes import item_attributes, user_attributes
from bayesmf import Model
from bayesmf.model.attributes import with_attributes
from bayesmf.model.likelihood import Gaussian

LIKELIHOODS = ("ordinal", "global", "binary")
PARTS = ("chain", "attributes", *LIKELIHOODS)
WORDS = {"chain": "time chain", "attributes": "attributes", "ordinal": "ordinal, users' cuts",
         "global": "ordinal, global cuts", "binary": "probit"}  # fmt: skip
EFFECTS = ("chain", "attributes", "ordinal")  # that are turned on and off
GRID = ("default", "chain", "attributes", "ordinal", "chain+attributes", "chain+ordinal",
        "attributes+ordinal", "chain+attributes+ordinal")  # fmt: skip


def parts_of(name: str) -> frozenset[str]:
    """The parts that a name adds to the default model."""
    parts = [] if name == "default" else name.split("+")
    for part in parts:
        if part not in PARTS:
            raise SystemExit(f"no model {name!r}; join parts by +: {', '.join(PARTS)}")
    if len(set(parts) & set(LIKELIHOODS)) > 1:
        raise SystemExit(f"{name!r} has two likelihoods; choose one of {', '.join(LIKELIHOODS)}")
    return frozenset(parts)


def words(name: str) -> str:
    """The name in words."""
    parts = parts_of(name)
    return "default" + "".join(f" + {WORDS[part]}" for part in PARTS if part in parts)


def suits(name: str, *, times: bool, attributes: bool) -> bool:
    """Whether ratings with or without times, and attributes, can be fitted with it."""
    parts = parts_of(name)
    return (times or "chain" not in parts) and (attributes or "attributes" not in parts)


def make(name: str, rank: int, data: str) -> Model:
    """The model; every part that is not named is off."""
    parts = parts_of(name)
    settings: dict[str, Any] = {"likelihood": Gaussian()}
    settings["time"] = "chain" if "chain" in parts else "none"
    if "global" in parts:
        from bayesmf.model.ordinal import Ordinal

        settings["likelihood"] = Ordinal(cuts="global")
    elif parts & set(LIKELIHOODS):
        (settings["likelihood"],) = parts & set(LIKELIHOODS)
    model = Model(rank, **settings)
    if "attributes" in parts:
        model = with_attributes(model, user_attributes(data), item_attributes(data))
    return model


def effects_between(names: list[str]) -> list[tuple[str, str, str]]:
    """Pairs of models that differ by one effect: the one without, the one with, the effect."""
    by_parts = {parts_of(name): name for name in names}
    return [
        (without, by_parts[parts | {effect}], effect)
        for effect in EFFECTS
        for parts, without in by_parts.items()
        if effect not in parts and parts | {effect} in by_parts
    ]
