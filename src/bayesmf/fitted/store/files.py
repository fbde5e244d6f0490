"""A fit as files: a folder or one zip, no pickle, checked when it is read."""

from __future__ import annotations

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
from bayesmf.checks import check_path
from bayesmf.data.ids import Ids
from bayesmf.data.io.archive import MOST_UNPACKED, read_parquet
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
from bayesmf.fitted.store.checked import (
    KINDS,
    SUMS,
    Bad,
    check_arrays,
    check_counts,
    check_document,
    check_sums,
    check_traces,
    read_json,
    sums_of,
)
from bayesmf.fitted.store.format_1 import (
    arrays_of_format_1,
    check_sums_of_format_1,
    model_of_format_1,
)
from bayesmf.model.attributes import Attributes
from bayesmf.model.designs import MOST_DESIGNS, SIDES, SideFacts
from bayesmf.model.spec import Model

FORMAT = 2
OLDEST = 1  # the first format that is still read; it has no held-out ratings and no order of traces
FACTS, ARRAYS, USERS, ITEMS = "model.json", "arrays.safetensors", "users.txt", "items.txt"
TRAIN, HELD_OUT = "ratings.parquet", "held_out.parquet"
TABLES = {  # of a design of attributes, by its side and its number
    (side, number): f"{side}_attributes_{number + 1}.parquet"
    for side in SIDES
    for number in range(MOST_DESIGNS)
}
PARTS = (
    *(SUMS, FACTS, ARRAYS, USERS, ITEMS, TRAIN, HELD_OUT),
    *(*TABLES.values(), *TITLES_FILE.values()),
)
INSIDE = "model"  # the folder of the model in the folder of a fit
SMALL = 1 << 24  # bytes that a part of an archive may unpack to, however small it is
NAMES = {"format", "version", "model", "scale", "mean", "ids", "facts"}  # of the document
SINCE_2 = {"updates", "columns", "traces"}  # names that format 1 did not have


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
    path = check_path("path", path)
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
        "facts": dict(facts),
    }
    files[FACTS] = (to_json(document, indent=1) + "\n").encode()
    return {**files, SUMS: sums_of(files)}


def _to_parquet(table: pa.Table) -> bytes:
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def _ids_text(ids: Ids) -> bytes:
    """Write one id a line; line ends inside an id are escaped as JSON has it."""
    lines = (json.dumps(value, ensure_ascii=False) + "\n" for value in ids.values.tolist())
    return "".join(lines).encode()


def load(path: str | Path) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the posterior, the facts and the traces of a saved fit, or say in a sentence why not."""
    path = check_path("path", path)
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
        except Bad as error:
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
                raise Bad(f"holds {odd!r}, which is no part of a model")
            for info in archive.infolist():
                if info.file_size > MOST_UNPACKED * info.compress_size + SMALL:
                    raise Bad(f"{info.filename} would unpack to {info.file_size:,} bytes")
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
        raise Bad(f"is not a model that can be read ({error})") from None
    except Exception as error:  # zlib.error has no public base
        raise Bad(f"is damaged ({error})") from None


def _parse_files(
    files: Mapping[str, bytes],
) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    if FACTS not in files:
        raise Bad(f"has no {FACTS}")
    if SUMS in files:
        check_sums(files)
    try:
        document = read_json(files[FACTS])
        number = document["format"]
    except (ValueError, KeyError, RecursionError) as error:
        raise Bad(f"{FACTS} is damaged ({error})") from None
    if type(number) is not int or not OLDEST <= number <= FORMAT:
        newer = type(number) is int and number > FORMAT
        why = "newer than this version reads" if newer else "which there never was"
        raise Bad(f"is of format {number!r}, {why}")
    if number > 1 and SUMS not in files:
        raise Bad(f"lacks {SUMS}")
    if number == 1:
        check_sums_of_format_1(document, files)
    for name in (ARRAYS, USERS, ITEMS):
        if name not in files:
            raise Bad(f"lacks {name}")
    try:
        return _parse(document, files)
    except Bad:
        raise
    except Exception as error:  # whatever else a forged file may say
        raise Bad(f"{FACTS} does not fit its arrays ({type(error).__name__}: {error})") from None


def _parse(
    document: dict[str, Any], files: Mapping[str, bytes]
) -> tuple[Posterior, dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors.numpy import load as from_bytes

    first = document["format"] == 1
    check_document(document, NAMES if first else NAMES | SINCE_2)
    facts = document["model"] if first else _add_tables(document, files)
    model = (model_of_format_1 if first else Model.from_dict)(facts)
    users = _parse_ids(files[USERS], document["ids"]["user"])
    items = _parse_ids(files[ITEMS], document["ids"]["item"])
    arrays = from_bytes(files[ARRAYS])
    arrays = arrays_of_format_1(arrays) if first else arrays
    groups: dict[str, dict[str, Any]] = {"draws": {}, "centre": {}, "trace": {}}
    for name, values in arrays.items():
        group, _, rest = name.partition(".")
        if group in groups:
            groups[group][rest] = values
    counts = arrays["user.counts"], arrays["item.counts"]
    for each, ids in zip(counts, (users, items), strict=True):
        check_counts(each, ids)
    sides = SideFacts("user", users, counts[0]), SideFacts("item", items, counts[1])
    check_arrays(model, *sides, groups["draws"], groups["centre"])
    order = document.get("traces", list(groups["trace"]))
    check_traces(groups["trace"], order)
    scale = Scale(**document["scale"])
    train, held_out = (
        _parse_ratings(_from_parquet(name, files[name]), users, items, scale)
        if name in files
        else None
        for name in (TRAIN, HELD_OUT)
    )
    posterior = Posterior(
        model,
        users,
        items,
        scale,
        document["mean"],
        groups["draws"],
        counts[0],
        counts[1],
        groups["centre"] or None,
        train,
        held_out,
        document.get("updates", 0),
        _parse_labels(document, files),
    )
    return posterior, dict(document["facts"]), {name: groups["trace"][name] for name in order}


def _add_tables(document: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    """The facts of the model with the tables of its attributes, which are files of their own."""
    facts = dict(document["model"])
    for (side, number), name in TABLES.items():
        if name in files:
            facts[f"{side}_designs"][number]["table"] = _from_parquet(name, files[name])
    return facts


def _from_parquet(name: str, content: bytes) -> pa.Table:
    _, table = read_parquet(io.BytesIO(content), name, list)
    return table


def _parse_labels(document: Mapping[str, Any], files: Mapping[str, bytes]) -> Labels:
    """Titles and names of columns, which a model of format 1 does not have."""
    tables = {
        name: _from_parquet(name, files[name]) for name in TITLES_FILE.values() if name in files
    }
    return Labels.of_files(tables, document.get("columns", {}))


def _parse_ratings(table: pa.Table, users: Ids, items: Ids, scale: Scale) -> Ratings:
    if not table.num_rows:
        none = np.empty(0, np.int32)
        return Ratings.from_sorted(users, items, none, none, np.empty(0), None, scale)
    found = Ratings.from_frame(table).onto(users, items)
    return replace(found, users=users, items=items, scale=scale)


def _parse_ids(content: bytes, kind: str) -> Ids:
    values = [json.loads(line) for line in content.decode().split("\n")[:-1]]
    if not all(type(value) is KINDS[kind] for value in values):
        raise Bad("its ids are of mixed types")
    ids = Ids(np.array(values, np.int64 if kind == "integer" else object))
    if len(values) > 1 and not all(a < b for a, b in pairwise(values)):
        raise Bad("its ids are not in order")
    return ids
