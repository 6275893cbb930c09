"""A page read back: every element with its attributes and text, and whether each one was closed."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Self

_VOID = ("meta", "link", "br", "img", "hr", "input")


class Page(HTMLParser):
    """The elements of a page in order: (name, attributes), the text outside the style sheet, and faults of nesting."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.faults += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes the one that is open."""
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        """Collect what is shown."""
        if self._open[-1:] != ["style"]:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Give the attributes of each element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def paths(self, style: str) -> list[str]:
        """Give what is drawn in that style."""
        return [path["d"] or "" for path in self.all("path") if style in (path["class"] or "").split()]

    @classmethod
    def of(cls, html: str) -> Self:
        """Read a page and check its nesting."""
        page = cls(html)
        assert page.faults == []
        return page
