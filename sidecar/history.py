"""The last seconds of one model as a value: what detectors and the judge look back on.

Rules
    * Whole samples are kept for the last two ticks only. Of older ticks a `Point` keeps the few numbers that windows
      need: a sample with every line of memory.stat takes about 10 KB a level, a point about 0.5 KB.
    * Only the monotonic clock counts. A sample that is not later than a kept one replaces it and all after it, so a
      clock that went back (another boot, a restored record) starts afresh and never gives a negative time.
    * A level is told by its `LevelId`, a process by its session: numbers of two lives are never subtracted.
    * A counter that went back was reset: only what came after the reset counts.

Rejected: a deque of samples (10 Hz, three levels and eight models would hold 200 MB for the windows of 10 s).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from guard.kernel.headroom import headroom_bytes, unreclaimable_bytes
from guard.kernel.values import CgroupVersion, MemoryLevel, Psi
from guard.model import BoxState, Known, Limit, Operation, Reading, Unknown, Unlimited, Why
from sidecar.sample import Instant, LevelId, LevelSample, NodeSample, ProcessSample, Sample

T = TypeVar("T")

KEEP_SECONDS: Final = 11.0
"""The longest window is 10 s. One point older than this is kept too, so that the window is always covered."""


class Signal(StrEnum):
    """Counters of a level that only grow."""

    MEMORY_SOME_US = "memory.pressure some"
    MEMORY_FULL_US = "memory.pressure full"
    IO_SOME_US = "io.pressure some"
    IO_FULL_US = "io.pressure full"
    REFAULTS = "workingset_refault"
    MAJOR_FAULTS = "pgmajfault"
    HIGH_EVENTS = "memory.events high"
    CPU_THROTTLED_US = "cpu.stat throttled"


class Work(StrEnum):
    """What a process consumes. All but RSS only grow."""

    CPU_TICKS = "stat utime+stime"
    MAJOR_FAULTS = "stat majflt"
    READ_BYTES = "io read_bytes"
    RSS_BYTES = "status VmRSS"


_SIGNALS: Final = tuple(Signal)
_WORKS: Final = tuple(Work)

Counters: TypeAlias = tuple[int | Unknown, ...]
"""Bare numbers: a table of readings takes three times the memory, which is most of what a model takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPoint:
    """One level at one tick. `growing_bytes` is what reclaim cannot take even once dirty pages are written.

    `headroom_bytes` is the room below the nearest limit, by the same measure. `counters` are in the order of `Signal`.
    """

    id: LevelId
    name: str
    depth: int
    growing_bytes: Reading[int]
    headroom_bytes: Reading[Limit]
    counters: Counters

    def reading(self, signal: Signal) -> Reading[int]:
        """Give one of the counters."""
        return _reading(self.counters[_SIGNALS.index(signal)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPoint:
    """One living process at one tick. `beats` by name, empty without a black box; `counters` in the order of `Work`."""

    session: str
    counters: Counters
    beats: Mapping[str, int]

    def reading(self, work: Work) -> Reading[int]:
        """Give one of the counters."""
        return _reading(self.counters[_WORKS.index(work)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An operation in flight, and `growing_bytes` of each level when it was first seen: what it has added since."""

    session: str
    operation: Operation
    growing_bytes: Mapping[LevelId, int]

    @property
    def key(self) -> tuple[str, str, float]:
        """Tell one operation from the next one of the same kind."""
        return self.session, self.operation.label, self.operation.started_monotonic_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is kept of one tick."""

    at: Instant
    levels: tuple[LevelPoint, ...]
    processes: tuple[ProcessPoint, ...]
    begun: tuple[Begun, ...]

    def level(self, level: LevelId) -> LevelPoint | None:
        """Give this life of a level, if it was seen at this tick."""
        for one in self.levels:
            if one.id == level:
                return one
        return None

    def process(self, session: str) -> ProcessPoint | None:
        """Give this life of a process, if it lived at this tick."""
        for one in self.processes:
            if one.session == session:
                return one
        return None


@dataclass(frozen=True, slots=True)
class Rate:
    """By how much a counter grew, and over how long it was really watched."""

    delta: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Give the mean rate."""
        return self.delta / self.seconds


@dataclass(frozen=True, slots=True)
class History:
    """The latest sample, the one before, and points for the windows, oldest first; the last is of `latest`."""

    latest: Sample
    previous: Sample | None
    points: tuple[Point, ...]

    @classmethod
    def start(cls, sample: Sample, point: Point | None = None) -> History:
        """Begin with the first sample of a model."""
        return cls(sample, None, (point or _point(sample, None),))

    def append(self, sample: Sample, point: Point | None = None) -> History:
        """Give the history one tick later; too old points fall off. `point` is the sample's, where one was made."""
        now = sample.at.monotonic_s
        kept = self.points[: bisect_left(self.points, now, key=_monotonic)]
        if point is None:
            point = _point(sample, kept[-1] if kept else None)
        if len(kept) > 1 and kept[-1].at.monotonic_s - kept[-2].at.monotonic_s < _CLOSE_SECONDS:
            kept = kept[:-1]
        first = max(0, bisect_right(kept, now - KEEP_SECONDS, key=_monotonic) - 1)
        return History(sample, self.latest if kept else None, (*kept[first:], point))

    def first(self, seconds: float) -> int:
        """Give the index of the window's first point: the newest one that is `seconds` old, or the first there is."""
        edge = self.points[-1].at.monotonic_s - seconds + _SLACK_SECONDS
        return max(0, bisect_right(self.points, edge, key=_monotonic) - 1)

    def window(self, seconds: float) -> tuple[Point, ...]:
        """Give the points of the last `seconds`, oldest first."""
        return self.points[self.first(seconds) :]

    def covers(self, seconds: float) -> bool:
        """Tell whether the model has been watched for the last `seconds`."""
        return self.points[-1].at.monotonic_s - self.points[0].at.monotonic_s >= seconds - _SLACK_SECONDS

    def level_rate(self, level: LevelId, signal: Signal, seconds: float) -> Reading[Rate]:
        """Say how fast a counter of a level grew over the window; NOT_SAMPLED with fewer than two points."""

        def read(point: Point) -> Reading[int]:
            found = point.level(level)
            return _not_yet(signal) if found is None else found.reading(signal)

        return self._rate(read, signal, seconds)

    def work_rate(self, session: str, work: Work, seconds: float) -> Reading[Rate]:
        """Say how fast a process consumed something over the window; NOT_SAMPLED with fewer than two points."""

        def read(point: Point) -> Reading[int]:
            found = point.process(session)
            return _not_yet(work) if found is None else found.reading(work)

        return self._rate(read, work, seconds)

    def _rate(self, read: Callable[[Point], Reading[int]], what: str, seconds: float) -> Reading[Rate]:
        now = self.points[-1]
        last = read(now)
        if isinstance(last, Unknown):
            return last
        for index in range(self.first(seconds), len(self.points) - 1):
            then = self.points[index]
            value = read(then)
            if isinstance(value, Known):
                # A counter that went back was reset: what it counts now has come since.
                base = value.value if value.value <= last.value else 0
                return Known(Rate(last.value - base, now.at.monotonic_s - then.at.monotonic_s))
        return _not_yet(what)


_CLOSE_SECONDS: Final = 0.08
"""Of two points as near as this the later one goes, once it is not the newest: each end calls for ticks of its own."""
_SLACK_SECONDS: Final = 0.02  # ticks jitter: a point 0.99 s old is one second old


def _monotonic(point: Point) -> float:
    return point.at.monotonic_s


def _not_yet(what: str) -> Unknown:
    return Unknown(Why.NOT_SAMPLED, what, None, "needs two samples")


def _point(sample: Sample, before: Point | None) -> Point:
    swap_free = _node_swap_free(sample.node)
    levels = tuple(_level_point(one, swap_free, sample) for one in sample.levels)
    return Point(
        at=sample.at,
        levels=levels,
        processes=tuple(_process_point(one) for one in sample.processes if one.alive),
        begun=_begun(sample, levels, () if before is None else before.begun),
    )


def _begun(sample: Sample, levels: tuple[LevelPoint, ...], before: tuple[Begun, ...]) -> tuple[Begun, ...]:
    in_flight = [
        (process.life.session, operation)
        for process in sample.processes
        if process.alive and isinstance(process.box, Known)
        for operation in process.box.value.operations
        if not operation.done
    ]
    if not in_flight:
        return ()
    now = {one.id: one.growing_bytes.value for one in levels if isinstance(one.growing_bytes, Known)}
    at_start = {one.key: one.growing_bytes for one in before}
    fresh = (Begun(session=session, operation=one, growing_bytes=now) for session, one in in_flight)
    return tuple(replace(one, growing_bytes=at_start.get(one.key, now)) for one in fresh)


def _node_swap_free(node: NodeSample) -> Reading[int]:
    if isinstance(node.meminfo, Unknown):
        return node.meminfo
    free = node.meminfo.value.get("SwapFree")
    return Unknown(Why.MISSING, "/proc/meminfo SwapFree") if free is None else Known(free)


def _level_point(level: LevelSample, swap_free: Reading[int], sample: Sample) -> LevelPoint:
    memory = level.memory
    held, room = (
        unreclaimable_bytes(memory),
        headroom_bytes(memory, swap_free, hidden_ancestors=sample.hidden_ancestors),
    )
    waiting = _under_writeback(memory)
    return LevelPoint(
        id=level.id,
        name=level.name,
        depth=level.depth,
        growing_bytes=held if isinstance(held, Unknown) else Known(held.value - waiting),
        headroom_bytes=room
        if isinstance(room, Unknown) or isinstance(room.value, Unlimited)
        else Known(room.value + waiting),
        counters=_bare(
            _stall(memory.memory_pressure, full=False),
            _stall(memory.memory_pressure, full=True),
            _stall(memory.io_pressure, full=False),
            _stall(memory.io_pressure, full=True),
            stat_sum(memory, _REFAULTS),
            stat_sum(memory, ("pgmajfault",)),
            _event(memory, "high"),
            _throttled(memory),
        ),
    )


def _bare(*readings: Reading[int]) -> Counters:
    return tuple(one if isinstance(one, Unknown) else one.value for one in readings)


def _reading(counter: int | Unknown) -> Reading[int]:
    return counter if isinstance(counter, Unknown) else Known(counter)


_REFAULTS: Final = ("workingset_refault_anon", "workingset_refault_file", "workingset_refault")  # the last: before 5.9


def stat_sum(memory: MemoryLevel, names: tuple[str, ...]) -> Reading[int]:
    """Sum the lines of memory.stat that are printed, levels below included; MISSING if none is."""
    if isinstance(memory.stat, Unknown):
        return memory.stat
    prefix = "total_" if memory.version is CgroupVersion.V1 else ""
    lines = memory.stat.value
    found = [lines[prefix + name] for name in names if prefix + name in lines]
    return Known(sum(found)) if found else Unknown(Why.MISSING, f"memory.stat {prefix}{names[0]}")


def _under_writeback(memory: MemoryLevel) -> int:
    """Bytes of file pages that only wait for the disk; none where the kernel does not print them.

    A file being written fills them up to the kernel's own bound (on v1 up to the limit) and then waits for the disk.
    """
    names = ("dirty", "writeback") if memory.version is CgroupVersion.V1 else ("file_dirty", "file_writeback")
    waiting = stat_sum(memory, names)
    return waiting.value if isinstance(waiting, Known) else 0


def _stall(psi: Reading[Psi], *, full: bool) -> Reading[int]:
    if isinstance(psi, Unknown):
        return psi
    line = psi.value.full if full else psi.value.some
    return Unknown(Why.MISSING, "pressure full") if line is None else Known(line.total_us)


def _throttled(memory: MemoryLevel) -> Reading[int]:
    """Time that the CPU limit has taken, summed over CPUs: v2 prints microseconds, v1 nanoseconds."""
    if isinstance(memory.cpu_stat, Unknown):
        return memory.cpu_stat
    lines = memory.cpu_stat.value
    if "throttled_usec" in lines:
        return Known(lines["throttled_usec"])
    return Known(lines["throttled_time"] // 1000) if "throttled_time" in lines else _NO_CPU_LIMIT


_NO_CPU_LIMIT: Final = Unknown(Why.MISSING, "cpu.stat throttled")  # the CPU controller is off for this level


def _event(memory: MemoryLevel, name: str) -> Reading[int]:
    if isinstance(memory.events, Unknown):
        return memory.events
    count = memory.events.value.get(name)
    return Unknown(Why.MISSING, f"memory.events {name}") if count is None else Known(count)


def _process_point(process: ProcessSample) -> ProcessPoint:
    stat, io = process.stat, process.io
    box: BoxState | None = process.box.value if isinstance(process.box, Known) else None
    return ProcessPoint(
        session=process.life.session,
        counters=_bare(
            _taken(stat, lambda read: read.utime_ticks + read.stime_ticks),
            _taken(stat, lambda read: read.majflt),
            _taken(io, lambda read: read.read_bytes),
            _taken(process.status, lambda read: read.vm_rss_bytes),
        ),
        beats={} if box is None else {beat.name: beat.count for beat in box.beats},
    )


def _taken(reading: Reading[T], take: Callable[[T], int | None]) -> Reading[int]:
    if isinstance(reading, Unknown):
        return reading
    value = take(reading.value)
    return Unknown(Why.MISSING, "/proc/PID") if value is None else Known(value)
