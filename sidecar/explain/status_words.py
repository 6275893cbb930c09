"""What the state of a container says of its end, and how far it can be trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from sidecar.explain.ends import end_fields
from sidecar.explain.sizes import SIZE, size
from sidecar.explain.values import Clock, Field, Role, Sign, Stamp, against, seen
from sidecar.verdict.values import Confidence, EndClass

_FIRST_YEAR: Final = 1971
"""Go's zero time is the year 1: never started, never finished."""
_FLAG_LOST: Final = (datetime(2015, 11, 1, tzinfo=UTC), datetime(2016, 4, 13, tzinfo=UTC))
"""Docker 1.9 and 1.10 left OOMKilled false on real OOM kills; 1.11 came out on the second date."""
SEVERAL_LINES: Final = "(several lines)"
"""Stands for a folded value: the end of the server's log, put there where it wrote no message of its own."""
_KILLED: Final = 137
_WHO_DELETED: Final = ("who deleted the pod: audit log, rollout status, events of its owner",)
_FEW_RESTARTS: Final = 2
_INVENTED: Final = ("containerstatusunknown", "unknown")
"""Of the kubelet, and of containerd for what ended while it did not run itself."""
CONTAINER: Final = re.compile(r"[0-9a-f]{64}")
_ORDERLY: Final = ("completed",)


@dataclass(slots=True)
class Block:
    """The `key: value` lines of one state, keys in lower case without blanks."""

    head: str
    file: str
    line: int
    container: str | None = None
    pairs: dict[str, str] = field(default_factory=dict)
    where: dict[str, int] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    instance: str | None = None  # the container id before it
    is_of_instance: bool = False  # it is the state of that very container, not of the one before it


def sign_of(block: Block, around: Mapping[str, str]) -> Sign | None:
    """Judge one state; None where nothing ended."""
    running = _runs(block)
    code = None if running else _number(block.pairs.get("exitcode"))
    flag = {"true": True, "false": False}.get(block.pairs.get("oomkilled", "").lower())
    reason = _reason(block)
    if (code is None and flag is not True and reason is None) or (running and not flag and block.head == "State"):
        return None
    if code == 0 and not flag and (reason is None or reason.lower() in _ORDERLY):
        return None
    started, finished = _time(block, "started", "startedat"), _time(block, "finished", "finishedat")
    fields = _fields(block, around, (started, finished))
    end_class, confidence, summary, missing = _judge(fields, _repeated(block, around), finished)
    if end_class in (EndClass.UNKNOWN, EndClass.EXTERNAL_KILL) and _deleted(block, around, finished):
        end_class, confidence, missing = EndClass.DELETION, Confidence.HIGH, _WHO_DELETED
        summary = "the pod was being deleted, and its container told to stop" + (
            "; it did not within its grace period, and was killed" if code == _KILLED else ""
        )
    if end_class is None:
        return None
    evidence = [seen(_said(fields), block.file, block.where.get("exitcode", block.line))]
    if end_class is EndClass.CGROUP_OOM and code == 0:
        evidence.append(
            against("exit code 0: the main process ended by itself, only a child was killed", block.file, block.line)
        )
    return Sign(
        role=Role.END,
        source="container state",
        file=block.file,
        line=block.line,
        end_class=end_class,
        confidence=confidence,
        subject="state",
        summary=summary,
        stamp=finished,
        keys=_keys(block, around),
        fields=fields,
        evidence=tuple(evidence),
        missing=missing,
    )


def _deleted(block: Block, around: Mapping[str, str], finished: Stamp | None) -> bool:
    """Tell whether the end came after somebody asked for the deletion: its time is the request's plus the grace."""
    if "deletiontimestamp" not in around or block.head == "Last State":
        return False
    due = time_of(around["deletiontimestamp"])
    grace = _number(around.get("deletiongraceperiodseconds")) or 0
    return due is None or finished is None or finished.seconds >= due.seconds - grace - 1


def _reason(block: Block) -> str | None:
    """Give the word that names the end; Azure's container instances call it a detail."""
    return block.pairs.get("reason") or block.pairs.get("detailstatus") or None


def _runs(block: Block) -> bool:
    """Tell a state of a container that lives: its exit code 0 is none."""
    return block.pairs.get("running", "").lower() == "true" or block.pairs.get("status", "").lower() == "running"


def _fields(block: Block, around: Mapping[str, str], times: tuple[Stamp | None, Stamp | None]) -> dict[str, Field]:
    pairs = block.pairs
    started, finished = times
    lived = None if started is None or finished is None else finished.seconds - started.seconds
    reason = _reason(block)
    synthetic = reason is not None and reason.lower() in _INVENTED
    code = None if _runs(block) else _number(pairs.get("exitcode"))
    ended = end_fields(code=code)
    restarts = _number(block.after.get("restartcount") or around.get("restartcount"))
    return {
        "exit_code": code,
        "signal": ended["signal"],
        "signal_number": ended["signal_number"],
        "reason": reason,
        "message": pairs.get("message"),
        "message_is_log_tail": True if pairs.get("message") == SEVERAL_LINES else None,
        "pod_status": around.get("podstatus"),
        "oom_killed_flag": {"true": True, "false": False}.get(pairs.get("oomkilled", "").lower()),
        "exit_code_synthetic": True if synthetic else None,
        "started": None if started is None else started.text,
        "finished": None if finished is None else finished.text,
        "duration_s": None if lived is None or lived < 0 else round(lived, 1),
        "restarts": restarts,
        "container": block.container,
        "memory_limit_bytes": _limit(block.after.get("memory")),
    }


_REASONS: Final = {
    "Evicted": (EndClass.EVICTION, Confidence.HIGH, "the pod was evicted"),
    "DeadlineExceeded": (EndClass.DELETION, Confidence.HIGH, "the pod ran past its deadline and was stopped"),
}


def _judge(
    fields: Mapping[str, Field], repeated: str | None, finished: Stamp | None
) -> tuple[EndClass | None, Confidence, str, tuple[str, ...]]:
    """Give class, confidence, summary and what is missing."""
    code, flag, reason = fields["exit_code"], fields["oom_killed_flag"], str(fields["reason"] or "")
    kernel = ("the kernel log of the node, for the limit that was hit and the victim",)
    if flag or reason.replace(" ", "") == "OOMKilled":
        sure = Confidence.HIGH if code == _KILLED else Confidence.MEDIUM
        return EndClass.CGROUP_OOM, sure, "the runtime says that the container was killed at its memory limit", kernel
    if reason in _REASONS:
        return (*_REASONS[reason], ())
    if reason.lower() in _INVENTED:
        words = "the container was lost; its exit code is made up"
        return (
            EndClass.UNKNOWN,
            Confidence.LOW,
            words,
            ("what happened to the node then: its journal, and events of the pod",),
        )
    if code is None:
        return None, Confidence.LOW, "", ()
    if code == _KILLED:
        return _sigkill(fields, repeated, finished)
    ended = end_fields(code=code if isinstance(code, int) else None)
    return EndClass(str(ended["end_class"])), Confidence(str(ended["confidence"])), str(ended["summary"]), ()


def _sigkill(
    fields: Mapping[str, Field], repeated: str | None, finished: Stamp | None
) -> tuple[EndClass, Confidence, str, tuple[str, ...]]:
    """Judge exit code 137 with no reason: SIGKILL by anybody. Two things make an OOM the best guess, never sure."""
    missing = (
        "who sent SIGKILL: oom_kill in memory.events of the container, and the kernel log of the node at that moment",
        "whether a probe or a deletion stopped it: events of the pod",
    )
    lost = (
        finished is not None
        and fields["oom_killed_flag"] is False
        and _FLAG_LOST[0].timestamp() <= finished.seconds < _FLAG_LOST[1].timestamp()
    )
    if lost:
        words = "ended by SIGKILL; OOMKilled=false means nothing on Docker of that time (1.9 and 1.10 lost the flag)"
        return EndClass.CGROUP_OOM, Confidence.LOW, words, missing
    if fields["reason"] is None and fields["oom_killed_flag"] is None and repeated is not None:
        words = f"ended by SIGKILL again and again ({repeated}) and no reason is given: most likely its memory limit"
        return EndClass.CGROUP_OOM, Confidence.LOW, words, missing
    return EndClass.UNKNOWN, Confidence.LOW, "ended by SIGKILL (exit code 137), which alone does not say why", missing


def _repeated(block: Block, around: Mapping[str, str]) -> str | None:
    restarts = _number(block.after.get("restartcount") or around.get("restartcount"))
    return f"{restarts} restarts" if restarts is not None and restarts >= _FEW_RESTARTS else None


def _said(fields: Mapping[str, Field]) -> str:
    names = {"exit_code": "exit code", "reason": "reason", "oom_killed_flag": "OOMKilled", "duration_s": "lived (s)"}
    return ", ".join(f"{word} {fields[name]}" for name, word in names.items() if fields[name] is not None)


def _keys(block: Block, around: Mapping[str, str]) -> frozenset[str]:
    keys = set()
    if block.container:
        keys.add(f"name:{block.container}")
    for told in (
        block.pairs.get("id") or block.after.get("id") or around.get("id"),
        block.pairs.get("containerid") or (block.instance if block.is_of_instance else None),
    ):
        if (found := CONTAINER.search(told or "")) is not None:
            keys.add(f"container:{found[0]}")
    found = re.fullmatch(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", around.get("uid", ""))
    return frozenset(keys | ({f"pod:{found[0]}"} if found else set()))


def _number(text: str | None) -> int | None:
    found = re.fullmatch(r"-?\d{1,10}", (text or "").strip())
    return None if found is None else int(found[0])


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isdigit():
        return int(text) or None
    return size(text) if re.fullmatch(SIZE, text) else None


def _time(block: Block, *names: str) -> Stamp | None:
    return time_of(next((block.pairs[name] for name in names if name in block.pairs), ""))


def time_of(text: str) -> Stamp | None:
    """Read a time as RFC 3339 or RFC 1123 (`kubectl describe`). The zero time is none."""
    try:
        found = re.match(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(\.\d{1,9})?\d*\s?(Z|[+-]\d\d:?\d\d)?", text)
        if re.search(r"\b0001\b", text[:20]):
            return None  # parsedate would take the year 1 for 2001
        if found:
            moment = datetime.fromisoformat(found[1] + (found[3] or "Z").replace("Z", "+00:00"))
            seconds = moment.timestamp() + float(found[2] or 0)
        else:
            moment = parsedate_to_datetime(text)
            seconds = moment.timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return Stamp(text, Clock.WALL, seconds) if moment.year >= _FIRST_YEAR else None
