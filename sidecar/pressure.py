"""What level of pressure the guards of a model are told, and when. Pure: time is a parameter.

Rules
    * Worse is told at once, better only after it has been better for a while, and then the worst of that while: a
      server that stops and starts to take requests with every tick is worse off than one that waits ten seconds.
    * While there is pressure it is told again and again, so that a guard which comes late hears of it, and one that
      hears nothing for three times as long knows that nobody watches any more (`guard.keeper`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from guard.link.protocol import Pressure
from sidecar.detect.values import Finding, Severity

NONE: Final = "none"
HOLD_SECONDS: Final = 10.0
"""How long it must be better before that is told. Full ticks come once a second; ten of them agree."""
REPEAT_SECONDS: Final = 10.0

_ORDER: Final = (NONE, Severity.WARNING.value, Severity.CRITICAL.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the guards of one model know. Times on the monotonic clock."""

    level: str = NONE
    told_s: float = float("-inf")
    better_since_s: float | None = None
    worst_since: str = NONE  # the worst level since it became better


def step(told: Told, findings: Iterable[Finding], now_s: float) -> tuple[Told, Pressure | None]:
    """Take the findings of a tick; give what is known from now on, and the notice to send, if any."""
    loudest = worst(findings)
    level = NONE if loudest is None else loudest.severity.value
    if _rank(level) >= _rank(told.level):
        told = replace(told, better_since_s=None, worst_since=NONE)
    elif told.better_since_s is None:
        told = replace(told, better_since_s=now_s, worst_since=level)
    else:
        told = replace(told, worst_since=max(told.worst_since, level, key=_rank))
    if _rank(level) > _rank(told.level):
        return _tell(level, loudest, now_s)
    if told.better_since_s is not None:
        return _tell(told.worst_since, loudest, now_s) if now_s - told.better_since_s >= HOLD_SECONDS else (told, None)
    if told.level != NONE and now_s - told.told_s >= REPEAT_SECONDS:
        return replace(told, told_s=now_s), Pressure(told.level, _reason(told.level, loudest))
    return told, None


def worst(findings: Iterable[Finding]) -> Finding | None:
    """Give the loudest one that is worth telling the guard: a notice is none of its business."""
    loud = [finding for finding in findings if finding.severity is not Severity.NOTICE]
    return max(loud, key=lambda finding: _rank(finding.severity.value), default=None)


def _tell(level: str, loudest: Finding | None, now_s: float) -> tuple[Told, Pressure]:
    return Told(level=level, told_s=now_s), Pressure(level, _reason(level, loudest))


def _reason(level: str, loudest: Finding | None) -> str:
    if level == NONE:
        return "over"
    return loudest.text if loudest is not None else f"it came and went in the last {HOLD_SECONDS:g} s"


def _rank(level: str) -> int:
    return _ORDER.index(level)
