"""``bayesmf report``: a results folder in, one page with its figures and tables out."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from bayesmf.data.io.atomic import check_folder, whole_file, whole_folder
from bayesmf.errors import DataError
from bayesmf.report.contents import MADE_BY, Report, make_report
from bayesmf.report.page import render, to_markdown
from bayesmf.study.results import Results

FOLDERS = ("figures", "tables")
PAGES = ("report.html", "report.md")
MANIFEST = "made-by-bayesmf.json"  # the sha256 of every file that a report wrote into a folder


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page, figures and tables beside the results or to ``out``; return the page.

    What an earlier report wrote is replaced. Anything else in the way is a ``DataError``, and then
    nothing is written.
    """
    results = Results.open(folder)
    out = out or folder
    check_places(out)
    report = make_report(results)
    with contextlib.ExitStack() as stack:  # all of it appears at the end, or nothing does
        for name, files in _files(report).items():
            made = stack.enter_context(whole_folder(out / name, _wrote))
            _fill(made, files)
        for name, text in _pages(report).items():
            path = stack.enter_context(whole_file(out / name))
            path.write_text(text, encoding="utf-8")
    return out / "report.html"


def check_places(out: Path) -> None:
    """Refuse a folder in which a report would replace something that no report wrote."""
    for name in FOLDERS:
        place = out / name
        if place.is_dir() and (others := _others(place)):
            raise DataError(
                f"{place} holds files that no report wrote, such as {others[0]}; move them, or "
                "write the report to another folder with --out (out= in Python)"
            )
        if place.exists():
            check_folder(place, _wrote)
    for name in PAGES:
        place = out / name
        if place.is_file() and MADE_BY not in place.read_text(encoding="utf-8", errors="replace"):
            raise DataError(
                f"{place} was not written by a report; move it, or write the report to another "
                "folder with --out (out= in Python)"
            )


def _wrote(folder: Path) -> bool:
    """Whether a report wrote everything in a folder."""
    return not _others(folder)


def _others(folder: Path) -> list[str]:
    """The names in a folder that are not as a report wrote them, by its manifest."""
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    entries = sorted(entry for entry in folder.iterdir() if entry.name != MANIFEST)
    if not isinstance(known, dict):
        known = {}
    return [e.name for e in entries if not e.is_file() or known.get(e.name) != _digest(e)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fill(folder: Path, files: dict[str, bytes]) -> None:
    """Write files, and the manifest by which the next report knows them."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    known = {name: _digest(folder / name) for name in sorted(files)}
    (folder / MANIFEST).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _files(report: Report) -> dict[str, dict[str, bytes]]:
    """The files of each folder."""
    drawn: dict[str, bytes] = {}
    for panel in (panel for panels in report.figures.values() for panel in panels):
        drawn[f"{panel.name}.svg"] = panel.svg.encode()
        drawn[f"{panel.name}.png"] = panel.png
    tables: dict[str, bytes] = {}
    for table in report.tables:
        tables[f"{table.id}.csv"] = table.to_csv().encode()
        tables[f"{table.id}.md"] = table.to_markdown().encode()
    return {"figures": drawn, "tables": tables}


def _pages(report: Report) -> dict[str, str]:
    """The page as HTML, and as Markdown with the figures beside it."""
    images = {
        name: [f"figures/{panel.name}.svg" for panel in panels]
        for name, panels in report.figures.items()
    }
    return {
        "report.html": render(report.page),
        "report.md": to_markdown(report.page, images),
    }
