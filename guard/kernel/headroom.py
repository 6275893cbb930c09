"""How much of a cgroup's memory cannot be reclaimed, and how far that is from its limits.

Theory
    * Usage says nothing: at the limit with clean page cache a cgroup is fine. What counts is memory that reclaim
      cannot take: anonymous and shared memory, locked pages, the kernel's own, and file pages not yet written back.
    * anon + shmem + unevictable would count locked anonymous and shared pages twice, and MADV_FREE pages, which
      reclaim drops, once. The LRU lists have each page once: whatever is not on a file list is anonymous, shared or
      locked (MADV_FREE pages are on the inactive file list, mm/swap.c lru_lazyfree). So the lists are summed.
    * slab_reclaimable (dentries, inodes) is part of `kernel` and can be reclaimed. v1 does not print it, so there
      all of kmem counts. Lines that a kernel does not print are not counted: the sum is what is known to be held.
    * Swap takes anonymous pages off the list, as far as this level's swap limit and the node's free swap go. It does
      not help against a v1 memsw limit, which counts both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from guard.kernel.flat import limit_of
from guard.kernel.values import CgroupVersion, MemoryLevel
from guard.model import UNLIMITED, Known, Limit, Reading, Unknown, Unlimited, Why

T = TypeVar("T")

_KERNEL_PARTS: Final = ("kernel_stack", "pagetables", "percpu", "vmalloc", "slab_unreclaimable")
_LISTS: Final = ("active_anon", "inactive_anon", "unevictable")
_ABSENT: Final = (Why.MISSING, Why.UNSUPPORTED)


class _NotKnown(Exception):  # noqa: N818 - not an error: it carries a missing input up to the public functions here
    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown)
        self.unknown = unknown


def _need(reading: Reading[T]) -> T:
    if isinstance(reading, Unknown):
        raise _NotKnown(reading)
    return reading.value


def unreclaimable_bytes(level: MemoryLevel) -> Reading[int]:
    """Memory of the level and those below that reclaim cannot free without swap.

    Unknown: the reason why `stat` is, MISSING if it lacks the anonymous lines, or why v1 kernel memory is (a v1
    kernel without kernel memory accounting has no such file: nothing to count).
    """
    try:
        return Known(_held(level))
    except _NotKnown as missing:
        return missing.unknown


def headroom_bytes(
    level: MemoryLevel, node_swap_free: Reading[int], *, hidden_ancestors: bool = False
) -> Reading[Limit]:
    """Bytes that the level can still take before a limit of its own binds; negative when it is over one.

    The least of max, high and (v1) memsw, less what cannot be reclaimed. UNLIMITED when none is set. Unknown when a
    limit is, or when one is set and what it must be compared with is unknown. With `hidden_ancestors` the v1
    hierarchical limit counts as well: it is the only sign of a limit that nobody here can read.
    """
    if _has_no_controller(level):
        return Known(UNLIMITED)
    try:
        return Known(min(_rooms(level, node_swap_free, hidden_ancestors=hidden_ancestors), default=UNLIMITED))
    except _NotKnown as missing:
        return missing.unknown


def hierarchical_limit_bytes(level: MemoryLevel) -> Reading[Limit]:
    """The least limit of this level and all above it, hidden ones too. v1 alone prints it (in memory.stat)."""
    if level.version is CgroupVersion.V2:
        return Unknown(Why.UNSUPPORTED, "hierarchical_memory_limit", None, "cgroup v2 does not print it")
    if isinstance(level.stat, Unknown):
        return level.stat
    limit = level.stat.value.get("hierarchical_memory_limit")
    return Unknown(Why.MISSING, "hierarchical_memory_limit") if limit is None else Known(limit_of(limit))


def _held(level: MemoryLevel) -> int:
    stat = _need(level.stat)
    held = _anonymous(level) + _total(stat, "unevictable")
    if level.version is CgroupVersion.V2:
        return held + stat.get("file_dirty", 0) + stat.get("file_writeback", 0) + _kernel_v2(stat)
    kmem = level.kmem_current_bytes
    absent = isinstance(kmem, Unknown) and kmem.why in (*_ABSENT, Why.NOT_SAMPLED)
    return held + _total(stat, "dirty") + _total(stat, "writeback") + (0 if absent else _need(kmem))


def _kernel_v2(stat: Mapping[str, int]) -> int:
    """Kernel memory, sockets and (where accounted) huge pages. `kernel` is printed since 5.18."""
    kernel = stat.get("kernel")
    if kernel is None:
        kernel = sum(stat.get(name, 0) for name in _KERNEL_PARTS)
    else:
        kernel = max(0, kernel - stat.get("slab_reclaimable", 0))
    return kernel + stat.get("sock", 0) + stat.get("hugetlb", 0)


def _anonymous(level: MemoryLevel) -> int:
    """Anonymous and shared memory that is not locked; all of it from `anon` and `shmem` if a list is not printed."""
    stat = _need(level.stat)
    if all(name in stat for name in _LISTS):
        return _total(stat, "active_anon") + _total(stat, "inactive_anon")
    anon = "anon" if level.version is CgroupVersion.V2 else "rss"
    if anon not in stat:
        raise _NotKnown(Unknown(Why.MISSING, f"memory.stat {anon}"))
    return _total(stat, anon) + _total(stat, "shmem")


def _total(stat: Mapping[str, int], name: str) -> int:
    """A line that includes the levels below: v1 calls it `total_...`, v2 has no other."""
    found = stat.get(f"total_{name}")
    return stat.get(name, 0) if found is None else found


def _has_no_controller(level: MemoryLevel) -> bool:
    """Tell a v2 level without the memory controller (the root, or not enabled): the kernel has no limit there.

    Told from a level that cannot be read at all by another file that was read.
    """
    absent = all(isinstance(r, Unknown) and r.why is Why.MISSING for r in (level.max_bytes, level.current_bytes))
    others = (level.stat, level.cpu_stat, level.memory_pressure, level.io_pressure, level.cpu_pressure)
    return level.version is CgroupVersion.V2 and absent and any(isinstance(r, Known) for r in others)


def _rooms(level: MemoryLevel, node_swap_free: Reading[int], *, hidden_ancestors: bool) -> list[int]:
    """Give the room below each limit that is set."""
    limits = [_limit(level.max_bytes), _limit(level.high_bytes, Why.UNSUPPORTED)]
    if hidden_ancestors:
        limits.append(_limit(hierarchical_limit_bytes(level), Why.UNSUPPORTED))
    rooms = [
        limit - _held(level) + _swappable(level, node_swap_free) for limit in limits if not isinstance(limit, Unlimited)
    ]
    both = _limit(level.memsw_limit_bytes, *_ABSENT)  # no memsw files: swap accounting is off
    if not isinstance(both, Unlimited):
        swapped = max(0, _need(level.memsw_current_bytes) - _need(level.current_bytes))
        rooms.append(both - _held(level) - swapped)
    return rooms


def _limit(reading: Reading[Limit], *absent: Why) -> Limit:
    """Take a limit; one that is unknown for a reason in `absent` does not exist here."""
    return UNLIMITED if isinstance(reading, Unknown) and reading.why in absent else _need(reading)


def _swappable(level: MemoryLevel, node_swap_free: Reading[int]) -> int:
    """Anonymous memory that swap can take off this level."""
    room = _anonymous(level)
    allowed = _limit(level.swap_max_bytes, *_ABSENT)  # no such file: no swap accounting, the node's swap decides
    if not isinstance(allowed, Unlimited):
        room = min(room, max(0, allowed - _need(level.swap_current_bytes))) if allowed else 0
    return min(room, _need(node_swap_free)) if room else 0
