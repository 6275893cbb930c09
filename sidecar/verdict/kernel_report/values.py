"""One OOM report as the kernel printed it. None: the kernel did not print it, or the line was cut, lost or hidden."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

_UNLIMITED_KB: Final = 1 << 52
"""Beyond 4 EiB no limit was set: 9007199254740988, ..991 and 18014398509481983 kB are LONG_MAX and its kin in pages."""


class Scope(StrEnum):
    """Whose memory ran out."""

    CGROUP = "cgroup"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """One "Killed process" line. `pid` is of the initial PID namespace; `comm` is cut to 15 bytes by the kernel."""

    pid: int
    comm: str | None = None
    uid: int | None = None
    total_vm_kb: int | None = None
    anon_rss_kb: int | None = None
    file_rss_kb: int | None = None
    shmem_rss_kb: int | None = None
    pgtables_kb: int | None = None
    oom_score_adj: int | None = None

    @property
    def anon_rss_bytes(self) -> int | None:
        """Anonymous memory that it held."""
        return None if self.anon_rss_kb is None else self.anon_rss_kb << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A line "memory: usage ..kB, limit ..kB, failcnt ..". `limit_kb` is the printed number, see `unlimited`."""

    usage_kb: int
    limit_kb: int | None = None
    failcnt: int | None = None

    @property
    def unlimited(self) -> bool:
        """Tell whether the printed limit means that none was set."""
        return self.limit_kb is not None and self.limit_kb >= _UNLIMITED_KB


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of the task table, in pages. Its layout changed six times, so columns are taken by name."""

    pid: int
    comm: str
    total_vm_pages: int | None = None
    rss_pages: int | None = None
    swapents_pages: int | None = None
    oom_score_adj: int | None = None


@dataclass(slots=True, kw_only=True)
class OomReport:
    """One report. It is filled while its lines are read and not changed afterwards.

    Invariant: `killed` holds each pid once, in the order of the log.
    """

    at_seconds: float | None = None  # of the first line, on the log's own clock
    sequence: int = 0  # of the first line: record number of the kernel log, or line of the file
    last: int = 0  # of the last line
    lines: dict[str, int] = field(default_factory=dict)  # where each kind of statement was first read
    invoker: str | None = None
    invoker_pid: int | None = None
    invoker_oom_score_adj: int | None = None
    gfp_mask: str | None = None
    order: int | None = None
    kernel: str | None = None
    constraint: str | None = None
    nodemask: str | None = None
    cpuset: str | None = None
    mems_allowed: str | None = None
    global_flag: bool = False  # the words "global_oom"
    oom_memcg: str | None = None  # the group whose limit it was
    task_memcg: str | None = None  # the victim's group
    stats_memcg: str | None = None  # of "Memory cgroup stats for"
    victim_pid: int | None = None  # chosen, by the "oom-kill:" line
    victim_comm: str | None = None
    victim_uid: int | None = None
    selected_pid: int | None = None  # "Kill process N .. or sacrifice child": not always the one that dies
    selected_comm: str | None = None
    score: int | None = None
    killed: list[Killed] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)  # "is already exiting. Skip killing the task"
    reaped: dict[int, int | None] = field(default_factory=dict)  # pid -> shmem-rss in kB that stayed
    group: bool = False  # memory.oom.group
    no_killable: bool = False
    panic: bool = False
    suppressed: int | None = None  # "N callbacks suppressed" before it
    prefix: Scope | None = None  # "Memory cgroup out of memory" or "Out of memory"
    memcg_frames: bool = False  # the call trace goes through the memory controller
    mem_info: bool = False  # "Mem-Info:", which the kernel prints for global reports alone
    usage: dict[str, Usage] = field(default_factory=dict)  # memory, memory+swap, swap, kmem
    stats: dict[str, int] = field(default_factory=dict)  # of the group, in bytes
    columns: tuple[str, ...] = ()
    tasks: list[Task] = field(default_factory=list)  # the first rows
    free_swap_kb: int | None = None
    total_swap_kb: int | None = None
    slab_memcg: str | None = None  # the group of a slab that could not grow
    shared_clock: bool = True  # false: rows whose time is a torn pid

    @property
    def scope(self) -> Scope | None:
        """Tell whose memory it was.

        `oom_memcg` decides: CONSTRAINT_NONE is printed on cgroup kills too (5.0), and a global kill names the
        victim's cgroup.
        """
        if self.oom_memcg is not None:
            return Scope.CGROUP
        if self.global_flag:
            return Scope.GLOBAL
        if self.prefix is not None:
            return self.prefix
        if self.usage or self.stats_memcg or self.group or self.memcg_frames or self.constraint == "CONSTRAINT_MEMCG":
            return Scope.CGROUP
        return Scope.GLOBAL if self.constraint is not None or self.panic or self._is_node_wide else None

    @property
    def _is_node_wide(self) -> bool:
        # gfp_mask 0 is a page fault that failed elsewhere, such as in a charge to a kernel memory limit (up to 5.x).
        return self.mem_info and self.gfp_mask is not None and not self.gfp_mask.startswith("0x0(")

    @property
    def global_oom(self) -> bool | None:
        """Tell whether the node itself was out of memory."""
        return None if self.scope is None else self.scope is Scope.GLOBAL

    @property
    def pids(self) -> frozenset[int]:
        """Every process that the report names as a victim."""
        chosen = () if self.victim_pid is None or self.killed else (self.victim_pid,)
        return frozenset((*(one.pid for one in self.killed), *chosen))
