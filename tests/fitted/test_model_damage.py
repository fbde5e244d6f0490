"""Damaged model files: each loads right, or is refused in one sentence."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import struct

import pytest

import bayesmf
from bayesmf import DataError, Gibbs
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(9, 7, seed=1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    fit = Gibbs(VARIANTS["both sides, joint bias"], sweeps=6, burn_in=1, keep=2, chains=1).fit(
        TRAIN
    )
    fit.save(folder / "model")
    fit.save(folder / "model.zip")
    return folder, fit.predict(TRAIN)


def damaged(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    kind = rng.choice(["flip", "cut", "insert", "zero", "swap"])
    if kind == "flip":
        return (
            content[:place]
            + bytes([content[place] ^ (1 << rng.randrange(8))])
            + content[place + 1 :]
        )
    if kind == "cut":
        return content[:place]
    if kind == "insert":
        return content[:place] + rng.randbytes(rng.randrange(1, 9)) + content[place:]
    if kind == "zero":
        return content[:place] + bytes(min(16, len(content) - place)) + content[place + 16 :]
    return content[place:] + content[:place]


def tried(path, expected) -> str:
    """Whether it loads, and then gives the same predictions, or is refused."""
    told = ""
    try:
        fit = bayesmf.load_model(path)
    except DataError as error:
        told = str(error)
    if told:
        assert "\n" not in told
        assert str(path) in told
        return "refused"
    assert fit.predict(TRAIN).equals(expected)
    return "loaded"


@pytest.mark.parametrize("name", ["model.json", "arrays.safetensors", "users.txt", "items.txt",
                                  "ratings.parquet"])  # fmt: skip
def test_damaged_folders(saved, name, tmp_path):
    folder, expected = saved
    content = (folder / "model" / name).read_bytes()
    rng = random.Random(name)
    found = []
    shutil.copytree(folder / "model", tmp_path / "model")
    for _ in range(60):
        (tmp_path / "model" / name).write_bytes(damaged(content, rng))
        found.append(tried(tmp_path / "model", expected))
    assert found.count("refused") >= 50  # some damage, to blanks in the JSON say, is none
    (tmp_path / "model" / name).unlink()
    assert tried(tmp_path / "model", expected) == "refused"


def test_damaged_archives(saved, tmp_path):
    folder, expected = saved
    content = (folder / "model.zip").read_bytes()
    rng = random.Random(1)
    for _ in range(200):
        (tmp_path / "model.zip").write_bytes(damaged(content, rng))
        tried(tmp_path / "model.zip", expected)


def forged(saved, tmp_path, change) -> str:
    """A file whose checksums are right: somebody meant it."""
    folder, _ = saved
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    shutil.copytree(folder / "model", tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    change(tmp_path / "model", facts)
    for name in facts.get("sha256", {}):
        if (tmp_path / "model" / name).exists():
            content = (tmp_path / "model" / name).read_bytes()
            facts["sha256"][name] = hashlib.sha256(content).hexdigest()
    (tmp_path / "model" / "model.json").write_text(json.dumps(facts))
    with pytest.raises(DataError) as told:
        bayesmf.load_model(tmp_path / "model")
    assert "\n" not in str(told.value)
    return str(told.value)


def with_array(name: str, change):
    from safetensors.numpy import load, save

    def apply(folder, facts) -> None:
        arrays = load((folder / "arrays.safetensors").read_bytes())
        arrays = {k: v.copy() for k, v in arrays.items()}
        change(arrays, name)
        (folder / "arrays.safetensors").write_bytes(save(arrays))

    return apply


def test_forged_files_are_refused(saved, tmp_path):
    def put(value):
        def change(arrays, name) -> None:
            arrays[name][...] = value

        return change

    def drop(arrays, name) -> None:
        del arrays[name]

    def shorten(arrays, name) -> None:
        arrays[name] = arrays[name][:, :-1].copy()

    nan = forged(saved, tmp_path, with_array("draws.user.x", put(float("nan"))))
    assert "user.x holds values that are no numbers" in nan
    assert "tau is not positive" in forged(saved, tmp_path, with_array("draws.tau", put(-1.0)))
    assert "another shape" in forged(saved, tmp_path, with_array("draws.item.x", shorten))
    assert "another shape" in forged(saved, tmp_path, with_array("draws.item.W", drop))
    newer = forged(saved, tmp_path, lambda folder, facts: facts.update(format=99))
    assert "newer than this version reads" in newer
    updated = forged(saved, tmp_path, lambda folder, facts: facts.update(updates=-1))
    assert "was updated -1 times, which cannot be" in updated
    for change in (
        lambda folder, facts: facts["model"].update(rank=10**9),
        lambda folder, facts: facts["model"].update(prior="magic"),
        lambda folder, facts: facts.update(model=[]),
        lambda folder, facts: facts.update(mean="high"),
        lambda folder, facts: facts.update(sha256={}),
        lambda folder, facts: facts.update(scale={"low": 5, "high": 1, "step": 1}),
        lambda folder, facts: (folder / "users.txt").write_text("1\n1\n"),
        lambda folder, facts: (folder / "users.txt").write_text('"ann"\n2\n'),
        lambda folder, facts: (folder / "arrays.safetensors").write_bytes(
            struct.pack("<Q", 2**62) + b"{}"
        ),
    ):
        assert forged(saved, tmp_path, change)
