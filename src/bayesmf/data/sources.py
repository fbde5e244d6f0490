"""Ratings by name or by path: where to look, and what to fetch."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesmf.data.archive import open_source
from bayesmf.data.download import Progress, Unreachable, download, wrong_checksum
from bayesmf.data.files import read_columns
from bayesmf.data.ratings import Duplicates, IdKind, Ratings
from bayesmf.data.scale import Scale
from bayesmf.errors import DataError

MOVIELENS = "https://files.grouplens.org/datasets/movielens/"
MOVIELENS_TERMS = "research use, see the README inside; cite Harper & Konstan 2015"


@dataclass(frozen=True)
class Dataset:
    """A data set known by name."""

    name: str
    about: str
    file: str  # the ratings, as they are called in a folder
    member: str | None  # and in the archive
    url: str
    known_hash: str | None
    scale: Scale
    terms: str
    content_hash: str | None = None  # sha256 of the ratings inside, where the archive's is unknown

    @property
    def archive(self) -> str:
        """The name of the file to fetch."""
        return self.url.rsplit("/", 1)[-1]


def _movielens(
    name: str, about: str, file: str, folder: str, known_hash: str | None, scale: Scale
) -> Dataset:
    url = f"{MOVIELENS}{name}.zip"
    return Dataset(name, about, file, f"{folder}/{file}", url, known_hash, scale, MOVIELENS_TERMS)


STARS, HALF_STARS = Scale(1, 5, 1), Scale(0.5, 5, 0.5)
DATASETS = {
    dataset.name: dataset
    for dataset in (
        _movielens("ml-100k", "MovieLens 100K: 943 users, 1,682 movies", "u.data", "ml-100k",
                   "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229", STARS),
        _movielens("ml-1m", "MovieLens 1M: 6,040 users, 3,706 movies", "ratings.dat", "ml-1m",
                   "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20", STARS),
        _movielens("ml-10m", "MovieLens 10M: 69,878 users, 10,677 movies", "ratings.dat",
                   "ml-10M100K",
                   "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862", HALF_STARS),
        _movielens("ml-25m", "MovieLens 25M: 162,541 users, 59,047 movies", "ratings.csv",
                   "ml-25m", "md5:6b51fb2759a8657d3bfcbfc42b592ada", HALF_STARS),
        # Replaced by its makers from time to time, so it has no checksum to hold it to.
        _movielens("ml-latest-small", "MovieLens, a recent sample of 100,000 ratings",
                   "ratings.csv", "ml-latest-small", None, HALF_STARS),
        Dataset("epinions", "Epinions: 40,163 users, 139,738 items", "ratings_data.txt", None,
                "http://www.trustlet.org/datasets/downloaded_epinions/ratings_data.txt.bz2",
                None, STARS, "research use; cite Massa & Avesani 2007",
                "6da14f79369cf882911a271efd5f4575bc4292d0497ccf3190b6421a6d198e42"),
    )
}  # fmt: skip
NAMES = ("demo", *DATASETS)


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
    ids: IdKind = "auto",
    scale: Any = None,
    duplicates: Duplicates = "error",
) -> Ratings:
    """Ratings from a data set's name or a file's path.

    - ``user``, ``item``, ``rating``, ``time``: the columns, by name or by number from 1; those
      not given are recognised. ``time="none"`` ignores times.
    - ``separator``, ``header``: how the lines are laid out, where looking at them cannot tell.
    - ``member``: which file of a zip archive.
    - ``ids``: ids that are all integers become integers unless this is "text".
    - ``scale``: (low, high) or (low, high, step); ratings off it are refused. Without it the scale
      is read off the ratings.
    - ``duplicates``: a pair rated twice is an "error", or its "last" rating or their "mean" counts.
    """
    if ids not in ("auto", "text"):
        raise DataError(f"ids={ids!r}: say 'auto' or 'text'")
    name = os.fspath(data)
    if name == "demo":
        from bayesmf.data.synthetic import demo

        asked = (user, item, rating, time, separator, header, member, scale)
        if any(option is not None for option in asked) or (ids, duplicates) != ("auto", "error"):
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
        user_ids=ids,
        item_ids=ids,
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
