"""Later evidence joins what is known of an end already. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

from guard.box.faults import NativeFault
from guard.kernel.values import KmsgRecord
from guard.model import BoxState, Known, Reading, Unknown, Why
from sidecar.verdict.supervisor_values import SupervisorEnd
from sidecar.verdict.values import ChildEnd, EndEvidence, GpuEvent, WaitStatus

T = TypeVar("T")

_NOT_KEPT: Final = Unknown(Why.NOT_SAMPLED, "memory.stat", detail="not kept")
_NONE: Final = Unknown(Why.NOT_SAMPLED, "later evidence")
_AFTER_SECONDS: Final = 5.0
"""Records of the kernel log that are younger than this after an end are not about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """What came later; unknown or empty where nothing did."""

    wait_status: Reading[WaitStatus] = _NONE
    sigterm_wall_s: float | None = None
    runner_kills: tuple[int, int] | None = None
    box: Reading[BoxState] = _NONE
    fault: Reading[NativeFault] = _NONE
    kmsg: Reading[tuple[KmsgRecord, ...]] = _NONE
    gpu: tuple[GpuEvent, ...] = ()
    children: tuple[ChildEnd, ...] = ()
    supervisor: tuple[SupervisorEnd, ...] = ()


_WORDS: Final = {
    "wait_status": "how it ended became known",
    "sigterm_wall_s": "its runner told of a SIGTERM",
    "runner_kills": "its runner told of OOM kills",
    "box": "its black box said more",
    "fault": "it left the trace of a native fault",
    "kmsg": "the kernel log said more",
    "gpu": "a GPU failed",
    "children": "the end of one of its processes was told",
}


def joined(evidence: EndEvidence, later: Later) -> EndEvidence:
    """Put later evidence in. What was known stays known: nothing later takes a reading back."""
    return replace(
        evidence,
        wait_status=_newer(evidence.wait_status, later.wait_status),
        sigterm_wall_s=evidence.sigterm_wall_s if later.sigterm_wall_s is None else later.sigterm_wall_s,
        runner_kills=evidence.runner_kills if later.runner_kills is None else later.runner_kills,
        box=_newer(evidence.box, later.box),
        fault=_newer(evidence.fault, later.fault),
        kmsg=_more_records(evidence, later.kmsg),
        gpu=(*evidence.gpu, *(one for one in later.gpu if one not in evidence.gpu)),
        children=_children(evidence.children, later.children),
        supervisor=_supervisors(evidence.supervisor, later.supervisor),
    )


def lean(evidence: EndEvidence) -> EndEvidence:
    """Leave out what no rule looks at, and takes half the place: memory.stat at the end."""
    levels = tuple(
        replace(pair, after=replace(pair.after, memory=replace(pair.after.memory, stat=_NOT_KEPT)))
        for pair in evidence.levels
    )
    return replace(evidence, levels=levels)


def because(before: EndEvidence, after: EndEvidence) -> str:
    """Say in words what is new."""
    new = [words for name, words in _WORDS.items() if getattr(before, name) != getattr(after, name)]
    told = [one for one in after.supervisor if one not in before.supervisor]
    return "; ".join([*new, *(f"{one.source} told of it" for one in told)])


def is_one_end(one: SupervisorEnd, other: SupervisorEnd) -> bool:
    """Whether two words of one supervisor are about one end: more may be known of it meanwhile."""
    times = (one.finished_wall_s, other.finished_wall_s)
    return one.source == other.source and (None in times or times[0] == times[1])


def _children(known: tuple[ChildEnd, ...], later: tuple[ChildEnd, ...]) -> tuple[ChildEnd, ...]:
    newer = {one.incident for one in later}
    return (*(one for one in known if one.incident not in newer), *later)


def _newer(old: Reading[T], new: Reading[T]) -> Reading[T]:
    return old if isinstance(new, Unknown) else new


def _supervisors(known: tuple[SupervisorEnd, ...], later: tuple[SupervisorEnd, ...]) -> tuple[SupervisorEnd, ...]:
    """Let the newer word of a supervisor replace the older one; reasons that were given stay."""
    for new in later:
        old = next((one for one in known if is_one_end(one, new)), None)
        words = () if old is None else tuple(word for word in old.words if word not in new.words)
        known = (*(one for one in known if one is not old), replace(new, words=(*words, *new.words)))
    return known


def _more_records(evidence: EndEvidence, later: Reading[tuple[KmsgRecord, ...]]) -> Reading[tuple[KmsgRecord, ...]]:
    known = evidence.kmsg
    if isinstance(later, Unknown):
        return known
    until_us = (evidence.ended.monotonic_s + _AFTER_SECONDS) * 1e6
    timely = tuple(one for one in later.value if one.timestamp_us <= until_us)
    if isinstance(known, Unknown):
        return Known(timely)
    last = max((one.sequence for one in known.value), default=-1)
    return Known((*known.value, *(one for one in timely if one.sequence > last)))
