"""What holds for all tests: one thread, which small worlds like, and the same examples always."""

import os
import signal
import subprocess
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

# `--hypothesis-profile=search` looks at new examples, and at more of them.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=3000, deadline=None)
settings.load_profile("fixed")


def pytest_addoption(parser):
    about = "seconds of a core for the search that is guided by coverage, all kinds together"
    parser.addoption("--fuzz-seconds", type=float, default=600.0, help=about)


@pytest.fixture
def listening():
    """Ctrl-C is heard, also where the tests run with nohup, or with an & in a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def cluster():
    """A real local Ray of two workers, started once for all tests of a file."""
    from bayesmf.engines.ray.cluster import Ray

    with Ray(workers=2).cluster() as ray:
        yield ray


@pytest.fixture(scope="session")
def tiny_ratings(tmp_path_factory):
    """A file of some 2,500 ratings by users who rate much and users who rate little."""
    rng = np.random.default_rng(7)
    tastes, traits = rng.normal(size=(120, 2)), rng.normal(size=(50, 2))
    lines = ["user,item,rating"]
    for user in range(120):
        count = int(np.clip(4 * np.exp(rng.normal(1.5, 0.8)), 3, 48))
        for item in rng.choice(50, count, replace=False):
            value = 3.3 + tastes[user] @ traits[item] + 0.7 * rng.normal()
            lines.append(f"u{user},i{item},{np.clip(round(value), 1, 5):.0f}")
    path = tmp_path_factory.mktemp("ratings") / "tiny.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def tiny_fit(tiny_ratings, tmp_path_factory):
    """The folder of a fit to them, with the training ratings."""
    from click.testing import CliRunner

    from bayesmf.cli.main import main

    out = tmp_path_factory.mktemp("fit") / "out"
    words = ["fit", tiny_ratings, "--paper", "side", "--rank", 2, "--sweeps", 30, "--out", out]
    assert CliRunner().invoke(main, [*map(str, words), "--quiet"]).exit_code == 0
    return out


@pytest.fixture(scope="session")
def tiny_study(tiny_ratings, tmp_path_factory):
    """The folder of a whole study of them, on two splits, with its report."""
    out = tmp_path_factory.mktemp("study") / "out"
    words = ["study", tiny_ratings, "--quick", "--rank", 2, "--splits", 2, "--out", out]
    subprocess.run([sys.executable, "-m", "bayesmf", *map(str, words)], check=True,
                   capture_output=True)  # fmt: skip
    return out


@pytest.fixture(scope="session")
def tiny_attributes(tiny_ratings):
    """Options that name tables of all that made the ratings, but for their noise."""
    rng = np.random.default_rng(7)
    names = []
    for side, count in (("user", 120), ("item", 50)):
        lines = [f"{side},first,second,title"]
        lines += [
            f"{side[0]}{k},{a},{b},no. {k}" for k, (a, b) in enumerate(rng.normal(size=(count, 2)))
        ]
        path = tiny_ratings.parent / f"{side}s.csv"
        path.write_text("\n".join(lines) + "\n")
        names += [f"--{side}-attributes", str(path), f"--{side}-kinds", "title:none"]
    return names


@pytest.fixture(scope="session")
def attributes_study(tiny_ratings, tiny_attributes, tmp_path_factory):
    """The folder of a study of newcomers with attributes, with its report."""
    out = tmp_path_factory.mktemp("attributes") / "out"
    words = ["study", tiny_ratings, "--quick", "--rank", 2, "--only", "cold-start", "--out", out]
    subprocess.run([sys.executable, "-m", "bayesmf", *map(str, words), *tiny_attributes],
                   check=True, capture_output=True)  # fmt: skip
    return out
