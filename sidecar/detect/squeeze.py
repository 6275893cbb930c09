"""How hard the kernel works to find memory for the model: nothing, reclaim or thrash, with the numbers behind it.

Theory
    * Stall time is the difference of a pressure file's `total` over 1, 5 and 10 s. The averages that the kernel prints
      lag by 2 s and more, and a model that died of growth never moved avg10 at all.
    * Memory pressure alone misses a class of thrash: it follows pages that had been active. Mapped weights read at
      random from a slow disk gave 50,000 refaults a second and io.pressure full 40 with memory.pressure full 0.5
      (kernel 6.12). So io stalls count as memory pressure where evicted pages are being read again (refaults).
      Without refaults an io stall is only a slow disk.
    * Without pressure files (PSI off, cgroup v1 without the v2 tree) refaults with major faults still tell reclaim,
      never thrash: they count faults, not the time that they cost.
    * A short window needs a higher share: 0.1 s of stall in one second is everyday noise.
    * The model's own level is enough: its tasks stall there, whichever ancestor's limit is the cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guard.model import Known, Reading, Unknown, Why
from sidecar.health.values import Pressure
from sidecar.history import History, Signal
from sidecar.sample import LevelId, SightKind
from sidecar.units import human_seconds, human_share


@dataclass(frozen=True, slots=True)
class Window:
    """Shares of wall time stalled in a window from which on it is reclaim (some task) or thrash (all tasks)."""

    seconds: float
    reclaim_some: float
    thrash_full: float


WINDOWS: Final = (Window(1.0, 0.30, 0.50), Window(5.0, 0.10, 0.20), Window(10.0, 0.10, 0.20))
"""Measured: 700 MiB of weights mapped below a 256 MiB limit gave some 0.22, full 0.14, and /health a p99 of 1 s."""
REFAULTS_PER_SECOND: Final = 100.0
"""Evicted pages read again. A cache that merely turns over has few; each thrash measured had 300 to 50,000."""
MAJOR_FAULTS_PER_SECOND: Final = 100.0
"""Faults that waited for the disk; at 0.1 to 10 ms each a serving thread notices a hundred."""
HEAVY_REFAULTS_PER_SECOND: Final = 2000.0
HEAVY_MAJOR_FAULTS_PER_SECOND: Final = 10.0
"""With readahead one fault brings in 32 pages and more: eight threads on mapped weights in a container without pressure
files (cgroup v1) gave 130,000 refaults and 90 to 110 major faults a second, and answers took seconds."""
HIGH_EVENTS_PER_SECOND: Final = 1.0
"""memory.high throttling; used where no pressure file says what it costs."""
_FAULT_WINDOW: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Squeeze:
    """What was measured: the `share` (of wall time stalled, 0 where faults told it) over `window_seconds`.

    `missing`: pressure files that could not be read, so that faults alone had to tell.
    """

    pressure: Pressure
    because: tuple[str, ...]
    share: float
    threshold: float
    window_seconds: float
    missing: tuple[Unknown, ...]


@dataclass(frozen=True, slots=True)
class _Sign:
    """One number that speaks for pressure."""

    pressure: Pressure
    text: str
    share: float
    threshold: float
    window_seconds: float


def measure(history: History) -> Reading[Squeeze]:
    """Measure the model's own level. Unknown when it is not seen, or neither stalls nor faults can be read."""
    if not history.latest.levels or history.latest.sight is SightKind.OWN:
        return Unknown(Why.HIDDEN, "the model's cgroup")
    level = history.latest.levels[0].id
    faults = _faults(history, level)
    stalls, blind = _stalls(history, level, thrashing_disk=isinstance(faults, Known) and faults.value.refaulting)
    if blind and isinstance(faults, Unknown):
        return blind[0]
    signs = list(stalls)
    if isinstance(faults, Known) and faults.value.sign is not None:
        signs.append(faults.value.sign)
    if blind:
        signs.extend(_high(history, level))
    return Known(_worst(signs, blind))


def _worst(signs: list[_Sign], missing: tuple[Unknown, ...]) -> Squeeze:
    thrash = [one for one in signs if one.pressure is Pressure.THRASH]
    because = tuple(one.text for one in (thrash or signs))
    if not signs:
        return Squeeze(
            pressure=Pressure.NONE, because=(), share=0.0, threshold=0.0, window_seconds=0.0, missing=missing
        )
    worst = max(thrash or signs, key=lambda one: one.share)
    return Squeeze(
        pressure=worst.pressure,
        because=because,
        share=worst.share,
        threshold=worst.threshold,
        window_seconds=worst.window_seconds,
        missing=missing,
    )


_MEMORY: Final = (Signal.MEMORY_SOME_US, Signal.MEMORY_FULL_US)
_IO: Final = (Signal.IO_SOME_US, Signal.IO_FULL_US)


def _stalls(history: History, level: LevelId, *, thrashing_disk: bool) -> tuple[tuple[_Sign, ...], tuple[Unknown, ...]]:
    """Give the signs in the pressure files, and what of memory.pressure cannot be read."""
    signs: list[_Sign] = []
    blind: tuple[Unknown, ...] = ()
    for window in WINDOWS:
        for some, full in (_MEMORY, _IO) if thrashing_disk else (_MEMORY,):
            found = _share(history, level, some, window.seconds)
            if isinstance(found, Unknown):
                blind = (found,) if some is Signal.MEMORY_SOME_US else blind
            elif found.value >= window.reclaim_some:
                signs.append(_sign(Pressure.RECLAIM, some, found.value, window))
            stalled = _share(history, level, full, window.seconds)
            if isinstance(stalled, Known) and stalled.value >= window.thrash_full:
                signs.append(_sign(Pressure.THRASH, full, stalled.value, window))
    return tuple(signs), blind


def _sign(pressure: Pressure, signal: Signal, share: float, window: Window) -> _Sign:
    threshold = window.thrash_full if pressure is Pressure.THRASH else window.reclaim_some
    text = f"{signal}: stalled {human_share(share)} of the last {human_seconds(window.seconds)}"
    return _Sign(pressure, text, share, threshold, window.seconds)


def _share(history: History, level: LevelId, signal: Signal, seconds: float) -> Reading[float]:
    """Divide by the whole window also where less was watched: what is not known to be stall is not counted as stall."""
    rate = history.level_rate(level, signal, seconds)
    return rate if isinstance(rate, Unknown) else Known(rate.value.delta / 1e6 / max(seconds, rate.value.seconds))


@dataclass(frozen=True, slots=True)
class _Faults:
    refaulting: bool
    sign: _Sign | None


def _faults(history: History, level: LevelId) -> Reading[_Faults]:
    refaults = history.level_rate(level, Signal.REFAULTS, _FAULT_WINDOW)
    if isinstance(refaults, Unknown):
        return refaults
    refaulting = refaults.value.per_second >= REFAULTS_PER_SECOND
    faults = history.level_rate(level, Signal.MAJOR_FAULTS, _FAULT_WINDOW)
    if not refaulting or isinstance(faults, Unknown):
        return Known(_Faults(refaulting, None))
    heavy = refaults.value.per_second >= HEAVY_REFAULTS_PER_SECOND
    if faults.value.per_second < (HEAVY_MAJOR_FAULTS_PER_SECOND if heavy else MAJOR_FAULTS_PER_SECOND):
        return Known(_Faults(refaulting, None))
    text = (
        f"{refaults.value.per_second:.0f} evicted pages a second read again, "
        f"{faults.value.per_second:.0f} major faults a second"
    )
    return Known(_Faults(refaulting, _Sign(Pressure.RECLAIM, text, 0.0, 0.0, refaults.value.seconds)))


def _high(history: History, level: LevelId) -> tuple[_Sign, ...]:
    rate = history.level_rate(level, Signal.HIGH_EVENTS, _FAULT_WINDOW)
    if isinstance(rate, Unknown) or rate.value.per_second < HIGH_EVENTS_PER_SECOND:
        return ()
    text = f"throttled at memory.high {rate.value.per_second:.1f} times a second"
    return (_Sign(Pressure.RECLAIM, text, 0.0, 0.0, rate.value.seconds),)
