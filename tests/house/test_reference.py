"""The reference pages say what the code says."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import bayesmf
from bayesmf.fitted.base import Fitted

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["api.md", "cli.md"])
def test_page_is_current(reference, page):
    made = reference.PAGES[page]()
    assert (DOCS / page).read_text(encoding="utf-8") == made, f"docs/{page} is old: run `make api`"


def test_every_public_name_is_there(reference):
    page = reference.api()
    for name in bayesmf.__all__:
        assert f"\n### {name}\n" in page
    for name, value in vars(Fitted).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            assert f"\n#### fit.{name}\n" in page
            assert inspect.getdoc(value).splitlines()[0].replace("``", "`") in page


@pytest.mark.parametrize("page", ["api.md", "cli.md"])
def test_links_within_a_page_lead_to_its_headings(reference, page):
    text = reference.PAGES[page]()
    slugs = []
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        slugs.append(reference._slug(heading, slugs))
    links = re.findall(r"\]\(#([^)]*)\)", text)
    assert len(links) >= 10
    assert set(links) <= set(slugs)
