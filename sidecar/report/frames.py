"""Rows on the clock of the end, few enough to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.report.rows import Row

MOST: Final = 600
"""Frames of a timeline: about one for each two pixels of a wide page."""
_DYING_SECONDS: Final = 10.0
"""What the kernel takes at most to end a process that it has killed, but for one that waits for a broken disk."""

_CLOSE_SECONDS: Final = 0.1


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
    """Place rows on the clock and keep about `MOST`: of neighbours the one with most memory in use.

    Rows may come in any order and twice. Near the end, when the model may be dying, a tenth of a second counts.
    """
    width = max(window.end_s - window.start_s, 1e-3) / MOST
    kept: dict[tuple[bool, int], Frame] = {}
    for row in rows:
        frame = Frame(row.monotonic_s - end_monotonic_s, row)
        if not window.holds(frame.at_s):
            continue
        close = frame.at_s > -_DYING_SECONDS
        place = close, math.floor(frame.at_s / (min(width, _CLOSE_SECONDS) if close else width))
        other = kept.get(place)
        if other is None or _in_use(frame.row) > _in_use(other.row):
            kept[place] = frame
    return tuple(sorted(kept.values(), key=lambda one: one.at_s))


def _in_use(row: Row) -> int:
    return (row.levels[0].current or 0) if row.levels else 0


def quiet_before_end(frames: Sequence[Frame]) -> Frame | None:
    """Give the last frame before the end that knows its levels, and before the kill was counted.

    Between the kill and the death, which is the end here, the kernel takes the process apart: seconds for a large one.
    """
    before = [frame for frame in frames if frame.at_s < 0]
    seen = [frame for frame in before if frame.row.levels]
    if not seen:
        return before[-1] if before else None
    after = first_after_end(frames)
    dying = [frame for frame in seen if frame.at_s > -_DYING_SECONDS]
    kills = max(frame.row.kills() for frame in (*seen[-1:], *([] if after is None else [after])))
    return next((frame for frame in reversed(dying) if frame.row.kills() < kills), seen[-1])


def first_after_end(frames: Sequence[Frame]) -> Frame | None:
    """Give the first frame after the end: it holds the counters as the end left them."""
    return next((frame for frame in frames if frame.at_s >= 0 and frame.row.levels), None)
