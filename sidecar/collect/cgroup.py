"""One level of the model's chain, read through kept descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from guard.kernel import memcg
from guard.kernel.values import MemoryLevel
from guard.model import Reading, Unknown, Why
from sidecar.sample import LevelSample
from sidecar.sight.seen import SeenLevel

_LIMIT: Final = 64 << 10  # bytes; memory.stat is about 2 KiB, with per-node lines on a large machine 20 KiB

# What changes slowly or only explains: read on full ticks, kept between them.
_SLOW_FIELDS: Final = ("peak_bytes", "low_bytes", "min_bytes", "cpu_pressure", "cpu_stat")
_SLOW_FILES: Final = frozenset(
    {"memory.peak", "memory.max_usage_in_bytes", "memory.low", "memory.min", "cpu.pressure", "cpu.stat"}
)


class LevelReader:
    """Reads one level. Once the kernel has removed the cgroup, `gone` is true and the last values stay."""

    def __init__(self, seen: SeenLevel) -> None:
        self.seen = seen
        self.gone = False
        self._last: MemoryLevel | None = None
        self._lean = [(name, file) for name, file in seen.files.items() if name not in _SLOW_FILES]
        self._full = list(seen.files.items())

    def read(self, *, full: bool) -> LevelSample:
        """Read now. A lean read keeps the slow fields of the last full one."""
        if not self.gone:
            self._read(full=full or self._last is None)
        assert self._last is not None, "the first read always yields something"
        return LevelSample(id=self.seen.id, name=self.seen.name, depth=self.seen.depth, memory=self._last)

    def _read(self, *, full: bool) -> None:
        files: Mapping[str, Reading[bytes]] = {
            name: file.read(_LIMIT) for name, file in (self._full if full else self._lean)
        }
        memory = memcg.parse_level(self.seen.version, files)
        if isinstance(memory.current_bytes, Unknown) and memory.current_bytes.why is Why.GONE:
            self.gone = True
            self._last = self._last or memory
            return
        if not full and self._last is not None:
            memory = replace(memory, **{field: getattr(self._last, field) for field in _SLOW_FIELDS})
        self._last = memory
