"""Nothing that is damaged, forged or senseless ends in anything but a sentence."""

from __future__ import annotations

import pytest

from fuzz_many import run


@pytest.mark.parametrize("kind", ["models", "ratings", "attributes", "settings"])
@pytest.mark.parametrize(
    "count", [20, pytest.param(4000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_nothing_goes_wrong(kind, count):
    found, wrong = run(kind, count, seed=count)
    assert wrong == []
    assert found.total() == count
