"""The explorer as people meet it: every view, narrow and wide, by mouse and by keyboard.

`BAYESMF_SCREENSHOTS` names a folder for pictures of what was seen.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from browser.looks import FAINT, LOOKS
from oracle.served import Process

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytestmark = pytest.mark.browser

VIEWS = ("user", "visitor", "item", "quality", "chains")
TOKEN = "a-token-of-some-length"
UNNAMED = """
() => [...document.querySelectorAll("input, button, select, a, [role=img], [tabindex='0']")]
  .filter((e) => e.checkVisibility()).filter((e) => {
    const named = e.getAttribute("aria-label") || e.textContent.trim()
      || [...(e.labels ?? [])].some((l) => l.textContent.trim());
    return !named;
  }).map((e) => e.outerHTML.slice(0, 150))
"""

CUT_NAMES = """
() => {
  const map = document.querySelector(".map").getBoundingClientRect();
  return [...document.querySelectorAll(".map text")].filter((e) => {
    const own = e.getBoundingClientRect();
    return own.left < map.left || own.right > map.right;
  }).map((e) => e.textContent);
}
"""


@pytest.fixture(scope="module")
def server(tiny_fit, tiny_ratings, tmp_path_factory):
    titles = tmp_path_factory.mktemp("titles") / "items.csv"
    rows = [f"i{k},The {k}th film <b>&amp;" for k in range(49)]  # one has no title
    titles.write_text("\n".join(["item,title", *rows]) + "\n")
    words = ["-m", "bayesmf", "serve", tiny_fit, "--port", 0, "--items", titles, "--rate", 0]
    running = Process([*words, "--test", tiny_ratings])
    yield f"http://127.0.0.1:{running.port}/"
    running.close()
    assert "Traceback" not in "".join(running.lines)


@pytest.fixture
def opened(browser, server):
    """Open a view with some look; at the end nothing was complained of or asked of others."""
    contexts, troubles = [], []

    def open_page(look="1400-light", view="", base=server, after="#/"):
        context = browser.new_context(**LOOKS[look])
        contexts.append(context)
        context.add_init_script(LATE)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("request", lambda one: _note(one.url, base, troubles))
        page.goto(f"{base}{after}{view}")
        settle(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def _note(url: str, base: str, troubles: list[str]) -> None:
    if not url.startswith((base, "data:")):
        troubles.append(f"request: {url}")


# Answers and changes of the address come late, so what a test should wait for is never there yet.
LATE = """
const [listen, get] = [addEventListener.bind(window), fetch.bind(window)];
const late = () => new Promise((done) => setTimeout(done, 60));
window.addEventListener = (kind, act, ...rest) =>
  listen(kind, kind === "hashchange" ? (event) => late().then(() => act(event)) : act, ...rest);
window.fetch = (...asked) =>
  late().then(() => get(...asked)).then((came) => late().then(() => came));
"""

SHOWN = """
() => {
  const main = document.querySelector("main:not([aria-busy])");
  return main?.dataset.shown === location.hash || main?.querySelector("form.token");
}
"""


def settle(page) -> None:
    """Wait until the view of this address, or the question for the token, is shown whole."""
    page.wait_for_function(SHOWN)


def look_up(page, label, text) -> None:
    """Search by the keyboard alone, and take the first that is found."""
    page.get_by_role("combobox", name=label).focus()
    page.keyboard.type(text)
    page.wait_for_selector(f"ul:not([aria-busy]) > [role=option]:has-text('{text}')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)


def test_names_on_the_map_are_whole(opened):
    page = opened("400-light")
    for k in range(6):
        page.goto(f"{page.url.split('#')[0]}#/item/i{k}")
        page.wait_for_selector(f".map text.here:has-text('The {k}th')")
        assert page.evaluate(CUT_NAMES) == []


def test_the_map_names_items_and_long_names_fit_a_phone(opened):
    page = opened("400-light", "item")
    page.wait_for_selector(".map text.label")
    assert page.locator(".map .named").count() == page.locator(".map text.label").count()
    page.evaluate("() => document.querySelector('.chip').append(' and'.repeat(99))")
    across, width = page.evaluate("() => [document.scrollingElement.scrollWidth, innerWidth]")
    assert across <= width


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_fits_and_can_be_read(opened, look):
    page = opened(look)
    for view in VIEWS:
        page.locator(f"nav a[href='#/{view}']").click()
        page.wait_for_selector(f"nav a[href='#/{view}'][aria-current=page]")
        settle(page)
        assert page.evaluate(FAINT) == [], view
        assert page.evaluate(UNNAMED) == [], view
        across, width = page.evaluate("() => [document.scrollingElement.scrollWidth, innerWidth]")
        assert across <= width, view
        folder = os.environ.get("BAYESMF_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"explorer-{view}-{look}.png", full_page=True)


@pytest.mark.parametrize("look", ["400-light", "1400-dark"])
def test_a_user_is_looked_up_with_ratings_bars_and_reasons(opened, look):
    page = opened(look)
    look_up(page, "Look up a user", "u17")
    page.wait_for_url("**#/user/u17")
    page.get_by_text("User u17").wait_for()
    assert page.locator(".rated li").count() > 2
    counts = page.locator(".histogram .many").all_inner_texts()
    assert sum(map(int, counts)) == page.locator(".rated li").count()
    assert page.locator(".axis span").all_inner_texts() == ["1", "2", "3", "4", "5"]
    assert page.locator(".axis").first.is_visible()
    rows = page.locator(".bars > li")
    assert rows.count() >= 1
    for k in range(rows.count()):
        box = rows.nth(k).locator(".bar .range").bounding_box()
        assert box["width"] > 10
    why = rows.first.get_by_role("button")
    why.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".why")
    assert why.get_attribute("aria-expanded") == "true"
    assert "the mean of all ratings" in page.locator(".why").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector(".why", state="detached")
    page.go_back()
    page.wait_for_selector("text=Others")
    page.goto(page.url.partition("#")[0] + "#/user/nobody")
    page.wait_for_selector("[role=alert]")


@pytest.mark.parametrize("look", ["400-dark", "1400-light"])
def test_intervals_shrink_as_a_visitor_rates(opened, look):
    page = opened(look, "visitor")
    doubt = lambda: float(page.locator("[data-doubt]").get_attribute("data-doubt"))  # noqa: E731
    first = doubt()
    assert page.locator(".ghost").count() == 0
    for k in range(3):
        page.locator(".mine fieldset").nth(k).locator("label").nth(4 - 4 * (k % 2)).click()
        page.wait_for_selector(f"text=after {k + 1} rating")
    assert doubt() < first
    assert page.locator(".bar .ghost").count() == 8
    look_up(page, "Find something to rate", "29th")
    page.wait_for_function("() => document.activeElement.name === 'rate-i29'")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=after 4 rating")
    page.get_by_role("button", name="Remove the rating of The 29th").click()
    page.wait_for_selector("text=after 3 rating")
    page.locator("nav a[href='#/chains']").click()
    page.wait_for_selector(".verdict")
    page.locator("nav a[href='#/visitor']").click()
    page.wait_for_selector("text=after 3 rating")


def test_a_late_answer_to_another_text_is_not_shown(opened):
    page = opened(view="item")
    held = {}

    def hold(route):
        text = route.request.url.rpartition("search=")[2]
        if text in held or text not in ("", "31th"):
            route.continue_()
        held.setdefault(text, route)

    page.route("**/api/items?*", hold)
    box = page.get_by_role("combobox", name="Look up an item")
    with page.expect_request(lambda one: one.url.endswith("search=")) as first:
        box.focus()
    with page.expect_request(lambda one: one.url.endswith("search=31th")):
        page.keyboard.type("31th")
        with page.expect_event("requestfinished", lambda one: one == first.value):
            held[""].continue_()
    page.wait_for_selector("ul[aria-busy]", state="attached")  # what came is not what was asked
    page.keyboard.press("Enter")
    held["31th"].continue_()
    page.wait_for_selector(".subject strong:has-text('The 31th')")
    look_up(page, "Look up an item", "30th")
    page.wait_for_selector(".subject strong:has-text('The 30th')")


@pytest.mark.parametrize("look", ["400-light", "1400-dark"])
def test_an_item_has_neighbours_and_a_place_on_the_map(opened, look):
    page = opened(look, "item")
    assert page.locator(".map .spot").count() == 50
    look_up(page, "Look up an item", "31th")
    assert page.locator(".subject strong").inner_text() == "The 31th film <b>&amp;"
    assert page.locator(".bars.near li").count() == 12
    assert page.locator(".map .spot.here").count() == 1
    assert page.locator(".map .spot.near").count() == 12
    assert "is marked" in page.locator(".map").get_attribute("aria-label")
    neighbour = page.locator(".bars.near a").first
    name = neighbour.inner_text()
    neighbour.click()
    page.locator(".subject strong", has_text=name).wait_for()
    page.locator(".map").scroll_into_view_if_needed()
    spot = page.locator(".map .spot.near").first.bounding_box()
    before = page.evaluate("() => location.href")
    page.mouse.move(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
    page.wait_for_selector(".under:has-text('ratings')")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("(before) => location.href !== before", arg=before)


@pytest.mark.parametrize("look", ["400-dark", "1400-light"])
def test_quality_has_calibration_and_errors_by_user_frequency(opened, look):
    page = opened(look, "quality")
    assert "in the 80% interval" in page.locator("svg.chart").get_attribute("aria-label")
    assert page.locator(".rows").get_attribute("aria-label").startswith("RMSE by the ratings")
    assert page.locator(".rows .goal").count() == 0
    page.get_by_label("Measure", exact=True).select_option("coverage_80")
    assert page.locator(".rows").get_attribute("aria-label").startswith("coverage of 80%")
    bins = page.locator("tbody tr").count() - 1
    assert page.locator(".rows li").count() == page.locator(".rows .goal").count() == bins
    assert page.locator("tbody tr").last.locator("th").inner_text() == "all"


@pytest.mark.parametrize("look", ["400-light", "1400-dark"])
def test_chains_have_a_verdict_and_traces(opened, look):
    page = opened(look, "chains")
    assert page.locator(".verdict p").inner_text().startswith(("Not converged", "Converged"))
    assert page.locator("svg.chart").count() == 3
    assert page.locator("svg.chart polyline").count() % 3 == 0
    assert page.locator("tbody tr").count() == 5


def test_the_keyboard_reaches_everything_and_can_skip(opened):
    page = opened("1400-light", "item")
    page.keyboard.press("Tab")
    page.wait_for_function("() => document.activeElement.className === 'skip'")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'main'")
    page.keyboard.press("Tab")
    page.wait_for_function("() => document.activeElement.role === 'combobox'")
    page.wait_for_selector("[role=option]")
    page.keyboard.press("Escape")
    page.wait_for_selector("[role=listbox]", state="hidden")
    page.keyboard.type("no such thing")
    page.wait_for_selector("text=No item has this in it")
    page.keyboard.press("Control+A")
    page.keyboard.type("7th")
    page.keyboard.press("Enter")  # before anything was found
    page.wait_for_selector(".subject strong:has-text('7th')")


def test_the_colours_follow_the_system(opened):
    page = opened("1400-light")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) != light


def test_the_token_is_asked_for_or_taken_from_the_address(opened, tiny_fit):
    words = ["-m", "bayesmf", "serve", tiny_fit, "--port", 0, "--token", TOKEN]
    running = Process(words)
    try:
        base = f"http://127.0.0.1:{running.port}/"
        page = opened(base=base)
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Recommended")
        page.locator("nav a[href='#/quality']").click()
        page.wait_for_selector("text=No test ratings are known")
        other = opened(base=base, after=f"#token={TOKEN}")
        other.wait_for_selector("text=Recommended")
        assert TOKEN not in other.url
    finally:
        running.close()
