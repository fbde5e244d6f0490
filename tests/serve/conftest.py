"""A served model, asked in the same process or over a socket of its own."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bayesmf import Gibbs, Model, Ratings
from bayesmf.data import split
from oracle.served import Process

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")


@pytest.fixture(scope="session")
def test_ratings(tiny_fit):
    """Some of the training ratings, to test on."""
    from bayesmf import load_model

    train = load_model(tiny_fit).posterior.train
    return train.select([k % 7 == 0 for k in range(len(train))])


@pytest.fixture(scope="session")
def timed_fit(tmp_path_factory):
    """A fit of another kind: ids that are numbers, titles, levels, times and ratings held out."""
    rng, path = np.random.default_rng(3), tmp_path_factory.mktemp("timed") / "fit"
    users, items = (rows.ravel() for rows in np.mgrid[:40, :25])
    kept = rng.random(len(users)) < 0.4
    data = Ratings.from_triplets(
        users=users[kept], items=items[kept], ratings=rng.integers(1, 6, kept.sum()),
        times=86_400 * rng.integers(10_000, 11_000, kept.sum()),
    )  # fmt: skip
    train, test = split.carve(data, 0.2)
    model = Model(rank=2, likelihood="ordinal", time="chain")
    fit = Gibbs(model, sweeps=12, burn_in=4, chains=2, seed=0, threads=1).fit(train, test)
    titles = pa.table({"item": np.arange(25), "title": [f"Volume {k}" for k in range(25)]})
    fit.with_titles(items=titles).save(path)
    return path


@pytest.fixture(scope="session")
def make_client(tiny_fit, test_ratings):
    """Make a client of a service in this process, and of the shelf behind it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it works with httpx, and would rather have httpx2
        from starlette.testclient import TestClient

    from bayesmf.serve.api import make_app
    from bayesmf.serve.guard import Guard
    from bayesmf.serve.limits import Limits
    from bayesmf.serve.served import Options, Shelf

    def make(path=tiny_fit, options=None, token=None, tested=True, **limits):
        read_test = (lambda fit: test_ratings) if tested else None
        shelf = Shelf(path, (options or Options())._replace(read_test=read_test))
        app = make_app(shelf, token=token is not None)
        guard = Guard(app, Limits(**{"rate": 0, **limits}), token)
        return TestClient(guard, base_url="http://127.0.0.1"), shelf

    return make


@pytest.fixture(scope="session")
def start():
    """Start servers; those that still run at the end of the session are ended."""
    running: list[Process] = []

    def begin(*words: str | Path) -> Process:
        running.append(Process(list(words)))
        return running[-1]

    yield begin
    for one in running:
        one.close()
