"""How long until memory that reclaim cannot take meets a limit, at the pace of the last seconds.

Theory
    * Pressure files say nothing before this death: without swap anonymous growth first moved them 0.1 s before the
      kill. Headroom divided by slope is the warning.
    * The slope is the median of all slopes between points of a window (Theil-Sen), and growth must have gone on in the
      newest quarter of the window. So one jump, however large, is no pace: while it lies in the newest quarter less
      than half of the slopes lie across it and the median is 0, and after that growth is over.
    * Windows of 0.4, 1, 3 and 10 s; the worst counts. The short one is for 200 MiB/s in a 256 MiB container, whose
      whole life is 1.2 s; the long ones see slow growth through noise.
    * A window sees no further than three times its own length: a quarter of the room must have gone while we watched.
      So an allocator or an import that warms up far from the limit is no warning.
    * Page cache never counts, also while it waits to be written (`LevelPoint`).
    * A load whose remaining need fits explains its growth; points up to its end are left out of the slope.

Rejected: least squares (one jump tilts it), a share of the limit (a full container with mapped weights is fine).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

from guard.model import Unknown, Unlimited, Why
from sidecar.detect.loads import explained
from sidecar.detect.values import Answer, CannotTell, Finding, Quiet, Severity
from sidecar.history import History, LevelPoint
from sidecar.sample import LevelSample, SightKind
from sidecar.units import human_bytes, human_seconds

NAME: Final = "time_to_limit"
WARNING_SECONDS: Final = 10.0
"""Enough to shed load and to give memory back; further ahead a straight line is no prediction."""
CRITICAL_SECONDS: Final = 3.0
"""Enough for a last relief, and to write down what is happening."""
WINDOWS_SECONDS: Final = (0.4, 1.0, 3.0, 10.0)
_HORIZON: Final = 3.0  # times the window's length
_FEWEST: Final = 5  # points: with four, half of all slopes lie across a jump at the end
_MOST: Final = 12  # points: 66 slopes, so that a tick stays cheap
_SHORTEST_SPAN: Final = 0.25  # seconds
_GOING_ON: Final = 0.25  # of the slope, in the newest quarter

_Series = Sequence[tuple[float, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds until the level's headroom is used up, at `slope_bytes_per_second` seen over `window_seconds`."""

    seconds: float
    headroom_bytes: int
    slope_bytes_per_second: float
    window_seconds: float


def detect(history: History) -> tuple[Answer, ...]:
    """Give one finding a level that will meet its limit soon, else one answer for all."""
    if not history.latest.levels or history.latest.sight is SightKind.OWN:
        return (CannotTell(NAME, (Unknown(Why.HIDDEN, "the model's cgroup"),)),)
    findings: list[Answer] = []
    missing: list[Unknown] = []
    for sample, level in zip(history.latest.levels, history.points[-1].levels, strict=True):
        if isinstance(level.headroom_bytes, Unknown):
            missing.append(level.headroom_bytes)
        elif (estimate := estimate_level(history, level)) is not None:
            findings.append(_finding(estimate, sample))
    if findings:
        return tuple(findings)
    return (CannotTell(NAME, tuple(missing)) if missing else Quiet(NAME),)


def estimate_level(history: History, level: LevelPoint) -> Estimate | None:
    """Give the worst estimate within the warning time, or None. `level` is one of the latest point."""
    room = level.headroom_bytes
    if isinstance(room, Unknown) or isinstance(room.value, Unlimited):
        return None
    found: list[Estimate] = []
    begin = _after_loads(history, level)
    for seconds in WINDOWS_SECONDS:
        series = _series(history, level, begin, seconds)
        span = series[-1][0] - series[0][0] if series else 0.0
        horizon = min(WARNING_SECONDS, _HORIZON * span)
        if len(series) < _FEWEST or span < _SHORTEST_SPAN or not _may_meet(series, room.value):
            continue
        slope = _slope(series)
        if slope > 0 and room.value <= slope * horizon:
            found.append(
                Estimate(
                    seconds=max(0.0, room.value / slope),
                    headroom_bytes=room.value,
                    slope_bytes_per_second=slope,
                    window_seconds=span,
                )
            )
    return min(found, key=lambda one: one.seconds, default=None)


def _after_loads(history: History, level: LevelPoint) -> int:
    """Give the index of the first point after the last load that explained growth."""
    points = history.points
    for index in range(len(points) - 1, -1, -1):
        point = points[index]
        if point.begun and (then := point.level(level.id)) is not None and explained(point, then):
            return index + 1
    return 0


def _series(history: History, level: LevelPoint, begin: int, seconds: float) -> _Series:
    """Give time and growing bytes of the level in the window, oldest first, thinned to at most `_MOST`, ends kept."""
    points = history.points
    first = max(begin, history.first(seconds))
    count = len(points) - first
    kept = min(count, _MOST)
    step = (count - 1) / (kept - 1) if kept > 1 else 0.0
    series: list[tuple[float, int]] = []
    for number in range(kept):
        point = points[first + round(number * step)]
        then = point.level(level.id)
        if then is None or isinstance(then.growing_bytes, Unknown):
            series.clear()  # another life of the level, or a gap: what was before says nothing about now
        else:
            series.append((point.at.monotonic_s, then.growing_bytes.value))
    return series


def _may_meet(series: _Series, room: int) -> bool:
    """Tell whether growth is large enough for any slope to reach the horizon; most ticks end here."""
    return series[-1][1] - min(value for _, value in series) >= room / (2 * _HORIZON)


def _slope(series: _Series) -> float:
    """Give the Theil-Sen slope, 0 where growth has stopped."""
    slope = median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(series, 2))
    newest = series[-1 - max(1, len(series) // 4) :]
    lately = (newest[-1][1] - newest[0][1]) / (newest[-1][0] - newest[0][0])
    return slope if lately >= _GOING_ON * slope else 0.0


def _finding(estimate: Estimate, sample: LevelSample) -> Finding:
    critical = estimate.seconds <= CRITICAL_SECONDS
    return Finding(
        detector=NAME,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        level=sample.name,
        observed=estimate.seconds,
        threshold=CRITICAL_SECONDS if critical else WARNING_SECONDS,
        unit="seconds",
        window_seconds=estimate.window_seconds,
        text=(
            f"memory that cannot be reclaimed grows by {human_bytes(estimate.slope_bytes_per_second)}/s; "
            f"{human_bytes(estimate.headroom_bytes)} are left below the limit of {sample.name}, "
            f"that is {human_seconds(estimate.seconds)}"
        ),
    )
