"""Explaining texts in tests."""

from __future__ import annotations

from sidecar.explain.engine import InputParser
from sidecar.explain.incidents import incidents
from sidecar.explain.values import Incident, Sign


def signs_of(text: str, name: str = "file") -> list[Sign]:
    """Parse one input line by line."""
    parser = InputParser(name)
    for number, line in enumerate(text.split("\n"), 1):
        parser.feed(number, line)
    return parser.finish()[0]


def explained(**texts: str) -> tuple[Incident, ...]:
    """Explain several inputs together; the names of the arguments are the names of the files."""
    return incidents([sign for name, text in texts.items() for sign in signs_of(text, name)])


def classes(**texts: str) -> list[str]:
    """Give the classes of all incidents."""
    return [one.end_class.value for one in explained(**texts)]
