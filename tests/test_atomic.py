from __future__ import annotations

import os

import pytest

from bayesmf import DataError
from bayesmf.atomic import whole_file, whole_folder


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with whole_file(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder"
    with pytest.raises(RuntimeError), whole_folder(path) as made:
        (made / "one").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with whole_folder(path) as made:
        (made / "one").write_text("1")
    with pytest.raises(RuntimeError), whole_folder(path, lambda folder: True) as made:
        raise RuntimeError
    assert (path / "one").read_text() == "1"
    with whole_folder(path, lambda folder: True) as made:
        (made / "two").write_text("2")
    assert [file.name for file in path.iterdir()] == ["two"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_in_a_sentence(tmp_path):
    with pytest.raises(DataError, match="No space left on device"), whole_file(tmp_path / "x"):
        raise OSError(28, "No space left on device")
