"""Models of format 1, which are still read: their arrays and models had other names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from bayesmf.fitted.store.checked import Bad
from bayesmf.model.designs import RatedSet
from bayesmf.model.spec import Hyper, Model

NAMES_1 = {
    "mean": "mu",
    "precision": "Lambda",
    "noise": "alpha",
    "spread": "scale",
    "W_mean": "mu_W",
    "W_precision": "Lambda_W",
}
"""What arrays were called in format 1."""


def model_of_format_1(facts: Mapping[str, Any]) -> Model:
    """The model that a file of format 1 describes by its features and whom they shift."""
    old = dict(facts)
    hyper = dict(old["hyper"])
    if isinstance(hyper["feature_scale"], list):
        hyper["feature_scale"] = tuple(hyper["feature_scale"])
    prior = hyper.pop("precision_shape"), hyper.pop("precision_rate")
    design = (RatedSet(old["side_power"]),) if "side" in old["features"].split("-") else ()
    if old["features"] in ("none", "user-item"):
        design = ()
    return Model(
        rank=old["rank"],
        user_designs=design if old["side_of"] in ("user", "both") else (),
        item_designs=design if old["side_of"] in ("item", "both") else (),
        own_features=old["features"] != "side-only",
        precision=old["precision"],
        precision_prior=prior,
        bounds=tuple(old["bounds"]),
        prior=old["prior"],
        bias=old["bias"],
        hyper=Hyper(**hyper),
    )


def arrays_of_format_1(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a file of format 1 by their present names; W without rows is left out."""
    out = {}
    for name, values in arrays.items():
        before, dot, last = name.rpartition(".")
        if name.startswith("trace."):
            out[name] = values
        elif last in ("W", "W_mean", "W_precision") and not arrays[f"{before}.W"].shape[-2]:
            continue
        else:
            out[f"{before}{dot}{NAMES_1.get(last, last)}"] = values
    return out


def check_sums_of_format_1(document: dict[str, Any], files: Mapping[str, bytes]) -> None:
    """Take the checksums out of the document, and compare them: of all files but its own."""
    sums = document.pop("sha256", None)
    if not isinstance(sums, dict):
        raise Bad("has no checksums")
    for name, expected in sums.items():
        if name not in files:
            raise Bad(f"lacks {name[:80]!r}")
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise Bad(f"{name} is not what was saved")
