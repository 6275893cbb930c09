"""HTML and SVG as trees of ElementTree, which escapes whatever a record may hold."""

from __future__ import annotations

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
