"""One level of the model's chain, read through kept descriptors.

A full read takes every file. A lean one, ten times a second when a limit is near, takes what headroom and kills are
made of, and nothing of a level without a limit: there is no headroom to watch, and a new limit shows within the second
at the next full read. What a lean read leaves out keeps its value.

A glance, at each tick, takes memory.stat alone, and not even that while usage has not grown: memory that reclaim cannot
take grows on top of usage, or in place of page cache, and cache makes place where usage stands at a limit. (The node's
own reclaim takes cache as well: that shows at the next full read.) Reading usage costs a tenth: one number, no flush of
the kernel's per-CPU counters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from guard.kernel import flat, memcg
from guard.kernel.headroom import headroom_bytes
from guard.kernel.reader import KeptFile
from guard.kernel.values import CgroupVersion, MemoryLevel
from guard.model import UNLIMITED, Known, Limit, Reading, Unknown, Unlimited, Why
from sidecar.sample import LevelSample
from sidecar.sight.seen import SeenLevel

_LIMIT: Final = 64 << 10  # bytes; memory.stat is about 2 KiB, with per-node lines on a large machine 20 KiB

_GROWN_BYTES: Final = 256 << 10  # usage includes what each CPU charged ahead, up to 64 pages (mm/memcontrol.c)
_FULL_SHIFT: Final = 4  # usage stands at a limit within its last 16th

_Parse: TypeAlias = Callable[[bytes, str], Reading[Any]]
_LeanFile: TypeAlias = tuple[str, _Parse, KeptFile]  # field of MemoryLevel, its parser, its file
_USAGE: Final = {CgroupVersion.V2: "memory.current", CgroupVersion.V1: "memory.usage_in_bytes"}
_LEAN: Final[Mapping[CgroupVersion, Mapping[str, tuple[str, _Parse]]]] = {
    CgroupVersion.V2: {
        "memory.events": ("events", flat.parse_table),
        "memory.current": ("current_bytes", flat.parse_number),
        "memory.stat": ("stat", flat.parse_table),
        "memory.max": ("max_bytes", flat.parse_limit),
        "memory.high": ("high_bytes", flat.parse_limit),
    },
    CgroupVersion.V1: {
        "memory.oom_control": ("oom_control", memcg.parse_oom_control),
        "memory.usage_in_bytes": ("current_bytes", flat.parse_number),
        "memory.stat": ("stat", flat.parse_table),
        "memory.limit_in_bytes": ("max_bytes", flat.parse_limit),
    },
}


class LevelReader:
    """Reads one level. Once the kernel has removed the cgroup, `gone` is true and the last values stay."""

    def __init__(self, seen: SeenLevel, *, hidden_ancestors: bool) -> None:
        self.gone = False
        self.bounded = False
        """Whether a limit is set here, as of the last full read."""
        self._seen = seen
        self._hidden_ancestors = hidden_ancestors
        self._last: LevelSample | None = None
        self._bytes: dict[str, bytes] = {}
        self._lean: tuple[_LeanFile, ...] = tuple(
            (field, parse, seen.files[name])
            for name, (field, parse) in _LEAN[seen.version].items()
            if name in seen.files
        )
        self._stat = next((file for file in self._lean if file[0] == "stat"), None)
        self._usage = seen.files.get(_USAGE[seen.version])
        self._looked_at: Reading[int] = Unknown(Why.NOT_SAMPLED, _USAGE[seen.version])
        """Usage when memory.stat was last read."""
        self._still_below = 0
        """Bytes of usage below which nothing has changed since."""
        self._room: Reading[Limit] = Known(UNLIMITED)
        """Room at that time."""

    def read(self, *, full: bool) -> LevelSample:
        """Read now, lean or full; the first read is always full."""
        if self._last is None or (full and not self.gone):
            return self._full()
        return self._last if self.gone or not self.bounded else self._refresh(self._lean)

    def glance(self) -> Reading[Limit]:
        """Say how much room is left below the limit, or was at the last look if none can have been lost since."""
        if self._last is None or self.gone or not self.bounded:
            return Known(UNLIMITED)
        if self._stat is not None and not self._stands_still():
            usage = self._usage_now()
            self._look(self._refresh((self._stat,)), usage)
        return self._room

    def _usage_now(self) -> Reading[int]:
        if self._usage is None:
            return Unknown(Why.MISSING, "usage")
        data = self._usage.read(_LIMIT)
        return data if isinstance(data, Unknown) else flat.parse_number(data.value, self._usage.where)

    def _stands_still(self) -> bool:
        """Tell whether usage has not grown since the last look and is below every limit; ten times a second."""
        usage = None if self._usage is None else self._usage.read_number()
        return usage is not None and usage < self._still_below

    def _full(self) -> LevelSample:
        seen = self._seen
        files: dict[str, Reading[bytes]] = {name: file.read(_LIMIT) for name, file in seen.files.items()}
        memory = memcg.parse_level(seen.version, files)
        self._bytes.clear()
        self.gone = _is_gone(memory.current_bytes)
        if self.gone and self._last is not None:
            self._last = replace(self._last, gone=True)
        else:
            self._last = LevelSample(id=seen.id, name=seen.name, depth=seen.depth, memory=memory, gone=self.gone)
        self._look(self._last, memory.current_bytes)
        self.bounded = isinstance(self._room, Known) and self._room.value is not UNLIMITED
        return self._last

    def _look(self, last: LevelSample, usage: Reading[int]) -> None:
        self._looked_at = usage
        self._still_below = _still_below(usage, last.memory)
        # Swap only widens the room below a limit that is there, so how much is free does not matter here.
        self._room = headroom_bytes(last.memory, Known(0), hidden_ancestors=self._hidden_ancestors)

    def _refresh(self, files: tuple[_LeanFile, ...]) -> LevelSample:
        assert self._last is not None, "a lean read follows a full one"
        changed: dict[str, Any] = {}  # readings, by field of MemoryLevel
        for field, parse, file in files:
            value = self._changed(field, parse, file)
            if value is not None:
                changed[field] = value
                if _is_gone(value):
                    self.gone = True
                    self._last = replace(self._last, gone=True)
                    return self._last
        if changed:
            self._last = replace(self._last, memory=replace(self._last.memory, **changed))
            self._still_below = _still_below(self._looked_at, self._last.memory)
        return self._last

    def _changed(self, field: str, parse: _Parse, file: KeptFile) -> Reading[Any] | None:
        """Parse a file, unless it says what it said at the last lean read."""
        data = file.read(_LIMIT)
        if isinstance(data, Unknown):
            self._bytes.pop(field, None)
            return data
        if self._bytes.get(field) == data.value:
            return None
        self._bytes[field] = data.value
        return parse(data.value, file.where)


def _still_below(usage: Reading[int], memory: MemoryLevel) -> int:
    """Give what usage must stay below, so that none of it is new and it stands at no limit; 0 where that is unknown."""
    if isinstance(usage, Unknown):
        return 0
    limits = [one.value for one in (memory.max_bytes, memory.high_bytes) if isinstance(one, Known)]
    full = min((one - (one >> _FULL_SHIFT) for one in limits if not isinstance(one, Unlimited)), default=0)
    return min(full, usage.value + _GROWN_BYTES)


def _is_gone(reading: Reading[Any]) -> bool:
    return isinstance(reading, Unknown) and reading.why is Why.GONE
