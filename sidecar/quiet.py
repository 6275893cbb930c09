"""The counters as they were before: what an end is compared with, so that only what moved since can explain it.

Theory
    * "Before" is not simply the last tick. The kernel counts a kill when it sends the signal; a large process is then
      torn down for up to seconds, and ticks meanwhile see the counter already moved. `Quiet` keeps the last reading
      before any kill counter moved.
    * "Before" is never from before the process began. A cgroup outlives its processes, and a supervisor starts the next
      one within milliseconds: what killed the last one must not explain the end of the next. So a newcomer starts with
      the reading at the last end, which was taken before its hand-over, or with a later one from before its start.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from guard.kernel import memcg
from guard.model import Known
from sidecar.sample import Instant, LevelId, LevelSample, NodeSample

HOLD_SECONDS: Final = 30.0
"""How long a moved kill counter stays unexplained: tearing down 100 GB of small pages takes some seconds."""
_HOLD_AFTER_END_SECONDS: Final = 2.0
"""How long after an end its kill still explains others: a group kill ends all processes of a cgroup at once."""


_NODE_READINGS: Final = 12


@dataclass(frozen=True, slots=True)
class Base:
    """One reading of the levels and the node."""

    at_s: float = -math.inf
    levels: tuple[LevelSample, ...] = ()
    node: NodeSample | None = None


class NodePast:
    """The last readings of the node: what stood before a process began whose cgroup nobody had read yet."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, NodeSample]] = deque(maxlen=_NODE_READINGS)

    def add(self, at: Instant, node: NodeSample) -> None:
        """Take in a reading; about one a second is expected."""
        self._readings.append((at.monotonic_s, node))

    def before(self, monotonic_s: float | None) -> NodeSample | None:
        """Give the last one before a moment; None where there is none, or the moment is not known."""
        if monotonic_s is None:
            return None
        return next((node for at_s, node in reversed(self._readings) if at_s < monotonic_s), None)


def later(one: Base, other: Base | None) -> Base:
    """Give the later one; the first where both are of one moment."""
    return one if other is None or other.at_s <= one.at_s else other


@dataclass(slots=True)
class Quiet:
    """The levels and the node as they were before any kill counter moved: `base`."""

    base: Base = Base()
    first: Base | None = None
    """The first reading there was."""
    _last: Base = Base()
    _end: Base = Base()
    _kills: dict[LevelId, int] | None = None
    _held_until_s: float | None = None

    def tick(self, at: Instant, levels: tuple[LevelSample, ...], node: NodeSample) -> None:
        """Take in one reading."""
        self._last = Base(at.monotonic_s, levels, node)
        self.first = self.first or self._last
        kills = {level.id: known.value for level in levels if isinstance(known := memcg.oom_kills(level.memory), Known)}
        before = self._kills or {}
        if any(count > before.get(level, count) for level, count in kills.items()):
            self._held_until_s = at.monotonic_s + HOLD_SECONDS
        self._kills = kills
        if self._held_until_s is None or at.monotonic_s >= self._held_until_s:
            self.begin_anew()

    def end(self, at: Instant, levels: tuple[LevelSample, ...], node: NodeSample) -> None:
        """Take in the reading at the end of a process: soon what happened until now is no news any more."""
        self.tick(at, levels, node)
        self._end = self._last
        until = at.monotonic_s + _HOLD_AFTER_END_SECONDS
        self._held_until_s = until if self._held_until_s is None else min(self._held_until_s, until)

    def begin_anew(self) -> None:
        """Take the last reading for the state before: what moved until then is told, and explains nothing any more."""
        self._held_until_s = None
        self.base = self._last

    def for_newcomer(self, began_s: float | None) -> Base:
        """Give what a process that is handed over now, and began then, is to be compared with."""
        base = later(self.base, self._end)
        return base if began_s is None or self._last.at_s > began_s else later(base, self._last)
