"""Memory of the levels by kind against their limits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sidecar.report.curves import OfLevel, ever, known_ones, of_level, values
from sidecar.report.frames import Frame
from sidecar.report.rows import Level, Limit
from sidecar.report.story import Chart, Curve, Shape, Unit
from sidecar.units import human_seconds

_WORTH_SAYING_SECONDS: Final = 0.3
"""Readings that end longer before the end leave a gap that everybody sees."""
OWN: Final = "the model's own group"
ABOVE: Final = "a group above the model's"


def memory(frames: Sequence[Frame], level: str) -> Chart:
    """Draw memory of one level by kind against its limits. What reclaim can take lies on top."""
    bands = [
        Curve(label=label, style=style, shape=Shape.AREA, points=values(frames, of_level(level, pick)))
        for label, style, pick in _BANDS
    ]
    bands = [band for band in bands if ever(band.points)]
    lines = known_ones(
        Curve(label=label, style=style, shape=Shape.LINE, points=values(frames, of_level(level, pick)))
        for label, style, pick in _LINES[bool(bands) :]
    )
    return Chart(
        title=f"Memory of {_whom(frames, level)}",
        where=level,
        unit=Unit.BYTES,
        curves=(*bands, *lines, *_limits(frames, level)),
        notes=(*_notes(frames, level, bands or lines), *([] if bands else ["memory.stat was not read: no kinds"])),
    )


def _whom(frames: Sequence[Frame], level: str) -> str:
    own = any(frame.row.levels and frame.row.levels[0].name == level for frame in frames)
    return OWN if own else ABOVE


def _anon(level: Level) -> int | None:
    return level.stat.get("total_rss", level.stat.get("anon"))


def _shared(level: Level) -> int | None:
    return level.stat.get("total_shmem", level.stat.get("shmem"))


def _cache(level: Level) -> int | None:
    """Page cache of files: the kernel's `file` and `cache` hold shared memory as well."""
    every, shared = level.stat.get("total_cache", level.stat.get("file")), _shared(level)
    return None if every is None or shared is None else max(0, every - shared)


def _mapped(level: Level) -> int | None:
    cache, mapped = _cache(level), level.stat.get("total_mapped_file", level.stat.get("file_mapped"))
    return None if cache is None or mapped is None else min(cache, mapped)


def _not_mapped(level: Level) -> int | None:
    cache, mapped = _cache(level), _mapped(level)
    return None if cache is None else cache - (mapped or 0)


def _rest(level: Level) -> int | None:
    """What is charged beside the kinds that are named: on v1 the kernel's own memory, which memory.stat lacks there."""
    parts = (_anon(level), _shared(level), _cache(level))
    if level.current is None or None in parts:
        return None
    return max(0, level.current - sum(part or 0 for part in parts) - level.stat.get("kernel", 0))


_BANDS: Final[tuple[tuple[str, str, OfLevel], ...]] = (
    ("anonymous", "anon", _anon),
    ("shared memory", "shmem", _shared),
    ("kernel", "kernel", lambda level: level.stat.get("kernel")),
    ("other", "rest", _rest),
    ("mapped files", "mapped", _mapped),
    ("page cache, not mapped", "cache", _not_mapped),
)
_LINES: Final[tuple[tuple[str, str, OfLevel], ...]] = (
    ("in use", "usage", lambda level: level.current),
    ("cannot be reclaimed", "held", lambda level: level.unreclaimable),
)


def others(frames: Sequence[Frame], level: str) -> list[Chart]:
    """Draw each further level that has a limit."""
    names = dict.fromkeys(one.name for frame in frames for one in frame.row.levels if one.name != level)
    charts = []
    for name in names:
        limits = _limits(frames, name)
        if limits:
            points = values(frames, of_level(name, lambda one: one.current))
            usage = Curve(label="in use", style="usage", shape=Shape.LINE, points=points)
            title = f"Memory of {_whom(frames, name)}"
            charts.append(Chart(title=title, where=name, unit=Unit.BYTES, curves=(usage, *limits)))
    return charts


def _limits(frames: Sequence[Frame], level: str) -> tuple[Curve, ...]:
    picks: tuple[tuple[str, str, OfLevel], ...] = (
        ("limit (memory.max)", "max", lambda one: _number(one.max)),
        ("throttling (memory.high)", "high", lambda one: _number(one.high)),
    )
    return known_ones(
        Curve(label=label, style=style, shape=Shape.LIMIT, points=values(frames, of_level(level, pick)))
        for label, style, pick in picks
    )


def _number(limit: Limit | None) -> int | None:
    return limit if isinstance(limit, int) else None


def _notes(frames: Sequence[Frame], level: str, curves: Sequence[Curve]) -> list[str]:
    """Say what the curves of a level do not show."""
    said = []
    found = [one.max for frame in frames if (one := frame.row.level(level)) is not None]
    if not any(isinstance(limit, int) for limit in found):
        said.append("no limit is set at this level" if "unlimited" in found else "its limit could not be read")
    times = [at for curve in curves for at, value in curve.points if at < 0 and value is not None]
    if times and -max(times) > _WORTH_SAYING_SECONDS:
        said.append(f"last reading {human_seconds(-max(times))} before the end")
    return said
