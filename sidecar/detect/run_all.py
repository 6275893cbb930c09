"""All detectors over one history, and how soon to look again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from guard.model import Known, Unlimited
from sidecar.detect import levels, load_fit, reclaim, time_to_limit
from sidecar.detect.values import Answer, Finding
from sidecar.history import History

DETECTORS: Final[tuple[Callable[[History], tuple[Answer, ...]], ...]] = (
    time_to_limit.detect,
    load_fit.detect,
    reclaim.detect,
    levels.high_throttling,
    levels.limit_changed,
    levels.shared_memory,
    levels.oom_freeze,
)

SHORTEST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 1.0
FILL_BYTES_PER_SECOND: Final = 2 << 30
"""The fastest growth reckoned with while nothing moves; one thread zeroes about this much."""
_LOOKS: Final = 20  # ticks wanted before a limit is met at the present pace


def run_all(history: History) -> tuple[Answer, ...]:
    """Ask every detector. Each gives at least one answer; findings of one detector concern different levels."""
    return tuple(answer for detect in DETECTORS for answer in detect(history))


def next_tick_seconds(history: History, answers: Iterable[Answer]) -> float:
    """Say how long to wait before the next sample: 0.1 to 1 s, shorter the sooner a limit could be met.

    The room left at the fastest growth reckoned with bounds it, so small containers are looked at often even when
    they are quiet: 200 MiB/s fill 256 MiB in 1.2 s. Any load in flight is worth the shortest pause as well.
    """
    point = history.points[-1]
    rooms = [one.headroom_bytes.value for one in point.levels if isinstance(one.headroom_bytes, Known)]
    pauses = [max(0, room) / FILL_BYTES_PER_SECOND for room in rooms if not isinstance(room, Unlimited)]
    pauses.extend(
        one.observed / _LOOKS for one in answers if isinstance(one, Finding) and one.detector == time_to_limit.NAME
    )
    if point.begun:
        pauses.append(SHORTEST_SECONDS)
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, min(pauses, default=LONGEST_SECONDS)))
