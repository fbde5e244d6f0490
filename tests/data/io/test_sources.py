"""Data sets by name: found, cached, or downloaded from a server on this machine."""

from __future__ import annotations

import bz2
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bayesmf import DataError, Ratings, load
from bayesmf.data.io import load as sources
from bayesmf.data.io.download import download
from oracle.source import TEXT, Server, archive

RATINGS = Ratings.from_triplets(
    users=[1, 1, 2], items=[10, 11, 10], ratings=[4, 5, 3], scale=(1, 5, 1)
)


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server(archive())
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.fixture
def named(server, tmp_path, monkeypatch) -> Server:
    """The data set ml-1m comes from our server, and everything else of the machine is hidden."""
    monkeypatch.delenv("BAYESMF_DATA", raising=False)
    monkeypatch.setattr(sources, "cache", lambda: tmp_path / "cache")
    here = replace(
        sources.DATASETS["ml-1m"],
        url=server.url,
        known_hash=hashlib.sha256(server.content).hexdigest(),
    )
    monkeypatch.setitem(sources.DATASETS, "ml-1m", here)
    return server


def cached(tmp_path: Path) -> list[str]:
    return sorted(file.name for file in (tmp_path / "cache").glob("*"))


def test_a_kill_would_leave_one_file_which_the_next_transfer_goes_on_with(server, tmp_path):
    seen = set()

    def look(done: int, total: int | None) -> None:
        seen.update(path.name for path in tmp_path.iterdir())

    download(server.url, tmp_path / "ml-1m.zip", None, look)
    assert seen == {"ml-1m.zip.part"}
    assert [path.name for path in tmp_path.iterdir()] == ["ml-1m.zip"]


def test_a_published_md5_is_compared_as_one(named, tmp_path, monkeypatch):
    """That of ml-25m, which its makers publish no other checksum of."""
    known = f"md5:{hashlib.md5(named.content).hexdigest()}"
    here = replace(sources.DATASETS["ml-1m"], known_hash=known)
    monkeypatch.setitem(sources.DATASETS, "ml-1m", here)
    assert load("ml-1m") == load("ml-1m") == RATINGS
    assert len(named.ranges) == 1
    (tmp_path / "cache" / "ml-1m.zip").write_bytes(b"damaged")
    assert load("ml-1m") == RATINGS
    named.content = named.content[:-1] + b"x"
    (tmp_path / "cache" / "ml-1m.zip").unlink()
    with pytest.raises(DataError, match="checksum"):
        load("ml-1m")


def test_download_once_with_terms_and_then_from_the_cache(named, tmp_path, capsys):
    ratings = load("ml-1m")
    assert ratings == RATINGS
    assert ratings.name == "ml-1m"
    assert "cite Harper & Konstan 2015" in capsys.readouterr().err
    assert load("ml-1m") == RATINGS
    assert named.ranges == [None]
    assert cached(tmp_path) == ["ml-1m.zip"]


def test_a_wrong_checksum_keeps_nothing(named, tmp_path):
    named.content = archive() + b"tampered"
    with pytest.raises(DataError, match="checksum of what arrived is not the published one"):
        load("ml-1m")
    assert cached(tmp_path) == []


def test_a_broken_transfer_resumes_by_itself(named, tmp_path):
    named.cut = 2
    assert load("ml-1m") == RATINGS
    assert [asked is not None for asked in named.ranges] == [False, True, True]
    assert cached(tmp_path) == ["ml-1m.zip"]


def test_a_transfer_that_keeps_breaking_goes_on_next_time(named, tmp_path):
    named.cut = 3
    with pytest.raises(DataError, match=r"broke off after [\d,]+ bytes; try again to continue"):
        load("ml-1m")
    assert cached(tmp_path) == ["ml-1m.zip.part"]
    so_far = (tmp_path / "cache" / "ml-1m.zip.part").stat().st_size
    assert so_far > len(named.content) // 2
    assert load("ml-1m") == RATINGS
    assert named.ranges[-1] == f"bytes={so_far}-"


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: c[:99] + b"?" + c[100:]])
def test_a_damaged_copy_in_the_cache_is_fetched_anew(named, damage, tmp_path):
    place = sources.fetch("ml-1m")
    place.write_bytes(damage(place.read_bytes()))
    assert sources.fetch("ml-1m").read_bytes() == named.content
    assert len(named.ranges) == 2


def test_a_link_in_the_place_of_a_broken_download_is_not_followed(named, tmp_path):
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ml-1m.zip.part").symlink_to(tmp_path / "mine")
    assert sources.fetch("ml-1m").read_bytes() == named.content
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_length_that_is_no_number_is_none(named):
    named.length = "abc"
    named.protocol_version = "HTTP/1.0"
    assert sources.fetch("ml-1m").read_bytes() == named.content


def test_a_download_without_end_has_one(named, tmp_path, monkeypatch):
    monkeypatch.setattr("bayesmf.data.io.download.MOST", 1 << 17)
    with pytest.raises(DataError, match="it is not the data set, and was thrown away"):
        sources.fetch("ml-1m")
    assert cached(tmp_path) == []


def test_an_interrupted_download_resumes(server, tmp_path):
    """Ctrl-C in the middle: the part stays, and the next call asks for the rest only."""

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "file.zip"
    with pytest.raises(KeyboardInterrupt):
        download(server.url, path, None, interrupt)
    part = (tmp_path / "file.zip.part").stat().st_size
    assert 0 < part < len(server.content)
    seen: list[tuple[int, int | None]] = []
    download(server.url, path, None, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == server.content
    assert server.ranges == [None, f"bytes={part}-"]
    assert seen[-1] == (len(server.content), len(server.content))
    assert seen[0][0] > part


def test_a_server_that_cannot_resume_starts_again(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(b"half of something")
    server.whole_only = True
    assert download(server.url, tmp_path / "file.zip", None, None).read_bytes() == server.content


def test_a_part_that_does_not_fit_is_thrown_away(server, tmp_path):
    (tmp_path / "file.zip.part").write_bytes(bytes(len(server.content)))
    path = download(server.url, tmp_path / "file.zip", None, None)
    assert path.read_bytes() == server.content


def test_a_whole_part_is_not_fetched_again(server, tmp_path):
    """A kill between the last byte and the name leaves one."""
    (tmp_path / "file.zip.part").write_bytes(server.content)
    known = hashlib.sha256(server.content).hexdigest()
    path = download(server.url, tmp_path / "file.zip", known, None)
    assert path.read_bytes() == server.content
    assert server.ranges == []


@pytest.mark.parametrize("reason", ["closed", "404"])
def test_without_the_server_the_user_is_told_where_to_put_the_file(named, reason, monkeypatch):
    if reason == "404":
        named.status = 404
    else:
        gone = replace(sources.DATASETS["ml-1m"], url="http://127.0.0.1:9/ml-1m.zip")
        monkeypatch.setitem(sources.DATASETS, "ml-1m", gone)
    told = {"closed": r"cannot reach 127.0.0.1:9", "404": r"answered 404"}[reason]
    with pytest.raises(
        DataError,
        match=told + r"; fetch http://.*/ml-1m.zip by hand, put it or its ratings.dat into a "
        r"folder ml-1m/ and set BAYESMF_DATA to the folder above",
    ):
        load("ml-1m")


def test_content_without_a_published_archive_hash_is_checked_inside(named, tmp_path, monkeypatch):
    text = b"1 10 4\n1 11 5\n2 10 3\n"
    named.content = bz2.compress(text)
    plain = replace(
        sources.DATASETS["epinions"],
        url=named.url.replace("ml-1m.zip", "ratings_data.txt.bz2"),
        content_hash=hashlib.sha256(text).hexdigest(),
    )
    monkeypatch.setitem(sources.DATASETS, "epinions", plain)
    assert load("epinions") == RATINGS
    (tmp_path / "cache" / "ratings_data.txt.bz2").unlink()
    named.content = bz2.compress(text + b"3 10 1\n")
    with pytest.raises(DataError, match="checksum"):
        load("epinions")
    assert cached(tmp_path) == []


def test_a_log_in_page_is_not_kept(named, tmp_path, monkeypatch):
    named.content = b"<html>Please log in</html>"
    free = replace(sources.DATASETS["ml-1m"], known_hash=None)
    monkeypatch.setitem(sources.DATASETS, "ml-1m", free)
    with pytest.raises(DataError, match="what arrived is not the data set"):
        load("ml-1m")
    assert cached(tmp_path) == []


@pytest.mark.parametrize("form", ["file", "archive"])
def test_the_data_folder_comes_first(named, form, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "ml-1m"
    folder.mkdir(parents=True)
    if form == "file":
        (folder / "ratings.dat").write_bytes(TEXT)
    else:
        (folder / "ml-1m.zip").write_bytes(archive())
    monkeypatch.setenv("BAYESMF_DATA", str(tmp_path / "data"))
    assert load("ml-1m") == RATINGS
    assert named.ranges == []


def test_every_pinned_hash_has_the_right_length():
    for dataset in sources.DATASETS.values():
        if dataset.known_hash is not None:
            digest = dataset.known_hash.removeprefix("md5:")
            assert len(digest) == (32 if digest != dataset.known_hash else 64)


def test_unknown_names():
    with pytest.raises(DataError, match="no data set 'ml-2m'; the names are demo, ml-100k"):
        sources.fetch("ml-2m")
