"""A fit as files: a folder or one zip, no pickle, checked when it is read."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
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
from bayesmf.fit.posterior import Posterior
from bayesmf.model.spec import Model
from bayesmf.model.state import shift_names

FORMAT = 1
FACTS, ARRAYS, USERS, ITEMS, SEEN = (
    "model.json", "arrays.safetensors", "users.txt", "items.txt", "ratings.parquet",
)  # fmt: skip
INSIDE = "model"  # the folder of the model in the folder of a fit
MOST = 1 << 40  # bytes that a file inside an archive may claim to have


def save(
    posterior: Posterior, path: str | Path, traces: Mapping[str, NDArray[Any]] | None = None,
    facts: Mapping[str, Any] | None = None, with_ratings: bool = False, overwrite: bool = False,
) -> None:  # fmt: skip
    """Write a folder, or one file if the path ends in .zip; it appears whole or not at all.

    The training ratings are inside only with ``with_ratings``.
    """
    path = Path(path)
    files = _files(posterior, traces or {}, facts or {}, with_ratings)
    check_place_of(path, overwrite)
    if path.suffix == ".zip":
        with whole_file(path) as made, zipfile.ZipFile(made, "w") as archive:
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
    return FACTS in names and names <= {FACTS, ARRAYS, USERS, ITEMS, SEEN}


def _files(
    posterior: Posterior, traces: Mapping[str, NDArray[Any]], facts: Mapping[str, Any],
    with_ratings: bool,
) -> dict[str, bytes]:  # fmt: skip
    from safetensors.numpy import save as to_bytes

    arrays: dict[str, NDArray[Any]] = {f"draws.{k}": v for k, v in posterior.draws.items()}
    if posterior.centre is not None:
        arrays.update({f"centre.{name}": values for name, values in posterior.centre.items()})
    arrays["user.counts"], arrays["item.counts"] = posterior.user_counts, posterior.item_counts
    arrays.update({f"trace.{name}": np.asarray(values) for name, values in traces.items()})
    files = {
        ARRAYS: to_bytes({name: np.ascontiguousarray(values) for name, values in arrays.items()}),
        USERS: _ids_text(posterior.users),
        ITEMS: _ids_text(posterior.items),
    }
    if with_ratings:
        if posterior.seen is None:
            raise DataError("the training ratings are not at hand; leave them out")
        from pyarrow import parquet

        file = io.BytesIO()
        parquet.write_table(posterior.seen.to_arrow(), file)
        files[SEEN] = file.getvalue()
    told = {
        "format": FORMAT,
        "version": bayesmf.__version__,
        "model": posterior.model.to_dict(),
        "scale": asdict(posterior.scale),
        "mean": posterior.mean,
        "ids": {"user": posterior.users.kind, "item": posterior.items.kind},
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "facts": dict(facts),
    }
    return {**files, FACTS: (to_json(told, indent=1) + "\n").encode()}


def _ids_text(ids: Ids) -> bytes:
    """One id a line; line ends inside an id are escaped as JSON has it."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in ids.values.tolist()
                   ).encode()  # fmt: skip


class _Bad(Exception):
    """Why a model file cannot be used."""


def load(path: str | Path) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    """The posterior, the facts and the traces of a saved fit, or one sentence why not."""
    path = Path(path)
    if not path.exists():
        raise DataError(
            f"{path}: there is no such file or folder; check the path, or make a model with "
            "`bayesmf fit`"
        )
    if not (path / FACTS).exists() and (path / INSIDE / FACTS).exists():
        path = path / INSIDE
    try:
        return _load(_contents(path))
    except _Bad as error:
        raise DataError(f"{path}: {error}; get the model again, or fit it anew") from None


def _contents(path: Path) -> dict[str, bytes]:
    known = (FACTS, ARRAYS, USERS, ITEMS, SEEN)
    try:
        if path.is_dir():
            return {name: (path / name).read_bytes() for name in known if (path / name).is_file()}
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) != len(names) or not set(names) <= set(known):
                odd = next((n for n in names if n not in known), "one name twice")
                raise _Bad(f"holds {odd!r}, which is no part of a model")
            if any(info.file_size > MOST for info in archive.infolist()):
                raise _Bad("claims to hold an impossible size")
            return {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError, MemoryError,
            NotImplementedError) as error:  # fmt: skip
        raise _Bad(f"is not a model that can be read ({error})") from None
    except Exception as error:  # zlib.error has no public base
        raise _Bad(f"is damaged ({error})") from None


def _load(
    files: Mapping[str, bytes],
) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    if FACTS not in files:
        raise _Bad(f"has no {FACTS}")
    try:
        told = json.loads(files[FACTS].decode())
        number = told["format"]
    except (ValueError, KeyError, TypeError):
        raise _Bad(f"{FACTS} is damaged") from None
    if number != FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        raise _Bad(f"is of format {number!r}, " + ("newer than this version reads" if newer else
                                                   "which there never was"))  # fmt: skip
    sums = told.get("sha256")
    if not isinstance(sums, dict) or not {ARRAYS, USERS, ITEMS} <= set(sums):
        raise _Bad(f"{FACTS} is damaged")
    for name, expected in sums.items():
        if name not in files:
            raise _Bad(f"lacks {name}")
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise _Bad(f"{name} is not what was saved")
    try:
        return _parse(told, files)
    except _Bad:
        raise
    except Exception as error:  # whatever else a forged file may say
        raise _Bad(f"{FACTS} does not fit its arrays ({type(error).__name__}: {error})") from None


def _parse(
    told: dict[str, Any], files: Mapping[str, bytes]
) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors.numpy import load as from_bytes

    model = Model.from_dict(told["model"])
    users, items = (_ids(files[name], told["ids"][side])
                    for name, side in ((USERS, "user"), (ITEMS, "item")))  # fmt: skip
    arrays = from_bytes(files[ARRAYS])
    groups: dict[str, dict[str, Any]] = {"draws": {}, "centre": {}, "trace": {}}
    for name, values in arrays.items():
        group, _, rest = name.partition(".")
        if group in groups:
            groups[group][rest] = values
    _check(model, len(users), len(items), groups["draws"], groups["centre"])
    counts = arrays["user.counts"], arrays["item.counts"]
    if [len(c) for c in counts] != [len(users), len(items)]:
        raise _Bad("its counts are of other users or items")
    mean = float(told["mean"])
    if not np.isfinite(mean):
        raise _Bad("its mean rating is no number")
    seen = None
    if SEEN in files and SEEN in told["sha256"]:
        from pyarrow import parquet

        table = parquet.read_table(pa.BufferReader(files[SEEN]))
        seen = Ratings.from_frame(table).onto(users, items)
    posterior = Posterior(
        model, users, items, Scale(**told["scale"]), mean, groups["draws"], counts[0], counts[1],
        groups["centre"] or None, seen,
    )  # fmt: skip
    return posterior, dict(told["facts"]), groups["trace"]


def _ids(content: bytes, kind: str) -> Ids:
    values = [json.loads(line) for line in content.decode().split("\n")[:-1]]
    wanted = int if kind == "integer" else str
    if not all(type(value) is wanted for value in values):
        raise _Bad("its ids are of mixed types")
    ids = Ids(np.array(values, np.int64 if kind == "integer" else object))
    if len(values) > 1 and not all(a < b for a, b in pairwise(values)):
        raise _Bad("its ids are not in order")
    return ids


def _check(model: Model, users: int, items: int, draws: dict[str, Any], centre: Any) -> None:
    size = model.size
    rows = {"user": (users, items), "item": (items, users)}
    shapes: dict[str, tuple[int, ...]] = {"tau": (1,), "sweep": (1,)}
    for name in ("user", "item"):
        mine, others = rows[name]
        shapes.update({
            f"{name}.x": (mine, size), f"{name}.mu": (size,), f"{name}.Lambda": (size, size),
            f"{name}.alpha": (mine,), f"{name}.scale": (mine,),
        })  # fmt: skip
        for number, _ in enumerate(model.designs(name)):  # type: ignore[arg-type]
            called = shift_names(number)
            shapes.update({f"{name}.{called['W']}": (others, size), f"{name}.{called['mu']}": (size,),
                           f"{name}.{called['Lambda']}": (size, size)})  # fmt: skip
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
    for group in (draws, centre):
        for name in ("tau", "user.alpha", "item.alpha"):
            if group and not (group[name] > 0).all():
                raise _Bad(f"its {name} is not positive")
