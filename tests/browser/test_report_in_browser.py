"""A report as readers meet it: narrow and wide, light and dark, by mouse and by keyboard.

A sample page and the report of a tiny study are always looked at; `BAYESMF_REPORT` names another
file to look at as well, and `BAYESMF_SCREENSHOTS` a folder for pictures of what was seen.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bayesmf.report.page import render
from browser.looks import FAINT, LOOKS
from oracle.report_sample import sample_page

pytestmark = pytest.mark.browser

REPORTS = ["sample", "study", *filter(None, [os.environ.get("BAYESMF_REPORT")])]

HIDDEN = """
() => [...document.querySelectorAll("table, figure svg")].filter((element) => {
  const box = element.getBoundingClientRect();
  return !(box.width > 20 && box.height > 20 && element.checkVisibility());
}).map((element) => element.outerHTML.slice(0, 200))
"""

KEYS = """
([table, column]) => [...document.querySelectorAll("table")[table].tBodies[0].rows]
  .map((row) => row.cells[column].dataset.sort)
"""

NUMBER_HEADINGS = """
() => [...document.querySelectorAll("table")].flatMap((table, t) =>
  [...table.tHead.rows[0].cells].flatMap((cell, c) => cell.matches("th.number") ? [[t, c]] : []))
"""


@pytest.fixture(params=REPORTS)
def report(request, tmp_path) -> Path:
    if request.param == "study":
        return request.getfixturevalue("tiny_study") / "report.html"
    if request.param != "sample":
        return Path(request.param).resolve()
    path = tmp_path / "report.html"
    path.write_text(render(sample_page()), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, report):
    """Open the report with some look; at the end nothing was complained of or asked for."""
    contexts, troubles = [], []

    def open_page(**look):
        context = browser.new_context(**look)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("request", lambda request: _note_request(request.url, report, troubles))
        page.goto(report.as_uri())
        page.wait_for_load_state("networkidle")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def _note_request(url: str, report: Path, troubles: list[str]) -> None:
    if url.partition("#")[0] != report.as_uri() and not url.startswith("data:"):
        troubles.append(f"request: {url}")


def _background(page) -> str:
    return page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def _numbers(page, table: int, column: int) -> list[float]:
    keys = page.evaluate(KEYS, [table, column])
    shown = [key for key in keys if key]
    assert keys == shown + [""] * (len(keys) - len(shown)), "rows without a value come last"
    return [float(key) for key in shown]


@pytest.mark.parametrize("look", LOOKS)
def test_everything_is_there_to_see_and_the_page_stays_within_its_width(opened, report, look):
    page = opened(**LOOKS[look])
    assert page.evaluate(HIDDEN) == []
    assert page.evaluate(FAINT) == []
    across, width = page.evaluate("() => [document.scrollingElement.scrollWidth, innerWidth]")
    assert across <= width
    page.evaluate("() => scrollTo(500, 0)")
    assert page.evaluate("() => scrollX") == 0
    folder = os.environ.get("BAYESMF_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{report.stem}-{look}.png", full_page=True)


@pytest.mark.parametrize("look", LOOKS)
def test_every_column_of_numbers_sorts_up_then_down_then_back(opened, look):
    page = opened(**LOOKS[look])
    columns = page.evaluate(NUMBER_HEADINGS)
    assert columns
    for table, column in columns:
        heading = page.locator("table").nth(table).locator("thead tr > *").nth(column)
        before = page.evaluate(KEYS, [table, column])
        for order in ("ascending", "descending", None):
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == order
            if order:
                numbers = _numbers(page, table, column)
                assert numbers == sorted(numbers, reverse=order == "descending")
        assert page.evaluate(KEYS, [table, column]) == before


def test_the_sample_sorts_by_value_not_by_spelling(opened):
    page = opened(**LOOKS["1400-light"])
    if page.locator("#models").count() == 0:
        pytest.skip("another report")
    column = page.locator("#models tbody tr > :nth-child(4)")
    assert column.all_inner_texts() == ["1.5", "10", "9", "120", "2,400", "—"]
    page.get_by_role("button", name="Minutes").click()
    assert column.all_inner_texts() == ["1.5", "9", "10", "120", "2,400", "—"]
    page.get_by_role("button", name="Minutes").click()
    assert column.all_inner_texts() == ["2,400", "120", "10", "9", "1.5", "—"]
    # Two models changed by -4.1: they stay in their first order, up and down.
    names = page.locator("#models tbody tr > :first-child")
    change = page.get_by_role("button", name="Change, %")
    for _ in range(2):
        change.click()
        texts = names.all_inner_texts()
        assert texts.index("PMF") < texts.index("PMF, robust")


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_the_keyboard_sorts_too(opened, key):
    page = opened(**LOOKS["400-light"])
    table, column = page.evaluate(NUMBER_HEADINGS)[0]
    heading = page.locator("table").nth(table).locator("thead tr > *").nth(column)
    for _ in range(300):  # by the tab key alone
        page.keyboard.press("Tab")
        if heading.locator("button").evaluate("(b) => b === document.activeElement"):
            break
    page.keyboard.press(key)
    assert heading.get_attribute("aria-sort") == "ascending"
    numbers = _numbers(page, table, column)
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("look", ["400-light", "1400-dark"])
def test_the_colours_follow_the_system_until_the_reader_chooses(opened, look):
    page = opened(**LOOKS[look])
    scheme = LOOKS[look]["color_scheme"]
    other = {"light": "dark", "dark": "light"}[scheme]
    first = _background(page)
    page.emulate_media(color_scheme=other)
    second = _background(page)
    assert first != second
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name=other).click()
    assert _background(page) == second
    assert page.evaluate(FAINT) == []
    page.reload()
    assert _background(page) == second, "the choice is remembered"
    page.get_by_role("button", name=scheme).click()
    assert _background(page) == first


@pytest.mark.parametrize("look", ["400-light", "1400-dark"])
def test_paper_gets_no_navigation_and_light_colours(opened, look):
    page = opened(**LOOKS[look])
    assert page.locator("nav, summary").locator("visible=true").count() >= 1
    page.emulate_media(media="print")
    hidden = "nav, details.contents, button.theme, .anchor, .skip"
    assert page.locator(hidden).locator("visible=true").count() == 0
    assert _background(page) == "rgb(255, 255, 255)"
    assert page.evaluate(HIDDEN) == []
    assert page.evaluate(FAINT) == []


def test_the_contents_unfold_where_there_is_little_room(opened):
    page = opened(**LOOKS["400-light"])
    link = page.locator("details.contents nav a").last
    assert not link.is_visible()
    page.locator("summary").click()
    link.click()
    page.wait_for_function("() => scrollY > 0")
    link.wait_for(state="hidden")


def test_without_scripts_everything_is_still_there(opened):
    page = opened(**LOOKS["1400-light"], java_script_enabled=False)
    for selector in ("table", "figure svg"):
        for element in page.locator(selector).all():
            assert element.is_visible()
    assert page.locator("button.theme").is_hidden()
