"""The end of a process: latch what will be gone in a moment, then ask what takes a moment, then give the evidence.

Theory
    * The cgroup's counters stay readable until the runtime removes the cgroup, about 1.4 s after the death under podman
      on 6.12, at once elsewhere: so they are read first, in the very call that the pidfd wakes.
    * What was before is `sidecar.quiet`'s matter.
    * The wait status comes from the runner's message, from the pidfd after the reap, or from the note that the runner
      leaves, where its connection is not there (again): all within milliseconds, so a short wait is enough, and who
      never tells costs no more than that.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from guard.box.end_note import EndNote
from guard.kernel.values import KmsgRecord
from guard.model import BoxState, Known, LifeId, Reading, Unknown, Why
from sidecar.clock import Clock
from sidecar.collect import exit_status
from sidecar.collect.node import counter
from sidecar.health.evidence import holds_model
from sidecar.health.memory import Crash
from sidecar.quiet import HOLD_SECONDS
from sidecar.sample import Instant, LevelId, LevelSample, NodeSample
from sidecar.sight.seen import SeenProcess
from sidecar.verdict.values import EndClass, EndEvidence, LevelsBefore, Verdict, WaitStatus

SETTLE_SECONDS: Final = 0.3
"""Longest wait for the wait status: a verdict is due within a second."""
_STEP_SECONDS: Final = 0.02
FIRST_SECONDS: Final = 5.0
"""A first reading this shortly before the end may have been taken after the kill: it says nothing of before."""
_NEVER_READ: Final = Unknown(Why.NOT_SAMPLED, "levels before the end")
Look: TypeAlias = Callable[[], Awaitable[EndNote | None]]
"""Look for the note of one end."""
KMSG_SECONDS: Final = HOLD_SECONDS
"""How far back the kernel log is taken as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latch:
    """What was read in the moment of the end."""

    life: LifeId
    began_monotonic_s: float | None
    node_pid: int | None
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
    """Put the levels together by identity; of one that was never read before only the limit is known."""
    earlier = {level.id: level for level in before}
    return tuple(LevelsBefore(before=earlier.get(level.id) or _never_read(level), after=level) for level in after)


def _never_read(level: LevelSample) -> LevelSample:
    memory = replace(
        level.memory,
        stat=_NEVER_READ,
        events=_NEVER_READ,
        events_local=_NEVER_READ,
        failcnt=_NEVER_READ,
        oom_control=_NEVER_READ,
    )
    return replace(level, memory=memory)


def oom_kill_delta(before: NodeSample | None, after: Reading[int]) -> Reading[int]:
    """Say how many kills the node counted since the quiet reading."""
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


_OBEYED: Final = tuple(128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
"""Exit codes by which a process says that it was told to end and did."""


def crash_of_engine(evidence: EndEvidence, verdict: Verdict) -> Crash | None:
    """Tell the crash of a child that held the model for its parent, for the judge; None for every other end."""
    box = evidence.box
    if evidence.main or verdict.end_class not in _CRASHES or not isinstance(box, Known) or not holds_model(box):
        return None
    if verdict.end_class is EndClass.APPLICATION_EXIT and _exit_code(evidence) in _OBEYED:
        return None
    parent = box.value.parent_session
    return None if parent is None else Crash(parent, evidence.ended.monotonic_s, verdict.summary)


def left_well(evidence: EndEvidence) -> bool:
    """Tell an exit with status 0, by the wait status or else by the guard's mark."""
    return _exit_code(evidence) == 0


def _exit_code(evidence: EndEvidence) -> int | None:
    status, box = evidence.wait_status, evidence.box
    if isinstance(status, Known):
        return status.value.exit_code
    mark = box.value.exit_mark if isinstance(box, Known) else None
    return None if mark is None else mark.status


def life_of_cgroup(boot_id: str, level: LevelId) -> LifeId:
    """Make the identity of a container whose processes are not seen: the same after a restart of the sidecar."""
    digest = hashlib.sha256(f"{boot_id}/{level.device}/{level.inode}".encode()).hexdigest()
    return LifeId(boot_id, 0, 0, digest[:32])


@dataclass(frozen=True, slots=True)
class Settled:
    """How a process ended, when its runner had first passed a SIGTERM on to it, and the OOM kills that it counted."""

    status: Reading[WaitStatus]
    sigterm_wall_s: float | None = None
    runner_kills: tuple[int, int] | None = None


def kills_of(note: EndNote) -> tuple[int, int] | None:
    """Give the OOM kills that the runner counted in its own cgroup, before the start and at the end."""
    if note.oom_kills_before is None or note.oom_kills_after is None:
        return None
    return note.oom_kills_before, note.oom_kills_after


async def settle(process: SeenProcess, clock: Clock, look: Look) -> Settled:
    """Wait for the wait status, no longer than `SETTLE_SECONDS`: from the runner, the kernel or the runner's note.

    A runner is waited for although the kernel has told the status: it alone knows of a SIGTERM. `look` reads the note;
    a volume that hangs is asked once.
    """
    deadline = clock.now().monotonic_s + SETTLE_SECONDS
    hangs = False
    while True:
        status, now_s, note = exit_status.of(process), clock.now().monotonic_s, None
        waiting = isinstance(status, Unknown) or (process.has_runner and process.wait_status_from_runner is None)
        if waiting and not hangs:
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    note = await look()
            except TimeoutError:
                hangs = True
        if note is not None:
            return Settled(Known(exit_status.from_raw(note.wait_status)), note.sigterm_wall_s, kills_of(note))
        if not waiting or now_s >= deadline:
            return Settled(status, process.sigterm_from_runner_wall_s)
        await clock.sleep(_STEP_SECONDS)


def evidence(
    latch: Latch, wait_status: Reading[WaitStatus], kmsg: Reading[tuple[KmsgRecord, ...]], others_alive: int
) -> EndEvidence:
    """Put everything together for the verdict."""
    return EndEvidence(
        life=latch.life,
        began_monotonic_s=latch.began_monotonic_s,
        node_pid=latch.node_pid,
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
