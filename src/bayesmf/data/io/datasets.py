"""The data sets known by name; quick to load, as the shell completes their names."""

from __future__ import annotations

from dataclasses import dataclass

MOVIELENS = "https://files.grouplens.org/datasets/movielens/"
MOVIELENS_TERMS = "research use, see the README inside; cite Harper & Konstan 2015"

LowHighStep = tuple[float, float, float]  # of a scale


@dataclass(frozen=True)
class Dataset:
    """A data set known by name."""

    name: str
    about: str
    file: str  # the name of the ratings file
    member: str | None  # and where it is in the archive
    url: str
    known_hash: str | None
    scale: LowHighStep
    terms: str
    content_hash: str | None = None  # sha256 of the ratings inside, where the archive's is unknown

    @property
    def archive(self) -> str:
        """The name of the file to fetch."""
        return self.url.rsplit("/", 1)[-1]


def _movielens(
    name: str, about: str, file: str, folder: str, known_hash: str | None, scale: LowHighStep
) -> Dataset:
    url = f"{MOVIELENS}{name}.zip"
    return Dataset(name, about, file, f"{folder}/{file}", url, known_hash, scale, MOVIELENS_TERMS)


STARS, HALF_STARS = (1, 5, 1), (0.5, 5, 0.5)
DATASETS = {
    dataset.name: dataset
    for dataset in (
        _movielens(
            "ml-100k",
            "MovieLens 100K: 943 users, 1,682 movies",
            "u.data",
            "ml-100k",
            "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
            STARS,
        ),
        _movielens(
            "ml-1m",
            "MovieLens 1M: 6,040 users, 3,706 movies",
            "ratings.dat",
            "ml-1m",
            "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
            STARS,
        ),
        _movielens(
            "ml-10m",
            "MovieLens 10M: 69,878 users, 10,677 movies",
            "ratings.dat",
            "ml-10M100K",
            "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
            HALF_STARS,
        ),
        _movielens(
            "ml-25m",
            "MovieLens 25M: 162,541 users, 59,047 movies",
            "ratings.csv",
            "ml-25m",
            "md5:6b51fb2759a8657d3bfcbfc42b592ada",
            HALF_STARS,
        ),
        # Its makers replace it from time to time, so there is no checksum to compare with.
        _movielens(
            "ml-latest-small",
            "MovieLens, a recent sample of 100,000 ratings",
            "ratings.csv",
            "ml-latest-small",
            None,
            HALF_STARS,
        ),
        Dataset(
            "epinions",
            "Epinions: 40,163 users, 139,738 items",
            "ratings_data.txt",
            None,
            "http://www.trustlet.org/datasets/downloaded_epinions/ratings_data.txt.bz2",
            None,
            STARS,
            "research use; cite Massa & Avesani 2007",
            "6da14f79369cf882911a271efd5f4575bc4292d0497ccf3190b6421a6d198e42",
        ),
    )
}
NAMES = ("demo", *DATASETS)
