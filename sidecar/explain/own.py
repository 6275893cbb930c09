"""What oomguard itself wrote into the logs that are read: the guard's failures, the sidecar's verdicts.

A verdict that was refined is told again under the same incident: the last line of it counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sidecar.explain.patterns import quote
from sidecar.explain.values import Field, Line, Role, Sign, part_keys, seen
from sidecar.verdict.facts import class_of_failure
from sidecar.verdict.values import Confidence, EndClass

RECORD: Final = re.compile(
    r'"event":\s?"(?:oomguard\.failure|(?:model_ended|child_ended|verdict_refined)"(?=.*"incident":\s?"))'
)
"""In a line of JSON that is read here, whole."""
WORDS: Final = ("oomguard.failure", "model_ended", "child_ended", "verdict_refined")
_SIZES: Final = ("requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_bytes")


class OwnParser:
    """Feed it lines that hold one of `WORDS`, then take `finish`."""

    def __init__(self) -> None:
        self._failures: list[Sign] = []
        self._verdicts: dict[str, Sign] = {}

    def feed(self, line: Line) -> bool:
        """Take one line; tell whether it is one of ours."""
        found = RECORD.search(line.text)
        value = {} if found is None else _value(line.text)
        if not value:
            return False
        if value.get("event") == "oomguard.failure":
            self._failures.append(_failure(line, value))
        else:
            self._verdicts[str(value.get("incident"))] = _verdict(line, value)
        return True

    def finish(self) -> list[Sign]:
        """Give the signs."""
        return [*self._failures, *self._verdicts.values()]


def _value(text: str) -> Mapping[str, Any]:
    try:
        value, _end = json.JSONDecoder().raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _failure(line: Line, value: Mapping[str, Any]) -> Sign:
    """Read a failure: its class by its kind; one that is not about memory is how the program ended."""
    kind, said = str(value.get("kind", "")), str(value.get("message", ""))
    name = value.get("exception") or kind or "a failure"
    return Sign(
        role=Role.CAUSE,
        source="oomguard guard",
        file=line.file,
        line=line.number,
        end_class=class_of_failure(kind) or EndClass.APPLICATION_EXIT,
        confidence=Confidence.MEDIUM if value.get("fatal") is False else Confidence.HIGH,
        subject="guard",
        summary=f"the server failed with {name}" + (f": {quote(said)}" if said else ""),
        stamp=line.stamp,
        keys=part_keys(line.part),
        fields=_plain(value, ("kind", "exception", "thread", "device", *_SIZES)),
        evidence=(seen(quote(line.text), line.file, line.number),),
        missing=("whether and how the process ended afterwards: exit code or container state",),
        next_steps=(value["do"],) if isinstance(value.get("do"), str) else (),
    )


def _verdict(line: Line, value: Mapping[str, Any]) -> Sign:
    """Read a verdict as it was told."""
    pid, end_class, confidence = value.get("pid"), str(value.get("class")), str(value.get("confidence"))
    return Sign(
        role=Role.CAUSE,
        source="oomguard sidecar",
        file=line.file,
        line=line.number,
        end_class=EndClass(end_class) if end_class in {one.value for one in EndClass} else EndClass.UNKNOWN,
        confidence=Confidence(confidence) if confidence in {one.value for one in Confidence} else Confidence.LOW,
        subject="sidecar",
        summary=str(value.get("text", "")),
        stamp=line.stamp,
        keys=part_keys(line.part),
        pids=frozenset((pid,) if isinstance(pid, int) else ()),
        fields=_plain(value, ("model", "cgroup", "incident", "main")),
        evidence=(seen(quote(line.text), line.file, line.number),),
        next_steps=("`oomguard report INCIDENT` shows the evidence, from the sidecar's record",),
    )


def _plain(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Field]:
    return {name: value[name] for name in names if isinstance(value.get(name), (str, int, float))}
