"""One tick as a value: everything the sidecar knew about one model at one instant, read on one clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from guard.kernel.values import MemoryLevel, ProcIo, ProcStat, ProcStatus, Psi
from guard.model import BoxState, LifeId, Reading, Unknown, Why


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point in time on both clocks. Order and differences use the monotonic one; the wall clock may jump."""

    monotonic_s: float
    wall_s: float


class SightKind(StrEnum):
    """How the model's cgroup is seen, best first (docs/architecture.md, "Sight")."""

    HANDOVER = "handover"
    SHARED_PID = "shared_pid"
    HOST_CGROUP = "host_cgroup"
    OWN = "own"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LevelId:
    """A cgroup life: a removed and recreated group at the same path has another inode."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSample:
    """One level of the model's chain; depth 0 is the model's own cgroup."""

    id: LevelId
    name: str
    depth: int
    memory: MemoryLevel
    gone: bool = False  # the kernel has removed this cgroup; the values are the last ones


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One process of the model. `alive` is what the pidfd says; readings stay the last ones after death."""

    life: LifeId
    main: bool
    alive: bool
    status: Reading[ProcStatus]
    stat: Reading[ProcStat]
    io: Reading[ProcIo]
    box: Reading[BoxState]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """The node, shared by all models of a tick. `meminfo` in bytes, `vmstat`: the counters in use, by kernel names."""

    meminfo: Reading[Mapping[str, int]]
    vmstat: Reading[Mapping[str, int]]
    memory_pressure: Reading[Psi]
    io_pressure: Reading[Psi]
    cpu_pressure: Reading[Psi]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Memory of a card or of a slice of one, as NVML says it. `used_bytes` is without what the driver reserves.

    Where NVML knows its first form alone (drivers before 510), reserved is unknown and used includes it.
    """

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: Reading[int]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a card. NVML gives its pid in the PID namespace of the host, or none at all inside a container."""

    pid: int
    used_bytes: Reading[int]


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """Share of the last sampling period (1/6 to 1 s) in which kernels ran, and in which memory was read or written."""

    compute_ratio: float
    memory_ratio: float


@dataclass(frozen=True, slots=True)
class GpuXid:
    """A kind of driver error on a card since the sidecar began to listen: how often, and when it came last."""

    code: int
    count: int
    last: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSlice:
    """A MIG slice of a card: memory and processes of its own."""

    index: int
    uuid: Reading[str]
    memory: Reading[GpuMemory]
    processes: Reading[tuple[GpuProcess, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCard:
    """One card. `slices` is empty where MIG is off; of a lost card the readings are GONE."""

    index: int
    uuid: Reading[str]
    name: Reading[str]
    lost: Reading[bool]
    memory: Reading[GpuMemory]
    load: Reading[GpuLoad]
    temperature_celsius: Reading[int]
    processes: Reading[tuple[GpuProcess, ...]]
    slices: Reading[tuple[GpuSlice, ...]]
    xids: Reading[tuple[GpuXid, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """All cards that NVML shows to the sidecar, at one instant of their own: NVML is slow, and read beside the tick."""

    at: Instant
    driver: Reading[str]
    cards: tuple[GpuCard, ...]


NO_GPU: Final = Unknown(Why.NOT_SAMPLED, "gpu")


class ProbeOutcome(StrEnum):
    """How one probe of the model ended."""

    OK = "ok"
    FAILED = "failed"  # answered, but not with success
    TIMEOUT = "timeout"
    REFUSED = "refused"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe of the model by the sidecar. `latency_seconds` is up to the answer, or to giving up."""

    started: Instant
    latency_seconds: float
    outcome: ProbeOutcome
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One tick of one model. `levels` is own first; empty when the model's cgroup is not seen at all."""

    at: Instant
    model: str
    sight: SightKind
    hidden_ancestors: bool
    levels: tuple[LevelSample, ...]
    processes: tuple[ProcessSample, ...]
    node: NodeSample
    probe: Reading[ProbeResult]  # the last finished one
    probe_in_flight_since: Instant | None = None
    probe_heard_late: Instant | None = None  # when a probe that was given up was answered with success after all
    gpu: Reading[GpuSample] = NO_GPU
