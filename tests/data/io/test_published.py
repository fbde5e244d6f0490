"""Splits that others have published are read as their files have them."""

from __future__ import annotations

import sys
import zipfile

import h5py
import numpy as np
import pytest
from scipy import io, sparse

from bayesmf import DataError, load_split, save_split

BASE = "2\t10\t5\t300\n1\t10\t4\t100\n1\t30\t3\t110\n"
TEST = "1\t20\t2\t120\n2\t40\t1\t310\n"  # item 20 and item 40 are not in training
RATINGS = np.array([[1.0, 0, 5, 2], [0, 3, 0, 0], [4, 0, 2.5, 0]])  # 3 users, 4 items
TRAINING = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
HELD_OUT = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]])


def triplets(ratings) -> set[tuple]:
    table = ratings.to_arrow()
    return set(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


@pytest.fixture(params=["folder", "archive"])
def ml_100k(request, tmp_path, monkeypatch):
    """The files of the data set, as they are or in the archive they come in."""
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    files = {"u.data": BASE + TEST, "u1.base": BASE, "u1.test": TEST}
    if request.param == "folder":
        for name, text in files.items():
            (folder / name).write_text(text)
    else:
        with zipfile.ZipFile(folder / "ml-100k.zip", "w") as archive:
            for name, text in files.items():
                archive.writestr(f"ml-100k/{name}", text)
    monkeypatch.setenv("BAYESMF_DATA", str(tmp_path))
    return request.param


def test_a_split_of_ml_100k(ml_100k, tmp_path):
    made = load_split("ml-100k/u1")
    assert triplets(made.train) == {(2, 10, 5, 300), (1, 10, 4, 100), (1, 30, 3, 110)}
    assert triplets(made.test) == {(1, 20, 2, 120), (2, 40, 1, 310)}
    assert made.train.users == made.test.users
    assert made.train.items == made.test.items
    assert made.train.items.values.tolist() == [10, 20, 30, 40]
    assert str(made.train.scale) == "1..5 by 1"
    facts = made.describe()
    assert (facts["protocol"], facts["seed"], facts["options"]) == (
        "published",
        None,
        {"split": "ml-100k/u1"},
    )
    assert facts["test_items_not_in_train"] == 2
    save_split(made, tmp_path / "saved")
    assert load_split(tmp_path / "saved").describe() == facts


def test_a_split_that_is_not_there(ml_100k):
    told = "u2.base: no such file; take it out" if ml_100k == "folder" else "no member"
    with pytest.raises(DataError, match=told):
        load_split("ml-100k/u2")
    with pytest.raises(DataError, match="no such file; give a folder written by .*ml-100k/u1"):
        load_split("ml-100k/u7")


def write_older(path, **arrays):
    io.savemat(path, arrays)


def write_hdf5(path, **arrays):
    """As MATLAB writes version 7.3: column by column, after a header of 512 bytes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            if sparse.issparse(array):
                columns = array.tocsc()
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = array.shape[0]
                group["data"], group["ir"] = columns.data, columns.indices
                group["jc"] = columns.indptr
            else:
                file[name] = np.asarray(array).T
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")


@pytest.mark.parametrize("write", [write_older, write_hdf5])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csc_matrix], ids=["dense", "sparse"])
def test_a_file_of_monti(write, kind, tmp_path):
    path = tmp_path / "training_test_dataset.mat"
    write(path, M=kind(RATINGS), Otraining=kind(TRAINING), Otest=kind(HELD_OUT), W_users=np.eye(3))
    made = load_split(path)
    assert triplets(made.train) == {(1, 1, 1.0), (1, 3, 5.0), (2, 2, 3.0), (3, 1, 4.0)}
    assert triplets(made.test) == {(1, 4, 2.0), (3, 3, 2.5)}
    assert (made.train.n_users, made.train.n_items) == (3, 4)
    assert made.protocol == "published"


@pytest.mark.parametrize("write", [write_older, write_hdf5])
def test_files_that_do_not_hold_a_split(write, tmp_path):
    path = tmp_path / "monti.mat"
    whole = {"M": RATINGS, "Otraining": TRAINING, "Otest": HELD_OUT}
    cases = {
        "no array 'Otest' in it": {"M": RATINGS, "Otraining": TRAINING},
        r"different shapes \(M 3 x 4, Otraining 4 x 3": {**whole, "Otraining": TRAINING.T},
        "Otest is zero everywhere": {**whole, "Otest": 0 * HELD_OUT},
        "row 2 and column 4 of Otest say that there is a rating": {
            **whole,
            "Otest": HELD_OUT + np.eye(3, 4, 2).astype(int) * [0, 0, 0, 1],
        },
        "row 1 and column 1 of M: .*rated item 1 before|user 1 rated item 1 before": {
            **whole,
            "Otest": HELD_OUT + np.eye(3, 4).astype(int) * [1, 0, 0, 0],
        },
    }
    for told, arrays in cases.items():
        write(path, **arrays)
        with pytest.raises(DataError, match=told):
            load_split(path)


def test_files_that_are_not_matlabs(tmp_path, monkeypatch):
    path = tmp_path / "monti.mat"
    with pytest.raises(DataError, match=r"monti.mat: cannot be read \(No such file"):
        load_split(path)
    for content in (b"", b"1,2,3\n" * 200, b"\x89HDF\r\n\x1a\n" + bytes(600)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"monti.mat: not a readable .mat file"):
            load_split(path)
    write_hdf5(path, M=RATINGS, Otraining=TRAINING, Otest=HELD_OUT)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"version 7\.3.*pip install 'bayesmf\[matlab\]'"):
        load_split(path)
