"""Damaged and forged files, and settings that make no sense: tried, refused, read right.

``python tests/fuzz_many.py models 5000``; also ``ratings``, ``attributes`` and ``settings``, and a
seed behind the number. Whatever is wrong has to be refused in one sentence (a DataError; of a
setting also a TypeError or a ValueError). Damage that is not refused must change no prediction.
What ends in another error, takes longer than a minute of a core or more memory than 3 GB is printed
with what made it, and the exit code is 1.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bayesmf
from bayesmf import Attributes, DataError, Gibbs, Model
from bayesmf.data.synthetic import World, generate
from bayesmf.fitted.store.checked import SUMS, sums_of

SECONDS, GIGABYTES = 60, 3
NASTY: tuple[Any, ...] = (
    *(None, True, False, "", "x", "1", "nan", [], {}, [1], {"a": 1}, "\x1b[31m", "x" * 5000),
    *(0, -1, 1, 2, 10**9, 10**19, -(10**30), 0.5, -0.5, 1e-300, 1e300, 3.0, [[]], [None]),
)


def damage(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, lost, doubled or put in."""
    if not content:
        return rng.randbytes(3)
    place, kind = rng.randrange(len(content)), rng.randrange(6)
    if kind == 0:
        flipped = bytes([content[place] ^ (1 << rng.randrange(8))])
        return content[:place] + flipped + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + rng.randbytes(rng.randrange(1, 20)) + content[place:]
    if kind == 3:
        return content[:place] + bytes(16) + content[place + 16 :]
    if kind == 4:
        return content[:place] + content[place // 2 :]
    more = rng.choice(
        [b"\n", b'"', b",", b"\r", b"\0", b"\xff", b"::", b"\t", b"{", b"1e999", b"=cmd"]
    )
    return content[:place] + more + content[place:]


def forge_json(document: Any, rng: random.Random) -> Any:
    """One value of a document replaced, renamed or left out."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        key, found = rng.choice(list(document)), dict(document)
        if rng.random() < 0.1:
            del found[key]
        elif rng.random() < 0.05:
            found[f"{key}x"] = found.pop(key)
        else:
            found[key] = forge_json(document[key], rng)
        return found
    if isinstance(document, list) and document and rng.random() < 0.8:
        place = rng.randrange(len(document))
        return [*document[:place], forge_json(document[place], rng), *document[place + 1 :]]
    return rng.choice(NASTY)


def forge_arrays(content: bytes, rng: random.Random) -> bytes:
    """One array with other values, another shape or type, or gone."""
    from safetensors.numpy import load, save

    arrays = {name: values.copy() for name, values in load(content).items()}
    name = rng.choice(sorted(arrays))
    values, kind = arrays[name], rng.randrange(7)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[name] = values.astype(rng.choice([np.float64, np.float16, np.int8, np.uint64]))
    elif kind == 2:
        arrays[name] = values.reshape(-1)
    elif kind == 3:
        arrays[name] = np.concatenate([values, values])
    elif kind == 4:
        arrays[f"{name}x"] = arrays.pop(name)
    elif kind == 5 and values.size:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bad = np.array(rng.choice([np.nan, np.inf, -1.0, 0.0, 1e30, -1e30])).astype(
                values.dtype
            )
            values.reshape(-1)[rng.randrange(values.size)] = bad
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays[name] = (values * rng.choice([-1, 0, 1e10])).astype(values.dtype)
    return save({key: np.ascontiguousarray(each) for key, each in arrays.items()})


def check_sentence(error: Exception, what: str = "") -> None:
    """That an error is one of ours, in one line."""
    assert "\n" not in str(error), what
    inside = traceback.extract_tb(error.__traceback__)[-1].filename
    assert "bayesmf" in inside, f"{what}: {type(error).__name__} of {inside}: {error}"


class Models:
    """Saved fits of several kinds, damaged or forged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kinds = folder, []
        train, test = bayesmf.split(
            generate(World(n_users=30, n_items=20, n_ratings=240, rank=2), seed=1)[0], "random"
        )
        self.train, self.test = train, test
        self.newcomer = bayesmf.Ratings.from_triplets(
            users=[10**6] * 3, items=train.items.values[:3], ratings=[3, 4, 5]
        )
        genres = {"id": train.items.values, "genre": ["a|b", "b"] * (len(train.items.values) // 2)}
        genres = {key: values[: len(genres["genre"])] for key, values in genres.items()}
        import pandas as pd

        described = Attributes.from_frame(pd.DataFrame(genres))
        for number, model in enumerate(
            (
                Model(rank=2),
                Model(rank=2, likelihood="ordinal"),
                Model(rank=2, item_designs=(described,)),
            )
        ):
            sampler = Gibbs(model, sweeps=6, burn_in=1, keep=3, chains=2, seed=0)
            fit = sampler.fit(train, test)
            fit.save(folder / f"good{number}")
            fit.save(folder / f"good{number}.zip")
            self.kinds.append((folder / f"good{number}", self.use(folder / f"good{number}")))

    def use(self, path: Path) -> Any:
        """Everything that is asked of a model; returns its predictions."""
        fit = bayesmf.load_model(path, threads=1)
        found = fit.predict(self.test)
        fit.recommend(self.train.users.values[:2], 3)
        fit.explain(self.test.users.values[0], self.test.items.values[0])
        fit.evaluate(self.test)
        fit.fold_in(self.newcomer)
        repr(fit), fit.diagnostics()
        return found

    def __call__(self, rng: random.Random) -> str:
        good, expected = rng.choice(self.kinds)
        if rng.random() < 0.2:
            path = self.folder / "bad.zip"
            path.write_bytes(damage(good.with_suffix(".zip").read_bytes(), rng))
            return self.judge(path, expected, "damaged zip")
        path = self.folder / "bad"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(good, path)
        name = rng.choice(sorted(each.name for each in path.iterdir()))
        kind = rng.choice(["damaged", "forged", "forged", "forged"])
        if kind == "damaged":
            (path / name).write_bytes(damage((path / name).read_bytes(), rng))
        else:
            name = rng.choice(["model.json", "model.json", "arrays.safetensors", name])
            content = (path / name).read_bytes()
            if name == "model.json":
                content = json.dumps(forge_json(json.loads(content), rng)).encode()
            elif name == "arrays.safetensors":
                content = forge_arrays(content, rng)
            else:
                content = damage(content, rng)
            (path / name).write_bytes(content)
            files = {each.name: each.read_bytes() for each in path.iterdir() if each.name != SUMS}
            (path / SUMS).write_bytes(sums_of(files))
        return self.judge(path, expected, kind)

    def judge(self, path: Path, expected: Any, kind: str) -> str:
        try:
            found = self.use(path)
        except DataError as error:
            check_sentence(error)
            return f"{kind}: refused"
        if found.equals(expected):
            return f"{kind}: read, the same"
        assert kind == "forged", "damage changed a prediction"
        return "forged: read as it says"


class Ratings:
    """Files of ratings in every layout, damaged; of attributes with ``what``."""

    def __init__(self, folder: Path) -> None:
        import gzip

        import pyarrow as pa
        from pyarrow import parquet

        self.folder = folder
        rows = [(u, i, (u * i) % 5 + 1, 10**9 + u) for u in range(1, 12) for i in range(1, 9)]
        lines = {
            "a.csv": "user,item,rating,timestamp\n"
            + "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows),
            "b.tsv": "".join(f"{u}\t{i}\t{r}\n" for u, i, r, _ in rows),
            "c.dat": "".join(f"{u}::{i}::{r}::{t}\n" for u, i, r, t in rows),
            "d.txt": "".join(f"{u} {i} {r}\n" for u, i, r, _ in rows),
            "e.csv": "user,item,rating\n"
            + "".join(f'"ü{u}","i, {i}",{r}.5\n' for u, i, r, _ in rows),
        }
        self.files = {name: text.encode() for name, text in lines.items()}
        self.files["f.csv.gz"] = gzip.compress(self.files["a.csv"])
        with zipfile.ZipFile(folder / "g.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("ratings.csv", self.files["a.csv"])
        self.files["g.zip"] = (folder / "g.zip").read_bytes()
        table = pa.table({"user": [f"u{u}" for u, *_ in rows], "item": [i for _, i, *_ in rows],
                          "rating": [float(r) for _, _, r, _ in rows]})  # fmt: skip
        parquet.write_table(table, folder / "h.parquet")
        self.files["h.parquet"] = (folder / "h.parquet").read_bytes()

    read = staticmethod(bayesmf.load)

    def __call__(self, rng: random.Random) -> str:
        name = rng.choice(sorted(self.files))
        content = self.files[name]
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            content = damage(content, rng)
        path = self.folder / name
        path.write_bytes(content)
        try:
            found = self.read(path)
        except DataError as error:
            check_sentence(error)
            return "refused"
        finite = getattr(found, "values", None)
        assert finite is None or np.isfinite(np.asarray(finite, float)).all()
        return "read"


class Descriptions(Ratings):
    """Files of attributes, damaged."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        rows = [(k, k % 7, "MF"[k % 2], "|".join("abc"[: k % 4])) for k in range(1, 40)]
        lines = "".join(f"{k},{n},{c},{s}\n" for k, n, c, s in rows)
        self.files = {"a.csv": f"id,age,sex,genres\n{lines}".encode(),
                      "b.dat": lines.replace(",", "::").encode()}  # fmt: skip

    @staticmethod
    def read(path: Path) -> Any:
        names = ["id", "age", "sex", "genres"] if path.suffix == ".dat" else None
        return Attributes.load(path, names=names)


class Settings:
    """Calls with one argument that makes no sense."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ratings = generate(World(n_users=40, n_items=20, n_ratings=400, rank=2), seed=1)[0]
        self.fit = Gibbs(Model(rank=1), sweeps=3, burn_in=1, keep=2, chains=1).fit(ratings)
        values = (*NASTY, float("nan"), float("inf"), (), (1, 2), np.array([1.0]), object(), b"x")
        fields = [*Model.__dataclass_fields__]
        samples = [*Gibbs.__dataclass_fields__]
        calls: list[tuple[str, Callable[[Any], Any]]] = []
        for name in fields:
            calls.append((f"Model({name}=", lambda value, name=name: Model(**{name: value})))
        for name in samples:
            calls.append((f"Gibbs({name}=", lambda value, name=name: Gibbs(**{name: value})))
        for name in ("n", "rank_by", "seed", "items", "seen", "at"):
            calls.append(
                (f"recommend({name}=", lambda v, name=name: self.fit.recommend(**{name: v}))
            )
        for name in ("quantiles", "clip", "at"):
            calls.append(
                (f"predict({name}=", lambda v, name=name: self.fit.predict([(1, 1)], **{name: v}))
            )
        for method in ("predict", "probabilities", "evaluate", "fold_in", "update"):
            calls.append((f"{method}(", lambda v, method=method: getattr(self.fit, method)(v)))
        calls.append(("load(", bayesmf.load))
        calls.append(("load_model(", bayesmf.load_model))
        calls.append(("split(seed=", lambda v: bayesmf.split(ratings, "random", seed=v)))
        calls.append(("split(kind", lambda v: bayesmf.split(ratings, v)))
        self.cases = [(name, call, value) for name, call in calls for value in values]

    def __call__(self, rng: random.Random) -> str:
        name, call, value = rng.choice(self.cases)
        self.last = f"{name}{value!r})"[:200]
        try:
            call(value)
        except (DataError, TypeError, ValueError) as error:
            check_sentence(error, self.last)
            return "refused"
        return "taken"


KINDS = {"models": Models, "ratings": Ratings, "attributes": Descriptions, "settings": Settings}


def run(kind: str, count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Try so many cases; returns how many ended how, and what went wrong."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {SECONDS} s of a core")

    before = signal.signal(signal.SIGPROF, late)
    found: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        fuzz = KINDS[kind](Path(folder))
        for number in range(count):
            rng = random.Random(f"{kind} {seed} {number}")
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of this process, on a busy machine too
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found[fuzz(rng)] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                found["wrong"] += 1
                frames = traceback.extract_tb(error.__traceback__)[-2:]
                places = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
                wrong.append(f"{kind} {seed} {number}: {type(error).__name__}: {error} ({places})")
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    return found, wrong


def main() -> int:
    kind, count, *more = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30,) * 2)
    found, wrong = run(kind, int(count), *map(int, more))
    for told in wrong[:40]:
        print(told[:400])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{kind}: {count} tried, {dict(sorted(found.items()))}; at most {most} MB")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
