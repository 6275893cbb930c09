"""Which warnings stand: one that comes and goes with every tick is one warning, and over once it stays away.

At the edge of a threshold an estimate crosses it many times a second; seven warnings in two seconds tell no more than
the first, and hide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.detect.values import Finding

OVER_AFTER_SECONDS: Final = 3.0
"""How long a finding must stay away: three full ticks agree."""

Key = tuple[str, str | None]
"""Detector and level."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A warning as it was last found, on the monotonic clock."""

    finding: Finding
    found_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a tick changes."""

    standing: Mapping[Key, Standing]
    begun: tuple[Finding, ...]
    over: tuple[Finding, ...]


def step(before: Mapping[Key, Standing], findings: Iterable[Finding], now_s: float) -> Step:
    """Take the findings of a tick; give what stands from now on, what began and what is over."""
    found = {(one.detector, one.level): Standing(one, now_s) for one in findings}
    missed = {key: one for key, one in before.items() if key not in found}
    over = {key for key, one in missed.items() if now_s - one.found_s >= OVER_AFTER_SECONDS}
    return Step(
        standing={**{key: one for key, one in missed.items() if key not in over}, **found},
        begun=tuple(one.finding for key, one in found.items() if key not in before),
        over=tuple(missed[key].finding for key in sorted(over, key=str)),
    )
