"""What a process has used so far, as /proc tells anybody who looks from outside."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # words behind the command in /proc/PID/stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counters at one instant of the monotonic clock. CPU time is that of all threads, ended ones included."""

    at_s: float
    cpu_seconds: float
    rss_bytes: int
    read_calls: int
    read_bytes: int
    switches: int

    def cpu_share_since(self, before: Usage) -> float:
        """Give the share of one core."""
        return (self.cpu_seconds - before.cpu_seconds) / (self.at_s - before.at_s)

    def read_calls_per_second_since(self, before: Usage) -> float:
        """Give the read calls, whatever they read."""
        return (self.read_calls - before.read_calls) / (self.at_s - before.at_s)

    def read_bytes_per_second_since(self, before: Usage) -> float:
        """Give the bytes that read calls gave it, kernel files included."""
        return (self.read_bytes - before.read_bytes) / (self.at_s - before.at_s)

    def switches_per_second_since(self, before: Usage) -> float:
        """Give the context switches, wanted or not."""
        return (self.switches - before.switches) / (self.at_s - before.at_s)


def usage(pid: int) -> Usage:
    """Read it now. Context switches are those of the threads that live."""
    process = Path(f"/proc/{pid}")
    stat = (process / "stat").read_text().rpartition(")")[2].split()
    return Usage(
        at_s=time.monotonic(),
        cpu_seconds=(int(stat[_UTIME]) + int(stat[_STIME])) / _TICKS,
        rss_bytes=_field(process / "status", "VmRSS") * 1024,
        read_calls=_field(process / "io", "syscr"),
        read_bytes=_field(process / "io", "rchar"),
        switches=sum(
            _field(task / "status", name)
            for task in (process / "task").iterdir()
            for name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
        ),
    )


def _field(path: Path, name: str) -> int:
    """Give the number of a `name: number` line."""
    lines = path.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
