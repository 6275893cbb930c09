"""What kernel files say, as frozen values. Field names are the kernel's own, with a unit where the kernel has none.

`None` in a field means that the kernel did not print that line (older or differently configured kernel).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType

from guard.model import Limit, Reading, Unknown, Why


class CgroupVersion(Enum):
    """Which hierarchy carries the memory controller."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class PsiLine:
    """One line of a pressure file. Averages are percent of wall time, `total_us` the stall since the cgroup began."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


@dataclass(frozen=True, slots=True)
class Psi:
    """A pressure file (kernel 4.20+, Documentation/accounting/psi.rst). `full` is None where it is not printed."""

    some: PsiLine
    full: PsiLine | None


@dataclass(frozen=True, slots=True)
class OomControl:
    """v1 memory.oom_control. `oom_kill` is None before kernel 4.13."""

    oom_kill_disable: int
    under_oom: int
    oom_kill: int | None


_KMEM_NOT_SAMPLED = Unknown(Why.NOT_SAMPLED, "memory.kmem.usage_in_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One cgroup at one instant, whatever the version. A file that a version lacks reads `Unknown(UNSUPPORTED)`.

    v1 names map to the v2 field that means the same: usage_in_bytes to current, max_usage_in_bytes to peak,
    limit_in_bytes to max. v1 `memsw` limits memory and swap together and has its own field.
    """

    version: CgroupVersion
    current_bytes: Reading[int]
    peak_bytes: Reading[int]
    max_bytes: Reading[Limit]
    high_bytes: Reading[Limit]
    low_bytes: Reading[Limit]
    min_bytes: Reading[Limit]
    swap_current_bytes: Reading[int]
    swap_max_bytes: Reading[Limit]
    memsw_current_bytes: Reading[int]
    memsw_limit_bytes: Reading[Limit]
    stat: Reading[Mapping[str, int]]
    events: Reading[Mapping[str, int]]
    events_local: Reading[Mapping[str, int]]
    failcnt: Reading[int]
    oom_control: Reading[OomControl]
    memory_pressure: Reading[Psi]
    io_pressure: Reading[Psi]
    cpu_pressure: Reading[Psi]
    cpu_stat: Reading[Mapping[str, int]]
    kmem_current_bytes: Reading[int] = _KMEM_NOT_SAMPLED  # v1: kernel memory, part of current


class LevelScope(StrEnum):
    """What a level of the hierarchy stands for."""

    CONTAINER = "container"
    POD = "pod"
    QOS = "qos"
    SLICE = "slice"
    ROOT = "root"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPath:
    """Where one level's files lie. `name` is the cgroup path as the memory hierarchy shows it to the reader."""

    name: str
    version: CgroupVersion
    scope: LevelScope
    memory_dir: str
    unified_dir: str | None  # pressure files (hybrid: the v2 tree beside the v1 controller)
    cpu_dir: str | None  # cpu.stat


@dataclass(frozen=True, slots=True)
class Chain:
    """The levels of one process, its own first, the root (or what the namespace shows as root) last.

    `hidden_ancestors`: levels above the last one exist but cannot be seen, so a limit may bind that nobody here reads.
    """

    levels: tuple[LevelPath, ...]
    hidden_ancestors: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcStatus:
    """/proc/PID/status. Sizes in bytes (the kernel prints kB)."""

    name: str
    state: str
    pid: int
    ppid: int
    ns_pids: tuple[int, ...]
    uid: int
    threads: int | None
    vm_rss_bytes: int | None
    rss_anon_bytes: int | None
    rss_file_bytes: int | None
    rss_shmem_bytes: int | None
    vm_swap_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcStat:
    """/proc/PID/stat, proc_pid_stat(5). Times in clock ticks."""

    pid: int
    comm: str
    state: str
    ppid: int
    minflt: int
    majflt: int
    utime_ticks: int
    stime_ticks: int
    num_threads: int
    starttime_ticks: int
    delayacct_blkio_ticks: int | None


@dataclass(frozen=True, slots=True)
class ProcIo:
    """/proc/PID/io, in bytes and calls."""

    rchar: int
    wchar: int
    syscr: int
    syscw: int
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True)
class Statm:
    """/proc/PID/statm, in pages."""

    size_pages: int
    resident_pages: int
    shared_pages: int


@dataclass(frozen=True, slots=True)
class Membership:
    """One line of /proc/PID/cgroup: `controllers` is empty for the v2 hierarchy (id 0)."""

    hierarchy_id: int
    controllers: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/PID/mountinfo, octal escapes undone."""

    root: str
    mount_point: str
    fs_type: str
    options: tuple[str, ...]
    super_options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KmsgRecord:
    """One record of /dev/kmsg. `timestamp_us` counts from boot (local_clock, close to CLOCK_MONOTONIC)."""

    level: int
    facility: int
    sequence: int
    timestamp_us: int
    text: str
    fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # SUBSYSTEM, DEVICE
