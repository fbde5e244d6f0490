"""Ratings by the name of a data set or by the path of a file."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from bayesmf.checks import check_path
from bayesmf.choices import Duplicates, IdKind
from bayesmf.data.io.archive import open_source
from bayesmf.data.io.datasets import DATASETS, NAMES, Dataset
from bayesmf.data.io.download import (
    Progress,
    Unreachable,
    download,
    has_hash,
    wrong_checksum,
)
from bayesmf.data.io.text import read_columns
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option


def load(
    data: str | os.PathLike[str],
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    weight: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    member: str | None = None,
    ids: IdKind | tuple[IdKind, IdKind] = "auto",
    scale: Any = None,
    duplicates: Duplicates = "error",
) -> Ratings:
    """Read ratings from a file, or from a data set that is known by name.

    ``data`` is a path, or a name that ``bayesmf data list`` shows; such a data set is downloaded
    if it is not on this machine. A file is csv, tsv, MovieLens ``::``, space-separated or parquet;
    plain, or inside gzip, bzip2 or zip. Blanks around the ids of a text file are stripped; a
    parquet file keeps them.

    - ``user``, ``item``, ``rating``, ``time``, ``weight`` name the columns, or give their numbers
      from 1. Columns not given are recognised by their names, or, but for the weight, by their
      order if there is no header. ``time="none"`` ignores times, ``weight="none"`` weights.
    - ``separator`` and ``header`` say what separates the fields and whether the first line holds
      names, where the file itself does not show it.
    - ``member`` says which file of a zip archive to read.
    - ``ids`` is "auto", with which ids become integers if all of them are, or "text". A pair such
      as ("text", "auto") says it for users and for items.
    - ``scale`` is (low, high) or (low, high, step), and ratings that are not on it are refused.
      Without it the scale is the narrowest that holds all ratings.
    - ``duplicates`` says what becomes of a pair rated more than once: "error" refuses it, "last"
      keeps the last rating of the file, "mean" the weighted mean, with the sum of the weights.
    """
    name, kinds = str(check_path("data", data)), _id_kinds(ids)
    columns = {"user": user, "item": item, "rating": rating, "time": time, "weight": weight}
    layout = {"separator": separator, "header": header, "member": member}
    if name == "demo":
        from bayesmf.data.synthetic import demo

        rules = {"ids": ids if "text" in kinds else "auto", "scale": scale}
        given = {**columns, **layout, **rules, "duplicates": duplicates}
        refuse_reading_options("demo is generated, not read", given)
        return demo()
    if name in DATASETS:
        refuse_reading_options(f"the ratings file of {name} is known", {"member": member})
        path = fetch(name)
        scale = DATASETS[name].scale if scale is None else scale
        layout["member"] = DATASETS[name].member if path.suffix == ".zip" else None
    else:
        path = _find_file(Path(name))
    return Ratings.from_columns(
        read_columns(path, columns, **layout),  # type: ignore[arg-type]
        scale=scale,
        duplicates=duplicates,
        user_ids=kinds[0],
        item_ids=kinds[1],
        name=name if name in DATASETS else "",
    )


def _id_kinds(ids: IdKind | tuple[IdKind, IdKind]) -> tuple[IdKind, IdKind]:
    kinds = (ids, ids) if isinstance(ids, str) else tuple(ids)
    if len(kinds) != 2 or not set(kinds) <= set(get_args(IdKind)):
        raise DataError(f"ids={ids!r}: say 'auto' or 'text', or one of them for users and items")
    return kinds


def _find_file(path: Path) -> Path:
    """Return the path; refuse one where nothing is, or shards, which are not one table."""
    if not os.path.exists(path):
        raise DataError(
            f"{path}: neither a file nor a data set's name; the names are {', '.join(NAMES)}"
        )
    if os.path.isdir(path):
        from bayesmf.data.io.shards import is_shards

        if is_shards(path):
            raise DataError(
                f"{path} is a folder of shards, which can only be fitted; give the ratings file "
                "that they were cut from"
            )
    return path


def refuse_reading_options(why: str, options: Mapping[str, Any]) -> None:
    """Refuse options of ``load`` where nothing is read that they could apply to.

    ``options`` may hold any of them, those at their defaults too. ``why`` begins the message.
    """
    defaults = inspect.signature(load).parameters
    given = [
        str(Option(name, value if isinstance(value, bool) else None))
        for name, value in options.items()
        if value is not None and value is not defaults[name].default
        if not (isinstance(value, str) and value == defaults[name].default)
    ]
    if given:
        raise DataError(f"{why}; leave out {' and '.join(given)}")


def find(name: str) -> Path | None:
    """Return where a data set is on this machine: in $BAYESMF_DATA, or in the cache, or None."""
    dataset = DATASETS[name]
    places = []
    if os.environ.get("BAYESMF_DATA"):
        root = Path(os.environ["BAYESMF_DATA"])
        places = [root / name / dataset.file, root / name / dataset.archive]
    places.append(cache() / dataset.archive)
    return next((place for place in places if os.path.isfile(place)), None)


def fetch(name: str) -> Path:
    """Find a data set on this machine, or download it into the cache."""
    if name not in DATASETS:
        raise DataError(f"no data set {name!r}; the names are {', '.join(NAMES)}")
    dataset = DATASETS[name]
    found, path = find(name), cache() / dataset.archive
    if found is not None and found != path:
        return found  # the user's own
    with contextlib.suppress(DataError):
        if found is not None and _is_published(path, dataset):
            return found
    path.unlink(missing_ok=True)
    try:
        with _showing_progress(dataset) as progress:
            download(dataset.url, path, dataset.known_hash, progress)
    except Unreachable as error:
        raise DataError(
            f"{name}: {error}; fetch {dataset.url} by hand, put it or its {dataset.file} into a "
            f"folder {name}/ and set BAYESMF_DATA to the folder above"
        ) from None
    try:
        right = _is_published(path, dataset)
    except DataError:
        path.unlink()
        raise DataError(
            f"{dataset.url}: what arrived is not the data set, so it was thrown away; see in a "
            "browser whether a log-in page stands before the server"
        ) from None
    if not right:
        path.unlink()
        raise wrong_checksum(dataset.url)
    return path


def _is_published(path: Path, dataset: Dataset) -> bool:
    """Whether an archive has the published checksums; they are looked at before every use.

    An archive that cannot be opened is a ``DataError``.
    """
    if dataset.known_hash is not None and not has_hash(path, dataset.known_hash):
        return False
    inside = open_source(path, dataset.member)
    if dataset.content_hash is None:
        return True
    stream: Any  # typeshed asks for more methods than a source has
    with inside.reading() as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == dataset.content_hash


def cache() -> Path:
    """Return the folder for downloads."""
    import pooch

    return Path(pooch.os_cache("bayesmf"))


@contextlib.contextmanager
def _showing_progress(dataset: Dataset) -> Iterator[Progress]:
    """Show the data's terms of use, and a progress bar under them, on the error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    console.print(f"{dataset.name}: {dataset.terms}", highlight=False)
    description = "[progress.description]{task.description}"
    columns = (description, BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(dataset.archive, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
