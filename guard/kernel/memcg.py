"""One cgroup's memory files as values, v1 and v2, and what follows from them: unreclaimable memory and headroom.

Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; mm/memcontrol.c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from guard.kernel import psi
from guard.kernel.flat import limit_of, malformed, parse_limit, parse_number, parse_table
from guard.kernel.headroom import headroom_bytes, hierarchical_limit_bytes, unreclaimable_bytes
from guard.kernel.values import CgroupVersion, MemoryLevel, OomControl
from guard.model import Known, Reading, Unknown, Why

__all__ = [
    "FILES",
    "LevelFile",
    "headroom_bytes",
    "hierarchical_limit_bytes",
    "limit_of",
    "oom_kills",
    "parse_level",
    "parse_limit",
    "parse_oom_control",
    "unreclaimable_bytes",
]

T = TypeVar("T")

MEMORY: Final = "memory"
UNIFIED: Final = "unified"
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class LevelFile:
    """A file of a level. `tree` says where it lies: "memory", "unified" or "cpu", see `LevelPath`."""

    name: str
    tree: str


_PRESSURE: Final = tuple(LevelFile(name, UNIFIED) for name in ("memory.pressure", "io.pressure", "cpu.pressure"))

FILES: Final[Mapping[CgroupVersion, tuple[LevelFile, ...]]] = {
    CgroupVersion.V2: (
        *(
            LevelFile(f"memory.{name}", MEMORY)
            for name in (
                *("current", "peak", "max", "high", "low", "min", "swap.current", "swap.max"),
                *("stat", "events", "events.local"),
            )
        ),
        *_PRESSURE,
        LevelFile("cpu.stat", CPU),
    ),
    CgroupVersion.V1: (
        *(
            LevelFile(f"memory.{name}", MEMORY)
            for name in (
                *("usage_in_bytes", "max_usage_in_bytes", "limit_in_bytes", "memsw.usage_in_bytes"),
                *("memsw.limit_in_bytes", "kmem.usage_in_bytes", "stat", "failcnt", "oom_control"),
            )
        ),
        *_PRESSURE,
        LevelFile("cpu.stat", CPU),
    ),
}


def parse_oom_control(data: bytes, where: str) -> Reading[OomControl]:
    """Parse v1 memory.oom_control. `oom_kill` is None where the line is missing (before 4.13)."""
    table = parse_table(data, where)
    if isinstance(table, Unknown):
        return table
    disable, under = table.value.get("oom_kill_disable"), table.value.get("under_oom")
    if disable is None or under is None:
        return malformed(data, where)
    return Known(OomControl(disable, under, table.value.get("oom_kill")))


def parse_level(version: CgroupVersion, files: Mapping[str, Reading[bytes]]) -> MemoryLevel:
    """Make one level from its files, by kernel file name. A name that is not there reads MISSING."""
    read = _Files(files)
    return _parse_v2(read) if version is CgroupVersion.V2 else _parse_v1(read)


class _Files:
    """Looks a file up and parses it, or says why not."""

    __slots__ = ("_files",)

    def __init__(self, files: Mapping[str, Reading[bytes]]) -> None:
        self._files = files

    def get(self, name: str, parse: Callable[[bytes, str], Reading[T]]) -> Reading[T]:
        data = self._files.get(name)
        if data is None:
            return Unknown(Why.MISSING, name)
        return data if isinstance(data, Unknown) else parse(data.value, name)


def _parse_v2(read: _Files) -> MemoryLevel:
    return MemoryLevel(
        version=CgroupVersion.V2,
        current_bytes=read.get("memory.current", parse_number),
        peak_bytes=read.get("memory.peak", parse_number),  # 5.19+
        max_bytes=read.get("memory.max", parse_limit),
        high_bytes=read.get("memory.high", parse_limit),
        low_bytes=read.get("memory.low", parse_limit),
        min_bytes=read.get("memory.min", parse_limit),
        swap_current_bytes=read.get("memory.swap.current", parse_number),
        swap_max_bytes=read.get("memory.swap.max", parse_limit),
        memsw_current_bytes=_NO_MEMSW,
        memsw_limit_bytes=_NO_MEMSW,
        stat=read.get("memory.stat", parse_table),
        events=read.get("memory.events", parse_table),
        events_local=read.get("memory.events.local", parse_table),  # 5.2+
        failcnt=_NO_FAILCNT,
        oom_control=_NO_OOM_CONTROL,
        memory_pressure=read.get("memory.pressure", psi.parse),
        io_pressure=read.get("io.pressure", psi.parse),
        cpu_pressure=read.get("cpu.pressure", psi.parse),
        cpu_stat=read.get("cpu.stat", parse_table),
        kmem_current_bytes=_NO_KMEM,
    )


def _parse_v1(read: _Files) -> MemoryLevel:
    return MemoryLevel(
        version=CgroupVersion.V1,
        current_bytes=read.get("memory.usage_in_bytes", parse_number),
        peak_bytes=read.get("memory.max_usage_in_bytes", parse_number),
        max_bytes=read.get("memory.limit_in_bytes", parse_limit),
        high_bytes=_NO_HIGH,
        low_bytes=_NO_LOW,
        min_bytes=_NO_MIN,
        swap_current_bytes=_NO_SWAP_CURRENT,
        swap_max_bytes=_NO_SWAP_MAX,
        memsw_current_bytes=read.get("memory.memsw.usage_in_bytes", parse_number),
        memsw_limit_bytes=read.get("memory.memsw.limit_in_bytes", parse_limit),
        stat=read.get("memory.stat", parse_table),
        events=_NO_EVENTS,
        events_local=_NO_EVENTS_LOCAL,
        failcnt=read.get("memory.failcnt", parse_number),
        oom_control=read.get("memory.oom_control", parse_oom_control),
        memory_pressure=read.get("memory.pressure", psi.parse),
        io_pressure=read.get("io.pressure", psi.parse),
        cpu_pressure=read.get("cpu.pressure", psi.parse),
        cpu_stat=read.get("cpu.stat", parse_table),
        kmem_current_bytes=read.get("memory.kmem.usage_in_bytes", parse_number),
    )


def _not_in(version: str, name: str) -> Unknown:
    return Unknown(Why.UNSUPPORTED, name, None, f"cgroup {version} has no such file")


_NO_HIGH: Final = _not_in("v1", "memory.high")
_NO_LOW: Final = _not_in("v1", "memory.low")
_NO_MIN: Final = _not_in("v1", "memory.min")
_NO_SWAP_CURRENT: Final = _not_in("v1", "memory.swap.current")
_NO_SWAP_MAX: Final = _not_in("v1", "memory.swap.max")
_NO_EVENTS: Final = _not_in("v1", "memory.events")
_NO_EVENTS_LOCAL: Final = _not_in("v1", "memory.events.local")
_NO_MEMSW: Final = _not_in("v2", "memory.memsw")
_NO_FAILCNT: Final = _not_in("v2", "memory.failcnt")
_NO_OOM_CONTROL: Final = _not_in("v2", "memory.oom_control")
_NO_KMEM: Final = _not_in("v2", "memory.kmem.usage_in_bytes")


def oom_kills(level: MemoryLevel) -> Reading[int]:
    """Count the processes of the level that the OOM killer has killed. UNSUPPORTED before kernel 4.13.

    v2 counts the levels below as well; v1 counts the victim's own level alone (memcg_memory_event).
    """
    if level.version is CgroupVersion.V1:
        if isinstance(level.oom_control, Unknown):
            return level.oom_control
        kills = level.oom_control.value.oom_kill
        where = "memory.oom_control oom_kill"
    else:
        if isinstance(level.events, Unknown):
            return level.events
        kills = level.events.value.get("oom_kill")
        where = "memory.events oom_kill"
    return Unknown(Why.UNSUPPORTED, where, None, "kernel before 4.13") if kills is None else Known(kills)
