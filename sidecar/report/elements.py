"""HTML and SVG as trees of ElementTree, which escapes whatever a record may hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

Child: TypeAlias = "Element | str | None"


def tag(name: str, /, *children: Child, **attributes: str) -> Element:
    """Make an element. `class_` stands for `class`, `_` in names for `-`; None among the children is nothing."""
    element = Element(name, {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()})
    for child in children:
        if isinstance(child, str):
            _add_text(element, child)
        elif child is not None:
            element.append(child)
    return element


def _add_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def render(element: Element) -> str:
    """Write an element as HTML."""
    return tostring(element, encoding="unicode", method="html")


def section(title: str, intro: str | None, *children: Child) -> Element:
    """Make a part of the page with a heading."""
    return tag("section", tag("h2", title), tag("p", intro, class_="soft") if intro else None, *children)


def table(head: Sequence[str], rows: Iterable[Element]) -> Element:
    """Make a table that scrolls by itself where it is too wide; without a head its rows are pairs."""
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))) if head else None
    return tag("div", tag("table", top, tag("tbody", *rows), class_="wide" if head else "pairs"), class_="scroll")


def bullets(texts: Sequence[str], style: str) -> Element:
    """Make a list."""
    return tag("ul", *(tag("li", text) for text in texts), class_=style)


def date(iso: str) -> str:
    """Say a time in UTC."""
    return iso.replace("T", " ").replace("Z", " UTC")
