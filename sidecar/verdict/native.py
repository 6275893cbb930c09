"""The rules for signals of the process's own making, with the trace that its faulthandler left."""

from __future__ import annotations

import signal
from typing import Final

from guard.box.faults import NativeFault
from guard.model import Known
from sidecar.verdict.draft import Draft
from sidecar.verdict.facts import SENT, Facts, signal_name
from sidecar.verdict.values import Confidence, EndClass, Statement
from sidecar.verdict.words import failure_statements, in_flight_words, process_words, status_statements

_TOP_FRAMES: Final = 3
_SHARED: Final = (
    *("multiprocessing/shared_memory.py", "multiprocessing/heap.py", "multiprocessing/sharedctypes.py"),
    *("torch/multiprocessing/reductions.py", "torch/storage.py"),
)
"""Frames that fill memory which processes share. Every worker as such runs through multiprocessing/process.py."""


def shm_exhausted(facts: Facts) -> Draft | None:
    """Blame a full /dev/shm for a bus error while shared memory was being filled."""
    fault = facts.fault
    shared = fault is not None and any(part in frame for frame in fault.stack for part in _SHARED)
    if facts.signal != signal.SIGBUS or fault is None or not shared:
        return None
    return Draft(
        end_class=EndClass.SHM_EXHAUSTED,
        confidence=Confidence.MEDIUM,
        summary=f"{process_words(facts)} crashed with SIGBUS while it filled shared memory, in {fault.stack[-1]}: "
        f"most likely /dev/shm was full{in_flight_words(facts.in_flight)}",
        statements=(*status_statements(facts), *_trace(fault)),
    )


def crash_signal(facts: Facts) -> Draft | None:
    """Blame the process itself: a signal for what it did, or the trace of one as the last word there is."""
    if facts.signal in SENT or (facts.signal is None and not _is_last_word(facts)):
        return None
    fault = facts.fault
    name = fault.error if facts.signal is None and fault is not None else signal_name(facts.signal or 0)
    where = "" if fault is None or not fault.stack else f" in {fault.stack[-1]}"
    return Draft(
        end_class=EndClass.CRASH_SIGNAL,
        confidence=Confidence.HIGH if facts.signal is not None else Confidence.MEDIUM,
        summary=f"{process_words(facts)} crashed with {name}{where}{in_flight_words(facts.in_flight)}",
        statements=(*status_statements(facts), *(() if fault is None else _trace(fault)), *failure_statements(facts)),
    )


def _is_last_word(facts: Facts) -> bool:
    """Whether a trace is all there is to say how it ended: no status, and no word of the interpreter afterwards."""
    box = facts.evidence.box
    orderly = isinstance(box, Known) and box.value.exit_mark is not None
    return facts.is_unseen and facts.fault is not None and not orderly and facts.sigterm_seconds is None


def _trace(fault: NativeFault) -> tuple[Statement, ...]:
    frames = " < ".join(reversed(fault.stack[-_TOP_FRAMES:]))
    text = f"its faulthandler wrote: {fault.error}" + (f", in {frames}" if frames else "")
    return (Statement(supports=True, text=text, source="trace of the native fault"),)
