"""What a verdict rests on and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from guard.box.faults import NativeFault
from guard.kernel.values import KmsgRecord
from guard.model import BoxState, LifeId, Reading, Unknown, Why
from sidecar.sample import Instant, LevelSample
from sidecar.verdict.supervisor_values import SupervisorEnd

NOT_LOOKED_FOR: Final = Unknown(Why.NOT_SAMPLED, "trace of a native fault")


class EndClass(StrEnum):
    """Why a model process ended. These names appear in JSON and metrics."""

    CGROUP_OOM = "cgroup_oom"
    GLOBAL_OOM = "global_oom"
    USERSPACE_OOM = "userspace_oom"
    GPU_ALLOCATION_FAILURE = "gpu_allocation_failure"
    HOST_ALLOCATION_FAILURE = "host_allocation_failure"
    SHM_EXHAUSTED = "shm_exhausted"
    HEALTH_CHECK = "health_check"
    EVICTION = "eviction"
    DELETION = "deletion"
    DEVICE_RESET = "device_reset"
    CRASH_SIGNAL = "crash_signal"
    APPLICATION_EXIT = "application_exit"
    EXTERNAL_KILL = "external_kill"
    UNKNOWN = "unknown"


class Confidence(StrEnum):
    """How sure: decisive evidence, strong but indirect evidence, or a best guess."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class WaitStatus:
    """How the process ended, as wait(2) tells it: exactly one of the two is set."""

    exit_code: int | None
    signal: int | None
    core_dumped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelsBefore:
    """One level before and after the end: the last quiet reading of this life, and what was latched at the wake-up."""

    before: LevelSample
    after: LevelSample


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """What happened to a GPU that this sidecar sees. `code` is the Xid, None where the card was lost."""

    at: Instant
    gpu: int
    code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """The end of a process of the model, as it was judged, for the end of its main process."""

    incident: str
    at: Instant
    end_class: EndClass
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvidence:
    """Everything known about the end of one process, on one clock. Unknown parts lower the confidence."""

    life: LifeId
    began_monotonic_s: float | None = None  # of the process; nothing earlier has to do with its end
    node_pid: int | None = None  # its pid as the kernel log gives it; None: not comparable
    main: bool  # false: a child died and the model lives on
    ended: Instant
    wait_status: Reading[WaitStatus]
    levels: tuple[LevelsBefore, ...]  # own first
    hidden_ancestors: bool
    node_oom_kill_delta: Reading[int]  # /proc/vmstat oom_kill; counts memcg kills too
    node_available_ratio: Reading[float]  # MemAvailable / MemTotal in the last sample
    kmsg: Reading[tuple[KmsgRecord, ...]]  # records around the end, stamped on CLOCK_MONOTONIC
    box: Reading[BoxState]
    liveness_failures_answered: int  # consecutive, by this sidecar, up to the end
    others_alive: int  # processes of the same model that still live
    liveness_failing: tuple[Instant, Instant] | None = None  # first and last of them; None: nobody asked, an estimate
    liveness_threshold: int = 3  # failures in a row after which a supervisor kills; Kubernetes' default
    seen: bool = True  # false: counters alone tell of it, and which process of the model it was is not known
    sigterm_wall_s: float | None = None  # when its runner first passed a SIGTERM on to it, if that told
    runner_kills: tuple[int, int] | None = None  # OOM kills of the runner's cgroup: before the start, and at the end
    fault: Reading[NativeFault] = NOT_LOOKED_FOR
    gpu: tuple[GpuEvent, ...] = ()  # around the end
    children: tuple[ChildEnd, ...] = ()  # of its processes, shortly before; of a main process alone
    supervisor: tuple[SupervisorEnd, ...] = ()  # what supervisors say of this end


@dataclass(frozen=True, slots=True)
class Statement:
    """One piece of evidence in words: for (True) or against the verdict."""

    supports: bool
    text: str
    source: str  # where it was read: "memory.events of /a/b", "kmsg 1234", "black box"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer. `level` names whose limit it was, where a limit was the cause."""

    end_class: EndClass
    confidence: Confidence
    summary: str
    level: str | None = None
    statements: tuple[Statement, ...] = ()
    missing: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    fields: Mapping[str, str | int | float | None] = field(default_factory=lambda: MappingProxyType({}))
