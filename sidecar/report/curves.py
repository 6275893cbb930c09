"""Frames to curves. A value that is not known is a gap, and so is a stretch without any frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

from sidecar.report.frames import Frame
from sidecar.report.rows import Level, Row
from sidecar.report.story import Curve, Point

Pick: TypeAlias = "Callable[[Row], float | None]"
OfLevel: TypeAlias = "Callable[[Level], float | None]"

_RATE_SECONDS: Final = 1.0
"""A rate is over about a second: between ticks of 100 ms the kernel's own counters move by steps."""
_LONGEST_STEP_SECONDS: Final = 3.0
"""Ticks are a second apart at most; more than this without one means that nobody looked."""


def values(frames: Sequence[Frame], pick: Pick) -> tuple[Point, ...]:
    """Give one value a frame. What was before the end and what came after it are not joined."""
    return tuple(_with_gaps([(frame.at_s, pick(frame.row)) for frame in frames], end=True))


def rates(frames: Sequence[Frame], pick: Pick) -> tuple[Point, ...]:
    """Give by how much a counter rose a second. Unknown at the first frame, over a gap and where it was reset."""
    points: list[Point] = []
    longest = _longest_step([frame.at_s for frame in frames])
    base = 0
    for index, frame in enumerate(frames):
        while base + 1 < index and frames[base + 1].at_s <= frame.at_s - _RATE_SECONDS:
            base += 1
        points.append((frame.at_s, _rate(frames[base], frame, pick, max(longest, 2 * _RATE_SECONDS))))
    return tuple(_with_gaps(points))


def _rate(then: Frame, now: Frame, pick: Pick, longest: float) -> float | None:
    before, after, seconds = pick(then.row), pick(now.row), now.at_s - then.at_s
    if before is None or after is None or after < before or not 0 < seconds <= longest:
        return None
    return (after - before) / seconds


def _with_gaps(points: Sequence[Point], *, end: bool = False) -> Iterator[Point]:
    longest = _longest_step([at for at, _ in points])
    yield from points[:1]
    for (before, _), (at, value) in pairwise(points):
        if at - before > longest or (end and before < 0 <= at):
            yield (before + at) / 2, None
        yield at, value


def _longest_step(times: Sequence[float]) -> float:
    steps = [after - before for before, after in pairwise(times)]
    return max(_LONGEST_STEP_SECONDS, 4 * median(steps)) if steps else _LONGEST_STEP_SECONDS


def of_level(level: str, pick: OfLevel) -> Pick:
    """Pick a value of one level, found by its name; unknown where the level is not there."""

    def picked(row: Row) -> float | None:
        found = row.level(level)
        return None if found is None else pick(found)

    return picked


def known_ones(curves: Iterable[Curve]) -> tuple[Curve, ...]:
    """Give the curves of which anything is known."""
    return tuple(curve for curve in curves if known(curve.points))


def known(points: Sequence[Point]) -> bool:
    """Whether any value of a curve is known."""
    return any(value is not None for _, value in points)


def ever(points: Sequence[Point]) -> bool:
    """Whether a curve ever left zero."""
    return any(value for _, value in points)
