"""What a part of a bundle is, and who hides what in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sidecar.outputs.shape import encode

PART_BYTES: Final = 8 << 20
"""A part before it is packed. Lines beyond are left out, the oldest ones."""


class Hiding(Protocol):
    """A `Redactor` or a `Scrubber`."""

    def learn(self, value: Any, key: str = "") -> None:  # noqa: ANN401 - JSON
        """Take note of the names in a JSON value."""
        ...

    def value(self, value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON
        """Give a JSON value without what must not be seen."""
        ...

    def text(self, text: str) -> str:
        """Give a text without what must not be seen."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the bundle; `make` gives its bytes, or None where there is nothing to tell."""

    name: str
    about: str
    make: Callable[[], bytes | None]


def document(value: object) -> bytes:
    """Give one JSON document for people to read."""
    return json.dumps(json.loads(encode(value)), indent=1, ensure_ascii=False).encode() + b"\n"


def json_lines(rows: Iterable[object]) -> bytes | None:
    """Give JSON lines, the last ones that fit into a part."""
    kept: list[bytes] = []
    size = first = 0
    for row in rows:
        line = encode(row) + b"\n"
        kept.append(line)
        size += len(line)
        while size > PART_BYTES:
            size -= len(kept[first])
            kept[first] = b""
            first += 1
    return b"".join(kept) or None
