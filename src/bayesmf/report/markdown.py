"""The page as Markdown, for places that show no HTML: figures and tables lie beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bayesmf.report.page import Code, Facts, Figure, Page, Table, Text, escape

MARKS = {"seen": "seen", "partly": "partly seen", "not seen": "not seen"}


def to_markdown(page: Page, drawings: Mapping[str, Sequence[str]]) -> str:
    """One document; ``drawings`` names the image files of each figure."""
    parts = [f"# {escape(page.title)}", escape(page.subtitle), "## Findings"]
    plain = [f"- {escape(f.text)}" for f in page.findings if f.status == "plain"]
    claims = [
        f"- **{MARKS[f.status]}**: {escape(f.verdict)} *Here:* {escape(f.text)}"
        for f in page.findings
        if f.status != "plain"
    ]
    parts += ["\n".join(plain), "### The paper's claims", "\n".join(claims)]
    for section in page.sections:
        parts.append(f"## {escape(section.title)}")
        for block in section.blocks:
            parts.append(_block(block, drawings))
    return "\n\n".join(part for part in [*parts, escape(page.footer)] if part) + "\n"


def _block(
    block: Table | Figure | Text | Code | Facts, drawings: Mapping[str, Sequence[str]]
) -> str:
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
