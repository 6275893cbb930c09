"""What a detector answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from guard.model import Unknown


class Severity(StrEnum):
    """How loud a finding is."""

    NOTICE = "notice"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A detector fired: the observed value, the threshold it crossed and the window it was seen in."""

    detector: str  # e.g. "time_to_limit"
    severity: Severity
    level: str | None  # the cgroup level concerned, by name
    observed: float
    threshold: float
    unit: str  # of observed and threshold
    window_seconds: float
    text: str  # one sentence for people


@dataclass(frozen=True, slots=True)
class Quiet:
    """The detector looked and found nothing."""

    detector: str


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The detector lacks its input; the health page shows this as degraded."""

    detector: str
    missing: tuple[Unknown, ...]


Answer: TypeAlias = Finding | Quiet | CannotTell
