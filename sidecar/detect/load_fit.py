"""A load that cannot fit, told at its start: what it surely still needs against what is left."""

from __future__ import annotations

from typing import Final

from guard.model import Known, Unknown, Unlimited, Why
from sidecar.detect.loads import needs_at_least
from sidecar.detect.values import Answer, CannotTell, Finding, Quiet, Severity
from sidecar.history import Begun, History, LevelPoint
from sidecar.sample import SightKind
from sidecar.units import human_bytes

NAME: Final = "load_fit"


def detect(history: History) -> tuple[Answer, ...]:
    """Give one finding a load and level that it does not fit into. CannotTell only while a load waits for an answer."""
    point = history.points[-1]
    loads = [
        (one, level, need) for one in point.begun for level in point.levels if (need := needs_at_least(one, level))
    ]
    unseen = history.latest.sight is SightKind.OWN or not point.levels
    if point.begun and unseen:
        return (CannotTell(NAME, (Unknown(Why.HIDDEN, "the model's cgroup"),)),)
    if unseen:
        return (Quiet(NAME),)
    findings = tuple(
        _finding(one, level, need, room.value)
        for one, level, need in loads
        if isinstance(room := level.headroom_bytes, Known)
        and not isinstance(room.value, Unlimited)
        and need > room.value
    )
    missing = tuple(level.headroom_bytes for _, level, _ in loads if isinstance(level.headroom_bytes, Unknown))
    return findings or ((CannotTell(NAME, missing) if missing else Quiet(NAME)),)


def _finding(one: Begun, level: LevelPoint, need: int, room: int) -> Finding:
    what = one.operation.file or one.operation.label
    return Finding(
        detector=NAME,
        severity=Severity.CRITICAL,
        level=level.name,
        observed=float(need),
        threshold=float(room),
        unit="bytes",
        window_seconds=0.0,
        text=(
            f"loading {what} with {one.operation.label} still needs at least {human_bytes(need)} of memory that "
            f"cannot be reclaimed; {human_bytes(room)} are left below the limit of {level.name}"
        ),
    )
