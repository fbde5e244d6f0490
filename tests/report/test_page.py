"""The page: nothing unescaped, nothing loaded, no id twice; tables that survive being written."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from bayesmf.report.page import (
    Cell,
    Code,
    Drawing,
    Facts,
    Figure,
    Finding,
    Page,
    Section,
    Table,
    Text,
    render,
    to_markdown,
)
from oracle.report_sample import errors_drawing, sample_page

VOID = {"meta", "link", "br", "img", "input", "hr"}
DRAWING = errors_drawing()
AWKWARD = [
    "a,b",
    'say "so"',
    "a|b",
    "two\nlines",
    "back\\slash",
    "\\|",
    "*_`<b>~$",
    "&lt;",
    "[x](y)",
]


class Reader(HTMLParser):
    """Elements in order, with their text; complains of tags that do not pair up."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert "svg" in self.open, f"<{tag}/> closes itself in SVG only"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element, line {self.getpos()[0]}"

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.elements if name in attrs]


def page_of(*blocks, **others) -> Page:
    parts = {"title": "t", "subtitle": "s", "findings": [], "footer": "f"} | others
    return Page(sections=[Section("one", "One", blocks)], **parts)


def figure(name, svg=DRAWING, alt="lines") -> Figure:
    return Figure(name, "Title", "Caption", [Drawing(svg, alt)])


def test_tags_pair_up_in_the_sample():
    page = Reader(render(sample_page()))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == 3
    assert tags.count("figure") == 2
    assert tags.count("h1") == 1


def test_every_text_is_escaped():
    slots = 0

    def evil(quote: str = '"') -> str:
        nonlocal slots
        slots += 1
        return f"'{quote}><script>alert({slots})</script>&amp;<"

    page = Page(
        title=evil(),
        subtitle=evil(),
        findings=[Finding(evil(), status, evil()) for status in ("seen", "plain")],
        sections=[
            Section(
                "one",
                evil(),
                [
                    Table(
                        "a",
                        evil(),
                        evil(),
                        [evil(), evil()],
                        [[evil(), Cell(evil(), sort=evil())], [Cell(evil(), kind="best"), evil()]],
                        notes=[evil()],
                    ),
                    Figure("b", evil(), evil(), [Drawing(DRAWING, evil())]),
                    Text([evil(), evil()]),
                    Code([evil(), evil()], title=evil()),
                    Facts([(evil(), evil())]),
                ],
            )
        ],
        footer=evil(),
    )
    clean = Page("t", "s", [Finding("x", "seen")], [], "f")
    text = render(page)
    read = Reader(text)  # a text that broke out of its place would unbalance the tags
    assert [tag for tag, _ in read.elements].count("script") == [
        tag for tag, _ in Reader(render(clean)).elements
    ].count("script")
    for number in range(1, slots + 1):
        shown = f"'\"><script>alert({number})</script>&amp;<"
        visible = "".join(data for _, data in read.texts)
        named = [value for _, attrs in read.elements for value in attrs.values()]
        assert shown in visible or shown in named, f"text {number} is not shown as it was given"


def test_text_in_a_drawing_is_escaped_and_scripts_in_it_are_left_out():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="20" onload="alert(1)">'
        "<script>alert(2)</script><text>&lt;script&gt;3 &amp; 4</text></svg>"
    )
    text = render(page_of(figure("a", svg)))
    assert "alert(" not in text
    assert "&lt;script&gt;3 &amp; 4" in text
    assert 'viewBox="0 0 10 20"' in text


def test_two_figures_of_one_drawing_have_their_own_ids_and_every_reference_leads_somewhere():
    text = render(page_of(figure("a"), figure("b"), *sample_page().sections[0].blocks))
    ids = Reader(text).attributes("id")
    assert len(ids) == len(set(ids))
    assert sum(name.startswith("a--1--") for name in ids) == len(re.findall(r'\bid="', DRAWING))
    links = [name[1:] for name in Reader(text).attributes("href") if name.startswith("#")]
    urls = re.findall(r"url\(([^)]*)\)", text)
    assert any(url.startswith("#b--") for url in urls)
    assert {*links, *(url.strip("'\"#") for url in urls)} <= set(ids)
    for part in re.findall(r'<figure class="wide" id="b">.*?</figure>', text, re.S):
        assert "#a--" not in part


def test_a_drawing_scales_and_says_what_it_shows():
    drawing = [
        attrs
        for tag, attrs in Reader(render(page_of(figure("a", alt='two "lines"')))).elements
        if tag == "svg" and attrs.get("role") == "img"
    ]
    assert len(drawing) == 1
    assert drawing[0]["style"] == "width: 720px; max-width: 100%"  # 7.5 inches
    assert not {"width", "height"} & set(drawing[0])
    assert drawing[0]["viewbox"] == re.search('viewBox="([^"]*)"', DRAWING)[1]
    assert drawing[0]["aria-label"] == 'two "lines"'


def test_drawings_of_one_figure_have_their_own_ids():
    two = Figure("a", "Title", "Caption", [Drawing(DRAWING, "one"), Drawing(DRAWING, "two")])
    read = Reader(render(page_of(two)))
    ids = read.attributes("id")
    assert len(ids) == len(set(ids))
    assert {"a--1", "a--2"} <= set(ids)


def test_the_style_of_a_drawing_holds_for_that_drawing_only():
    text = render(page_of(figure("a")))
    assert "#a--1 { *{stroke-linejoin" in text
    assert text.count("*{stroke-linejoin") == 1


@pytest.mark.parametrize("what", ["<?xml", "<!DOCTYPE svg", "<metadata", "rdf:", "dc:date"])
def test_what_only_a_file_needs_is_left_out(what):
    assert what in DRAWING
    assert what not in render(page_of(figure("a")))


def test_nothing_is_loaded():
    text = render(sample_page())
    read = Reader(text)
    for name in ("src", "href", "srcset", "data", "poster", "action"):
        for value in read.attributes(name):
            assert value.startswith(("#", "data:")), value
    assert "@import" not in text
    assert not re.search(r"url\(\s*[\"']?(?!#|data:)", text)
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    policy = [attrs for _, attrs in read.elements if "http-equiv" in attrs]
    assert "default-src 'none'" in policy[0]["content"]


def awkward_table() -> Table:
    return Table(
        "a",
        "Pipes | and <b>",
        "- not a list",
        AWKWARD,
        [AWKWARD, [Cell(text, kind="bad") for text in reversed(AWKWARD)], [""] * len(AWKWARD)],
        text_columns=len(AWKWARD),
        notes=["1. not a list in a list", "# not a heading"],
    )


def test_csv_gives_back_every_text():
    table = awkward_table()
    read = list(csv.reader(io.StringIO(table.to_csv(), newline="")))
    assert read == [AWKWARD, AWKWARD, AWKWARD[::-1], [""] * len(AWKWARD)]


def test_markdown_shows_every_text():
    tokens = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .parse(awkward_table().to_markdown())
    )
    shown = [
        "".join("\n" if part.content == "<br>" else part.content for part in token.children)
        for token in tokens
        if token.type == "inline"
    ]
    width = len(AWKWARD)
    assert shown[:2] == ["Pipes | and <b>", "- not a list"]
    assert shown[2 : 2 + 4 * width] == [*AWKWARD, *AWKWARD, *AWKWARD[::-1], *[""] * width]
    assert shown[2 + 4 * width :] == ["1. not a list in a list", "# not a heading"]
    kinds = [token.type for token in tokens]
    assert kinds.count("heading_open") == kinds.count("bullet_list_open") == 1
    assert kinds.count("ordered_list_open") == 0
    assert kinds.count("tr_open") == 4


def test_markdown_aligns_numbers_and_makes_the_best_bold():
    table = Table("a", "T", "", ["m", "x"], [["p", Cell("0.5", kind="best")]])
    assert table.to_markdown() == "### T\n\n| m | x |\n| :-- | --: |\n| p | **0.5** |\n"


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        (Cell("0.853 ± 0.002"), "0.853"),
        (Cell("1,234"), "1234.0"),
        (Cell("\N{MINUS SIGN}4.1 %"), "-4.1"),
        (Cell("+2e-3"), "0.002"),
        (Cell("—"), ""),
        (Cell("many", 7), "7.0"),
        (Cell("?", float("nan")), ""),
        (Cell("∞", float("-inf")), "-Infinity"),
        (Cell("x", "y"), "y"),
    ],
)
def test_numbers_are_sorted_by_their_value(cell, key):
    assert cell.sort_key(is_text=False) == key


def test_texts_are_sorted_by_what_they_say():
    assert Cell("2 chains").sort_key(is_text=True) == "2 chains"
    assert Cell("<=25", 1).sort_key(is_text=True) == "1.0"


def test_an_empty_page_is_a_page():
    read = Reader(render(Page("t", "", [], [], "")))
    assert "section" not in [tag for tag, _ in read.elements]


def test_there_is_a_heading_over_claims_only_where_there_are_any():
    for finding, heading in ((Finding("x", "plain"), False), (Finding("x", "seen"), True)):
        text = to_markdown(Page("t", "s", [finding], [], "f"), {})
        assert ("### The paper's claims" in text) == heading


def test_code_is_shown_as_it_is():
    assert "<code>\n  x\ny</code>" in render(page_of(Code(["", "  x", "y"])))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cell("x", kind="great"), "the kind of a cell is one of '', 'best'.*not 'great'"),
        (lambda: Finding("x", "true"), "the status of a finding is one of 'seen'.*not 'true'"),
        (lambda: Table("a", "", "", ["x", "y"], [["1", "2"], ["1"]]), "row 2 has 1 cells for 2"),
        (lambda: render(page_of(figure("a"), figure("a"))), "'a' is used twice"),
        (lambda: render(page_of(figure("theme"))), "'theme' is used twice, or is the page's own"),
        (lambda: render(page_of(figure("a--b"))), "'a--b': use letters"),
        (lambda: render(page_of(figure("a b"))), "'a b': use letters"),
        (
            lambda: render(page_of(figure("a", "<svg"))),
            "figure 'a--1': this is not an SVG document",
        ),
        (lambda: render(page_of(figure("a", "<p/>"))), "figure 'a--1': .*begins with <svg>"),
        (
            lambda: render(page_of(figure("a", '<svg xmlns="http://www.w3.org/2000/svg"/>'))),
            "figure 'a--1': the SVG has neither a viewBox nor a size",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
