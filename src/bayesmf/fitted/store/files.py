"""A fit as files: a folder or one zip, no pickle, checked when it is read."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import bayesmf
from bayesmf.data.ids import Ids
from bayesmf.data.io.atomic import (
    OVERWRITE,
    check_folder,
    check_place,
    to_json,
    whole_file,
    whole_folder,
)
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.errors import DataError
from bayesmf.fitted.by_rating import is_by_rating
from bayesmf.fitted.explore.names import TITLES_FILE, Labels
from bayesmf.fitted.posterior import Posterior
from bayesmf.fitted.store.kept import kept_as
from bayesmf.model.attributes import Attributes
from bayesmf.model.data import column_counts, design_matrices
from bayesmf.model.designs import MOST_DESIGNS, SIDES, RatedSet, SideFacts
from bayesmf.model.spec import Hyper, Model
from bayesmf.model.state import LIKELIHOOD, shift_names

FORMAT = 2
OLDEST = 1  # the first format that is still read; it has no held-out ratings and no order of traces
FACTS, ARRAYS, USERS, ITEMS = "model.json", "arrays.safetensors", "users.txt", "items.txt"
TRAIN, HELD_OUT = "ratings.parquet", "held_out.parquet"
TABLES = {  # of a design of attributes, by its side and its number
    (side, number): f"{side}_attributes_{number + 1}.parquet"
    for side in SIDES
    for number in range(MOST_DESIGNS)
}
PARTS = (FACTS, ARRAYS, USERS, ITEMS, TRAIN, HELD_OUT, *TABLES.values(), *TITLES_FILE.values())
INSIDE = "model"  # the folder of the model in the folder of a fit
MOST_UPDATES = 1 << 30  # that have random numbers of their own
MOST = 1 << 40  # bytes that a file inside an archive may claim to have


NAMES_1 = {
    "mean": "mu",
    "precision": "Lambda",
    "noise": "alpha",
    "spread": "scale",
    "W_mean": "mu_W",
    "W_precision": "Lambda_W",
}
"""What arrays were called in format 1."""


def _model_of_format_1(facts: Mapping[str, Any]) -> Model:
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


def _arrays_of_format_1(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
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


def save(
    posterior: Posterior,
    path: str | Path,
    traces: Mapping[str, NDArray[Any]] | None = None,
    facts: Mapping[str, Any] | None = None,
    without_ratings: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a folder, or one file if the path ends in .zip; it appears whole or not at all.

    The ratings that the posterior holds, training and held out, are inside unless they are left
    out with ``without_ratings``.
    """
    path = Path(path)
    files = _make_files(posterior, traces or {}, facts or {}, without_ratings)
    check_place_of(path, overwrite)
    if path.suffix == ".zip":
        with whole_file(path, overwrite) as made, zipfile.ZipFile(made, "w") as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return
    with whole_folder(path, is_model if overwrite else None) as made:
        for name, content in files.items():
            (made / name).write_bytes(content)


def check_place_of(path: Path, overwrite: bool = False) -> None:
    """Refuse a place for a model before the work on it."""
    if path.suffix != ".zip":
        check_folder(path, is_model if overwrite else None)
    elif path.exists() and not overwrite:
        raise DataError(f"{path} exists already; {OVERWRITE}")
    else:
        check_place(path)


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model, and nothing else."""
    names = {entry.name for entry in folder.iterdir()}
    return FACTS in names and names <= set(PARTS)


def _make_files(
    posterior: Posterior,
    traces: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any],
    without_ratings: bool,
) -> dict[str, bytes]:
    from safetensors.numpy import save as to_bytes

    posterior = posterior.complete()
    arrays: dict[str, NDArray[Any]] = {
        f"draws.{name}": values
        for name, values in posterior.draws.items()
        if not (without_ratings and is_by_rating(name))
    }
    if posterior.centre is not None:
        arrays.update({f"centre.{name}": values for name, values in posterior.centre.items()})
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise DataError(
                f"the {name.partition('.')[2]} of this fit holds values that are no numbers, so it "
                "was not saved; fit it to ratings in other units, or with another model"
            )
    arrays["user.counts"], arrays["item.counts"] = posterior.user_counts, posterior.item_counts
    arrays.update({f"trace.{name}": np.asarray(values) for name, values in traces.items()})
    files = {
        ARRAYS: to_bytes({name: np.ascontiguousarray(values) for name, values in arrays.items()}),
        USERS: _ids_text(posterior.users),
        ITEMS: _ids_text(posterior.items),
    }
    for name, ratings in ((TRAIN, posterior.train), (HELD_OUT, posterior.held_out)):
        if ratings is not None and not without_ratings:
            files[name] = _to_parquet(ratings.to_arrow())
    for (side, number), name in TABLES.items():
        design = dict(enumerate(posterior.model.designs(side))).get(number)
        if isinstance(design, Attributes):
            files[name] = _to_parquet(design.table)
    files |= {name: _to_parquet(table) for name, table in posterior.labels.files().items()}
    document = {
        "format": FORMAT,
        "version": bayesmf.__version__,
        "model": posterior.model.to_dict(),
        "scale": asdict(posterior.scale),
        "mean": posterior.mean,
        "updates": posterior.updates,
        "ids": {"user": posterior.users.kind, "item": posterior.items.kind},
        "columns": dict(posterior.labels.columns),  # what they were called in training
        "traces": list(traces),  # in their order, which the arrays do not keep
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "facts": dict(facts),
    }
    return {**files, FACTS: (to_json(document, indent=1) + "\n").encode()}


def _to_parquet(table: pa.Table) -> bytes:
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def _ids_text(ids: Ids) -> bytes:
    """Write one id a line; line ends inside an id are escaped as JSON has it."""
    lines = (json.dumps(value, ensure_ascii=False) + "\n" for value in ids.values.tolist())
    return "".join(lines).encode()


class _Bad(Exception):
    """Why a model file cannot be used."""


def load(path: str | Path) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the posterior, the facts and the traces of a saved fit, or say in a sentence why not."""
    path = Path(path)
    while True:
        seen = _identity(path)
        if seen is None:
            raise DataError(
                f"{path}: there is no such file or folder; check the path, or make a model with "
                "`bayesmf fit`"
            )
        whole = (path / FACTS).exists() or not (path / INSIDE / FACTS).exists()
        inside = path if whole else path / INSIDE
        try:
            files = _read_files(inside)
            if _identity(path) != seen:  # another process has just replaced it
                continue
            return _parse_files(files)
        except _Bad as error:
            if _identity(path) != seen:
                continue
            raise DataError(f"{inside}: {error}; get the model again, or fit it anew") from None


def _identity(path: Path) -> tuple[int, ...] | None:
    """What is under a name now; another number says that it has been replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _read_files(path: Path) -> dict[str, bytes]:
    try:
        if path.is_dir():
            return {name: (path / name).read_bytes() for name in PARTS if (path / name).is_file()}
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) != len(names) or not set(names) <= set(PARTS):
                odd = next((n for n in names if n not in PARTS), "one name twice")
                raise _Bad(f"holds {odd!r}, which is no part of a model")
            if any(info.file_size > MOST for info in archive.infolist()):
                raise _Bad("claims to hold an impossible size")
            return {name: archive.read(name) for name in names}
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        MemoryError,
        NotImplementedError,
    ) as error:
        raise _Bad(f"is not a model that can be read ({error})") from None
    except Exception as error:  # zlib.error has no public base
        raise _Bad(f"is damaged ({error})") from None


def _parse_files(
    files: Mapping[str, bytes],
) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    if FACTS not in files:
        raise _Bad(f"has no {FACTS}")
    try:
        document = json.loads(files[FACTS].decode())
        number = document["format"]
    except (ValueError, KeyError, TypeError):
        raise _Bad(f"{FACTS} is damaged") from None
    if type(number) is not int or not OLDEST <= number <= FORMAT:
        newer = type(number) is int and number > FORMAT
        why = "newer than this version reads" if newer else "which there never was"
        raise _Bad(f"is of format {number!r}, {why}")
    sums = document.get("sha256")
    if not isinstance(sums, dict) or not {ARRAYS, USERS, ITEMS} <= set(sums):
        raise _Bad(f"{FACTS} is damaged")
    for name, expected in sums.items():
        if name not in files:
            raise _Bad(f"lacks {name}")
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise _Bad(f"{name} is not what was saved")
    try:
        return _parse(document, files)
    except _Bad:
        raise
    except Exception as error:  # whatever else a forged file may say
        raise _Bad(f"{FACTS} does not fit its arrays ({type(error).__name__}: {error})") from None


def _parse(
    document: dict[str, Any], files: Mapping[str, bytes]
) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors.numpy import load as from_bytes

    first = document["format"] == 1
    facts = document["model"] if first else _add_tables(document, files)
    model = (_model_of_format_1 if first else Model.from_dict)(facts)
    users = _parse_ids(files[USERS], document["ids"]["user"])
    items = _parse_ids(files[ITEMS], document["ids"]["item"])
    arrays = from_bytes(files[ARRAYS])
    arrays = _arrays_of_format_1(arrays) if first else arrays
    groups: dict[str, dict[str, Any]] = {"draws": {}, "centre": {}, "trace": {}}
    for name, values in arrays.items():
        group, _, rest = name.partition(".")
        if group in groups:
            groups[group][rest] = values
    counts = arrays["user.counts"], arrays["item.counts"]
    if [len(c) for c in counts] != [len(users), len(items)]:
        raise _Bad("its counts are of other users or items")
    sides = SideFacts("user", users, counts[0]), SideFacts("item", items, counts[1])
    _check(model, *sides, groups["draws"], groups["centre"])
    mean = float(document["mean"])
    if not np.isfinite(mean):
        raise _Bad("its mean rating is no number")
    updates = document.get("updates", 0)
    if type(updates) is not int or not 0 <= updates < MOST_UPDATES:
        raise _Bad(f"was updated {updates!r} times, which cannot be")
    order = document.get("traces", list(groups["trace"]))
    if set(order) != set(groups["trace"]):
        raise _Bad("its traces are not those it lists")
    scale = Scale(**document["scale"])
    train, held_out = (
        _parse_ratings(files[name], users, items, scale) if name in document["sha256"] else None
        for name in (TRAIN, HELD_OUT)
    )
    posterior = Posterior(
        model,
        users,
        items,
        scale,
        mean,
        groups["draws"],
        counts[0],
        counts[1],
        groups["centre"] or None,
        train,
        held_out,
        updates,
        _parse_labels(document, files),
    )
    return posterior, dict(document["facts"]), {name: groups["trace"][name] for name in order}


def _add_tables(document: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    """The facts of the model with the tables of its attributes, which are files of their own."""
    from pyarrow import parquet

    facts = dict(document["model"])
    for (side, number), name in TABLES.items():
        if name in document["sha256"]:
            table = parquet.read_table(pa.BufferReader(files[name]))
            facts[f"{side}_designs"][number]["table"] = table
    return facts


def _parse_labels(document: Mapping[str, Any], files: Mapping[str, bytes]) -> Labels:
    """Titles and names of columns, which a model of an earlier version does not have."""
    from pyarrow import parquet

    tables = {
        name: parquet.read_table(pa.BufferReader(files[name]))
        for name in TITLES_FILE.values()
        if name in document["sha256"]
    }
    return Labels.of_files(tables, document.get("columns", {}))


def _parse_ratings(content: bytes, users: Ids, items: Ids, scale: Scale) -> Ratings:
    from pyarrow import parquet

    table = parquet.read_table(pa.BufferReader(content))
    if not table.num_rows:
        none = np.empty(0, np.int32)
        return Ratings.from_sorted(users, items, none, none, np.empty(0), None, scale)
    return replace(Ratings.from_frame(table).onto(users, items), scale=scale)


def _parse_ids(content: bytes, kind: str) -> Ids:
    values = [json.loads(line) for line in content.decode().split("\n")[:-1]]
    wanted = int if kind == "integer" else str
    if not all(type(value) is wanted for value in values):
        raise _Bad("its ids are of mixed types")
    ids = Ids(np.array(values, np.int64 if kind == "integer" else object))
    if len(values) > 1 and not all(a < b for a, b in pairwise(values)):
        raise _Bad("its ids are not in order")
    return ids


def _check(
    model: Model, users: SideFacts, items: SideFacts, draws: dict[str, Any], centre: Any
) -> None:
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
        if f"{side}.newness" in draws:  # models of earlier versions have nothing of newcomers
            shapes.update({f"{side}.new_mean": (size,), f"{side}.new_cov": (size, size)})
            shapes.update({f"{side}.newness": (rows,), f"{side}.query": (rows,)})
        if f"{side}.row_mean" in draws:
            shapes.update({f"{side}.row_mean": (size,), f"{side}.row_cov": (size, size)})
            shapes[f"{side}.new_W"] = (columns, size)
        if f"{side}.noise" in draws:
            shapes[f"{side}.noise"] = (rows, size)
    own = model.likelihood.start(len(users.ids))
    shapes.update({f"{LIKELIHOOD}{name}": values.shape for name, values in own.items()})
    count = len(draws["tau"]) if "tau" in draws else 0
    if not count:
        raise _Bad("it holds no draws")
    for name, shape in shapes.items():
        for group, first in ((draws, (count,)), (centre, ())):
            if not group:
                continue
            if name not in group or group[name].shape != (*first, *shape):
                raise _Bad(f"its {name} has another shape than the model")
            if group[name].dtype != np.float32 or not np.isfinite(group[name]).all():
                raise _Bad(f"its {name} holds values that are no numbers")
    for name, values in draws.items():
        if name.startswith(("effect ", LIKELIHOOD)) and (
            values.dtype != kept_as(name) or len(values) != count or not np.isfinite(values).all()
        ):
            raise _Bad(f"its {name} holds values that are no numbers")
    for group in (draws, centre):
        for name in ("tau", "user.alpha", "item.alpha"):
            if group and not (group[name] > 0).all():
                raise _Bad(f"its {name} is not positive")
