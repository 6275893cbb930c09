"""OOM kills of processes that nobody handed over, told by the counters of the model's own cgroup.

Theory
    * The kernel counts a kill before the victim is gone. So a step of the counter waits for the end of a process in
      sight that accounts for it, longer while one of them seems to be dying. What is left then was a stranger: a worker
      without the guard, a tokenizer's helper, a shell.
    * A group kill counts every process of the group and its first victim twice (mm/oom_kill.c, oom_kill_process), so
      there any end in sight accounts for all of it.
    * The end of the main process tells of every kill around it, so nothing is left over from before.
    * Models that share a cgroup share its counters: an end in one of them is taken off the account of each, and a
      stranger's kill is told by one of them alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from guard.kernel import memcg
from guard.model import Known, LifeId, Unknown
from sidecar.sample import Instant, LevelSample, ProcessSample
from sidecar.verdict.owner import kills
from sidecar.verdict.values import LevelsBefore

SETTLE_SECONDS: Final = 3.0
"""An end in sight is noticed at once and judged within a second."""
DYING_SECONDS: Final = 30.0
"""Tearing down 100 GB of small pages takes some seconds, and a disk that thrashes delays every death."""
_DYING_STATES: Final = "DZX"  # proc_pid_stat(5): a wait that no signal ends, a zombie, dead


@dataclass(frozen=True, slots=True)
class Step:
    """Kills that are not accounted for: when the first of them was seen, and the levels just before it."""

    at: Instant
    before: tuple[LevelSample, ...]


@dataclass(slots=True)
class UnseenKills:
    """The account of one model's cgroup in one life."""

    _levels: tuple[LevelSample, ...] = ()
    _step: Step | None = None
    _open: int = 0
    _group: bool = False

    @property
    def waiting(self) -> bool:
        """Whether a kill waits to be accounted for."""
        return self._step is not None

    def tick(self, at: Instant, levels: tuple[LevelSample, ...]) -> None:
        """Take in the levels, own first; lean ticks are welcome."""
        before, self._levels = self._levels, levels
        if not before or not levels or before[0].id != levels[0].id:
            return
        change = kills(LevelsBefore(before=before[0], after=levels[0]))
        if isinstance(change, Unknown) or change.value.delta == 0:
            return
        self._open += change.value.delta
        self._group = self._group or _group_kills(levels[0]) > _group_kills(before[0])
        self._step = self._step or Step(at, before)

    def account(self) -> None:
        """Take off what the end of a process in sight accounts for."""
        self._open = 0 if self._group else max(0, self._open - 1)
        if self._open == 0:
            self._clear()

    def forget(self) -> None:
        """Take off everything: the main process has ended, and its verdict tells of it."""
        self._clear()

    def due(self, at: Instant, *, dying: bool) -> Step | None:
        """Give, once, what nothing has accounted for in time."""
        step = self._step
        if step is None or at.monotonic_s - step.at.monotonic_s < (DYING_SECONDS if dying else SETTLE_SECONDS):
            return None
        self._clear()
        return step

    def _clear(self) -> None:
        self._step, self._open, self._group = None, 0, False


def is_dying(process: ProcessSample) -> bool:
    """Tell a process that may be a victim on its way out: it has given its memory back, or waits for a disk."""
    if not process.alive or isinstance(process.status, Unknown):
        return False
    status = process.status.value
    return status.vm_rss_bytes is None or status.state[:1] in _DYING_STATES


def life_of(boot_id: str, own: LevelSample) -> LifeId:
    """Make the identity of an end without a process: of this cgroup, at this count of kills."""
    count = memcg.oom_kills(own.memory)
    name = f"{boot_id}/{own.id.device}/{own.id.inode}/{count.value if isinstance(count, Known) else ''}"
    return LifeId(boot_id, 0, 0, hashlib.sha256(name.encode()).hexdigest()[:32])


def _group_kills(level: LevelSample) -> int:
    events = level.memory.events
    return events.value.get("oom_group_kill", 0) if isinstance(events, Known) else 0
