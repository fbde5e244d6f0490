"""Nothing that is damaged, forged or senseless ends in anything but a sentence."""

from __future__ import annotations

import warnings

import pytest

import fuzz_guided
from fuzz.targets import TARGETS
from fuzz_many import run


@pytest.mark.parametrize("kind", ["models", "ratings", "attributes", "settings"])
@pytest.mark.parametrize(
    "count", [20, pytest.param(4000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_nothing_goes_wrong(kind, count):
    found, wrong = run(kind, count, seed=count)
    assert wrong == []
    assert found.total() == count


@pytest.mark.parametrize("kind", TARGETS)
def test_what_earlier_searches_found_is_read_or_refused(kind, tmp_path):
    target = TARGETS[kind](tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {target(content) for content in target.seeds.values()} == {"read"}
        for name, content in fuzz_guided.corpus(kind).items():
            assert target(content) in ("read", "refused"), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_a_search_guided_by_what_is_reached_finds_nothing(kind, request):
    pytest.importorskip("atheris", reason="needs the extra fuzz, which make test-slow installs")
    seconds = request.config.getoption("--fuzz-seconds") / len(TARGETS)
    told = fuzz_guided.run(kind, seconds)
    assert told["wrong"] == {}
    assert told["reached"] > 0
