"""Files damaged at random: each is read or refused with a sentence, never anything else."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bayesmf import DataError, Ratings, load, write

FORMS = [".csv", ".tsv", ".parquet", ".csv.gz", ".dat", ".txt", ".csv.bz2", ".zip"]


def good(form: str, folder) -> bytes:
    n = range(60)
    ratings = Ratings.from_triplets(
        users=[f"user {k % 7}" for k in n] if form != ".txt" else [k % 7 for k in n],
        items=[k // 7 for k in n],
        ratings=[1 + k % 5 for k in n],
        times=[10**9 + k for k in n],
    )
    if form in (".csv", ".tsv", ".parquet", ".csv.gz"):
        write(ratings, folder / f"good{form}")
        return (folder / f"good{form}").read_bytes()
    write(ratings, folder / "good.csv")
    text = (folder / "good.csv").read_bytes()
    if form == ".csv.bz2":
        return bz2.compress(text)
    if form == ".zip":
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("ratings.csv", text)
        return file.getvalue()
    body = text.split(b"\n", 1)[1].replace(b'"', b"")
    return body.replace(b",", b"::" if form == ".dat" else b" ")


def damaged(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.choice([1, 5, len(data)])]
            case 2:
                data[at:at] = rng.choice([b"\n", b",", b'"', b"\0", b"\xff", b"::", b"nan", b"\r"])
            case 3:
                data[at:at] = data[at : at + 40]
    return bytes(data)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_are_read_or_refused(form, tmp_path):
    content = good(form, tmp_path)
    path = tmp_path / f"ratings{form}"
    path.write_bytes(content)
    assert len(load(path)) == 60
    refused = 0
    for seed in range(300):
        path.write_bytes(damaged(content, random.Random(seed)))
        try:
            load(path)
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
            assert str(error).startswith(str(path)), error  # noqa: PT017
    assert refused > 60


def test_text_in_parquet_that_is_no_text(tmp_path):
    bad = pa.array([b"\xff\xfe", b"b"]).view(pa.string())
    table = pa.table({"user": bad, "item": [1, 2], "rating": [3, 4]})
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(DataError, match="r.parquet: not a readable parquet file"):
        load(tmp_path / "r.parquet")


def test_blanks_of_another_encoding(tmp_path):
    (tmp_path / "r.csv").write_bytes(b"\x85\xa0\n")
    with pytest.raises(DataError, match="line 1: .* does not split into user, item and rating"):
        load(tmp_path / "r.csv")


@pytest.mark.parametrize("name", ["", "a\nb.csv", "folder/"])
def test_odd_names_in_a_zip(name, tmp_path):
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"1,2,3\n")
    if name.endswith(".csv"):
        assert len(load(tmp_path / "r.zip")) == 1
    else:
        with pytest.raises(DataError, match="holds no table of ratings"):
            load(tmp_path / "r.zip")


def test_compressed_gzip_may_have_a_damaged_end(tmp_path):
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b"user,item,rating\n1,2,3\n")[:-4] + b"\0\0\0\0")
    with pytest.raises(DataError, match="the compressed data is damaged"):
        load(path)
