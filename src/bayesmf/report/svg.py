"""An SVG document made into a part of an HTML page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_LEFT_OUT = {"metadata", "script"}  # the date of drawing; nothing that runs
_PIXELS = {"": 1.0, "px": 1.0, "pt": 96 / 72, "in": 96.0, "cm": 96 / 2.54, "mm": 9.6 / 2.54}


def inline_svg(document: str, name: str, label: str) -> str:
    """The drawing as an ``<svg>`` element, no wider than it was drawn and narrower where needed.

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
    """HTML knows SVG's elements by their plain names; other vocabularies are left out."""
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
    """A CSS length in pixels, or 0 if it is relative or absent."""
    found = re.fullmatch(r"([\d.]+)([a-z]*)", length.strip())
    return float(found[1]) * _PIXELS.get(found[2], 0.0) if found else 0.0
