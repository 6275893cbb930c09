"""Rows on the clock of the end, few enough to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.report.rows import Row

MOST: Final = 600
"""Frames of a timeline: about one for each two pixels of a wide page."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One row, `at_s` seconds from the end."""

    at_s: float
    row: Row


@dataclass(frozen=True, slots=True)
class Window:
    """What part of the clock is shown, in seconds from the end; both ends count."""

    start_s: float
    end_s: float

    def holds(self, at_s: float) -> bool:
        """Whether a time is in it."""
        return self.start_s <= at_s <= self.end_s


def thin(rows: Iterable[Row], end_monotonic_s: float, window: Window) -> tuple[Frame, ...]:
    """Place rows on the clock and keep at most about `MOST`: of neighbours the one with most memory in use.

    Rows may come in any order and twice. The last row before the end and those after it all stay.
    """
    width = max(window.end_s - window.start_s, 1e-3) / MOST
    kept: dict[int, Frame] = {}
    for row in rows:
        frame = Frame(row.monotonic_s - end_monotonic_s, row)
        if not window.holds(frame.at_s):
            continue
        place = int((frame.at_s - window.start_s) / width) if frame.at_s < 0 else MOST + round(frame.at_s * 1000)
        other = kept.get(place)
        if other is None or _in_use(frame.row) > _in_use(other.row):
            kept[place] = frame
    return tuple(sorted(kept.values(), key=lambda one: one.at_s))


def _in_use(row: Row) -> int:
    return (row.levels[0].current or 0) if row.levels else 0


def last_before_end(frames: Sequence[Frame]) -> Row | None:
    """Give the last row before the end that knows its levels, or else the last one before the end."""
    before = [frame.row for frame in frames if frame.at_s < 0]
    return next((row for row in reversed(before) if row.levels), before[-1] if before else None)


def first_after_end(frames: Sequence[Frame]) -> Row | None:
    """Give the first row after the end: it holds the counters as the end left them."""
    return next((frame.row for frame in frames if frame.at_s >= 0 and frame.row.levels), None)
