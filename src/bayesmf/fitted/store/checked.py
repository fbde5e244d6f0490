"""What the files of a model have to be: unchanged since they were saved, and of one schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from bayesmf.checks import check_number, check_whole
from bayesmf.data.scale import Scale
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES, Targets
from bayesmf.fitted.store.kept import kept_as
from bayesmf.model.data import column_counts, design_matrices
from bayesmf.model.designs import SideFacts
from bayesmf.model.spec import Model
from bayesmf.model.state import LIKELIHOOD, shift_names

SUMS = "SHA256SUMS"  # of all other files, as the command sha256sum reads it
MOST_UPDATES = 1 << 30  # that have random numbers of their own
KINDS = {"integer": int, "text": str}  # of ids
NUMBERS = ("test_rmse", "endless_rmse", "endless_rmse_error", "penalty")  # facts that are printed
TRACED = (np.float32, np.float64)
COUNTS = ("sweeps", "chains", "burn_in")
WORDS = ("inference", "stopped", "until")
DRAW_CHAINS = "draw_chains"  # the fact of a saved fit that says from which chain each draw is


class Bad(Exception):
    """Why a model file cannot be used."""


def sums_of(files: Mapping[str, bytes]) -> bytes:
    """Return a line with the checksum and the name of each file."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "".join(lines).encode()


def check_sums(files: Mapping[str, bytes]) -> None:
    """Refuse files of which any byte is not what was saved."""
    others = {name: content for name, content in files.items() if name != SUMS}
    if files[SUMS] == sums_of(others):
        return
    told = files[SUMS].decode(errors="replace").splitlines()
    named = {line[66:]: line[:64] for line in told}
    for name, content in others.items():
        if named.pop(name, None) != hashlib.sha256(content).hexdigest():
            raise Bad(f"{name} is not what was saved")
    missing = next(iter(named), None)
    raise Bad(f"{SUMS} is damaged" if missing is None else f"lacks {missing[:80]}")


def read_json(content: bytes) -> dict[str, Any]:
    """Read a document in which no name stands twice and every number is one."""

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    def refuse(text: str) -> Any:
        raise ValueError(f"{text} is no number")

    found = json.loads(content.decode(), object_pairs_hook=to_dict, parse_constant=refuse)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def check_document(document: Mapping[str, Any], names: set[str]) -> None:
    """Refuse a document with other names than ``names``, or with values of other types."""
    if set(document) != names:
        odd = sorted(set(document) ^ names)[0]
        raise Bad(f"{'has' if odd in document else 'lacks'} {odd[:80]!r}")
    for name in ("model", "scale", "ids", "facts"):
        if not isinstance(document[name], dict):
            raise Bad(f"its {name} is not an object")
    if type(document["mean"]) is not float or not np.isfinite(document["mean"]):
        raise Bad("its mean rating is no number")
    updates = document.get("updates", 0)
    if type(updates) is not int or not 0 <= updates < MOST_UPDATES:
        raise Bad(f"was updated {updates!r} times, which cannot be")
    if set(document["ids"]) != {"user", "item"} or not set(document["ids"].values()) <= set(KINDS):
        raise Bad("its ids are of no known kind")
    if set(document["scale"]) != {field.name for field in fields(Scale)}:
        raise Bad("its scale is not one")
    if not _are_words(document.get("traces", [])):
        raise Bad("its traces are no list of names")
    _check_facts(document["facts"])


def _are_words(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is str for value in values)


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts that could not be printed, or judged by."""
    for name, value in facts.items():
        if name in NUMBERS and value is not None:
            check_number(name, value)
        elif name in COUNTS:
            check_whole(name, value)
        elif name in WORDS and type(value) is not str:
            raise Bad(f"its {name} is not a word")
        elif name == "targets":
            Targets(**value)
        elif name == DRAW_CHAINS and not (
            isinstance(value, list) and all(type(chain) is int and chain >= 0 for chain in value)
        ):
            raise Bad("its chains of draws are no list of numbers")


def check_arrays(
    model: Model, users: SideFacts, items: SideFacts, draws: dict[str, Any], centre: Any
) -> None:
    """Refuse draws of other shapes or kinds than those of the model, or that are no numbers."""
    size = model.size
    shapes: dict[str, tuple[int, ...]] = {"tau": (1,), "sweep": (1,)}
    for mine, other in ((users, items), (items, users)):
        side, rows = mine.name, len(mine.ids)
        shapes.update({f"{side}.x": (rows, size), f"{side}.mu": (size,)})
        shapes.update({f"{side}.Lambda": (size, size), f"{side}.alpha": (rows,)})
        shapes[f"{side}.scale"] = (rows,)
        matrices, columns = design_matrices(model, mine), 0
        for number, counts in enumerate(column_counts(matrices, other.counts)):
            called = shift_names(number)
            columns += len(counts) if matrices[number].rows is not None else 0
            shapes.update({f"{side}.{called['W']}": (len(counts), size)})
            shapes.update({f"{side}.{called['mu']}": (size,)})
            shapes.update({f"{side}.{called['Lambda']}": (size, size)})
        # each of these is there whole or not at all: earlier versions had nothing of newcomers
        new = {"new_mean": (size,), "new_cov": (size, size), "newness": (rows,), "query": (rows,)}
        given = {"row_mean": (size,), "row_cov": (size, size), "new_W": (columns, size)}
        for group in (new, given, {"noise": (rows, size)}):
            if any(f"{side}.{name}" in draws for name in group):
                shapes.update({f"{side}.{name}": shape for name, shape in group.items()})
    own = model.likelihood.start(len(users.ids))
    shapes.update({f"{LIKELIHOOD}{name}": values.shape for name, values in own.items()})
    count = len(draws["tau"]) if "tau" in draws else 0
    if not count:
        raise Bad("it holds no draws")
    for name, shape in shapes.items():
        for some, first in ((draws, (count,)), (centre, ())):
            if not some:
                continue
            if name not in some or some[name].shape != (*first, *shape):
                raise Bad(f"its {name} has another shape than the model")
            if some[name].dtype != np.float32 or not np.isfinite(some[name]).all():
                raise Bad(f"its {name} holds values that are no numbers")
            if ".Lambda" in name and not _are_precisions(some[name]):
                raise Bad(f"its {name} is no precision")
    for name, values in draws.items():
        if name not in shapes and not name.startswith(("effect ", LIKELIHOOD)):
            raise Bad(f"holds {name[:80]}, which is no part of the model")
        if name.startswith(("effect ", LIKELIHOOD)) and (
            values.dtype != kept_as(name) or len(values) != count or not np.isfinite(values).all()
        ):
            raise Bad(f"its {name} holds values that are no numbers")
    for some in (draws, centre):
        for name in ("tau", "user.alpha", "item.alpha"):
            if some and not (some[name] > 0).all():
                raise Bad(f"its {name} is not positive")


def _are_precisions(matrices: Any) -> bool:
    """Whether all are symmetric and positive, but for rounding in single precision."""
    values = np.linalg.eigvalsh(matrices.astype(float))
    most = values[..., -1]
    skew = np.abs(matrices - matrices.mT).max(axis=(-1, -2))
    return bool((most > 0).all() and (np.maximum(-values[..., 0], skew) <= 1e-5 * most).all())


def check_counts(counts: Any, ids: Any) -> None:
    """Refuse counts of ratings that are none, or of other users or items."""
    if counts.shape != (len(ids),):
        raise Bad("its counts are of other users or items")
    if not np.issubdtype(counts.dtype, np.signedinteger) or (counts < 0).any():
        raise Bad("its counts are no counts")


def check_traces(traces: Mapping[str, Any], order: list[str]) -> None:
    """Refuse traces that are not those listed, or not of the same chains and draws."""
    if set(order) != set(traces):
        raise Bad("its traces are not those it lists")
    judged = {name: traces[name] for name in (*SUMMARIES, PREDICTIONS) if name in traces}
    for name, trace in judged.items():
        if trace.ndim != (3 if name == PREDICTIONS else 2) or trace.dtype not in TRACED:
            raise Bad(f"its trace of the {name} is none")
    if len({trace.shape[:2] for trace in judged.values()}) > 1:
        raise Bad("its traces are of different lengths")
