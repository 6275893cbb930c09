"""What each level of the model says of itself at this tick: throttling, a changed limit, shared memory, a freeze."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from guard.kernel.values import CgroupVersion, MemoryLevel
from guard.model import Known, Limit, Reading, Unknown, Unlimited, Why
from sidecar.detect.values import Answer, CannotTell, Finding, Quiet, Severity
from sidecar.history import History, Signal, stat_sum
from sidecar.sample import LevelSample, SightKind
from sidecar.units import human_bytes

HIGH_THROTTLING: Final = "high_throttling"
LIMIT_CHANGED: Final = "limit_changed"
SHARED_MEMORY: Final = "shared_memory"
OOM_FREEZE: Final = "oom_freeze"

THROTTLED_PER_SECOND: Final = 1.0
"""A model stuck at memory.high without swap counted 66 a second (kernel 6.12); a passing one counts a handful."""
SHARED_RATIO: Final = 0.25
"""Of the limit. Shared memory cannot be reclaimed without swap, and files in it survive a restart of the container."""
_THROTTLE_WINDOW: Final = 5.0

_One = Callable[[History, LevelSample], "Finding | Unknown | None"]


def high_throttling(history: History) -> tuple[Answer, ...]:
    """Tell levels that are throttled at memory.high: never killed, perhaps never done. v1 has no such limit."""
    return _each(HIGH_THROTTLING, history, _throttled)


def limit_changed(history: History) -> tuple[Answer, ...]:
    """Tell limits that differ from the last tick's (in-place resize). `observed` is the new one, inf if unlimited."""
    if history.previous is None:
        return (Quiet(LIMIT_CHANGED),)
    before = {level.id: level.memory for level in history.previous.levels}
    findings = tuple(
        _changed(level, name, then, now)
        for level in history.latest.levels
        if level.id in before
        for name, then, now in _limits(before[level.id], level.memory)
        if isinstance(then, Known) and isinstance(now, Known) and then.value != now.value
    )
    return findings or (Quiet(LIMIT_CHANGED),)


def shared_memory(history: History) -> tuple[Answer, ...]:
    """Tell levels of which a good part is shared memory: /dev/shm, memory-backed volumes, shared mappings."""
    return _each(SHARED_MEMORY, history, _shared)


def oom_freeze(history: History) -> tuple[Answer, ...]:
    """Tell v1 levels that are out of memory with the OOM killer off: their tasks sleep until there is memory."""
    return _each(OOM_FREEZE, history, _frozen)


def _each(name: str, history: History, look: _One) -> tuple[Answer, ...]:
    """Ask every level; findings first, then what could not be told, else quiet."""
    if not history.latest.levels or history.latest.sight is SightKind.OWN:
        return (CannotTell(name, (Unknown(Why.HIDDEN, "the model's cgroup"),)),)
    answers = [look(history, level) for level in history.latest.levels]
    findings = tuple(one for one in answers if isinstance(one, Finding))
    missing = tuple(one for one in answers if isinstance(one, Unknown))
    return findings or ((CannotTell(name, missing) if missing else Quiet(name)),)


def _throttled(history: History, level: LevelSample) -> Finding | Unknown | None:
    high = level.memory.high_bytes
    if level.memory.version is CgroupVersion.V1:
        return None
    if isinstance(high, Unknown):
        return None if high.why is Why.MISSING else high  # the root, or no memory controller here: no limit
    if isinstance(high.value, Unlimited):
        return None
    rate = history.level_rate(level.id, Signal.HIGH_EVENTS, _THROTTLE_WINDOW)
    if isinstance(rate, Unknown):
        return rate
    if rate.value.per_second < THROTTLED_PER_SECOND:
        return None
    return Finding(
        detector=HIGH_THROTTLING,
        severity=Severity.WARNING,
        level=level.name,
        observed=rate.value.per_second,
        threshold=THROTTLED_PER_SECOND,
        unit="per_second",
        window_seconds=rate.value.seconds,
        text=(
            f"{level.name} is throttled at memory.high ({human_bytes(high.value)}) "
            f"{rate.value.per_second:.1f} times a second; the kernel slows it down and does not kill it"
        ),
    )


def _limits(then: MemoryLevel, now: MemoryLevel) -> tuple[tuple[str, Reading[Limit], Reading[Limit]], ...]:
    return (
        ("memory limit", then.max_bytes, now.max_bytes),
        ("memory.high", then.high_bytes, now.high_bytes),
        ("swap limit", then.swap_max_bytes, now.swap_max_bytes),
        ("memory and swap limit", then.memsw_limit_bytes, now.memsw_limit_bytes),
    )


def _changed(level: LevelSample, name: str, then: Known[Limit], now: Known[Limit]) -> Finding:
    return Finding(
        detector=LIMIT_CHANGED,
        severity=Severity.NOTICE,
        level=level.name,
        observed=_number(now.value),
        threshold=_number(then.value),
        unit="bytes",
        window_seconds=0.0,
        text=f"the {name} of {level.name} went from {_words(then.value)} to {_words(now.value)}",
    )


def _number(limit: Limit) -> float:
    return math.inf if isinstance(limit, Unlimited) else float(limit)


def _words(limit: Limit) -> str:
    return "unlimited" if isinstance(limit, Unlimited) else human_bytes(limit)


def _shared(_history: History, level: LevelSample) -> Finding | Unknown | None:
    limit = level.memory.max_bytes
    if isinstance(limit, Unknown):
        return None if limit.why is Why.MISSING else limit
    if isinstance(limit.value, Unlimited):
        return None
    held = stat_sum(level.memory, ("shmem",))
    if isinstance(held, Unknown):
        return held
    if held.value < SHARED_RATIO * limit.value:
        return None
    return Finding(
        detector=SHARED_MEMORY,
        severity=Severity.NOTICE,
        level=level.name,
        observed=float(held.value),
        threshold=SHARED_RATIO * limit.value,
        unit="bytes",
        window_seconds=0.0,
        text=(
            f"{human_bytes(held.value)} of the {human_bytes(limit.value)} of {level.name} are shared memory "
            "(/dev/shm, memory-backed volumes); files there stay when the container restarts"
        ),
    )


def _frozen(_history: History, level: LevelSample) -> Finding | Unknown | None:
    if level.memory.version is CgroupVersion.V2:
        return None
    control = level.memory.oom_control
    if isinstance(control, Unknown):
        return control
    if not (control.value.under_oom and control.value.oom_kill_disable):
        return None
    return Finding(
        detector=OOM_FREEZE,
        severity=Severity.CRITICAL,
        level=level.name,
        observed=1.0,
        threshold=1.0,
        unit="under_oom",
        window_seconds=0.0,
        text=(
            f"{level.name} is out of memory and its OOM killer is off (oom_kill_disable): "
            "its tasks sleep until memory is freed or the limit is raised"
        ),
    )
