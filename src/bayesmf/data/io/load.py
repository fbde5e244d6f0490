"""Ratings by name or by path: where to look, and what to fetch."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmf.data.io.archive import open_source
from bayesmf.data.io.datasets import DATASETS, NAMES, Dataset
from bayesmf.data.io.download import Progress, Unreachable, download, wrong_checksum
from bayesmf.data.io.text import read_columns
from bayesmf.data.ratings import Duplicates, IdKind, Ratings
from bayesmf.errors import DataError


def load(
    data: str | os.PathLike[str],
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    member: str | None = None,
    ids: IdKind | tuple[IdKind, IdKind] = "auto",
    scale: Any = None,
    duplicates: Duplicates = "error",
) -> Ratings:
    """Ratings from a data set's name or a file's path.

    - ``user``, ``item``, ``rating``, ``time``: the columns, by name or by number from 1; those
      not given are recognised. ``time="none"`` ignores times.
    - ``separator``, ``header``: how the lines are laid out, where looking at them cannot tell.
    - ``member``: which file of a zip archive.
    - ``ids``: ids that are all integers become integers unless this is "text", or
      ("text", "auto") for users alone.
    - ``scale``: (low, high) or (low, high, step); ratings off it are refused. Without it the scale
      is read off the ratings.
    - ``duplicates``: a pair rated twice is an "error", or its "last" rating or their "mean" counts.
    """
    kinds = (ids, ids) if isinstance(ids, str) else tuple(ids)
    if len(kinds) != 2 or not set(kinds) <= {"auto", "text"}:
        raise DataError(f"ids={ids!r}: say 'auto' or 'text', or one of them for users and items")
    name = os.fspath(data)
    if name == "demo":
        from bayesmf.data.synthetic import demo

        asked = (user, item, rating, time, separator, header, member, scale)
        if any(option is not None for option in asked) or (*kinds, duplicates) != (
            "auto", "auto", "error",
        ):  # fmt: skip
            raise DataError("demo is generated, not read: leave out the options of reading")
        return demo()
    if name in DATASETS:
        dataset = DATASETS[name]
        path = fetch(name)
        scale = dataset.scale if scale is None else scale
        member = dataset.member if path.suffix == ".zip" else None
    else:
        path = Path(name)
        if not os.path.exists(path):
            raise DataError(
                f"{name}: neither a file nor a data set's name; the names are {', '.join(NAMES)}"
            )
    given = {"user": user, "item": item, "rating": rating, "time": time}
    return Ratings.from_columns(
        read_columns(path, given, separator, header, member),  # type: ignore[arg-type]
        scale=scale,
        duplicates=duplicates,
        user_ids=kinds[0],
        item_ids=kinds[1],
        name=name if name in DATASETS else "",
    )


def find(name: str) -> Path | None:
    """Where a data set lies on this machine: in $BAYESMF_DATA, else in the cache, else None."""
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
    found = find(name)
    if found is not None:
        return found
    path = cache() / dataset.archive
    try:
        with _shown(dataset) as progress:
            download(dataset.url, path, dataset.known_hash, progress)
    except Unreachable as error:
        raise DataError(
            f"{name}: {error}; fetch {dataset.url} by hand, put it or its {dataset.file} into a "
            f"folder {name}/ and set BAYESMF_DATA to the folder above"
        ) from None
    try:
        inside = open_source(path, dataset.member)
    except DataError:
        path.unlink()
        raise DataError(
            f"{dataset.url}: what arrived is not the data set, so it was thrown away; is there a "
            "log-in page between you and the server?"
        ) from None
    if dataset.content_hash is not None:
        with inside.reading() as stream:
            right = hashlib.file_digest(stream, "sha256").hexdigest() == dataset.content_hash  # type: ignore[arg-type]
        if not right:
            path.unlink()
            raise wrong_checksum(dataset.url)
    return path


def cache() -> Path:
    """The folder for downloads."""
    import pooch

    return Path(pooch.os_cache("bayesmf"))


@contextlib.contextmanager
def _shown(dataset: Dataset) -> Iterator[Progress]:
    """A progress bar on the error stream, under the data's terms of use."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    console.print(f"{dataset.name}: {dataset.terms}", highlight=False)
    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(dataset.archive, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
