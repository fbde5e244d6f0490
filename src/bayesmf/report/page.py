"""A page of findings, tables and figures as values, and the one function that writes it as HTML."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jinja2
from markupsafe import Markup

from bayesmf.report.svg import inline_svg

KINDS = ("", "best", "good", "bad", "unsure", "note")
STATUSES = ("seen", "partly", "not seen", "plain")
_OWN_IDS = ("top", "theme", "main", "findings")
_NUMBER = re.compile(r"[+\-\N{MINUS SIGN}]?\d[\d,]*(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Cell:
    """What a cell of a table shows, what it is sorted by if not that, and how it stands out."""

    text: str
    sort: float | str | None = None
    kind: str = ""

    def __post_init__(self) -> None:
        _check_one_of("the kind of a cell", self.kind, KINDS)

    def sort_key(self, is_text: bool) -> str:
        """What the browser sorts by: a text, a number, or nothing, which comes last.

        A number's text may go on after the number, as in ``0.853 ± 0.002``.
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
    """A table: its first ``text_columns`` columns hold text, the others numbers."""

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
        """The rows, every cell a ``Cell``."""
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows]

    def to_csv(self) -> str:
        """Headings and rows as comma-separated values."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows([cell.text for cell in row] for row in self.cells)
        return text.getvalue()

    def to_markdown(self) -> str:
        """Title, caption, table and notes as GitHub's Markdown; the best cells are bold."""
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
    """A whole SVG document; ``alt`` tells who cannot see it what it shows."""

    svg: str
    alt: str


@dataclass(frozen=True)
class Figure:
    """Drawings that stand side by side where there is room, and below each other where not."""

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


@dataclass(frozen=True)
class Finding:
    """One sentence of what was found, and whether the paper's claim, ``verdict``, was seen."""

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
    blocks: Sequence[Table | Figure | Text | Code | Facts]

    @property
    def titled(self) -> list[Table | Figure]:
        """The blocks that the contents list."""
        return [block for block in self.blocks if isinstance(block, Table | Figure)]


@dataclass(frozen=True)
class Page:
    """All that a page shows, in order: the findings, then the sections."""

    title: str
    subtitle: str
    findings: Sequence[Finding]
    sections: Sequence[Section]
    footer: str

    @property
    def counts(self) -> list[tuple[str, int]]:
        """How many findings there are of each status that was met, plain ones left out."""
        count = Counter(finding.status for finding in self.findings)
        return [(status, count[status]) for status in STATUSES[:-1] if count[status]]


def render(page: Page) -> str:
    """The page as one HTML document that loads nothing: styles, scripts and drawings are inside."""
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


def _check_one_of(what: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}")


def _check_ids(page: Page) -> None:
    """Ids are anchors, used once; two hyphens are kept for the ids inside drawings."""
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
    """Text that Markdown shows as it is, in one line."""
    escaped = re.sub(r"([\\`*_\[\]<|~$&])", r"\\\1", text.strip())
    escaped = "<br>".join(escaped.splitlines())
    return f"**{escaped}**" if bold and escaped else escaped


def _markdown_line(text: str) -> str:
    """The same at the start of a line, where some characters would begin a list or a heading."""
    return re.sub(r"^(\d*)([-+#>=.)])", r"\1\\\2", escape(text))
