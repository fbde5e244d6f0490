"""The browser that all tests of a file share."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # only these tests have it

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium: run `make test-browser`, which installs it")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
