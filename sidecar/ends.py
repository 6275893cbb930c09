"""The end of a process: latch what will be gone in a moment, then ask what takes a moment, then give the evidence.

Theory
    * The cgroup's counters stay readable until the runtime removes the cgroup, about 1.4 s after the death under podman
      on 6.12, at once elsewhere: so they are read first, in the very call that the pidfd wakes.
    * "Before" is not simply the last tick. The kernel counts a kill when it sends the signal; a large process is then
      torn down for up to seconds, and ticks meanwhile see the counter already moved. `Quiet` keeps the last tick before
      any kill counter moved.
    * The wait status comes from the runner's message or from the pidfd after the reap: both within milliseconds, so a
      short wait is enough, and who never tells costs no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guard.kernel import memcg
from guard.kernel.values import KmsgRecord
from guard.model import BoxState, Known, LifeId, Reading, Unknown, Why
from sidecar.clock import Clock
from sidecar.collect import exit_status
from sidecar.collect.node import counter
from sidecar.health.evidence import holds_model
from sidecar.health.memory import Crash
from sidecar.sample import Instant, LevelId, LevelSample, NodeSample
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.values import EndClass, EndEvidence, LevelsBefore, Verdict, WaitStatus

SETTLE_SECONDS: Final = 0.3
"""Longest wait for the wait status: a verdict is due within a second."""
_STEP_SECONDS: Final = 0.02
_HOLD_SECONDS: Final = 30.0
"""How long a moved kill counter stays unexplained: tearing down 100 GB of small pages takes some seconds."""
_HOLD_AFTER_END_SECONDS: Final = 2.0
"""How long after an end its kill still explains others: a group kill ends all processes of a cgroup at once."""
KMSG_SECONDS: Final = _HOLD_SECONDS
"""How far back the kernel log is taken as evidence."""


@dataclass(slots=True)
class Quiet:
    """The levels and the node as they were before any kill counter moved."""

    levels: tuple[LevelSample, ...] = ()
    node: NodeSample | None = None
    _kills: dict[LevelId, int] | None = None
    _held_until_s: float | None = None

    def tick(self, at: Instant, levels: tuple[LevelSample, ...], node: NodeSample) -> None:
        """Take in one tick."""
        kills = {level.id: known.value for level in levels if isinstance(known := memcg.oom_kills(level.memory), Known)}
        before = self._kills or {}
        if any(count > before.get(level, count) for level, count in kills.items()):
            self._held_until_s = at.monotonic_s + _HOLD_SECONDS
        self._kills = kills
        if self._held_until_s is not None and at.monotonic_s < self._held_until_s:
            return
        self.begin_anew(levels, node)

    def begin_anew(self, levels: tuple[LevelSample, ...], node: NodeSample) -> None:
        """Take this for the state before: whatever moved until now is told, and explains nothing any more."""
        self._held_until_s = None
        self.levels, self.node = levels, node

    def explained(self, at: Instant) -> None:
        """An end was laid to what happened since: soon it is no news any more."""
        until = at.monotonic_s + _HOLD_AFTER_END_SECONDS
        self._held_until_s = until if self._held_until_s is None else min(self._held_until_s, until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latch:
    """What was read in the moment of the end."""

    life: LifeId
    main: bool
    main_was_alive: bool  # of its model: false where this one followed its main process
    ended: Instant
    levels: tuple[LevelsBefore, ...]
    hidden_ancestors: bool
    node_oom_kill_delta: Reading[int]
    node_available_ratio: Reading[float]
    box: Reading[BoxState]
    liveness_failures_answered: int
    liveness_failing: tuple[Instant, Instant] | None
    liveness_threshold: int

    @property
    def levels_after(self) -> tuple[LevelSample, ...]:
        """The levels as latched."""
        return tuple(level.after for level in self.levels)


def pair(before: tuple[LevelSample, ...], after: tuple[LevelSample, ...]) -> tuple[LevelsBefore, ...]:
    """Put the levels together by identity; one that was never seen before stands for both."""
    earlier = {level.id: level for level in before}
    return tuple(LevelsBefore(before=earlier.get(level.id, level), after=level) for level in after)


def oom_kill_delta(before: NodeSample | None, after: Reading[int]) -> Reading[int]:
    """Say how many kills the node counted since the quiet tick."""
    if before is None:
        return Unknown(Why.NOT_SAMPLED, "/proc/vmstat oom_kill")
    earlier = counter(before.vmstat, "oom_kill")
    if isinstance(earlier, Unknown):
        return earlier
    return after if isinstance(after, Unknown) else Known(max(0, after.value - earlier.value))


def available_ratio(node: NodeSample | None) -> Reading[float]:
    """Say which part of the node's memory was available."""
    if node is None:
        return Unknown(Why.NOT_SAMPLED, "/proc/meminfo")
    available, total = counter(node.meminfo, "MemAvailable"), counter(node.meminfo, "MemTotal")
    if isinstance(available, Unknown):
        return available
    if isinstance(total, Unknown):
        return total
    return Known(available.value / total.value) if total.value else Unknown(Why.MALFORMED, "/proc/meminfo MemTotal")


_CRASHES: Final = frozenset(
    {
        EndClass.CGROUP_OOM,
        EndClass.GLOBAL_OOM,
        EndClass.USERSPACE_OOM,
        EndClass.GPU_ALLOCATION_FAILURE,
        EndClass.HOST_ALLOCATION_FAILURE,
        EndClass.SHM_EXHAUSTED,
        EndClass.DEVICE_RESET,
        EndClass.CRASH_SIGNAL,
        EndClass.APPLICATION_EXIT,
    }
)
"""Ends that no front end orders. It may well kill an engine to make room for another model."""


def crash_of_engine(evidence: EndEvidence, verdict: Verdict) -> Crash | None:
    """Tell the crash of a child that held the model for its parent, for the judge; None for every other end."""
    box = evidence.box
    if evidence.main or verdict.end_class not in _CRASHES or not isinstance(box, Known) or not holds_model(box):
        return None
    parent = box.value.parent_session
    return None if parent is None else Crash(parent, evidence.ended.monotonic_s, verdict.summary)


async def settle(process: SeenProcess, clock: Clock) -> Reading[WaitStatus]:
    """Wait for the wait status, no longer than `SETTLE_SECONDS`."""
    deadline = clock.now().monotonic_s + SETTLE_SECONDS
    while True:
        status = exit_status.of(process)
        if isinstance(status, Known) or clock.now().monotonic_s >= deadline:
            return status
        await clock.sleep(_STEP_SECONDS)


def evidence(
    latch: Latch, wait_status: Reading[WaitStatus], kmsg: Reading[tuple[KmsgRecord, ...]], others_alive: int
) -> EndEvidence:
    """Put everything together for the verdict."""
    return EndEvidence(
        life=latch.life,
        main=latch.main,
        ended=latch.ended,
        wait_status=wait_status,
        levels=latch.levels,
        hidden_ancestors=latch.hidden_ancestors,
        node_oom_kill_delta=latch.node_oom_kill_delta,
        node_available_ratio=latch.node_available_ratio,
        kmsg=kmsg,
        box=latch.box,
        liveness_failures_answered=latch.liveness_failures_answered,
        liveness_failing=latch.liveness_failing,
        liveness_threshold=latch.liveness_threshold,
        others_alive=others_alive,
    )
