"""From a model's history to the evidence that the judge takes. Each reading says why, where it is unknown.

Progress of the serving loop is told by beats: one named "loop", or "loop." and anything, is the serving loop's own and
its silence counts, and beside it no other beat: an event loop that goes on accepting, or a thread that counts what it
is asked, says nothing of the loop that serves. Where there is none, `asyncio` is the tick of the main thread's event
loop, while one runs, and any other (requests, tokens) shows progress where it moves; an idle server has none to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guard.model import BoxState, Known, Operation, OperationKind, Reading, Unknown, Why
from sidecar.detect.squeeze import measure
from sidecar.health.values import HealthEvidence, InFlight, Pressure, Progress
from sidecar.history import Begun, History, Point, ProcessPoint, Signal, Work
from sidecar.sample import ProcessSample, Sample
from sidecar.units import human_share

KERNEL_WINDOW_SECONDS: Final = 5.0
"""At 400 IOPS a stalled process still serves thousands of faults in this time."""
LOOP_WINDOW_SECONDS: Final = 10.0
"""A loop that ticks more than once a second and thrashes was late by 2 s at worst; ten is a standstill."""

_TICKS_PER_SECOND: Final = 100  # USER_HZ, part of the ABI on every architecture but alpha and ia64
_LEAST_PER_SECOND: Final = {
    Work.CPU_TICKS: 0.02 * _TICKS_PER_SECOND,  # 2 % of a core: more than heartbeat threads take
    Work.MAJOR_FAULTS: 5.0,
    Work.READ_BYTES: float(256 << 10),
}
_STOPPED: Final = frozenset("Tt")
_STATES: Final = {
    "T": "is stopped by a signal (T)",
    "t": "is stopped by a debugger (t)",
    "D": "waits in the kernel, mostly for a disk (D)",
    "Z": "has a first thread that ended; others may run on (Z)",
}
_US: Final = 1e6
_THROTTLED_US_PER_SECOND: Final = 0.1 * _US  # summed over CPUs; below a tenth nobody notices
_LEAST_RSS_CHANGE: Final = 1 << 20  # bytes over the window, either way


def gather(history: History) -> HealthEvidence:
    """Derive all evidence of the latest instant."""
    sample = history.latest
    main = next((one for one in sample.processes if one.main), None)
    squeeze = measure(history)
    loop_progress, declared = _loop_progress(history)
    begun = sorted(history.points[-1].begun, key=lambda one: one.operation.updated_monotonic_s, reverse=True)
    return HealthEvidence(
        at=sample.at,
        alive=Unknown(Why.HIDDEN, "the main process") if main is None else Known(main.alive),
        probe=sample.probe,
        probe_in_flight_since=sample.probe_in_flight_since,
        pressure=squeeze if isinstance(squeeze, Unknown) else _pressure(squeeze.value.pressure, squeeze.value.missing),
        pressure_because=() if isinstance(squeeze, Unknown) else squeeze.value.because,
        kernel_progress=_kernel_progress(history),
        loop_progress=loop_progress,
        heard_late=sample.probe_heard_late,
        loop_moved=_loop_moved(history),
        loop_declared=declared,
        in_flight=tuple(_in_flight(history, one) for one in begun),
        engines=_engines(sample),
        loaded=tuple(one.life.session for one in sample.processes if one.alive and _has_loaded(one.box)),
        stopped=_state_of(main) in _STOPPED,
        notes=tuple(_notes(history, main)),
        session=None if main is None else main.life.session,
        removed=bool(sample.levels) and sample.levels[0].gone,
    )


def holds_model(box: Reading[BoxState]) -> bool:
    """Tell an engine from a helper: it reports beats of its own, or its black box knows of a load."""
    beats = () if isinstance(box, Unknown) else box.value.beats
    return _has_loaded(box) or any(not _is_of_guard(one.name) for one in beats)


def _has_loaded(box: Reading[BoxState]) -> bool:
    return isinstance(box, Known) and any(one.kind is not OperationKind.BUSY for one in box.value.operations)


def _is_of_guard(name: str) -> bool:
    """Tell the beats that the guard makes unasked in whatever runs an event loop."""
    return name.partition(".")[0] == "asyncio"


def _engines(sample: Sample) -> tuple[str, ...]:
    boxes = [one.box for one in sample.processes if one.alive and not one.main and holds_model(one.box)]
    return tuple(box.value.parent_session for box in boxes if isinstance(box, Known) and box.value.parent_session)


def _state_of(process: ProcessSample | None) -> str:
    return process.stat.value.state if process is not None and isinstance(process.stat, Known) else ""


def _notes(history: History, main: ProcessSample | None) -> Iterator[str]:
    """Say what explains a missing answer, and excuses none: states of the main process, and a CPU limit."""
    state = _state_of(main)
    if state in _STATES:
        yield f"the main process {_STATES[state]}"
    level = next(iter(history.latest.levels), None)
    if level is None:
        return
    throttled = history.level_rate(level.id, Signal.CPU_THROTTLED_US, KERNEL_WINDOW_SECONDS)
    if isinstance(throttled, Known) and throttled.value.per_second >= _THROTTLED_US_PER_SECOND:
        share = human_share(throttled.value.per_second / _US)
        yield f"held back by its CPU limit for {share} of the last {KERNEL_WINDOW_SECONDS:.0f} s"


def _pressure(pressure: Pressure, missing: tuple[Unknown, ...]) -> Reading[Pressure]:
    """No sign of pressure with an input missing is not the same as none."""
    return missing[0] if missing and pressure is Pressure.NONE else Known(pressure)


def _sessions(sample: Sample) -> tuple[str, ...]:
    return tuple(one.life.session for one in sample.processes if one.alive)


def _kernel_progress(history: History) -> Reading[Progress]:
    """MOVING as soon as one counter of one process moves; STILL only where CPU time of all could be read."""
    blind: Unknown | None = None
    sessions = _sessions(history.latest)
    for session in sessions:
        for work, least in _LEAST_PER_SECOND.items():
            rate = history.work_rate(session, work, KERNEL_WINDOW_SECONDS)
            if isinstance(rate, Known) and rate.value.per_second >= least:
                return Known(Progress.MOVING)
            if isinstance(rate, Unknown) and work is Work.CPU_TICKS:
                blind = rate
        if _rss_moved(history, session):
            return Known(Progress.MOVING)
    if not sessions:
        return Unknown(Why.HIDDEN, "processes of the model")
    return Known(Progress.STILL) if blind is None else blind


def _rss_moved(history: History, session: str) -> bool:
    window = history.window(KERNEL_WINDOW_SECONDS)
    then, now = window[0].process(session), window[-1].process(session)
    if then is None or now is None:
        return False
    before, after = then.reading(Work.RSS_BYTES), now.reading(Work.RSS_BYTES)
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        return False
    return abs(after.value - before.value) >= _LEAST_RSS_CHANGE


def _loop_progress(history: History) -> tuple[Reading[Progress], bool]:
    """Say whether the serving loop turns, and whether it is known for the serving loop."""
    window = history.window(LOOP_WINDOW_SECONDS)
    declared, ticking = _declares_loop(window[-1]), False
    for process in window[-1].processes:
        then = next((found for point in window[:-1] if (found := point.process(process.session)) is not None), None)
        if then is not None and _beat_since(then, process, declared=declared):
            return Known(Progress.MOVING), declared
        ticking = ticking or process.beats.get("asyncio.begun", 0) > process.beats.get("asyncio.ended", 0)
    if not declared and not ticking:
        return Unknown(Why.MISSING, "beat named loop", None, "the server reports no loop tokens"), False
    if not history.covers(LOOP_WINDOW_SECONDS):
        return Unknown(Why.NOT_SAMPLED, "beat named loop", None, "not watched for long enough"), declared
    return Known(Progress.STILL), declared


def _loop_moved(history: History) -> bool:
    before, now = history.points[-2:][0], history.points[-1]
    declared = _declares_loop(now)
    both = ((before.process(process.session), process) for process in now.processes)
    return any(then is not None and _beat_since(then, process, declared=declared) for then, process in both)


def _declares_loop(point: Point) -> bool:
    return any(_is_loop(name) for process in point.processes for name in process.beats)


def _beat_since(then: ProcessPoint, process: ProcessPoint, *, declared: bool) -> bool:
    """Tell whether a beat rose that counts: of a declared loop its own alone."""
    counts = ((name, beats) for name, beats in process.beats.items() if _is_loop(name) or not declared)
    return any(beats > then.beats.get(name, 0) for name, beats in counts)


def _is_loop(name: str) -> bool:
    return name == "loop" or name.startswith("loop.")


def _in_flight(history: History, begun: Begun) -> InFlight:
    session, label, started_s = begun.key
    return InFlight(f"{session} {label} {started_s}", begun.operation, _operation_progress(history, begun))


def _operation_progress(history: History, begun: Begun) -> Reading[Progress]:
    """MOVING if it began within the window or says something new; its silence proves nothing by itself."""
    window = history.window(LOOP_WINDOW_SECONDS)
    then = next((one for one in window[0].begun if one.key == begun.key), None)
    if len(window) > 1 and (then is None or _words(then.operation) != _words(begun.operation)):
        return Known(Progress.MOVING)
    if not history.covers(LOOP_WINDOW_SECONDS):
        return Unknown(Why.NOT_SAMPLED, "operation in flight", None, "not watched for long enough")
    return Known(Progress.STILL)


def _words(operation: Operation) -> tuple[str | None, int | None, float]:
    return operation.item, operation.bytes_done, operation.updated_monotonic_s
