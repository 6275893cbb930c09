"""The kernel's report of an OOM kill, out of /dev/kmsg records. Pure, total, linear in the text.

Shapes (mm/oom_kill.c, mm/memcontrol.c)
    up to 4.18   "Task in A killed as a result of limit of B", "... Kill process N (c) score S or sacrifice child",
                 "Killed process N (c) total-vm:..kB, anon-rss:..kB, file-rss:..kB[, shmem-rss:..kB]"
    from 4.19    "oom-kill:constraint=..,nodemask=..,cpuset=..,mems_allowed=..,(oom_memcg=B|global_oom),task_memcg=A,
                 task=c,pid=N,uid=U"
    from 5.1     "Memory cgroup out of memory: Killed process N (c) total-vm:.." or "Out of memory: Killed process .."
    group        "Tasks in B are going to be killed due to memory.oom.group set", then one "Killed process" each, the
                 first victim twice
`oom_memcg` is the group whose limit it was, `task_memcg` the victim's. Only "Killed" is a kill: the process that
"Kill process" names may be spared for its child. Records that a program wrote (facility not kern) do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from guard.kernel.values import KmsgRecord

_KERNEL_FACILITY: Final = 0
_INVOKED: Final = re.compile(r"^(.{0,64}) invoked oom-killer: ")
_TASK_IN: Final = re.compile(r"^Task in (\S+) killed as a result of limit of (\S+)$")
_USAGE: Final = re.compile(r"^memory: usage (\d{1,20})kB, limit (\d{1,20})kB")
_VICTIM: Final = re.compile(r",pid=(\d{1,10}),uid=\d{1,10}$")
_KILLED: Final = re.compile(r"Killed process (\d{1,10})(?:, UID \d{1,10},)? \((.{0,64}?)\)(?: total-vm|,? UID|$)")
_ANON: Final = re.compile(r"\banon-rss:(\d{1,20})kB")


@dataclass(frozen=True, slots=True)
class Killed:
    """One "Killed process" line. `pid` is of the initial PID namespace."""

    pid: int
    comm: str
    anon_rss_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReport:
    """One report. None: the kernel did not print it, or the line was lost (the log is rate limited)."""

    at_seconds: float  # of the first line, since boot
    sequence: int  # of the first line
    global_oom: bool | None = None
    oom_memcg: str | None = None
    task_memcg: str | None = None
    victim_pid: int | None = None
    usage_bytes: int | None = None
    limit_bytes: int | None = None
    killed: tuple[Killed, ...] = ()

    @property
    def pids(self) -> frozenset[int]:
        """Every process that the report names as a victim."""
        chosen = () if self.victim_pid is None or self.killed else (self.victim_pid,)
        return frozenset((*(one.pid for one in self.killed), *chosen))


def parse(records: Iterable[KmsgRecord]) -> tuple[OomReport, ...]:
    """Give the reports in the records, oldest first. Lines of other subjects between them are passed over."""
    reports: list[OomReport] = []
    for record in records:
        if record.facility != _KERNEL_FACILITY:
            continue
        text = record.text.partition("\n")[0]
        if _begins(text, reports[-1] if reports else None):
            reports.append(OomReport(at_seconds=record.timestamp_us / 1e6, sequence=record.sequence))
        if reports:
            reports[-1] = _with_line(reports[-1], text)
    return tuple(reports)


def _begins(text: str, last: OomReport | None) -> bool:
    """Tell the first line of a report: where the head was lost, the first line that belongs to none before it."""
    if _INVOKED.match(text):
        return True
    if text.startswith("oom-kill:"):
        return last is None or last.victim_pid is not None or bool(last.killed)
    return last is None and ("Killed process " in text or _TASK_IN.match(text) is not None)


def _with_line(report: OomReport, text: str) -> OomReport:
    if text.startswith("oom-kill:"):
        return _with_summary(report, text)
    if (found := _TASK_IN.match(text)) is not None:
        return replace(report, task_memcg=found[1], oom_memcg=found[2], global_oom=False)
    if (found := _USAGE.match(text)) is not None:
        return replace(report, usage_bytes=int(found[1]) << 10, limit_bytes=int(found[2]) << 10)
    if (found := _KILLED.search(text)) is not None:
        return _with_killed(report, text, found)
    return report


def _with_summary(report: OomReport, text: str) -> OomReport:
    head, _, task = text.partition(",task=")
    _, _, task_memcg = head.partition(",task_memcg=")
    _, _, oom_memcg = head.partition(",task_memcg=")[0].partition(",oom_memcg=")
    pid = _VICTIM.search(task)
    # Kernels without memory cgroups print neither oom_memcg nor global_oom; then every kill is global.
    return replace(
        report,
        global_oom=not oom_memcg,
        oom_memcg=oom_memcg or None,
        task_memcg=task_memcg or None,
        victim_pid=int(pid[1]) if pid else None,
    )


def _with_killed(report: OomReport, text: str, found: re.Match[str]) -> OomReport:
    anon = _ANON.search(text)
    one = Killed(int(found[1]), found[2], int(anon[1]) << 10 if anon else None)
    killed = report.killed if one.pid in {other.pid for other in report.killed} else (*report.killed, one)
    by_prefix = False if text.startswith("Memory cgroup") else True if text.startswith("Out of memory") else None
    return replace(report, killed=killed, global_oom=by_prefix if report.global_oom is None else report.global_oom)
