"""Damaged model files: each loads right, or is refused in one sentence."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import zipfile

import pytest

import bayesmf
from bayesmf import DataError, Gibbs
from bayesmf.fitted.store.checked import Bad, check_sums, sums_of
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
    assert found.count("refused") >= 58  # a place may be cut at its end, or be zero already
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
    facts = change(tmp_path / "model", facts) or facts
    text = facts if isinstance(facts, str) else json.dumps(facts)
    (tmp_path / "model" / "model.json").write_text(text)
    files = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    files.pop("SHA256SUMS", None)
    (tmp_path / "model" / "SHA256SUMS").write_bytes(sums_of(files))
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
    for name in ("draws.user.newness", "draws.item.new_cov"):
        assert "another shape" in forged(saved, tmp_path, with_array(name, drop))
    for name in ("draws.user.Lambda", "draws.item.Lambda_W"):
        for value in (0.0, -1.0):
            assert "is no precision" in forged(saved, tmp_path, with_array(name, put(value)))
    rename = with_array(
        "draws.tau", lambda arrays, name: arrays.update({"draws.odd": arrays[name]})
    )
    assert "holds odd, which is no part" in forged(saved, tmp_path, rename)
    flat = with_array("trace.noise precision", lambda arrays, name: arrays.update(
        {name: arrays[name].reshape(-1)}))  # fmt: skip
    assert "its trace of the noise precision is none" in forged(saved, tmp_path, flat)
    halves = with_array("user.counts", lambda arrays, name: arrays.update(
        {name: arrays[name].astype("f2")}))  # fmt: skip
    for wrong in (halves, with_array("item.counts", put(-1))):
        assert "its counts are no counts" in forged(saved, tmp_path, wrong)
    newer = forged(saved, tmp_path, lambda folder, facts: facts.update(format=99))
    assert "newer than this version reads" in newer
    updated = forged(saved, tmp_path, lambda folder, facts: facts.update(updates=-1))
    assert "was updated -1 times, which cannot be" in updated
    for change in (
        lambda folder, facts: facts["model"].update(rank=10**9),
        lambda folder, facts: facts["model"].update(prior="magic"),
        lambda folder, facts: facts.update(model=[]),
        lambda folder, facts: facts.update(mean="high"),
        lambda folder, facts: facts.update(mean="4.5"),
        lambda folder, facts: facts.update(mean=True),
        lambda folder, facts: facts.update(mean=4),
        lambda folder, facts: facts.update(odd=1),
        lambda folder, facts: facts.pop("updates") and None,
        lambda folder, facts: facts["model"].update(rank=True),
        lambda folder, facts: facts["model"].update(rank="2"),
        lambda folder, facts: facts["model"]["hyper"].update(noise_shape="1"),
        lambda folder, facts: facts["model"]["hyper"].update(noise_shape=True),
        lambda folder, facts: facts["scale"].update(low="1"),
        lambda folder, facts: facts["scale"].update(more=1.0),
        lambda folder, facts: facts["ids"].update(user="float"),
        lambda folder, facts: facts["facts"].update(test_rmse="low"),
        lambda folder, facts: facts["facts"].update(sweeps=-1),
        lambda folder, facts: facts["facts"].update(stopped=3),
        lambda folder, facts: facts["facts"].update(targets={"r_hat": "1"}),
        lambda folder, facts: facts["facts"].update(targets=7),
        lambda folder, facts: facts["facts"].update(draw_chains=[0, "1"]),
        lambda folder, facts: facts.update(traces="tau"),
        lambda folder, facts: json.dumps(facts).replace('"mean":', '"mean": 1.0, "mean":'),
        lambda folder, facts: json.dumps({**facts, "mean": float("nan")}),
        lambda folder, facts: "[" * 100_000,
        lambda folder, facts: (folder / "items.txt").unlink(),
        lambda folder, facts: facts.update(scale={"low": 5, "high": 1, "step": 1}),
        lambda folder, facts: (folder / "users.txt").write_text("1\n1\n"),
        lambda folder, facts: (folder / "users.txt").write_text('"ann"\n2\n'),
        lambda folder, facts: (folder / "arrays.safetensors").write_bytes(
            struct.pack("<Q", 2**62) + b"{}"
        ),
    ):
        assert forged(saved, tmp_path, change)


def test_every_bit_of_the_facts_is_under_a_checksum(saved):
    """Format 2 has one of every byte; format 1 had none of model.json."""
    folder, _ = saved
    files = {path.name: path.read_bytes() for path in (folder / "model").iterdir()}
    check_sums(files)
    for name in ("model.json", "SHA256SUMS"):
        for place in range(0, 8 * len(files[name]), 7):
            content = bytearray(files[name])
            content[place // 8] ^= 1 << place % 8
            with pytest.raises(Bad, match=r"is not what was saved|is damaged|lacks"):
                check_sums({**files, name: bytes(content)})
    with pytest.raises(Bad, match=r"^held_out\.parquet is not what was saved$"):
        check_sums({**files, "held_out.parquet": b""})
    with pytest.raises(Bad, match=r"^lacks users\.txt$"):
        check_sums({name: content for name, content in files.items() if name != "users.txt"})


def test_checksums_are_those_of_the_command(saved):
    if shutil.which("sha256sum") is None:
        pytest.skip("there is no sha256sum here")
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=saved[0] / "model", check=True)


def test_an_archive_does_not_unpack_to_gigabytes(saved, tmp_path):
    folder, expected = saved
    for bomb, told in ((0, ""), (1 << 28, "users.txt would unpack to 268,435,456 bytes")):
        with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in (folder / "model").iterdir():
                content = path.read_bytes()
                archive.writestr(
                    path.name, bytes(bomb) if bomb and path.stem == "users" else content
                )
        if not told:
            assert tried(tmp_path / "model.zip", expected) == "loaded"
        else:
            with pytest.raises(DataError, match=told):
                bayesmf.load_model(tmp_path / "model.zip")
