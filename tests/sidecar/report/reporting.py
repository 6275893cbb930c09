"""Pieces of a record for the report: rows, documents and events in the shapes of docs/record.md and docs/http.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sidecar.record.reading import EventRow
from sidecar.report import rows
from sidecar.report.frames import Frame
from sidecar.report.story import Story
from sidecar.report.tell import Material, tell

MIB = 1 << 20
END_S = 1000.0
WALL_S = 1.7e9
OWN = "/pod/llm"
LIMIT = 400 * MIB


def level(name: str = OWN, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Make one level of v2, whose kinds of memory sum up to what is in use."""
    stat = {"anon": 200 * MIB, "file": 110 * MIB, "shmem": 10 * MIB, "file_mapped": 60 * MIB, "kernel": 5 * MIB}
    return {
        "name": name,
        "version": 2,
        "current": 320 * MIB,
        "max": LIMIT,
        "high": "unlimited",
        "unreclaimable": 215 * MIB,
        "events": {"oom_kill": 0},
        "stat": stat | {"pgmajfault": 0, "workingset_refault_file": 0, "workingset_refault_anon": 0},
        "memory_psi": {"some_us": 0, "full_us": 0},
        "io_psi": {"some_us": 0, "full_us": 0},
    } | changes


def row(at_s: float, *levels: Mapping[str, Any], **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Make one tick, `at_s` seconds from the end."""
    return {
        "wall_s": WALL_S + at_s,
        "monotonic_s": END_S + at_s,
        "sight": "handover",
        "levels": list(levels or (level(),)),
        "node": {"MemTotal": 8192 * MIB, "MemAvailable": 6000 * MIB},
        "processes": [{"pid": 42, "main": True, "alive": at_s < 0}],
        "state": "ok",
    } | changes


def frame(at_s: float, *levels: Mapping[str, Any], **changes: Any) -> Frame:  # noqa: ANN401 - JSON
    """Make one tick on the clock of the end."""
    read = rows.row(row(at_s, *levels, **changes))
    assert read is not None
    return Frame(at_s, read)


def document(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Make an incident: killed at its own limit."""
    return {
        "id": "0123456789abcdef",
        "model": "llm",
        "class": "cgroup_oom",
        "confidence": "high",
        "level": OWN,
        "at": "2026-11-30T13:05:22.076Z",
        "wall_s": WALL_S,
        "monotonic_s": END_S,
        "verdict_after_seconds": 0.03,
        "summary": "The kernel killed the model: out of memory at its own limit /pod/llm (400.0 MiB)",
        "main": True,
        "life": {"boot_id": "b", "pid": 42, "start_ticks": 7, "session": "0123456789abcdef"},
        "fields": {"signal": "SIGKILL", "exit_code": None, "limit_bytes": LIMIT, "unreclaimable_bytes": 398 * MIB},
        "evidence": [
            {"for": True, "text": "oom_kill rose from 0 to 1", "source": "memory.events of /pod/llm"},
            {"for": False, "text": "the node had room", "source": "/proc/meminfo"},
        ],
        "missing": ["kernel log: /dev/kmsg: denied (EPERM)"],
        "next": ["raise the memory limit of the model's container above 400.0 MiB", "load without copies"],
    } | changes


def event(at_s: float, kind: str, text: str = "", **changes: Any) -> EventRow:  # noqa: ANN401 - JSON
    """Make an event of the model; `fields` and `boot_id` may be given."""
    given: dict[str, Any] = {"model": "llm", "boot_id": "b", "fields": {}} | changes
    return EventRow(id=1, wall_s=WALL_S + at_s, monotonic_s=END_S + at_s, kind=kind, text=text, **given)


def story(
    ticks: Iterable[Mapping[str, Any]],
    *events: EventRow,
    seconds: float = 60.0,
    **changes: Any,  # noqa: ANN401 - JSON
) -> Story:
    """Tell the end of `document(**changes)` from these ticks and events."""
    read = rows.document(document(**changes))
    assert read is not None
    return tell(Material(document=read, rows=ticks, events=events, meta={"kernel": "6.12"}, seconds=seconds))
