"""A page of findings, tables and figures as values, and the page as HTML and as Markdown."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from xml.etree import ElementTree

import jinja2
from markupsafe import Markup

KINDS = ("", "best", "good", "bad", "unsure", "note")
STATUSES = ("seen", "partly", "not seen", "plain")
MARKS = {"seen": "seen", "partly": "partly seen", "not seen": "not seen"}
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_LEFT_OUT = {"metadata", "script"}  # the date of drawing; nothing that runs
_PIXELS = {"": 1.0, "px": 1.0, "pt": 96 / 72, "in": 96.0, "cm": 96 / 2.54, "mm": 9.6 / 2.54}
_OWN_IDS = ("top", "theme", "main", "findings")
_NUMBER = re.compile(r"[+\-\N{MINUS SIGN}]?\d[\d,]*(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, what it is sorted by if not its text, and how it stands out."""

    text: str
    sort: float | str | None = None
    kind: str = ""

    def __post_init__(self) -> None:
        _check_one_of("the kind of a cell", self.kind, KINDS)

    def sort_key(self, is_text: bool) -> str:
        """The key by which the browser sorts: a text, a number, or nothing, which comes last.

        The text of a number may continue after it, as in ``0.853 ± 0.002``.
        """
        if isinstance(self.sort, str):
            return self.sort
        number = self.sort
        if number is None:
            if is_text:
                return self.text
            found = _NUMBER.match(self.text.strip())
            if found is None:
                return ""
            number = float(found[0].replace(",", "").replace("\N{MINUS SIGN}", "-"))
        if math.isnan(number):
            return ""
        return repr(float(number)).replace("inf", "Infinity")  # as JavaScript spells it


@dataclass(frozen=True)
class Table:
    """A table whose first ``text_columns`` columns hold text, and the others numbers."""

    id: str
    title: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    text_columns: int = 1
    notes: Sequence[str] = ()
    form: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.headings):
                raise ValueError(
                    f"table {self.id!r}: row {number} has {len(row)} cells "
                    f"for {len(self.headings)} headings"
                )

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, with every cell as a ``Cell``."""
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows]

    def to_csv(self) -> str:
        """Return headings and rows as comma-separated values."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows([cell.text for cell in row] for row in self.cells)
        return text.getvalue()

    def to_markdown(self) -> str:
        """Return title, caption, table and notes as GitHub's Markdown; the best cells are bold."""
        numbers = len(self.headings) - self.text_columns
        lines = [
            [escape(heading) for heading in self.headings],
            [":--"] * self.text_columns + ["--:"] * numbers,
            *([escape(c.text, bold=c.kind == "best") for c in row] for row in self.cells),
        ]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "\n".join(f"- {_markdown_line(note)}" for note in self.notes)
        parts = [f"### {escape(self.title)}", _markdown_line(self.caption), table, notes]
        return "\n\n".join(part for part in parts if part) + "\n"


@dataclass(frozen=True)
class Drawing:
    """A whole SVG document; ``alt`` says what it shows to readers who cannot see it."""

    svg: str
    alt: str


@dataclass(frozen=True)
class Figure:
    """Drawings that stand side by side where there is room, and else below each other."""

    id: str
    title: str
    caption: str
    drawings: Sequence[Drawing]
    form: ClassVar[str] = "figure"

    @property
    def panels(self) -> list[tuple[str, Markup]]:
        """An id for each drawing, and the drawing as an element of the page."""
        names = (f"{self.id}--{number}" for number in range(1, len(self.drawings) + 1))
        return [
            (name, Markup(inline_svg(drawing.svg, name, drawing.alt)))
            for name, drawing in zip(names, self.drawings, strict=True)
        ]


@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    paragraphs: Sequence[str]
    form: ClassVar[str] = "text"


@dataclass(frozen=True)
class Code:
    """Lines to type or to read as they are."""

    lines: Sequence[str]
    title: str = ""
    form: ClassVar[str] = "code"


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for."""

    pairs: Sequence[tuple[str, str]]
    form: ClassVar[str] = "facts"


Block = Table | Figure | Text | Code | Facts


@dataclass(frozen=True)
class Finding:
    """A sentence about the results, and whether they bear out the paper's claim, ``verdict``."""

    text: str
    status: str
    verdict: str = ""

    def __post_init__(self) -> None:
        _check_one_of("the status of a finding", self.status, STATUSES)


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    id: str
    title: str
    blocks: Sequence[Block]

    @property
    def titled(self) -> list[Table | Figure]:
        """The blocks that are in the table of contents."""
        return [block for block in self.blocks if isinstance(block, Table | Figure)]


@dataclass(frozen=True)
class Page:
    """Everything that a page shows, in order: the findings, then the sections."""

    title: str
    subtitle: str
    findings: Sequence[Finding]
    sections: Sequence[Section]
    footer: str

    @property
    def counts(self) -> list[tuple[str, int]]:
        """The number of findings of each status that occurs, without the plain ones."""
        count = Counter(finding.status for finding in self.findings)
        return [(status, count[status]) for status in STATUSES[:-1] if count[status]]


def render(page: Page) -> str:
    """Return one HTML document that loads nothing: styles, scripts and drawings are inside."""
    _check_ids(page)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bayesmf", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # The template's macros leave empty lines above the document.
    return environment.get_template("page.html.j2").render(page=page).lstrip()


def to_markdown(page: Page, drawings: Mapping[str, Sequence[str]]) -> str:
    """The page as Markdown, for places that show no HTML.

    ``drawings`` names the image files of each figure, which lie beside the document.
    """
    parts = [f"# {escape(page.title)}", escape(page.subtitle), "## Findings"]
    plain = [f"- {escape(f.text)}" for f in page.findings if f.status == "plain"]
    claims = [
        f"- **{MARKS[f.status]}**: {escape(f.verdict)} *Here:* {escape(f.text)}"
        for f in page.findings
        if f.status != "plain"
    ]
    parts.append("\n".join(plain))
    if claims:
        parts += ["### The paper's claims", "\n".join(claims)]
    for section in page.sections:
        parts.append(f"## {escape(section.title)}")
        for block in section.blocks:
            parts.append(_block_to_markdown(block, drawings))
    return "\n\n".join(part for part in [*parts, escape(page.footer)] if part) + "\n"


def _block_to_markdown(block: Block, drawings: Mapping[str, Sequence[str]]) -> str:
    if isinstance(block, Table):
        return block.to_markdown().strip()
    if isinstance(block, Figure):
        images = [
            f"![{escape(drawing.alt)}]({path})"
            for drawing, path in zip(block.drawings, drawings[block.id], strict=True)
        ]
        return "\n\n".join([f"### {escape(block.title)}", "\n".join(images), escape(block.caption)])
    if isinstance(block, Text):
        return "\n\n".join(escape(paragraph) for paragraph in block.paragraphs)
    if isinstance(block, Code):
        return "\n".join([escape(block.title), "", "```", *block.lines, "```"])
    return "\n".join(f"- {escape(name)}: {escape(value)}" for name, value in block.pairs)


def _check_one_of(what: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}")


def _check_ids(page: Page) -> None:
    """Refuse ids that are no anchors or used twice; two hyphens are for ids inside drawings."""
    used = set(_OWN_IDS)
    for section in page.sections:
        for name in (section.id, *(block.id for block in section.titled)):
            if not re.fullmatch(r"[A-Za-z]\w*(-\w+)*", name, re.ASCII):
                raise ValueError(
                    f"the id {name!r}: use letters, digits, underscores and single hyphens, "
                    "and begin with a letter"
                )
            if name in used:
                raise ValueError(f"the id {name!r} is used twice, or is the page's own; rename one")
            used.add(name)


def escape(text: str, bold: bool = False) -> str:
    """Escape a text so that Markdown shows it as it is, in one line."""
    escaped = re.sub(r"([\\`*_\[\]<|~$&])", r"\\\1", text.strip())
    escaped = "<br>".join(escaped.splitlines())
    return f"**{escaped}**" if bold and escaped else escaped


def _markdown_line(text: str) -> str:
    """Escape a text at the start of a line, where it could begin a list or a heading."""
    return re.sub(r"^(\d*)([-+#>=.)])", r"\1\\\2", escape(text))


def inline_svg(document: str, name: str, label: str) -> str:
    """Make an SVG document an ``<svg>`` element of an HTML page, which is narrower where needed.

    Drawings on one page share one space of ids, and matplotlib gives equal shapes equal ids, so
    every id, and every use of one, begins with ``name``. ``label`` says what there is to see.
    """
    try:
        root = ElementTree.fromstring(document.encode())
    except ElementTree.ParseError as error:
        raise ValueError(f"figure {name!r}: this is not an SVG document ({error})") from None
    if root.tag != f"{_SVG}svg":
        raise ValueError(f"figure {name!r}: an SVG document begins with <svg>, not <{root.tag}>")
    _rewrite(root, name)
    across, down = (_pixels(root.attrib.pop(side, "")) for side in ("width", "height"))
    if "viewBox" not in root.attrib:
        if not across or not down:
            raise ValueError(f"figure {name!r}: the SVG has neither a viewBox nor a size in pixels")
        root.set("viewBox", f"0 0 {across:g} {down:g}")
    drawn = across or float(root.attrib["viewBox"].replace(",", " ").split()[2])
    root.set("style", f"width: {drawn:.0f}px; max-width: 100%")
    root.set("role", "img")
    root.set("aria-label", label)
    return ElementTree.tostring(root, encoding="unicode").strip()


def _rewrite(element: ElementTree.Element, name: str) -> None:
    """Give elements their plain names, which HTML knows, and leave other vocabularies out."""
    element.tag = element.tag.removeprefix(_SVG)
    old = dict(element.attrib)
    element.attrib.clear()
    for key, value in old.items():
        plain = key.removeprefix(_XLINK)
        if plain.startswith("on") or (plain.startswith("{") and "XML/1998" not in plain):
            continue
        if plain == "id":
            value = f"{name}--{value}"
        elif plain == "href" and value.startswith("#"):
            value = f"#{name}--{value[1:]}"
        element.set(plain, _prefix_urls(value, name))
    if element.tag == "style":  # an inline style sheet would hold for the whole page
        element.text = f"#{name} {{ {_prefix_urls(element.text or '', name)} }}"
    for child in list(element):
        plain = child.tag.removeprefix(_SVG)
        if plain.startswith("{") or plain in _LEFT_OUT:
            element.remove(child)
        else:
            _rewrite(child, name)


def _prefix_urls(text: str, name: str) -> str:
    return re.sub(r"""url\(\s*(["']?)#""", rf"url(\1#{name}--", text)


def _pixels(length: str) -> float:
    """Convert a CSS length to pixels; a relative or absent length is 0."""
    found = re.fullmatch(r"([\d.]+)([a-z]*)", length.strip())
    return float(found[1]) * _PIXELS.get(found[2], 0.0) if found else 0.0
