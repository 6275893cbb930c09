"""The answer in words that fit a headline: what ended it, whose doing it was, how sure that is."""

from __future__ import annotations

from typing import Final

from sidecar.outputs.shape import iso
from sidecar.report import rows
from sidecar.report.charts_memory import ABOVE, OWN
from sidecar.report.rows import Document, Row
from sidecar.report.story import Opinion, Statement, Verdict, Weight
from sidecar.units import human_bytes
from sidecar.verdict.values import Confidence, EndClass

_HEADLINES: Final[dict[EndClass, tuple[str, Weight]]] = {
    EndClass.CGROUP_OOM: ("A memory limit killed it", Weight.BAD),
    EndClass.GLOBAL_OOM: ("The node ran out of memory and killed it", Weight.BAD),
    EndClass.USERSPACE_OOM: ("A memory watchdog of the node killed it", Weight.BAD),
    EndClass.GPU_ALLOCATION_FAILURE: ("The GPU had no memory left for it", Weight.BAD),
    EndClass.HOST_ALLOCATION_FAILURE: ("It was refused memory of the host", Weight.BAD),
    EndClass.SHM_EXHAUSTED: ("Shared memory (/dev/shm) was full", Weight.BAD),
    EndClass.HEALTH_CHECK: ("Its health check had it stopped", Weight.BAD),
    EndClass.EVICTION: ("Kubernetes evicted it", Weight.WARNING),
    EndClass.DELETION: ("It was deleted or replaced on purpose", Weight.PLAIN),
    EndClass.DEVICE_RESET: ("Its GPU failed", Weight.BAD),
    EndClass.CRASH_SIGNAL: ("It crashed", Weight.BAD),
    EndClass.APPLICATION_EXIT: ("It ended by itself", Weight.PLAIN),
    EndClass.EXTERNAL_KILL: ("Somebody else killed it", Weight.WARNING),
    EndClass.UNKNOWN: ("Why it ended is not known", Weight.WARNING),
}

_WHOSE: Final[dict[EndClass, str]] = {
    EndClass.GLOBAL_OOM: "no limit of a group: the memory of the whole node",
    EndClass.USERSPACE_OOM: "no limit of the kernel: a daemon of the node that acts before the kernel does",
    EndClass.GPU_ALLOCATION_FAILURE: "the memory of the GPU",
    EndClass.HOST_ALLOCATION_FAILURE: "no limit of a group: the address space or the node's overcommit rule",
    EndClass.SHM_EXHAUSTED: "the size of /dev/shm",
    EndClass.HEALTH_CHECK: "no memory limit: the patience of a probe (timeout and number of failures)",
    EndClass.EVICTION: "the node's eviction threshold",
    EndClass.DELETION: "nobody's limit: it was asked to go",
    EndClass.DEVICE_RESET: "no limit: the card or its driver",
    EndClass.CRASH_SIGNAL: "no memory limit: a fault inside the process",
    EndClass.APPLICATION_EXIT: "no memory limit: the server's own decision",
    EndClass.EXTERNAL_KILL: "no memory limit: a signal from outside",
    EndClass.UNKNOWN: "it cannot be told",
}

_BY_MEMORY: Final = (EndClass.GLOBAL_OOM, EndClass.USERSPACE_OOM, EndClass.UNKNOWN)

_SURENESS: Final[dict[Confidence, str]] = {
    Confidence.HIGH: "the evidence decides",
    Confidence.MEDIUM: "strong but indirect evidence",
    Confidence.LOW: "a best guess",
}


def verdict(document: Document, last: Row | None) -> Verdict:
    """Say the verdict. `last` is the last row before the end, which knows the levels."""
    headline, tone = _HEADLINES[document.end_class]
    return Verdict(
        end_class=document.end_class.value,
        tone=tone,
        headline=headline if document.main else f"A child process ended: {headline[:1].lower()}{headline[1:]}",
        summary=document.summary,
        confidence=f"{document.confidence.value} confidence",
        confidence_words=_SURENESS[document.confidence],
        whose=_whose(document, last),
        group=document.level,
        steps=document.next_steps,
        supporting=tuple(Statement(one.text, one.source) for one in document.evidence if one.supports),
        against=tuple(Statement(one.text, one.source) for one in document.evidence if not one.supports),
        missing=document.missing,
        history=tuple(_opinion(one) for one in document.history),
    )


def _opinion(one: rows.Opinion) -> Opinion:
    return Opinion(
        at=one.at if isinstance(one.at, str) else iso(one.at),
        verdict=f"{one.end_class}, {one.confidence} confidence",
        summary=one.summary,
        because=one.because,
    )


def _whose(document: Document, last: Row | None) -> str:
    if document.end_class is not EndClass.CGROUP_OOM:
        kills = document.count("oom_kills")
        counted = kills and document.end_class not in _BY_MEMORY
        return _WHOSE[document.end_class] + (f"; but its group counted OOM kills ({kills})" if counted else "")
    limit = document.count("limit_bytes")
    return f"{_group(document, last)}{'' if limit is None else f': {human_bytes(limit)}'}"


def _group(document: Document, last: Row | None) -> str:
    if document.level is None:
        return "a group above those that can be seen from here"
    if last is None or not last.levels:
        return "a group that the record knows by name alone"
    return OWN if document.level == last.levels[0].name else ABOVE
