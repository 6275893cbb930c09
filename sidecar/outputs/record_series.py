"""The last minute of one model at full rate, small enough to keep for every model."""

from __future__ import annotations

import zlib
from collections import deque
from typing import Final

_CHUNK: Final = 30  # rows compressed together: alike but for digits, they shrink to about a tenth


class Series:
    """Rows of the last `seconds`, as zlib members of JSON lines. Dropped by whole chunks, so a little more is kept."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._chunks: deque[tuple[float, bytes]] = deque()  # time of the last row, member
        self._lines: list[bytes] = []

    def add(self, monotonic_s: float, line: bytes) -> None:
        """Add the newest row."""
        self._lines.append(line)
        if len(self._lines) >= _CHUNK:
            self._chunks.append((monotonic_s, _member(self._lines)))
            self._lines = []
        while self._chunks and self._chunks[0][0] < monotonic_s - self._seconds:
            self._chunks.popleft()

    def blob(self) -> bytes:
        """All of it, oldest first, as `record_store.series_lines` reads it."""
        members = [member for _, member in self._chunks]
        return b"".join([*members, _member(self._lines)] if self._lines else members)


def _member(lines: list[bytes]) -> bytes:
    return zlib.compress(b"\n".join(lines) + b"\n", level=1)
